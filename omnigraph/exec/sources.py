"""Where bulk data comes from: files, folders, patterns, and tables at hand.

Invariant: the parts of an input are in a fixed order and each can be read by itself, in another
process too. A part of a text file owns the lines that begin inside it.
"""

import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.fs as pfs
import pyarrow.parquet as pq

from omnigraph.errors import BadRequest, NotFound, StorageFailed
from omnigraph.exec.decode import LINE_BYTES_MAX, Block

Format = Literal["json", "csv", "parquet", "orc"]
_FORMATS: dict[str, Format] = {
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".orc": "orc",
}
_COMPRESSED = {".gz", ".bz2", ".zst", ".lz4"}
_BLOCK_BYTES = 8 << 20
_BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class Part:
    """Something to read: a file, or the lines that begin between two of its bytes."""

    index: int
    file: str
    format: Format
    size: int
    start: int = 0
    end: int | None = None  # None: to the end of the file
    row_groups: tuple[int, ...] | None = None  # Parquet only
    first_row: int = 1  # of a Parquet part

    @property
    def is_compressed(self) -> bool:
        return PurePosixPath(self.file).suffix in _COMPRESSED


def find_files(source: str | os.PathLike[str] | Sequence[Any]) -> tuple[Part, ...]:
    """The files that a path, a folder, a pattern or a list of these names, in name order."""
    sources = [source] if isinstance(source, str | os.PathLike) else source
    files = [file for each in sources for file in _files(os.fspath(each))]
    return tuple(Part(index, name, _format(name), size) for index, (name, size) in enumerate(files))


def _files(name: str) -> Iterator[tuple[str, int]]:
    if "://" in name and not name.startswith("file://"):
        yield from _remote(name)
        return
    path = name.removeprefix("file://")
    if Path(path).is_dir():
        matches = [str(p) for p in Path(path).rglob("*") if p.is_file() and _is_data(p)]
    elif Path(path).exists():
        matches = [path]
    else:
        matches = [m for m in glob.glob(path, recursive=True) if _is_data(Path(m))]
    if not matches:
        raise NotFound("input file", name, "give a file, a folder or a pattern that matches one")
    for match in sorted(matches):
        yield match, Path(match).stat().st_size


def _remote(name: str) -> Iterator[tuple[str, int]]:
    files, path = _opened(name)
    scheme = name.split("://", 1)[0]
    try:
        found = files.get_file_info(path)
        if found.type == pfs.FileType.Directory:
            every = files.get_file_info(pfs.FileSelector(path, recursive=True))
            inside = [f for f in every if f.type == pfs.FileType.File and _is_data(Path(f.path))]
            for each in sorted(inside, key=lambda f: f.path):
                yield f"{scheme}://{each.path}", each.size
            return
    except OSError as cause:
        raise StorageFailed(f"looked for {name}", str(cause)) from cause
    if found.type != pfs.FileType.File:
        raise NotFound("input file", name)
    yield name, found.size


def _is_data(path: Path) -> bool:
    return not path.name.startswith((".", "_"))


def _format(name: str) -> Format:
    path = PurePosixPath(name)
    suffix = PurePosixPath(path.stem).suffix if path.suffix in _COMPRESSED else path.suffix
    return _FORMATS.get(suffix, "json")


def _opened(name: str) -> tuple[pfs.FileSystem, str]:
    if "://" in name and not name.startswith("file://"):
        files, path = pfs.FileSystem.from_uri(name)
        return files, path
    return pfs.LocalFileSystem(), name.removeprefix("file://")


# Reading lines


def blocks(part: Part, *, block_bytes: int = _BLOCK_BYTES) -> Iterator[Block]:
    """The lines of a part, many at a time; a line that is too long comes alone, cut off."""
    line = 1
    for data in _whole_lines(part, block_bytes):
        yield Block(data, line, part.index, part.file)
        line += max(1, data.count(b"\n") + (not data.endswith(b"\n")))


def _whole_lines(part: Part, block_bytes: int) -> Iterator[bytes]:
    with _stream(part) as stream:
        left = _Left(None if part.end is None else part.end - part.start)
        if part.start:
            # The line that begins before this part is the one before's.
            stream.seek(part.start - 1)
            _, rest = _to_newline(stream, left, skip_first=True)
            if rest is None:
                return
            held = rest
        else:
            held = b""
        yield from _cut(stream, held, left, block_bytes)


@dataclass(slots=True)
class _Left:
    """How many bytes of the part are not read yet; None: all there are."""

    bytes: int | None


