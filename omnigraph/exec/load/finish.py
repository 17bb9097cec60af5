"""Second half of a bulk load, for every engine: key rules, staging, commit, retry on conflict.

    key rules ─▶ stage ─▶ commit;  again from a new base when a writer of other rows came first

Invariant: no table head moves before every rule was checked. Fragments that an attempt wrote are
reused by the next one where they still apply.
"""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import orjson
import pyarrow as pa

from omnigraph.catalog.model import Catalog, EdgeType
from omnigraph.exec.load.checks import (
    CheckOutcome,
    end_keys,
    id_keys,
    losers_of,
    run_check,
    without_losers,
)
from omnigraph.exec.load.committed import Committed, Planned
from omnigraph.exec.load.parallel_edges import beside_equal
from omnigraph.exec.load.recheck import Rechecked, inserted_since
from omnigraph.exec.load.request import LoadRequest
from omnigraph.exec.load.spill import ORIGIN, Spill, part_and_line
from omnigraph.exec.load.upsert import RunJobs, Upsert, in_process, kept_rows, row_keys
from omnigraph.exec.rules.faults import Faults, Reject
from omnigraph.exec.threads import in_order
from omnigraph.exec.topology.end_numbers import LoadedEnds
from omnigraph.exec.values.selection import KEYS_MAX
from omnigraph.storage.lance.reader import TableReader
from omnigraph.storage.lance.staging import Fragments
from omnigraph.storage.locks.turns import Turn
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.protocol.write import Write
from omnigraph.storage.records import Commit, TablePin
from omnigraph.storage.store import Store
from omnigraph.types import TableKey

Report = Callable[[str, int], None]
Losers = dict[TableKey, pa.Array]
RunChecks = Callable[[list[Planned], Spill, Spill, Losers], Faults]
AHEAD = 2
"""Calls beyond the one whose result is used: memory follows this number."""

NO_ORDER = "a DataFrame has no order: order_by= says which row is the last"

THREADS = min(AHEAD, os.cpu_count() or 1)


@dataclass(slots=True)
class IntakeResult:
    """Result of the intake: counts, faults, and the fragments or spill files of the rows."""

    counts: dict[TableKey, int]
    faults: Faults
    fragments: dict[TableKey, Fragments] = field(default_factory=dict)
    rows: Spill | None = None  # of a merge
    ends: dict[TableKey, LoadedEnds] = field(default_factory=dict)  # of edges that were numbered
    rounded: Counter[str] = field(default_factory=Counter)  # values cut, by `Type.property`
    beside_equal: Counter[str] = field(default_factory=Counter)  # new edges, by type


@dataclass(slots=True)
class Finish:
    """Commits the rows of an intake. `run_checks` and `run_jobs` choose the engine."""

    store: Store
    catalog: Catalog
    request: LoadRequest
    keys: Spill
    taken: IntakeResult
    folder: Path
    files: Sequence[str | None] = ()
    first_lines: Sequence[int] = ()
    run_checks: RunChecks = field(default_factory=lambda: run_all)
    run_jobs: RunJobs = in_process
    _losers: Losers | None = None  # depends on the input alone, so every attempt shares it
    _upsert: Upsert | None = None
    _checked: dict[TableKey, TablePin] = field(default_factory=dict)

    def commit(self, write: Write, report: Report) -> Commit:
        """Check the key rules, stage and publish; again from a new base when a writer of other
        rows came first."""
        prepare = partial(self.prepare, report=report)
        done = publish_load(self.store, self.catalog, self.request, write, prepare)
        report("done", sum(self.taken.counts.values()))
        return done

    def prepare(self, write: Write, report: Report) -> None:
        """Check the key rules and stage the rows through a write."""
        report("check", sum(self.taken.counts.values()))
        self._check(write)
        report("stage", sum(self.taken.counts.values()))
        self._stage(write)

    @property
    def touched(self) -> frozenset[TableKey]:
        named = self.request.owner
        return frozenset(self.taken.counts) | ({named.table} if named is not None else set())

    def _check(self, write: Write) -> None:
        faults = Faults(self.taken.faults.keep_rejects)
        faults.merge(self.taken.faults)
        losers = self._find_losers()
        stored = Spill(self.folder, self.keys.buckets)
        seen: dict[TableKey, TablePin] = {}

        def read(table: TableKey) -> TableReader:
            reader = write.read(table)
            seen[table] = reader.pin
            return reader

        mode = self.request.mode
        inserted = inserted_since(self.store, self._checked, read) if self._checked else None
        if inserted is None:
            self._check_numbered(read)
        asked = (
            self.catalog,
            mode,
            self.touched,
            read,
            self.keys,
            stored,
            self.run_jobs,
            self.store,
            self.request.on_duplicate == "refuse",
            "" if mode != "merge" or self.request.is_ordered else NO_ORDER,
        )
        planned = (
            Committed(*asked) if inserted is None else Rechecked(*asked, inserted=inserted)
        ).checks()
        faults.merge(self.run_checks(planned, self.keys, stored, losers))
        raise_faults(self.request, faults, self.files, self.first_lines)
        self._checked = seen

    def _check_numbered(self, read: Callable[[TableKey], TableReader]) -> None:
        """Have the ends that were numbered checked like any other, where their nodes are by now at
        another version."""
        for table, loaded in list(self.taken.ends.items()):
            pins = [nodes.pin for nodes in loaded.nodes]
            if any(read(pin.table_key).pin != pin for pin in pins):
                for number, end in enumerate(("src", "dst")):
                    self.keys.add(end_keys(table, end), keys_without_rows(end, loaded, number))
                del self.taken.ends[table]

    def _find_losers(self) -> Losers:
        """Origins of rows that a later row of the same id replaces."""
        if self._losers is None:
            tables = self.touched if self.request.on_duplicate == "last" else ()
            lost = ((table, losers_of(table, self.keys, self.run_jobs)) for table in tables)
            self._losers = {table: origins for table, origins in lost if len(origins)}
        return self._losers

    def _stage(self, write: Write) -> None:
        replacing = self.request.mode == "overwrite"
        for table in sorted(self.touched):
            if self.request.mode == "merge":
                self._stage_merge(write, table)
            elif replacing or self.taken.fragments.get(table):
                fragments = self.taken.fragments.get(table, ())
                write.fragments(table, fragments, replacing=replacing)

    def _stage_merge(self, write: Write, table: TableKey) -> None:
        rows = self.taken.rows
        count = 0 if rows is None else rows.rows(row_keys(table).name)
        if rows is None or not count:
            return
        owner, losers = self.catalog.of(table), self._find_losers().get(table)
        replaces = write.read(table).count() and self.keys.rows(id_keys(table).name)
        if count <= KEYS_MAX:
            # A few rows are found by the index of their ids.
            few = kept_rows(owner, rows.every(row_keys(table).name), losers)
            if isinstance(owner, EdgeType) and not owner.key:
                stated = self.keys.every(id_keys(table).name)
                beside = beside_equal(owner, few, stated, write.read(table))
                self.taken.beside_equal[owner.name] = beside
            (write.upsert if replaces else write.append)(table, few)
            return
        if self._upsert is None:
            self._upsert = Upsert(self.store, self.folder, self.run_jobs)
        self._upsert.stage(write, owner, self.keys, rows, losers)


