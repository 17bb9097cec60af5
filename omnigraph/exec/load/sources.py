"""Input files of a bulk load: found by path, folder, glob or URI; read as lines or as columns.

Invariant: the parts of an input are in a fixed order and each can be read by itself, in another
process too. A part of a text file owns the lines that begin inside it (byte-range split).
"""

import glob
import os
import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import pyarrow as pa
import pyarrow.fs as pfs
import pyarrow.parquet as pq

from omnigraph.catalog.near_paths import near_path
from omnigraph.costs import COSTS
from omnigraph.errors import BadRequest, NotFound, StorageFailed
from omnigraph.exec.load.decode import LINE_BYTES_MAX, LineBlock
from omnigraph.exec.load.files import Options, is_remote, opened
from omnigraph.exec.load.lines import line_count
from omnigraph.exec.load.text_cells import CsvRows, csv_delimiter, csv_rows
from omnigraph.storage.lance.foreign import look_at, read_batches

Format = Literal["json", "csv", "parquet", "orc", "lance", "records"]
_FORMATS: dict[str, Format] = {
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".orc": "orc",
    ".lance": "lance",
}
_SPREADSHEETS = {".xlsx", ".xls", ".ods"}
_COMPRESSED = {".gz", ".bz2", ".zst", ".lz4"}
_WHAT_TO_GIVE = "give a file, a folder or a pattern that matches one"
_ROW_BYTES = 100  # of a row of a Lance dataset, roughly


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the input: a file, a byte range of its lines, or some of its row groups."""

    index: int
    file: str
    format: Format
    size: int
    start: int = 0
    end: int | None = None  # None: to the end of the file
    row_groups: tuple[int, ...] | None = None  # of Parquet; fragments of Lance
    first: int = 1  # number of its first line or row, as far as known
    label: str | None = None  # what errors call the file
    options: Options = ()  # how to reach the file
    version: int | None = None  # Lance only

    @property
    def is_compressed(self) -> bool:
        return PurePosixPath(self.file).suffix in _COMPRESSED


def find_files(
    source: str | os.PathLike[str] | Sequence[Any], options: Options = ()
) -> tuple[Part, ...]:
    """The files that a path, a folder, a pattern or a list of these names, in name order."""
    sources = [source] if isinstance(source, str | os.PathLike) else source
    files = [file for each in sources for file in _files(os.fspath(each), options)]
    return tuple(
        Part(
            index,
            where(name),
            file_format(name),
            size,
            label=name,
            options=options,
            version=version,
        )
        for index, (name, size, version) in enumerate(files)
    )


def where(name: str) -> str:
    """A name that means the same file in every process of this machine."""
    return name if is_remote(name) else os.path.abspath(name.removeprefix("file://"))


FileFacts = tuple[str, int, int | None]
"""Name and size of a file, and the version of a Lance dataset."""


def _files(name: str, options: Options) -> Iterator[FileFacts]:
    if PurePosixPath(name).suffix == ".lance":
        yield _lance(name, options)
        return
    if is_remote(name):
        yield from _remote(name, options)
        return
    path = name.removeprefix("file://")
    if os.path.isdir(path):
        matches = [str(p) for p in Path(path).rglob("*") if p.is_file() and _is_data(p)]
    elif os.path.exists(path):
        matches = [path]
    else:
        matches = [m for m in glob.glob(path, recursive=True) if _is_data(Path(m))]
    if not matches:
        near = "" if os.path.isdir(path) or glob.has_magic(path) else near_path(path)
        raise NotFound("input file", name, near or _WHAT_TO_GIVE)
    for match in sorted(matches):
        if PurePosixPath(match).suffix == ".lance":
            yield _lance(match, options)
        else:
            yield match, Path(match).stat().st_size, None


def _lance(name: str, options: Options) -> FileFacts:
    path = name.removeprefix("file://")
    if not is_remote(name) and not Path(path).is_dir():
        raise NotFound("input file", name, near_path(path) or "a Lance dataset is a folder")
    version, fragments = look_at(path, dict(options) or None)
    return path, sum(fragments.values()) * _ROW_BYTES, version


def _remote(name: str, options: Options) -> Iterator[FileFacts]:
    files, path = opened(name, options)
    scheme = name.split("://", 1)[0]
    is_pattern = any(sign in path for sign in "*?[")
    plain = takewhile(lambda part: not any(sign in part for sign in "*?["), path.split("/"))
    base = "/".join(plain) if is_pattern else path
    try:
        info = files.get_file_info(base)
        if is_pattern or info.type == pfs.FileType.Directory:
            every = files.get_file_info(pfs.FileSelector(base, recursive=True))
            inside = [f for f in every if f.type == pfs.FileType.File and _is_data(Path(f.path))]
            matches = [f for f in inside if not is_pattern or fnmatch(f.path, path)]
            for each in sorted(matches, key=lambda f: f.path):
                yield f"{scheme}://{each.path}", each.size, None
            if matches:
                return
    except OSError as cause:
        raise StorageFailed(f"looked for {name}", str(cause)) from cause
    if info.type != pfs.FileType.File:
        raise NotFound("input file", name, _WHAT_TO_GIVE)
    yield name, info.size, None


def _is_data(path: Path) -> bool:
    return not path.name.startswith((".", "_"))


def file_format(name: str) -> Format:
    """The format that the name of a file says; lines of JSON if it says none."""
    path = PurePosixPath(name)
    suffix = PurePosixPath(path.stem).suffix if path.suffix in _COMPRESSED else path.suffix
    if suffix.lower() in _SPREADSHEETS:
        raise BadRequest(f"'{name}' is a spreadsheet", "save it as CSV with the encoding UTF-8")
    return _FORMATS.get(suffix, "json")


# Reading lines


def blocks(part: Part, *, block_bytes: int | None = None) -> Iterator[LineBlock]:
    """The lines of a part, many at a time; a line that is too long comes alone, cut off."""
    line = part.first
    for data in _whole_lines(part, block_bytes or COSTS.line_block_bytes):
        yield LineBlock(data, line, part.index, part.label)
        line += max(1, line_count(data) + (not data.endswith(b"\n")))


def _whole_lines(part: Part, block_bytes: int) -> Iterator[bytes]:
    with file_stream(part) as stream:
        begin = part.start
        if begin:
            # The line that begins before this part belongs to the part before.
            stream.seek(begin - 1)
            skipped, buffer = _skip_line(stream)
            begin += skipped - 1
            if part.end is not None and begin >= part.end:
                return
        else:
            buffer = b""
        yield from _cut(stream, buffer, begin, part.end, block_bytes)


def _cut(
    stream: Any, buffer: bytes, begin: int, end: int | None, block_bytes: int
) -> Iterator[bytes]:
    """Blocks of the lines that begin before `end`. `buffer` was read already, from `begin` on."""
    while True:
        stop = _stop(buffer, begin, end)
        if stop is not None:
            yield buffer[:stop]
            return
        cut = buffer.rfind(b"\n") + 1
        if cut:
            yield buffer[:cut]
            begin, buffer = begin + cut, buffer[cut:]
        if len(buffer) > LINE_BYTES_MAX:
            yield b"x" * len(buffer) + b"\n"
            skipped, rest = _skip_line(stream)
            begin, buffer = begin + len(buffer) + skipped, rest
            if end is not None and begin >= end:
                return
            continue
        chunk = _read(stream, block_bytes)
        if not chunk:
            break
        buffer += chunk
    if buffer:
        yield buffer


def _stop(buffer: bytes, begin: int, end: int | None) -> int | None:
    """The offset after the last line of a part, if that line ends in the buffer."""
    if end is None or begin + len(buffer) < end:
        return None
    newline = buffer.find(b"\n", max(end - 1 - begin, 0))
    return newline + 1 if newline >= 0 else None


def _skip_line(stream: Any) -> tuple[int, bytes]:
    """Read past the next line end: the bytes skipped, and what was read beyond it."""
    skipped = 0
    while True:
        chunk = _read(stream, 1 << 20)
        newline = chunk.find(b"\n")
        if newline >= 0:
            return skipped + newline + 1, chunk[newline + 1 :]
        skipped += len(chunk)
        if not chunk:
            return skipped, b""


def file_stream(part: Part) -> Any:
    """The bytes of a part's file, as they were before they were compressed."""
    files, path = opened(part.file, part.options)
    try:
        if part.is_compressed:
            return files.open_input_stream(path, compression="detect")
        return files.open_input_file(path)
    except FileNotFoundError:
        raise NotFound(
            "input file", part.label or part.file, "it was there when the load began"
        ) from None
    except OSError as cause:
        raise StorageFailed(f"opened {part.file}", str(cause)) from cause


