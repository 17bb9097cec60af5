"""Typed rows on their way into tables: row rules, keys, files.

Invariant: rows reach a sink only while nothing is wrong with the input. What a sink wrote is named
in its result and nowhere else, so the result of a task that ran twice counts once.
"""

import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.exec.load.checks import incoming_keys
from omnigraph.exec.load.records import Rows
from omnigraph.exec.load.spill import AT, Cut, Spill, cut, places
from omnigraph.exec.load.upsert import row_keys
from omnigraph.exec.rules.faults import Faults
from omnigraph.exec.rules.row_rules import broken, check_rows
from omnigraph.exec.rules.rules import rules_of
from omnigraph.storage.lance.staging import Fragments
from omnigraph.storage.lance.tables import Tables
from omnigraph.storage.records import TablePin
from omnigraph.types import TableKey

FRAGMENT_ROWS = 1 << 20
FRAGMENT_BYTES = 96 << 20
CONCURRENCY_VARIABLE = "OMNIGRAPH_LOAD_CONCURRENCY"
_REJECTS_SHOWN = 1_000


class Sink(Protocol):
    """Where good rows go."""

    def add(self, rows: Rows, part: int) -> None:
        """Take some rows of one part."""

    def finish(self) -> None:
        """Write what is still held."""


@dataclass(frozen=True, slots=True)
class Ready:
    """Rows with all that can be said of them alone: their keys, and what is wrong."""

    rows: Rows
    keys: list[Cut]
    faults: Faults


def made_ready(
    rows: Rows, part: int, file: str | None, *, buckets: int, keep_rejects: bool
) -> Ready:
    """Check each row by itself and cut its keys out. Needs nobody, so many may be at it at once."""
    faults = Faults(keep_rejects)
    for rule in rules_of(rows.owner).rows:
        mask = broken(rule, rows.table.column(rule.column).combine_chunks())
        total = pc.sum(mask).as_py() or 0
        if not total:
            continue
        wrong = pc.indices_nonzero(mask)[: _REJECTS_SHOWN if keep_rejects else 1]
        lines = rows.lines.take(wrong).to_pylist()
        found = [
            check_rows([rule], rows.table.slice(at, 1)).violations[0] for at in wrong.to_pylist()
        ]
        named = [replace(v, file=file, line=n) for v, n in zip(found, lines, strict=True)]
        faults.add_many(part, named, total)
    keys = [cut(keys, some, buckets) for keys, some in incoming_keys(rows, part)]
    return Ready(rows, keys, faults)


@dataclass(slots=True)
class Intake:
    """Takes rows in: counts them, keeps the keys, hands the rows on."""

    spill: Spill
    sink: Sink
    faults: Faults
    counts: Counter[TableKey] = field(default_factory=Counter)

    def take(self, ready: Ready, part: int) -> None:
        """Some rows of one part of the input."""
        self.counts[ready.rows.owner.table] += ready.rows.table.num_rows
        self.faults.merge(ready.faults)
        for keys in ready.keys:
            self.spill.take(keys)
        if not self.faults:
            self.sink.add(ready.rows, part)


class FragmentSink:
    """Writes rows beside their tables as they come: for append and overwrite."""

    def __init__(
        self, tables: Tables, base: Callable[[TableKey], TablePin], *, replacing: bool
    ) -> None:
        self._tables = tables
        self._base = base
        self._replacing = replacing
        self._held: dict[TableKey, list[pa.Table]] = {}
        self._pool = ThreadPoolExecutor(concurrency())
        self._writing: list[tuple[TableKey, Future[Fragments]]] = []
        self.written: dict[TableKey, Fragments] = {}

    def add(self, rows: Rows, part: int) -> None:
        """Hold the rows until they fill a file."""
        table = rows.owner.table
        held = self._held.setdefault(table, [])
        held.append(rows.table)
        if (
            sum(t.num_rows for t in held) >= FRAGMENT_ROWS
            or sum(t.nbytes for t in held) >= FRAGMENT_BYTES
        ):
            self._write(table)

    def finish(self) -> None:
        """Write the rest, and wait for all of it."""
        for table in list(self._held):
            self._write(table)
        self._settle(0)
        self._pool.shutdown()

    def _write(self, table: TableKey) -> None:
        rows = pa.concat_tables(self._held.pop(table))
        base = self._base(table)
        self._settle(concurrency())
        job = self._pool.submit(self._tables.write_fragments, base, rows, replacing=self._replacing)
        self._writing.append((table, job))

    def _settle(self, waiting_max: int) -> None:
        """Wait until at most so many files are being written: memory follows that number."""
        while len(self._writing) > waiting_max or (self._writing and not waiting_max):
            table, job = self._writing.pop(0)
            self.written[table] = (*self.written.get(table, ()), *job.result())


def concurrency() -> int:
    """How many files are written at once."""
    return max(1, int(os.environ.get(CONCURRENCY_VARIABLE) or 1))


@dataclass(slots=True)
class RowSink:
    """Keeps rows aside by id until it is known which of them replace others: for merge."""

    spill: Spill

    def add(self, rows: Rows, part: int) -> None:
        """Keep the rows with the places they came from."""
        whole = rows.table.append_column(AT, places(part, rows.lines))
        self.spill.add(row_keys(rows.owner.table), whole)

    def finish(self) -> None:
        """Nothing: the spill knows what it holds."""
