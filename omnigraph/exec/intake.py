"""Typed rows on their way into tables: row rules, keys, files.

Invariant: rows reach a sink only while nothing is wrong with the input. What a sink wrote is named
in its result and nowhere else, so the result of a task that ran twice counts once.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.exec.checks import add_incoming
from omnigraph.exec.faults import Faults
from omnigraph.exec.records import Owner, Rows, schema_of
from omnigraph.exec.row_rules import broken, check_rows
from omnigraph.exec.rules import TypeRules, rules_of
from omnigraph.exec.spill import AT, Spill, places, read_rows, write_rows
from omnigraph.storage.records import TablePin
from omnigraph.storage.tables import Fragments, Tables
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


@dataclass(slots=True)
class Intake:
    """Takes rows in: checks each by itself, keeps the keys, hands the rows on."""

    spill: Spill
    sink: Sink
    faults: Faults
    counts: Counter[TableKey] = field(default_factory=Counter)
    _rules: dict[TableKey, TypeRules] = field(default_factory=dict)

    def take(self, rows: Rows, part: int, file: str | None) -> None:
        """Some rows of one part of the input."""
        table = rows.owner.table
        rules = self._rules.get(table)
        if rules is None:
            rules = self._rules[table] = rules_of(rows.owner)
        self.counts[table] += rows.table.num_rows
        self._check(rules, rows, part, file)
        add_incoming(self.spill, rows, part)
        if not self.faults:
            self.sink.add(rows, part)

    def _check(self, rules: TypeRules, rows: Rows, part: int, file: str | None) -> None:
        for rule in rules.rows:
            mask = broken(rule, rows.table.column(rule.column).combine_chunks())
            total = pc.sum(mask).as_py() or 0
            if not total:
                continue
            shown = _REJECTS_SHOWN if self.faults.keep_rejects else 1
            wrong = pc.indices_nonzero(mask)[:shown]
            lines = rows.lines.take(wrong).to_pylist()
            found = [
                check_rows([rule], rows.table.slice(at, 1)).violations[0]
                for at in wrong.to_pylist()
            ]
            named = [replace(v, file=file, line=n) for v, n in zip(found, lines, strict=True)]
            self.faults.add_many(part, named, total)


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
    """Keeps rows in files of their own until it is known which of them replace others: merge."""

    folder: Path
    files: dict[TableKey, list[str]] = field(default_factory=dict)
    _held: dict[TableKey, list[pa.Table]] = field(default_factory=dict)

    def add(self, rows: Rows, part: int) -> None:
        """Hold the rows until they fill a file."""
        table = rows.owner.table
        held = self._held.setdefault(table, [])
        held.append(rows.table.append_column(AT, places(part, rows.lines)))
        if sum(t.nbytes for t in held) >= FRAGMENT_BYTES // 2:
            self._write(table)

    def finish(self) -> None:
        """Write the rest."""
        for table in list(self._held):
            self._write(table)

    def _write(self, table: TableKey) -> None:
        path = str(self.folder / f"{uuid4().hex}.rows")
        write_rows(path, pa.concat_tables(self._held.pop(table)))
        self.files.setdefault(table, []).append(path)


def kept_rows(owner: Owner, files: list[str], losers: pa.Array | None) -> pa.RecordBatchReader:
    """Rows of a merge, without those that a later row of the same id replaces."""
    schema = schema_of(owner)

    def batches() -> Iterator[pa.RecordBatch]:
        for path in files:
            rows = read_rows(path)
            if losers is not None:
                rows = rows.filter(pc.invert(pc.is_in(rows.column(AT), value_set=losers)))
            yield from rows.select(schema.names).cast(schema).to_batches()

    return pa.RecordBatchReader.from_batches(schema, batches())