def _read(stream: Any, count: int) -> bytes:
    try:
        return bytes(stream.read(count))
    except OSError as cause:
        raise StorageFailed("read the input", str(cause)) from cause


# Reading columns


def tables(part: Part) -> Iterator[pa.Table]:
    """The columns of a part, a batch of rows at a time."""
    if part.format == "lance":
        yield from _lance_tables(part)
        return
    with _told_unreadable(part), file_stream(part) as stream:
        yield from _tables(part, stream)


def text_rows(part: Part) -> Iterator[CsvRows]:
    """The rows of a CSV file, a batch at a time. Cells are text."""
    with _told_unreadable(part):
        yield from csv_rows(
            lambda: file_stream(part), csv_delimiter(part.file), part.label or part.file
        )


@contextmanager
def _told_unreadable(part: Part) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as cause:
        text = f"cannot read {part.file} as {part.format}: {cause}"
        raise BadRequest(text, "correct the file; nothing was written") from cause


def _lance_tables(part: Part) -> Iterator[pa.Table]:
    assert part.version is not None
    options = dict(part.options) or None
    fragments = part.row_groups
    if fragments is None:
        fragments = tuple(look_at(part.file, options)[1])
    for batch in read_batches(part.file, part.version, fragments, options):
        yield pa.Table.from_batches([batch])


