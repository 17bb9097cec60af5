"""The second half of a load, from rows that were read to the commit: the same for every engine.

    key rules ─▶ stage ─▶ commit;  again from a new base when a writer of other rows came first

Invariant: no table head moves before every rule was asked. What an attempt wrote is used by the
next one as far as it is still good.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

import orjson
import pyarrow as pa

from omnigraph.catalog.model import Catalog, NodeType
from omnigraph.errors import NotFound
from omnigraph.exec.load.checks import Outcome, id_keys, losers_of, run_check, without_losers
from omnigraph.exec.load.committed import Committed, Planned
from omnigraph.exec.load.recheck import Rechecked, inserted_since
from omnigraph.exec.load.records import Owner
from omnigraph.exec.load.request import LoadRequest
from omnigraph.exec.load.spill import Spill, place_of
from omnigraph.exec.load.upsert import Each, Upsert, at_hand, kept_rows, row_keys
from omnigraph.exec.rules.faults import Faults, Reject
from omnigraph.exec.values.selection import KEYS_MAX
from omnigraph.storage.lance.tables import Fragments, TableReader
from omnigraph.storage.locks.turns import Turn
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.protocol.write import Write
from omnigraph.storage.records import Commit, TablePin
from omnigraph.storage.store import Store
from omnigraph.types import TableKey

Item = TypeVar("Item")
Done = TypeVar("Done")
Losers = dict[TableKey, pa.Array]
RunChecks = Callable[[list[Planned], Spill, Spill, Losers], Faults]
_AHEAD = 2


@dataclass(slots=True)
class Taken:
    """What was read: counts, faults, keys and where the rows are."""

    counts: dict[TableKey, int]
    faults: Faults
    fragments: dict[TableKey, Fragments] = field(default_factory=dict)
    rows: Spill | None = None  # of a merge


@dataclass(slots=True)
class Finish:
    """From rows that were read to the commit: the same for every engine."""

    store: Store
    catalog: Catalog
    request: LoadRequest
    keys: Spill
    taken: Taken
    folder: Path
    files: Sequence[str | None] = ()
    first_lines: Sequence[int] = ()
    run_checks: RunChecks = field(default_factory=lambda: run_all)
    each: Each = at_hand
    _losers: Losers = field(default_factory=dict)
    _upsert: Upsert | None = None
    _checked: dict[TableKey, TablePin] = field(default_factory=dict)

    def commit(self, write: Write, told: Callable[[str, int], None]) -> Commit:
        """Check the key rules, stage and publish; again from a new base when a writer of other
        rows came first. Files that were written stay good for the next attempt."""
        attempts = iter([write])

        def attempt(turn: Turn) -> Commit:
            request = self.request
            current = next(attempts, None) or self.store.begin(
                request.branch,
                kind=WriterKind.LOAD,
                actor=request.actor,
                schema=self.catalog.schema_id,
            )
            current.turn = turn
            told("check", sum(self.taken.counts.values()))
            self._check(current)
            told("stage", sum(self.taken.counts.values()))
            self._stage(current)
            return self.store.commit(current, mark=request.once)

        # An overwrite is what its caller saw or nothing.
        done = (
            attempt(Turn())
            if self.request.mode == "overwrite"
            else self.store.turns.prepared_again(attempt)
        )
        told("done", sum(self.taken.counts.values()))
        return done

    @property
    def touched(self) -> frozenset[TableKey]:
        named = self.request.owner
        return frozenset(self.taken.counts) | ({named.table} if named is not None else set())

    def _check(self, write: Write) -> None:
        faults = Faults(self.taken.faults.keep_rejects)
        faults.merge(self.taken.faults)
        self._losers = self._find_losers()
        held = Spill(self.folder, self.keys.buckets)
        seen: dict[TableKey, TablePin] = {}

        def read(table: TableKey) -> TableReader:
            reader = write.read(table)
            seen[table] = reader.pin
            return reader

        mode = self.request.mode
        inserted = inserted_since(self.store, self._checked, read) if self._checked else None
        asked = (self.catalog, mode, self.touched, read, self.keys, held, self.each, self.store)
        planned = (
            Committed(*asked) if inserted is None else Rechecked(*asked, inserted=inserted)
        ).checks()
        faults.merge(self.run_checks(planned, self.keys, held, self._losers))
        if faults:
            told = faults.located(self.files, self.first_lines)
            if self.request.rejects is not None:
                write_rejects(self.request.rejects, told.rejects)
            raise told.error()
        self._checked = seen

    def _find_losers(self) -> Losers:
        """Rows that a later one of the same id replaces. A key that comes twice is refused."""
        found: Losers = {}
        if self.request.mode == "merge":
            for table in self.touched:
                owner = _owner(self.catalog, table)
                if isinstance(owner, NodeType) and owner.key:
                    continue
                lost = losers_of(owner, self.keys.buckets, self.keys.read)
                if len(lost):
                    found[table] = lost
        return found

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
        owner, losers = _owner(self.catalog, table), self._losers.get(table)
        replaces = write.read(table).count() and self.keys.rows(id_keys(table).name)
        if count <= KEYS_MAX:
            # Few rows are found by their ids, which have an index.
            few = kept_rows(owner, rows.every(row_keys(table).name), losers)
            (write.upsert if replaces else write.append)(table, few)
            return
        if self._upsert is None:
            self._upsert = Upsert(self.store, self.folder, self.each)
        self._upsert.stage(write, owner, self.keys, rows, losers)


def run_all(planned: list[Planned], keys: Spill, held: Spill, losers: Losers) -> Faults:
    """Every check over every bucket, a few of them at once."""
    faults = Faults(keep_rejects=True)

    def read(name: str, bucket: int) -> pa.Table | None:
        parts = [t for t in (keys.read(name, bucket), held.read(name, bucket)) if t is not None]
        return pa.concat_tables(parts) if parts else None

    read_kept = without_losers(read, losers)

    asked = [(check, owner, bucket) for check, owner in planned for bucket in range(keys.buckets)]
    outcomes = ahead(lambda each: run_check(*each, read_kept), iter(asked))
    for outcome in outcomes:
        add_outcome(faults, outcome)
    return faults


def add_outcome(faults: Faults, outcome: Outcome) -> None:
    """Count what a check found, each with the part and line it came from."""
    for at, violation in outcome.violations:
        part, line = (0, None) if at is None else place_of(at)
        faults.add(part, replace(violation, line=line))
    more = outcome.total - len(outcome.violations)
    if more > 0:
        faults.counts[outcome.violations[0][1].rule] += more


def _owner(catalog: Catalog, table: TableKey) -> Owner:
    kind, _, name = table.partition(":")
    found = catalog.nodes.get(name) if kind == "node" else catalog.edges.get(name)
    if found is None:
        raise NotFound("type", name)
    return found


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


def ahead(work: Callable[[Item], Done], items: Iterator[Item]) -> Iterator[Done]:
    """The results in order, a few of them worked out ahead in other threads. A single one is worked
    out here."""
    first = list(islice(items, 2))
    if len(first) < 2:
        yield from map(work, first)
        return
    with ThreadPoolExecutor(min(_AHEAD, os.cpu_count() or 1)) as pool:
        waiting: list[Future[Done]] = []
        for item in chain(first, items):
            waiting.append(pool.submit(work, item))
            if len(waiting) > _AHEAD:
                yield waiting.pop(0).result()
        for job in waiting:
            yield job.result()
