"""Intake of a bulk load: row rules, keys cut into buckets, rows written to fragments or spilled.

Invariant: rows reach a sink only while the input has no fault. Files that a sink wrote are named in
its result and nowhere else, so a task that ran twice counts once.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.model import EdgeType
from omnigraph.costs import COSTS
from omnigraph.errors import Violation
from omnigraph.exec.load.checks import id_keys, incoming_keys
from omnigraph.exec.load.ndjson import TypedRows
from omnigraph.exec.load.rule_faults import REJECTS_SHOWN, rule_faults
from omnigraph.exec.load.spill import ORIGIN, Cut, Spill, cut, origins
from omnigraph.exec.load.upsert import row_keys
from omnigraph.exec.rules.faults import Faults
from omnigraph.exec.threads import Jobs
from omnigraph.exec.topology.end_numbers import EndNumbers, Ends, LoadedEnds
from omnigraph.storage.lance.staging import Fragments, TableStaging
from omnigraph.storage.records import WriteBase
from omnigraph.types import Kind, TableKey, table_key


def absent_mark(name: str) -> str:
    """The column that marks rows of a patch which do not give a property."""
    return f"?{name}"


class Sink(Protocol):
    """Destination of rows that passed the row rules."""

    def add(self, rows: TypedRows, part: int) -> None:
        """Take rows of one part of the input."""

    def finish(self) -> None:
        """Write the rest."""


@dataclass(frozen=True, slots=True)
class Ready:
    """Rows with their keys by bucket and the faults of their row rules."""

    rows: TypedRows
    keys: list[Cut]
    faults: Faults
    loaded: LoadedEnds | None = None
    numbers: Ends | None = None


def made_ready(
    rows: TypedRows,
    part: int,
    file: str | None,
    *,
    buckets: int,
    keep_rejects: bool,
    ends: EndNumbers | None = None,
) -> Ready:
    """Check the row rules, number the ends of edges and partition the other keys. Safe to call from
    several threads."""
    faults = rule_faults(rows.owner, rows.table, rows.lines, part, file, keep_rejects=keep_rejects)
    loaded, numbers = _numbered(rows, ends)
    cuts = [cut(keys, table, buckets) for keys, table in incoming_keys(rows, part, numbers)]
    return Ready(rows, cuts, faults, loaded, numbers)


def _numbered(rows: TypedRows, ends: EndNumbers | None) -> tuple[LoadedEnds | None, Ends | None]:
    owner = rows.owner
    if ends is None or not isinstance(owner, EdgeType):
        return None, None
    both = table_key(Kind.NODE, owner.source), table_key(Kind.NODE, owner.target)
    loaded = ends.of(owner.table, both, rows.table.num_rows)
    return loaded, None if loaded is None else loaded.of(rows.table["src"], rows.table["dst"])


def partial_ready(
    rows: TypedRows,
    part: int,
    file: str | None,
    *,
    buckets: int,
    keep_rejects: bool,
    ends: EndNumbers | None = None,
) -> Ready:
    """Rows of a patch, which need an id each; rules are checked when they are whole. Pure."""
    faults = Faults(keep_rejects)
    missing = pc.indices_nonzero(pc.invert(rows.given))
    if len(missing):
        name = rows.owner.name
        text = f"a patch of {name} needs its `id`: the type has no @key that would name it"
        lines = rows.lines.take(missing[: REJECTS_SHOWN if keep_rejects else 1]).to_pylist()
        broken_rows = [Violation("key_id", name, "id", None, None, text, file, n) for n in lines]
        faults.add_many(part, broken_rows, len(missing))
    ids = rows.table.select(["id"]).append_column(ORIGIN, origins(part, rows.lines))
    return Ready(rows, [cut(id_keys(rows.owner.table), ids, buckets)], faults)


@dataclass(slots=True)
class Intake:
    """Counts rows and rounded values, spills keys, and passes the rows to the sink."""

    spill: Spill
    sink: Sink
    faults: Faults
    counts: Counter[TableKey] = field(default_factory=Counter)
    rounded: Counter[str] = field(default_factory=Counter)  # by `Type.property`

    def take(self, ready: Ready, part: int) -> None:
        """Take rows of one part of the input."""
        if ready.rows.table.num_rows:  # a file of columns may have none
            self.counts[ready.rows.owner.table] += ready.rows.table.num_rows
        for name, count in ready.rows.rounded.items():
            self.rounded[f"{ready.rows.owner.name}.{name}"] += count
        self.faults.merge(ready.faults)
        for keys in ready.keys:
            self.spill.take(keys)
        if not self.faults:
            if ready.loaded is not None and ready.numbers is not None:
                ready.loaded.add(ready.numbers)
            self.sink.add(ready.rows, part)


class FragmentSink:
    """Writes uncommitted fragments while the input is read: for append and overwrite."""

    def __init__(
        self,
        tables: TableStaging,
        base: Callable[[TableKey], WriteBase],
        *,
        replacing: bool,
        threads: int,
    ) -> None:
        self._tables = tables
        self._base = base
        self._replacing = replacing
        self._unwritten: dict[TableKey, list[pa.Table]] = {}
        self._threads = threads
        self._writing: Jobs[tuple[TableKey, Fragments]] = Jobs(threads)
        self.written: dict[TableKey, Fragments] = {}

    def add(self, rows: TypedRows, part: int) -> None:
        """Buffer the rows until they fill a fragment."""
        table = rows.owner.table
        unwritten = self._unwritten.setdefault(table, [])
        unwritten.append(rows.table)
        if (
            sum(t.num_rows for t in unwritten) >= COSTS.fragment_rows_max
            or sum(t.nbytes for t in unwritten) >= COSTS.fragment_bytes_max
        ):
            self._write(table)

    def finish(self) -> None:
        """Write the rest, and wait for all of it."""
        for table in list(self._unwritten):
            self._write(table)
        self._settle(0)
        self._writing.close()

    def _write(self, table: TableKey) -> None:
        rows = pa.concat_tables(self._unwritten.pop(table))
        base = self._base(table)
        self._settle(self._threads)
        stage = partial(self._tables.write_fragments, base, rows, replacing=self._replacing)
        self._writing.start(lambda: (table, stage()))

    def _settle(self, waiting_max: int) -> None:
        """Wait until at most `waiting_max` fragments are being written, which bounds memory."""
        for table, fragments in self._writing.results(left=waiting_max):
            self.written[table] = (*self.written.get(table, ()), *fragments)


class JoiningSink(FragmentSink):
    """Writes fragments, but spills rows that are too few for one: those of neighbouring parts are
    written together, once all parts are read."""

    def __init__(
        self,
        tables: TableStaging,
        base: Callable[[TableKey], WriteBase],
        *,
        replacing: bool,
        threads: int,
        spill: Spill,
        part: int,
    ) -> None:
        super().__init__(tables, base, replacing=replacing, threads=threads)
        self._spill = spill
        self._part = part

    def finish(self) -> None:
        """Spill or write the rest, and wait for what is written."""
        for table, parts in list(self._unwritten.items()):
            rows = pa.concat_tables(parts)
            if rows.num_rows < COSTS.joined_rows_max and rows.nbytes < COSTS.joined_bytes_max:
                bucket = self._part // COSTS.joined_parts % self._spill.buckets
                self._spill.take(Cut(row_keys(table).name, ((bucket, rows),), rows.nbytes))
                del self._unwritten[table]
        super().finish()


@dataclass(slots=True)
class RowSink:
    """Spills rows by id until the upsert knows which of them replace committed rows: for merge, and
    with marks of absent properties for patch."""

    spill: Spill
    are_partial: bool = False

    def add(self, rows: TypedRows, part: int) -> None:
        """Spill the rows with their origins."""
        whole = rows.table.append_column(ORIGIN, origins(part, rows.lines))
        if self.are_partial:
            given = pa.repeat(pa.scalar(False), rows.table.num_rows)
            for prop in rows.owner.properties:
                mark = rows.absent.get(prop.name, given)
                whole = whole.append_column(absent_mark(prop.name), mark)
        self.spill.add(row_keys(rows.owner.table), whole)

    def finish(self) -> None:
        """Nothing to do: the spill is read by bucket."""
