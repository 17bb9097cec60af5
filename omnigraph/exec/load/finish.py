"""Second half of a bulk load, for every engine: key rules, staging, commit, retry on conflict.

    key rules ─▶ stage ─▶ commit;  again from a new base when a writer of other rows came first

Invariant: no table head moves before every rule was checked. Fragments that an attempt wrote are
reused by the next one where they still apply.
"""

from collections import Counter
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import orjson
import pyarrow as pa

from omnigraph.catalog.model import Catalog, EdgeType
from omnigraph.costs import COSTS
from omnigraph.exec.load.checks import (
    CheckOutcome,
    KeyCheck,
    end_keys,
    id_keys,
    losers_of,
    run_check,
    without_losers,
)
from omnigraph.exec.load.committed import Committed, Planned
from omnigraph.exec.load.exchange import Blocks, Exchange, ReadKeys, spill_of
from omnigraph.exec.load.input_lines import at_input_lines
from omnigraph.exec.load.load_write import begun
from omnigraph.exec.load.ndjson import Owner
from omnigraph.exec.load.parallel_edges import beside_equal
from omnigraph.exec.load.recheck import Rechecked, inserted_since
from omnigraph.exec.load.request import LoadRequest
from omnigraph.exec.load.spill import ORIGIN, part_and_line
from omnigraph.exec.load.upsert import JoinJob, Upsert, kept_rows, row_keys, write_joined
from omnigraph.exec.rules.faults import Faults, Reject
from omnigraph.exec.rules.rules import EdgesPerSource, Endpoint, KeyRule
from omnigraph.exec.topology.end_numbers import LoadedEnds
from omnigraph.storage.lance.reader import TableReader
from omnigraph.storage.lance.staging import Fragments
from omnigraph.storage.locks.turns import Turn
from omnigraph.storage.protocol.write import Write
from omnigraph.storage.records import Commit, Home, TablePin
from omnigraph.storage.store import Store
from omnigraph.types import TableKey

Report = Callable[[str, int], None]
Losers = dict[TableKey, pa.Array]
NO_ORDER = "a DataFrame has no order: order_by= says which row is the last"


@dataclass(slots=True)
class IntakeResult:
    """Result of the intake: counts, faults, and the fragments or spill files of the rows."""

    counts: dict[TableKey, int]
    faults: Faults
    fragments: dict[TableKey, Fragments] = field(default_factory=dict)
    rows: Blocks | None = None  # of a merge, or of parts with few
    ends: dict[TableKey, LoadedEnds] = field(default_factory=dict)  # of edges that were numbered
    rounded: Counter[str] = field(default_factory=Counter)  # values cut, by `Type.property`
    beside_equal: Counter[str] = field(default_factory=Counter)  # new edges, by type