def _tables(part: Part, stream: Any) -> Iterator[pa.Table]:
    match part.format:
        case "parquet":
            file = pq.ParquetFile(stream)
            groups = part.row_groups
            if not file.metadata.num_rows:
                yield file.schema_arrow.empty_table()
            for batch in file.iter_batches(
                batch_rows(_parquet_bytes(file), file.metadata.num_rows),
                row_groups=None if groups is None else list(groups),
            ):
                yield pa.Table.from_batches([batch])
        case "orc":
            orc = __import__("pyarrow.orc").orc
            file = orc.ORCFile(stream)
            if not file.nstripes:
                yield file.schema.empty_table()
            for stripe in range(file.nstripes):
                yield pa.Table.from_batches([file.read_stripe(stripe)])
        case _:
            raise BadRequest(f"{part.file} holds no columns")


def batch_rows(size_bytes: int, rows: int) -> int:
    """How many rows are decoded at a time: fewer where they are wide, because memory follows the
    batches under way."""
    width = max(1, size_bytes // max(1, rows))
    return max(
        COSTS.input_batch_rows_min,
        min(COSTS.input_batch_rows_max, COSTS.input_batch_bytes_max // width),
    )


def _parquet_bytes(file: pq.ParquetFile) -> int:
    facts = file.metadata
    return sum(facts.row_group(n).total_byte_size for n in range(facts.num_row_groups))


# Records given as Python objects, pickled for another process


class _RecordPickler(pickle.Pickler):
    """Pickles views of bytes as bytes: a view has no form outside of its process."""

    def reducer_override(self, obj: Any) -> Any:
        return (bytes, (obj.tobytes(),)) if isinstance(obj, memoryview) else NotImplemented


def write_records(path: Path, records: tuple[Any, ...]) -> None:
    """Pickle records; `read_records` gives them back. `BadRequest` for what no other process can
    be told."""
    try:
        with path.open("wb") as file:
            _RecordPickler(file).dump(records)
    except (TypeError, AttributeError, pickle.PicklingError) as cause:
        raise BadRequest(
            f"a record cannot be handed to another process: {cause}",
            'give plain values, or load with engine="local"',
        ) from None


def read_records(part: Part) -> tuple[Any, ...]:
    """The objects that `write_records` wrote."""
    records: tuple[Any, ...] = pickle.loads(Path(part.file).read_bytes())
    return records
