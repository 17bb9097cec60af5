"""Block files: Arrow blocks of many key sets and buckets in one file, with an index at its end.

    block │ block │ … │ index (JSON) │ length of the index, 8 bytes

Invariant: a file is complete once it has its name, and never changes. Whoever has the name can read
one bucket of it without reading the others; the name says nothing of the buckets, so a list of
files does not grow with them.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from uuid import uuid4

import orjson
import pyarrow as pa

from omnigraph.costs import COSTS
from omnigraph.errors import StorageFailed
from omnigraph.exec.load.files import Options, is_remote, opened
from omnigraph.exec.threads import in_order

_ALIGNED = 64  # Arrow maps what is aligned, and copies the rest
_LENGTH_BYTES = 8
_INDEXES_MAX = 4_096
_FETCHED_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class BlockFile:
    """The name of a block file, with its rows by key set and its size."""

    path: str
    rows: tuple[tuple[str, int], ...]
    bytes: int
    options: Options = ()


def write_blocks(
    path: str, blocks: Iterable[tuple[str, int, pa.Table]], options: Options = ()
) -> BlockFile:
    """Write blocks by key set and bucket as one file."""
    if is_remote(path):
        files, name = opened(path, options)
        try:
            with files.open_output_stream(name) as sink:
                rows = _written(sink, blocks)
                size = sink.tell()
        except OSError as cause:
            raise StorageFailed(f"wrote {path}", str(cause)) from cause
        return BlockFile(path, rows, size, options)
    unfinished = f"{path}.{os.getpid()}"
    with pa.OSFile(unfinished, "wb") as sink:
        rows = _written(sink, blocks)
        size = sink.tell()
    Path(unfinished).replace(path)
    return BlockFile(path, rows, size)


def _written(
    sink: pa.NativeFile, blocks: Iterable[tuple[str, int, pa.Table]]
) -> tuple[tuple[str, int], ...]:
    index: list[tuple[str, int, int, int]] = []
    rows: Counter[str] = Counter()
    for name, bucket, table in blocks:
        start = sink.tell()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        index.append((name, bucket, start, sink.tell() - start))
        rows[name] += table.num_rows
        sink.write(bytes(-sink.tell() % _ALIGNED))
    tail = orjson.dumps(index)
    sink.write(tail)
    sink.write(len(tail).to_bytes(_LENGTH_BYTES, "little"))
    return tuple(rows.items())


def read_blocks(files: Iterable[BlockFile], name: str, bucket: int) -> pa.Table | None:
    """One bucket of a key set from all its files, in their order."""
    tables = [
        table for file in files if name in dict(file.rows) for table in _of(file, name, bucket)
    ]
    return pa.concat_tables(tables) if tables else None


def _of(file: BlockFile, name: str, bucket: int) -> Iterator[pa.Table]:
    spans = _index(file).get((name, bucket), ())
    if not spans:
        return
    with _opened(file) as source:
        for start, length in spans:
            source.seek(start)
            yield read_block(source.read_buffer(length))


def fetched(files: Sequence[BlockFile], folder: Path) -> list[BlockFile]:
    """The files with those of an object store copied to a folder, to be mapped from there."""
    return list(in_order(partial(_fetched, folder), files, threads=_FETCHED_AT_ONCE))


def _fetched(folder: Path, file: BlockFile) -> BlockFile:
    if not is_remote(file.path):
        return file
    path = folder / uuid4().hex
    files, name = opened(file.path, file.options)
    try:
        with files.open_input_stream(name) as source, path.open("wb") as target:
            while chunk := source.read(COSTS.block_copy_bytes):
                target.write(chunk)
    except OSError as cause:
        raise StorageFailed(f"read {file.path}", str(cause)) from cause
    return BlockFile(str(path), file.rows, file.bytes)


def read_block(data: pa.Buffer) -> pa.Table:
    """The rows of one block."""
    return pa.ipc.open_stream(data).read_all()


def block_bytes(file: BlockFile) -> Iterator[tuple[str, int, pa.Buffer]]:
    """Every block of a file as it is, in order, with its key set and bucket."""
    spans = [(span, *key) for key, of_key in _index(file).items() for span in of_key]
    with _opened(file) as source:
        for (start, length), name, bucket in sorted(spans):
            source.seek(start)
            yield name, bucket, source.read_buffer(length)


@lru_cache(_INDEXES_MAX)
def _index(file: BlockFile) -> dict[tuple[str, int], list[tuple[int, int]]]:
    with _opened(file) as source:
        size = source.size()
        source.seek(size - _LENGTH_BYTES)
        length = int.from_bytes(source.read(_LENGTH_BYTES), "little")
        source.seek(size - _LENGTH_BYTES - length)
        entries = orjson.loads(source.read(length))
    spans: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for name, bucket, start, count in entries:
        spans.setdefault((name, bucket), []).append((start, count))
    return spans


def _opened(file: BlockFile) -> pa.NativeFile:
    if not is_remote(file.path):
        return pa.memory_map(file.path)
    files, name = opened(file.path, file.options)
    return files.open_input_file(name)
