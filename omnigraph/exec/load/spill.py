"""Narrow tables of keys, cut into buckets and kept on disk when they grow.

Invariant: rows whose meeting columns are equal are in buckets of the same number, in every process.
So a rule can be checked bucket by bucket, and the memory it takes follows the bucket.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa

from omnigraph.exec.values.buckets import bucket_numbers

AT = "__at"
"""Where a row came from: its part of the input and its line there, in one number."""

_PART_SHIFT = 36
_MEMORY_BYTES_MAX = 64 << 20


@dataclass(frozen=True, slots=True)
class KeySet:
    """Some columns of some rows, and the columns by which they meet others."""

    name: str
    columns: tuple[str, ...]
    by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeyFile:
    """One bucket of a key set, or a piece of it, on disk."""

    name: str
    bucket: int
    path: str
    rows: int


@dataclass(frozen=True, slots=True)
class Cut:
    """Some rows of a key set, by bucket."""

    name: str
    parts: tuple[tuple[int, pa.Table], ...]
    bytes: int


def cut(keys: KeySet, rows: pa.Table, buckets: int) -> Cut:
    """Cut rows into buckets. Needs nobody, so many may be at it at once."""
    if not rows.num_rows:
        return Cut(keys.name, (), 0)
    # Rows of one key set come from tables and from this program, which say less of them.
    rows = pa.Table.from_arrays(rows.columns, names=rows.column_names)
    return Cut(keys.name, tuple(_cut(rows, keys.by, buckets)), rows.nbytes)


def places(part: int, lines: pa.Array) -> pa.Array:
    """Parts and lines as one number each."""
    return pa.array(lines.to_numpy() + (part << _PART_SHIFT))


def place_of(at: int) -> tuple[int, int]:
    """The part and the line that a number stands for."""
    return at >> _PART_SHIFT, at & ((1 << _PART_SHIFT) - 1)


@dataclass(slots=True)
class Spill:
    """Key sets under construction. Small ones never leave memory unless `flush` is called."""

    folder: Path
    buckets: int = 1
    memory_bytes_max: int = _MEMORY_BYTES_MAX
    files: list[KeyFile] = field(default_factory=list)
    _held: dict[tuple[str, int], list[pa.Table]] = field(default_factory=dict)
    _bytes: int = 0

    def add(self, keys: KeySet, rows: pa.Table) -> None:
        """More rows of a key set."""
        self.take(cut(keys, rows, self.buckets))

    def take(self, rows: Cut) -> None:
        """More rows of a key set, cut into as many buckets as there are here."""
        for bucket, part in rows.parts:
            self._held.setdefault((rows.name, bucket), []).append(part)
        self._bytes += rows.bytes
        if self._bytes > self.memory_bytes_max:
            self.flush()

    def flush(self) -> None:
        """Write to disk what is held in memory."""
        for (name, bucket), parts in self._held.items():
            table = pa.concat_tables(parts)
            path = str(self.folder / f"{uuid4().hex}.arrow")
            write_rows(path, table)
            self.files.append(KeyFile(name, bucket, path, table.num_rows))
        self._held.clear()
        self._bytes = 0

    def read(self, name: str, bucket: int) -> pa.Table | None:
        """One bucket of a key set; None when it has no rows."""
        held = self._held.get((name, bucket), [])
        stored = read_keys(self.files, name, bucket)
        parts = held if stored is None else [stored, *held]
        return pa.concat_tables(parts) if parts else None

    def every(self, name: str) -> pa.Table | None:
        """All buckets of a key set at once; for those that are known to be small."""
        parts = [t for t in (self.read(name, b) for b in range(self.buckets)) if t is not None]
        return pa.concat_tables(parts) if parts else None

    def rows(self, name: str) -> int:
        """How many rows a key set has."""
        held = (t.num_rows for (n, _), parts in self._held.items() if n == name for t in parts)
        return int(sum(held)) + sum(file.rows for file in self.files if file.name == name)


def read_keys(files: Iterable[KeyFile], name: str, bucket: int) -> pa.Table | None:
    """One bucket of a key set from its files."""
    found = [f.path for f in files if f.name == name and f.bucket == bucket]
    return pa.concat_tables([read_rows(path) for path in found]) if found else None


def write_rows(path: str, rows: pa.Table) -> None:
    """Write a table where another process can read it. It appears whole or not at all."""
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
    # Numbers of 16 bits are sorted by counting, without comparing any.
    numbers = bucket_numbers(rows, by, buckets).astype(np.uint16)
    order = np.argsort(numbers, kind="stable")
    sorted_rows = rows.take(pa.array(order)).combine_chunks()
    bounds = np.concatenate([[0], np.cumsum(np.bincount(numbers, minlength=buckets))])
    for bucket in range(buckets):
        first, last = int(bounds[bucket]), int(bounds[bucket + 1])
        if last > first:
            yield bucket, sorted_rows.slice(first, last - first)
