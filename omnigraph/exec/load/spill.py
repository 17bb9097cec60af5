"""Spill files: tables of keys, hash-partitioned into buckets and written to disk when they grow.

Invariant: rows that are equal in the `by` columns of their key set are in the same bucket, in every
process. So a rule can be checked bucket by bucket, and the memory it takes follows the bucket.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa

from omnigraph.exec.values.buckets import bucket_numbers

ORIGIN = "__origin"
"""Column with the origin of a row: its part of the input and its line there, in one number."""

_PART_SHIFT = 36
_MEMORY_BYTES_MAX = 64 << 20


@dataclass(frozen=True, slots=True)
class KeySet:
    """A named set of key columns, and the columns whose hash chooses the bucket."""

    name: str
    columns: tuple[str, ...]
    by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeyFile:
    """A file with rows of one bucket of a key set."""

    name: str
    bucket: int
    path: str
    rows: int


@dataclass(frozen=True, slots=True)
class Cut:
    """Rows of a key set, partitioned into buckets."""

    name: str
    by_bucket: tuple[tuple[int, pa.Table], ...]
    bytes: int


def cut(keys: KeySet, rows: pa.Table, buckets: int) -> Cut:
    """Partition rows into buckets. Pure: safe to call from several threads."""
    if not rows.num_rows:
        return Cut(keys.name, (), 0)
    # Schema metadata goes: rows of one key set come from tables and from input.
    rows = pa.Table.from_arrays(rows.columns, names=rows.column_names)
    return Cut(keys.name, tuple(_cut(rows, keys.by, buckets)), rows.nbytes)


def origins(part: int, lines: pa.Array) -> pa.Array:
    """The origin of each line of a part."""
    return pa.array(lines.to_numpy() + (part << _PART_SHIFT))


def part_and_line(origin: int) -> tuple[int, int]:
    """The part and the line that an origin stands for."""
    return origin >> _PART_SHIFT, origin & ((1 << _PART_SHIFT) - 1)


@dataclass(slots=True)
class Spill:
    """Key sets that grow by rows. Small ones stay in memory unless `flush` is called."""

    folder: Path
    buckets: int = 1
    memory_bytes_max: int = _MEMORY_BYTES_MAX
    files: list[KeyFile] = field(default_factory=list)
    _buffered: dict[tuple[str, int], list[pa.Table]] = field(default_factory=dict)
    _bytes: int = 0

    def add(self, keys: KeySet, rows: pa.Table) -> None:
        """More rows of a key set."""
        self.take(cut(keys, rows, self.buckets))

    def take(self, rows: Cut) -> None:
        """More rows of a key set, cut into as many buckets as there are here."""
        for bucket, table in rows.by_bucket:
            self._buffered.setdefault((rows.name, bucket), []).append(table)
        self._bytes += rows.bytes
        if self._bytes > self.memory_bytes_max:
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows to disk."""
        for (name, bucket), tables in self._buffered.items():
            table = pa.concat_tables(tables)
            path = str(self.folder / f"{uuid4().hex}.arrow")
            write_rows(path, table)
            self.files.append(KeyFile(name, bucket, path, table.num_rows))
        self._buffered.clear()
        self._bytes = 0

    @property
    def is_on_disk(self) -> bool:
        """Whether nothing is buffered, so that other processes can read it all."""
        return not self._buffered

    def read(self, name: str, bucket: int) -> pa.Table | None:
        """One bucket of a key set; None when it has no rows."""
        buffered = self._buffered.get((name, bucket), [])
        stored = read_keys(self.files, name, bucket)
        tables = buffered if stored is None else [stored, *buffered]
        return pa.concat_tables(tables) if tables else None

    def every(self, name: str) -> pa.Table | None:
        """All buckets of a key set at once; for sets that are known to be small."""
        tables = [t for t in (self.read(name, b) for b in range(self.buckets)) if t is not None]
        return pa.concat_tables(tables) if tables else None

    def rows(self, name: str) -> int:
        """How many rows a key set has."""
        buffered = (t.num_rows for (n, _), ts in self._buffered.items() if n == name for t in ts)
        return int(sum(buffered)) + sum(file.rows for file in self.files if file.name == name)


def read_keys(files: Iterable[KeyFile], name: str, bucket: int) -> pa.Table | None:
    """One bucket of a key set from its files."""
    paths = [f.path for f in files if f.name == name and f.bucket == bucket]
    return pa.concat_tables([read_rows(path) for path in paths]) if paths else None


def write_rows(path: str, rows: pa.Table) -> None:
    """Write a table as an Arrow file, atomically: another process sees it whole or not at all."""
    unfinished = f"{path}.{os.getpid()}"
    with pa.OSFile(unfinished, "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_table(rows)
    Path(unfinished).replace(path)


def read_rows(path: str) -> pa.Table:
    """A table that `write_rows` wrote."""
    with pa.memory_map(path) as file:
        return pa.ipc.open_file(file).read_all()


def _cut(rows: pa.Table, by: Sequence[str], buckets: int) -> Iterator[tuple[int, pa.Table]]:
    if buckets == 1:
        yield 0, rows
        return
    # numpy sorts 16-bit numbers by radix sort, without comparing.
    numbers = bucket_numbers(rows, by, buckets).astype(np.uint16)
    order = np.argsort(numbers, kind="stable")
    sorted_rows = rows.take(pa.array(order)).combine_chunks()
    bounds = np.concatenate([[0], np.cumsum(np.bincount(numbers, minlength=buckets))])
    for bucket in range(buckets):
        first, last = int(bounds[bucket]), int(bounds[bucket + 1])
        if last > first:
            yield bucket, sorted_rows.slice(first, last - first)