@dataclass(slots=True)
class Finish:
    """Commits the rows of an intake. The exchange chooses the engine."""

    store: Store
    catalog: Catalog
    request: LoadRequest
    keys: Blocks
    taken: IntakeResult
    exchange: Exchange
    files: Sequence[str | None] = ()
    first_lines: Sequence[int] = ()
    _losers: Losers | None = None  # depends on the input alone, so every attempt shares it
    _upsert: Upsert | None = None
    _joined_rows: dict[tuple[TableKey, Home], Fragments] = field(default_factory=dict)
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
            self.exchange,
            self.store,
            self.request.on_duplicate == "refuse",
            "" if mode != "merge" or self.request.is_ordered else NO_ORDER,
        )
        committed = Committed(*asked) if inserted is None else Rechecked(*asked, inserted=inserted)
        unread = self.taken.faults.unread
        planned = [each for each in committed.checks() if is_certain(each[0].rule, unread)]
        faults.merge(run_all(planned, self.exchange, [self.keys, *committed.stored], losers))
        raise_faults(self.request, faults, self.files, self.first_lines)
        self._checked = seen

    def _check_numbered(self, read: Callable[[TableKey], TableReader]) -> None:
        """Have the ends that were numbered checked like any other, where their nodes are by now at
        another version."""
        for table, loaded in list(self.taken.ends.items()):
            pins = [nodes.pin for nodes in loaded.nodes]
            if any(read(pin.table_key).pin != pin for pin in pins):
                for number, end in enumerate(("src", "dst")):
                    # Only a load in one process numbers ends.
                    spill_of(self.keys).add(
                        end_keys(table, end), keys_without_rows(end, loaded, number)
                    )
                del self.taken.ends[table]

    def _find_losers(self) -> Losers:
        """Origins of rows that a later row of the same id replaces."""
        if self._losers is None:
            tables = sorted(self.touched) if self.request.on_duplicate == "last" else []
            self._losers = losers_of(tables, self.keys, self.exchange)
        return self._losers

    def _stage(self, write: Write) -> None:
        replacing = self.request.mode == "overwrite"
        for table in sorted(self.touched):
            if self.request.mode == "merge":
                self._stage_merge(write, table)
                continue
            fragments = (*self.taken.fragments.get(table, ()), *self._joined(write, table))
            if replacing or fragments:
                write.fragments(table, fragments, replacing=replacing)

    def _joined(self, write: Write, table: TableKey) -> Fragments:
        """Fragments of rows that parts had too few of; written once in each home, by the first
        attempt there."""
        rows = self.taken.rows
        if rows is None or not rows.rows(row_keys(table).name):
            return ()
        base = write.base(table)
        if (table, base.home) not in self._joined_rows:
            where, replacing = self.store.where, self.request.mode == "overwrite"
            owner = self.catalog.of(table)
            job = JoinJob(where.uri, where.storage_options, base, owner, replacing)
            (done,) = self.exchange.read([partial(write_joined, job)], [rows], "rows")
            self._joined_rows[table, base.home] = tuple(f for each in done for f in each)
        return self._joined_rows[table, base.home]

    def _stage_merge(self, write: Write, table: TableKey) -> None:
        rows = self.taken.rows
        count = 0 if rows is None else rows.rows(row_keys(table).name)
        if rows is None or not count:
            return
        owner, losers = self.catalog.of(table), self._find_losers().get(table)
        replaces = write.read(table).count() and self.keys.rows(id_keys(table).name)
        if count <= COSTS.upsert_rows_max:
            # A few rows are found by the index of their ids.
            few = kept_rows(owner, rows.every(row_keys(table).name), losers)
            if isinstance(owner, EdgeType) and not owner.key:
                stated = self.keys.every(id_keys(table).name)
                beside = beside_equal(owner, few, stated, write.read(table))
                self.taken.beside_equal[owner.name] = beside
            (write.upsert if replaces else write.append)(table, few)
            return
        if self._upsert is None:
            self._upsert = Upsert(self.store, self.exchange)
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
            current = begun(store, catalog, request, turn)
        prepare(current)
        if request.fill is not None:
            request.fill.record(current)
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
    if request.is_frame:
        located = faults.named_by_id()
    else:
        located = at_input_lines(faults.located(files, first_lines), request.options)
    if request.counts_rows:
        located = located.in_rows()
    if request.rejects is not None:
        write_rejects(request.rejects, located.rejects)
    raise located.error()


def run_all(
    planned: list[Planned], exchange: Exchange, blocks: Sequence[Blocks], losers: Losers
) -> Faults:
    """Run every check over every bucket."""
    faults = Faults(keep_rejects=True)
    works = [partial(check_bucket, check, owner, losers) for check, owner in planned]
    for by_bucket in exchange.read(works, blocks) if works else []:
        for outcome in by_bucket:
            add_outcome(faults, outcome)
    return faults


def is_certain(rule: KeyRule, unread: Set[str]) -> bool:
    """Whether a rule can be checked although records of these types became no rows. An end that is
    missing may be one of them, and an edge that a source lacks."""
    match rule:
        case Endpoint(node_name=node):
            return node not in unread
        case EdgesPerSource(type_name=edge):
            return edge not in unread
        case _:
            return True


def check_bucket(
    check: KeyCheck, owner: Owner, losers: Losers, bucket: int, read: ReadKeys
) -> CheckOutcome:
    """Check one rule over one bucket of keys."""
    return run_check(check, owner, without_losers(read, losers))


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
    """Every bad record with its reason, as NDJSON, in the order of the input."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "rejects.jsonl").open("wb") as file:
        for reject in sorted(rejects, key=lambda each: (each.part, each.violation.line or 0)):
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