def _to_newline(stream: Any, left: _Left, *, skip_first: bool) -> tuple[bytes, bytes | None]:
    """Read past the next line end: what lies before it, and what was read after it."""
    before = b""
    while True:
        piece = _read(stream, 64 << 10)
        if not piece:
            return before, None
        at = piece.find(b"\n")
        used = len(piece) if at < 0 else at + 1
        # The byte before the part is read too, to see whether the part begins a line.
        if left.bytes is not None:
            left.bytes -= used - (1 if skip_first and not before else 0)
        before += piece[:used][:1] if skip_first else piece[:used]
        if at >= 0:
            if left.bytes is not None and left.bytes <= 0:
                return before, None
            if left.bytes is not None:
                left.bytes -= len(piece) - used
            return before, piece[used:]


def _cut(stream: Any, held: bytes, left: _Left, block_bytes: int) -> Iterator[bytes]:
    """Blocks of whole lines. After the part's last byte the line that it cuts is read to its end,
    and what follows is dropped."""
    overrun = 0
    while True:
        if left.bytes is not None and left.bytes <= 0:
            yield from _last(stream, held, -left.bytes)
            return
        piece = _read(stream, block_bytes)
        if not piece:
            if held:
                yield held
            return
        if left.bytes is not None:
            left.bytes -= len(piece)
        held += piece
        if left.bytes is not None and left.bytes <= 0:
            continue
        at = held.rfind(b"\n") + 1
        if at:
            yield held[:at]
            held = held[at:]
        if len(held) > LINE_BYTES_MAX:
            overrun = len(held)
            held = _skip_line(stream, left)
            yield b"x" * overrun + b"\n"


def _last(stream: Any, held: bytes, over: int) -> Iterator[bytes]:
    """The end of a part: `over` bytes of what is held lie after it."""
    limit = len(held) - over
    # A line that begins at the limit is the next part's.
    at = held.find(b"\n", max(limit - 1, 0))
    while at < 0:
        piece = _read(stream, 64 << 10)
        if not piece:
            break
        seen = len(held)
        held += piece
        at = held.find(b"\n", seen)
        if len(held) > 2 * LINE_BYTES_MAX:
            break
    kept = held if at < 0 else held[: at + 1]
    if kept:
        yield kept


def _skip_line(stream: Any, left: _Left) -> bytes:
    while True:
        piece = _read(stream, 1 << 20)
        if left.bytes is not None:
            left.bytes -= len(piece)
        at = piece.find(b"\n")
        if at >= 0 or not piece:
            return piece[at + 1 :]


def _stream(part: Part) -> Any:
    files, path = _opened(part.file)
    try:
        if part.is_compressed:
            return files.open_input_stream(path, compression="detect")
        return files.open_input_file(path)
    except FileNotFoundError:
        raise NotFound("input file", part.file, "it was there when the load began") from None
    except OSError as cause:
        raise StorageFailed(f"opened {part.file}", str(cause)) from cause


def _read(stream: Any, count: int) -> bytes:
    try:
        return bytes(stream.read(count))
    except OSError as cause:
        raise StorageFailed("read the input", str(cause)) from cause


# Reading columns


def tables(part: Part) -> Iterator[pa.Table]:
    """The columns of a part, some rows at a time. CSV gives text alone."""
    try:
        with _stream(part) as stream:
            yield from _tables(part, stream)
    except (pa.ArrowException, OSError) as cause:
        text = f"cannot read {part.file} as {part.format}: {cause}"
        raise BadRequest(text, "correct the file; nothing was written") from cause


def _tables(part: Part, stream: Any) -> Iterator[pa.Table]:
    match part.format:
        case "parquet":
            file = pq.ParquetFile(stream)
            groups = part.row_groups
            for batch in file.iter_batches(
                _BATCH_ROWS, row_groups=None if groups is None else list(groups)
            ):
                yield pa.Table.from_batches([batch])
        case "csv":
            yield from _csv(part, stream)
        case "orc":
            orc = __import__("pyarrow.orc").orc
            file = orc.ORCFile(stream)
            for stripe in range(file.nstripes):
                yield pa.Table.from_batches([file.read_stripe(stripe)])
        case _:
            raise BadRequest(f"{part.file} holds no columns")


def _csv(part: Part, stream: Any) -> Iterator[pa.Table]:
    delimiter = "\t" if ".tsv" in PurePosixPath(part.file).suffixes else ","
    parse = pv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    head = pv.open_csv(stream, parse_options=parse)
    names = head.schema.names
    head.close()
    with _stream(part) as again:
        reader = pv.open_csv(
            again,
            parse_options=parse,
            convert_options=pv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.utf8()),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        for batch in reader:
            yield pa.Table.from_batches([batch])
