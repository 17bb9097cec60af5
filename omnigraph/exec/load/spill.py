"""Spill of keys and rows: hash-partitioned into buckets, written to block files when it grows.

Invariant: rows that are equal in the `by` columns of their key set are in the same bucket, in every
process. So a rule can be checked bucket by bucket, and the memory it takes follows the bucket.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa

from omnigraph.costs import COSTS
from omnigraph.exec.load.block_files import BlockFile, read_blocks, write_blocks
from omnigraph.exec.load.files import Options
from omnigraph.exec.values.buckets import bucket_numbers

ORIGIN = "__origin"
"""Column with the origin of a row: its part of the input and its line there, in one number."""

_PART_SHIFT = 36


@dataclass(frozen=True, slots=True)
class KeySet:
    """A named set of key columns, and the columns whose hash chooses the bucket."""

    name: str
    columns: tuple[str, ...]
    by: tuple[str, ...]


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
    """Key sets that grow by rows. Small ones stay in memory unless `flush` is called. The folder is
    local, or a URI that every process reaches with the options."""

    folder: Path | str
    buckets: int = 1
    memory_bytes_max: int = field(default_factory=lambda: COSTS.spill_memory_bytes_max)
    files: list[BlockFile] = field(default_factory=list)
    options: Options = ()
    fine: int = 0  # buckets in the files, where each of ours is several of theirs
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

    def absorb(self, other: "Spill") -> None:
        """Everything of another spill with as many buckets, in memory and on disk."""
        self.files += other.files
        for key, tables in other._buffered.items():
            self._buffered.setdefault(key, []).extend(tables)
        self._bytes += other._bytes
        if self._bytes > self.memory_bytes_max:
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows to one file."""
        if not self._buffered:
            return
        path = f"{self.folder}/{uuid4().hex}.blocks"
        self.files.append(write_blocks(path, self.buffered(), self.options))
        self._buffered.clear()
        self._bytes = 0

    def buffered(self) -> Iterator[tuple[str, int, pa.Table]]:
        """The rows in memory by key set and bucket, in the order in which these first came."""
        for (name, bucket), tables in self._buffered.items():
            yield name, bucket, pa.concat_tables(tables)

    def coarsened(self) -> int:
        """Join buckets until they are large enough to be worth a job each; their number then."""
        self.flush()
        self.fine = max(self.fine, self.buckets)
        while self.buckets % 2 == 0 and self.bytes < self.buckets * COSTS.coarse_bucket_bytes:
            self.buckets //= 2
        return self.buckets

    @property
    def bytes(self) -> int:
        """About how much there is, in memory and on disk."""
        return self._bytes + sum(file.bytes for file in self.files)

    def read(self, name: str, bucket: int) -> pa.Table | None:
        """One bucket of a key set; None when it has no rows."""
        buffered = self._buffered.get((name, bucket), [])
        # Equal remainders by the finer number are equal by one that divides it.
        fine = range(bucket, max(self.fine, self.buckets), self.buckets)
        stored = (read_blocks(self.files, name, each) for each in fine)
        tables = [*(table for table in stored if table is not None), *buffered]
        return pa.concat_tables(tables) if tables else None

    def every(self, name: str) -> pa.Table | None:
        """All buckets of a key set at once; for sets that are known to be small."""
        tables = [t for t in (self.read(name, b) for b in range(self.buckets)) if t is not None]
        return pa.concat_tables(tables) if tables else None

    def rows(self, name: str) -> int:
        """How many rows a key set has."""
        return self.counts()[name]

    def counts(self) -> Counter[str]:
        """How many rows each key set has."""
        counted: Counter[str] = Counter()
        for (name, _), tables in self._buffered.items():
            counted[name] += sum(table.num_rows for table in tables)
        for file in self.files:
            counted.update(dict(file.rows))
        return counted


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