def publish_load(
    store: Store,
    catalog: Catalog,
    request: LoadRequest,
    write: Write,
    prepare: Callable[[Write], None],
) -> Commit:
    """Prepare a load through a write and commit it; again through a new one when another writer
    came first."""
    attempts = iter([write])

    def attempt(turn: Turn) -> Commit:
        current = next(attempts, None)
        if current is not None:
            current.turn = turn
        else:
            # Inside its turn a write settles dead writers whose locks it keeps.
            current = store.begin(
                request.branch,
                kind=WriterKind.LOAD,
                **request.note.stated,
                schema=catalog.schema_id,
                turn=turn,
            )
        prepare(current)
        return store.commit(current, mark=request.once)

    # An overwrite does not retry: the caller replaces the rows it has seen.
    return attempt(Turn()) if request.mode == "overwrite" else store.turns.prepared_again(attempt)


def raise_faults(
    request: LoadRequest,
    faults: Faults,
    files: Sequence[str | None],
    first_lines: Sequence[int],
) -> None:
    """Raise the faults of a load, if there are any, with the rejects written where asked for."""
    if not faults:
        return
    located = faults.located(files, first_lines)
    if request.rejects is not None:
        write_rejects(request.rejects, located.rejects)
    raise located.error()


def run_all(planned: list[Planned], keys: Spill, stored: Spill, losers: Losers) -> Faults:
    """Run every check over every bucket, in threads of this process."""
    faults = Faults(keep_rejects=True)

    def read(name: str, bucket: int) -> pa.Table | None:
        tables = [t for t in (keys.read(name, bucket), stored.read(name, bucket)) if t is not None]
        return pa.concat_tables(tables) if tables else None

    read_kept = without_losers(read, losers)

    asked = [(check, owner, bucket) for check, owner in planned for bucket in range(keys.buckets)]
    outcomes = in_order(
        lambda each: run_check(*each, read_kept), asked, threads=THREADS, ahead=AHEAD
    )
    for outcome in outcomes:
        add_outcome(faults, outcome)
    return faults


def keys_without_rows(end: str, loaded: LoadedEnds, number: int) -> pa.Table:
    """The nodes at one end of numbered edges, as keys that name no edge and no line."""
    nodes = loaded.nodes_at(number).cast(pa.utf8())
    none = pa.nulls(len(nodes), pa.utf8()), pa.repeat(pa.scalar(-1, pa.int64()), len(nodes))
    return pa.table({"id": none[0], end: nodes, ORIGIN: none[1]})


def add_outcome(faults: Faults, outcome: CheckOutcome) -> None:
    """Add the violations of a check to the faults, each with its part and line."""
    for origin, violation in outcome.violations:
        part, line = (0, None) if origin is None else part_and_line(origin)
        faults.add(part, replace(violation, line=line))
    more = outcome.total - len(outcome.violations)
    if more > 0:
        faults.count(outcome.violations[0][1], more)


def write_rejects(folder: Path, rejects: list[Reject]) -> None:
    """Every bad record with its reason, as NDJSON."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "rejects.jsonl").open("wb") as file:
        for reject in rejects:
            violation = reject.violation
            entry = {
                "file": violation.file,
                "line": violation.line,
                "rule": violation.rule,
                "type": violation.type_name or None,
                "id": violation.id,
                "value": violation.value,
                "reason": violation.text,
                "record": reject.record,
            }
            file.write(orjson.dumps(entry) + b"\n")
