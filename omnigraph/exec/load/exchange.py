"""Exchange of a bulk load: jobs put rows by bucket, and other jobs read a bucket of what was put.

    put      a job an item of work: a part of the input, some fragments of a table
    read     a job a bucket: everything that was put there meets
    forward  a job a bucket that puts rows again, by other columns

Invariant: what a job put counts through the result that is used of it, once, however often the job
ran. A reading job sees all rows of its bucket and lane, and no others. The caller holds results and
counts, never rows, unless it asks for `every` row of a small set.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import pyarrow as pa

from omnigraph import environment
from omnigraph.exec.load.spill import KeySet, Spill
from omnigraph.exec.threads import in_order

AHEAD = 2
"""Calls beyond the one whose result is used: memory follows this number."""

THREADS = min(AHEAD, os.cpu_count() or 1)

Lane = Literal["keys", "rows"]
"""Half of an exchange: sets of keys, or whole rows and what meets these."""

_ROW_SETS = ("#rows", "@replaced")

Item = TypeVar("Item")
Done = TypeVar("Done")
ReadKeys = Callable[[str], pa.Table | None]
"""A key set of one bucket, by its name."""

RunJobs = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]
"""Runs a function over jobs, in this process or on Spark; the results in the order of the jobs."""


def lane_of(name: str) -> Lane:
    """The lane of a key set."""
    return "rows" if name.endswith(_ROW_SETS) else "keys"


class Blocks(Protocol):
    """What the jobs of one call have put."""

    def rows(self, name: str) -> int:
        """How many rows a key set has."""
        ...

    def every(self, name: str) -> pa.Table | None:
        """All rows of a key set; for sets that are known to be small."""
        ...


class Exchange(Protocol):
    """Where the jobs of one load meet."""

    @property
    def buckets(self) -> int:
        """The number of buckets."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether what was put is a `Spill`, of which any job can read every bucket."""
        ...

    def put(
        self, work: Callable[[Item, Spill], Done], items: Sequence[Item]
    ) -> tuple[list[Done], Blocks]:
        """Run a job an item; the results in the order of the items, and what they put."""
        ...

    def read(
        self,
        works: Sequence[Callable[[int, ReadKeys], Done]],
        blocks: Sequence[Blocks],
        lane: Lane = "keys",
    ) -> list[list[Done]]:
        """Run each function over each bucket; of each function the results in the order of buckets.
        Buckets without rows may be left out, and several small ones be read as one: the
        number that a function gets only tells buckets apart."""
        ...

    def forward(
        self,
        works: Sequence[Callable[[int, ReadKeys, Spill], Done]],
        blocks: Sequence[Blocks],
        lane: Lane = "keys",
    ) -> tuple[list[list[Done]], Blocks]:
        """The same with functions that put rows, and what they put."""
        ...


def put_tables(tables: Iterable[tuple[KeySet, pa.Table]], out: Spill) -> None:
    """A job that puts tables it is given."""
    for keys, rows in tables:
        out.add(keys, rows)


def reader_of(blocks: Iterable[Spill], bucket: int) -> ReadKeys:
    """Reads one bucket of several spills."""
    spills = tuple(blocks)

    def read(name: str) -> pa.Table | None:
        tables = [t for t in (spill.read(name, bucket) for spill in spills) if t is not None]
        return pa.concat_tables(tables) if tables else None

    return read


def write_threads() -> int:
    """How many files a load in this process writes at once: encoding them is work for a core."""
    return min(environment.LOAD_CONCURRENCY.read(), max(2, os.cpu_count() or 1))


def in_process(work: Callable[[Item], Any], items: Sequence[Item]) -> list[Any]:
    """Run every job in threads of this process; the results in the order of the items."""
    return list(in_order(work, items, threads=write_threads()))


def spill_of(blocks: Blocks) -> Spill:
    """What was put into a shared exchange."""
    assert isinstance(blocks, Spill)
    return blocks


@dataclass(frozen=True, slots=True)
class ThreadExchange:
    """The exchange of a load in one process: threads, and one spill for each call."""

    folder: Path
    buckets: int

    @property
    def is_shared(self) -> bool:
        return True

    def put(
        self, work: Callable[[Item, Spill], Done], items: Sequence[Item]
    ) -> tuple[list[Done], Blocks]:
        whole = Spill(self.folder, self.buckets)
        results: list[Done] = []

        def job(item: Item) -> tuple[Done, Spill]:
            out = Spill(self.folder, self.buckets)
            return work(item, out), out

        for done, out in in_order(job, items, threads=write_threads(), ahead=AHEAD):
            results.append(done)
            whole.absorb(out)
        return results, whole

    def read(
        self,
        works: Sequence[Callable[[int, ReadKeys], Done]],
        blocks: Sequence[Blocks],
        lane: Lane = "keys",
    ) -> list[list[Done]]:
        spills = [spill_of(each) for each in blocks]
        asked = [(work, bucket) for work in works for bucket in range(self.buckets)]
        threads = THREADS if lane == "keys" else write_threads()
        done = list(
            in_order(
                lambda each: each[0](each[1], reader_of(spills, each[1])),
                asked,
                threads=threads,
                ahead=max(AHEAD, threads),
            )
        )
        return [done[n : n + self.buckets] for n in range(0, len(done), self.buckets)]

    def forward(
        self,
        works: Sequence[Callable[[int, ReadKeys, Spill], Done]],
        blocks: Sequence[Blocks],
        lane: Lane = "keys",
    ) -> tuple[list[list[Done]], Blocks]:
        spills = [spill_of(each) for each in blocks]
        whole = Spill(self.folder, self.buckets)
        results: list[list[Done]] = []
        for work in works:
            forwarded, put = self.put(partial(_forwarded, work, spills), range(self.buckets))
            results.append(forwarded)
            whole.absorb(spill_of(put))
        return results, whole


def _forwarded(
    work: Callable[[int, ReadKeys, Spill], Done], spills: list[Spill], bucket: int, out: Spill
) -> Done:
    return work(bucket, reader_of(spills, bucket), out)
