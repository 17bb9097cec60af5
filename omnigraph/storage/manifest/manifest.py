"""`__manifest`: which table versions are visible on a branch, and the one write that changes it.

Invariant: `publish` is one Lance commit that replaces the branch's head row, so two publishers on a
branch always touch the same fragment and Lance lets one of them through. Lance never retries for
us: each attempt reads the branch again and re-checks what the caller expects, so a concurrent
advance surfaces as `VersionMismatch` and is never rebased through.

A `State` is immutable. A newer one is read from the fragments the older one has not seen, so a
refresh costs what was published since, and costs nothing but a version check when nothing was. Who
is about to find out anyway whether it was overtaken (an insert under its table locks, a publisher
through its commit) may build on a recent state and spare the check.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Lock

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from lance.dataset import LanceOperation, Transaction
from lance.fragment import FragmentMetadata, LanceFragment, write_fragments

from omnigraph.errors import (
    NotFound,
    PreconditionFailed,
    Reclaimed,
    SchemaChanged,
    StorageFailed,
    VersionMismatch,
)
from omnigraph.storage import failpoints, stamp
from omnigraph.storage.lance.datasets import CommitRaced, Datasets, Handle
from omnigraph.storage.lance.refs import ForkId
from omnigraph.storage.locks.locks import Locks, hold
from omnigraph.storage.manifest.timeline import TableHistory
from omnigraph.storage.names import MAIN, decode, lock_name, owner_of
from omnigraph.storage.records import (
    GRAPH_COMMIT,
    GRAPH_HEAD,
    MANIFEST_SCHEMA,
    TABLE,
    TABLE_TOMBSTONE,
    TABLE_VERSION,
    Commit,
    CommitId,
    Head,
    OperationId,
    Origin,
    Row,
    SchemaId,
    Snapshot,
    TablePin,
    Tombstone,
    commit_row,
    decode_commit,
    decode_head,
    decode_pin,
    head_id,
    head_row,
    manifest_batch,
    table_row,
    tombstone_row,
    version_row,
    visible,
)
from omnigraph.storage.stats import Stats
from omnigraph.types import TableKey

LOCATION = "__manifest"
PUBLISHER_RETRY_BUDGET = 5
RECLAIM_AGE_S = 120.0
"""Cleanup removes no version, of the manifest or of a table, that was published or replaced more
recently. Processes rely on it that look at least twice as often: they take the absence of the next
version for the proof that nothing happened, and Lance takes the versions between two commits for
the proof that they do not conflict."""

RECENT_S = 5.0
"""How long a state may be built on without a look, and how long to look after others were met."""

_PAST_MAX = 16

_STATE_COLUMNS = [
    "object_id",
    "object_type",
    "location",
    "metadata",
    "table_key",
    "table_version",
    "table_branch",
    "row_count",
]


Fragment = LanceFragment


def now_s() -> float:
    """A clock that only counts up, also while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def publish_lock(branch: str) -> str:
    """The lock publishers of a branch take turns on. The commit itself decides; turns only keep
    writers of different tables from using up each other's attempts."""
    return lock_name("publish", branch)


@dataclass(frozen=True, slots=True)
class Change:
    """What one publish makes visible."""

    commit_id: CommitId
    pins: tuple[TablePin, ...] = ()
    tombstones: tuple[Tombstone, ...] = ()
    new_tables: tuple[TablePin, ...] = ()
    actor: str | None = None
    merged_parent: CommitId | None = None
    merged_from: Origin | None = None
    operation_id: OperationId | None = None
    schema: SchemaId | None = None  # None: as it was
    mark: str | None = None


@dataclass(frozen=True, slots=True)
class State:
    """A branch's manifest at one version."""

    branch: str
    identity: ForkId | None
    handle: Handle
    seen: frozenset[int]
    pins: dict[TableKey, TablePin]
    tombstones: tuple[Tombstone, ...]
    heads: dict[str, Head]
    declared: frozenset[tuple[TableKey, str]]  # tables that have or had their row, with its folder
    version: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "version", int(self.handle.version))

    @property
    def locations(self) -> frozenset[str]:
        """Every folder that a table has or had."""
        return frozenset(location for _, location in self.declared)


class Manifest:
    """The manifest of one graph, on all its branches."""

    def __init__(self, uri: str, datasets: Datasets, locks: Locks, stats: Stats) -> None:
        self._uri = uri
        self._datasets = datasets
        self._locks = locks
        self._stats = stats
        self._states: dict[str, State] = {}
        self._looked: dict[str, float] = {}  # when this process last saw a branch
        self._met: dict[str, float] = {}  # when it last found that others publish there too
        self._snapshots: dict[str, tuple[State, Snapshot]] = {}
        self._past: dict[str, State] = {}
        self._turn = Lock()

    # Reading

    def state(self, branch: str, *, own: bool = False) -> State:
        """The branch as it is now. What is new is this process's `own` work, or that of others."""
        identity = self.identity(branch)
        known = self._states.get(branch)
        if known is not None and known.identity != identity:
            known = None
        version = None
        if known is not None:
            version = self._datasets.latest_version(LOCATION, owner_of(branch), known.version)
            if version == known.version and self._counts(branch):
                self._looked[branch] = now_s()
                return known
            version = None if version == known.version else version
        with self._reading(branch, identity):
            handle = self._datasets.open(LOCATION, owner_of(branch), version)
            if known is not None and int(handle.version) == known.version:
                self._looked[branch] = now_s()
                return known
            state = self._read(branch, identity, handle, known)
        self._remember(state)
        self._looked[branch] = now_s()
        if known is not None and not own:
            self._met[branch] = now_s()
        return state

    def _counts(self, branch: str) -> bool:
        """Whether versions of a branch can still be counted up from the one this process knows: a
        version it has not seen is there for `RECLAIM_AGE_S` at least."""
        return now_s() - self._looked.get(branch, -math.inf) <= RECLAIM_AGE_S / 2

    def recent(self, branch: str) -> State:
        """The branch as this process saw it a moment ago, if it seemed to be the only publisher;
        else as it is now. Only for those who will find out whether it was overtaken."""
        known, now = self._states.get(branch), now_s()
        looked, met = self._looked.get(branch, -math.inf), self._met.get(branch, -math.inf)
        if known is None or now - looked > RECENT_S or now - met <= RECENT_S:
            return self.state(branch)
        return known

    def known(self, branch: str) -> State | None:
        """The branch as this process last saw it, without a look."""
        return self._states.get(branch)

    def branched(self, branch: str, source: State) -> None:
        """A branch was created at a state of another, and shows what that shows."""
        self.forget(branch)
        handle = self._datasets.open(LOCATION, branch, source.version)
        identity = self.identity(branch)
        self._remember(replace(source, branch=branch, identity=identity, handle=handle))
        self._looked[branch] = now_s()

    def _remember(self, state: State) -> None:
        """Keep the newest state of a branch; threads that read at once may finish in any order."""
        with self._turn:
            known = self._states.get(state.branch)
            if known is None or known.identity != state.identity or known.version <= state.version:
                self._states[state.branch] = state

    def identity(self, branch: str) -> ForkId | None:
        """The incarnation of a branch: None for main, `NotFound` when there is no such branch."""
        if branch == MAIN:
            return None
        ref = self._datasets.ref(LOCATION, branch)
        if ref is None:
            raise NotFound("branch", branch)
        return ref.identity

    @contextmanager
    def _reading(self, branch: str, identity: ForkId | None) -> Iterator[None]:
        """Say of a branch that was deleted while it was read that there is none."""
        try:
            yield
        except (NotFound, Reclaimed) as cause:
            try:
                is_there = self.identity(branch) == identity
            except NotFound:
                is_there = False
            if is_there:
                raise
            raise NotFound("branch", branch, "it was deleted meanwhile") from cause

    def head(self, state: State) -> CommitId:
        """The commit a branch is at. One never written to is at the commit it was created from."""
        return self._head(state).commit

    def schema(self, state: State) -> SchemaId | None:
        """The schema that holds on a branch."""
        return self._head(state).schema

    def _head(self, state: State) -> Head:
        found = state.heads.get(self._head_row_of(state))
        if found is None:
            raise StorageFailed(
                f"read the head of branch {state.branch}", "__manifest has no head row for it"
            )
        return found

    def snapshot(self, state: State) -> Snapshot:
        """What a read of this state sees: of one state always the same value."""
        known = self._snapshots.get(state.branch)
        if known is None or known[0] is not state:
            known = self._snapshots[state.branch] = (state, self._snapshot(state))
        return known[1]

    def _snapshot(self, state: State) -> Snapshot:
        return Snapshot(
            branch=state.branch,
            commit_id=self.head(state),
            manifest_version=state.version,
            internal_schema_version=stamp.read(state.handle.schema, uri=self._uri),
            tables=dict(state.pins),
            schema=self.schema(state),
        )

    def at_commit(self, commit: Commit) -> Snapshot:
        """What a read at a past commit sees."""
        try:
            handle = self._datasets.open(LOCATION, commit.branch, commit.manifest_version)
        except NotFound as cause:
            raise Reclaimed("commit", f"'{commit.id}'") from cause
        state = self._past_state(commit, handle)
        return replace(self._snapshot(state), commit_id=commit.id)

    def _past_state(self, commit: Commit, handle: Handle) -> State:
        """A branch as it was, read from an earlier time of it that was looked at before: who goes
        through history commit by commit reads what each of them added."""
        branch = commit.branch or MAIN
        identity = self.identity(branch)
        known = self._past.get(branch)
        if known is None or known.identity != identity or known.version > int(handle.version):
            known = None
        state = self._read(branch, identity, handle, known)
        with self._turn:
            self._past[branch] = state
            while len(self._past) > _PAST_MAX:
                del self._past[next(iter(self._past))]
        return state

    def _read(
        self, branch: str, identity: ForkId | None, handle: Handle, known: State | None
    ) -> State:
        stamp.require_supported(handle.schema, uri=self._uri)
        fragments = handle.get_fragments()
        seen = frozenset() if known is None else known.seen
        fresh = [fragment for fragment in fragments if fragment.fragment_id not in seen]
        with self._datasets.lance_call("scan_manifest", branch):
            rows = handle.scanner(
                columns=_STATE_COLUMNS,
                filter=f"object_type <> '{GRAPH_COMMIT}'",
                fragments=fresh,
                with_row_address=True,
            ).to_table()
        pins = tuple(known.pins.values()) if known else ()
        stones = known.tombstones if known else ()
        return State(
            branch,
            identity,
            handle,
            frozenset(fragment.fragment_id for fragment in fragments),
            visible((*pins, *_latest_pins(rows)), stones := (*stones, *_tombstones(rows))),
            stones,
            {**(known.heads if known else {}), **_heads(rows)},
            (known.declared if known else frozenset()) | _declared(rows),
        )

    def find(self, state: State, ids: Iterable[CommitId]) -> tuple[Commit, ...]:
        """Those of the commits that a branch has, looked up without reading the whole lineage."""
        wanted = ", ".join(f"'{_quoted(commit_id)}'" for commit_id in ids)
        filter = f"object_type = '{GRAPH_COMMIT}' AND object_id IN ({wanted})"
        return self.commits(state, filter, None)

    def marked(self, state: State, mark: str) -> Commit | None:
        """The commit of a branch that carries a mark."""
        encoded = _quoted(orjson.dumps(mark).decode())
        filter = f"object_type = '{GRAPH_COMMIT}' AND contains(metadata, '{encoded}')"
        found = (c for c in self.commits(state, filter, None) if c.mark == mark)
        return next(found, None)

    def commits(
        self, state: State, filter: str, fragments: Sequence[LanceFragment] | None
    ) -> tuple[Commit, ...]:
        """The commits that match, from some fragments or from all."""
        with (
            self._reading(state.branch, state.identity),
            self._datasets.lance_call("scan_lineage", state.branch),
        ):
            rows = state.handle.scanner(
                columns=["object_id", "metadata", "_row_created_at_version"],
                filter=filter,
                fragments=fragments,
            ).to_table()
        return tuple(decode_commit(row) for row in rows.to_pylist())

    def commits_by_fragment(
        self, state: State, fragments: Sequence[LanceFragment]
    ) -> dict[int, dict[CommitId, Commit]]:
        """Every commit in some fragments, by the number of its fragment."""
        with (
            self._reading(state.branch, state.identity),
            self._datasets.lance_call("scan_lineage", state.branch),
        ):
            rows = state.handle.scanner(
                columns=["object_id", "metadata", "_row_created_at_version", "_rowaddr"],
                filter=f"object_type = '{GRAPH_COMMIT}'",
                fragments=fragments,
            ).to_table()
        found: dict[int, dict[CommitId, Commit]] = {f.fragment_id: {} for f in fragments}
        for row in rows.to_pylist():
            commit = decode_commit(row)
            found[row["_rowaddr"] >> 32][commit.id] = commit
        return found

    def table_history(self, state: State) -> TableHistory:
        """Every version of every table that a branch has or had, and when it became visible."""
        with (
            self._reading(state.branch, state.identity),
            self._datasets.lance_call("scan_table_history", state.branch),
        ):
            rows = state.handle.scanner(
                columns=[*_STATE_COLUMNS, "_row_created_at_version"],
                filter=f"object_type IN ('{TABLE_VERSION}', '{TABLE_TOMBSTONE}')",
            ).to_table()
        return TableHistory(rows)

    def _head_row_of(self, state: State) -> str:
        """The head row that speaks for a branch: its own, or the nearest ancestor's."""
        branch = state.branch
        while head_id(branch) not in state.heads and branch != MAIN:
            ref = self._datasets.ref(LOCATION, branch)
            parent = None if ref is None else ref.parent_branch
            branch = MAIN if parent is None else decode(parent)
        return head_id(branch)

    # Publishing

    def publish(
        self,
        branch: str,
        change: Change,
        *,
        expected_table_versions: Mapping[TableKey, int],
        expected_head: CommitId | None = None,
        locked: bool = False,
    ) -> Commit:
        """Make a change visible as one commit, or raise with nothing of it visible."""

        def require(state: State) -> None:
            self.require(state, expected_table_versions, expected_head)

        if locked:
            return self._publish(branch, change, require)
        with hold(self._locks, [publish_lock(branch)]):
            return self._publish(branch, change, require)

    def _publish(self, branch: str, change: Change, require: Callable[[State], None]) -> Commit:
        state = self.recent(branch)
        for _ in range(PUBLISHER_RETRY_BUDGET):
            require(state)
            try:
                return self._publish_once(state, change)
            except CommitRaced:
                self._stats.event("phase_c.raced", branch=branch, commit=change.commit_id)
            state = self.state(branch)
            landed = self.find(state, [change.commit_id])
            if landed:  # a put that a client repeats for a lost answer loses against itself
                return landed[0]
        raise StorageFailed(
            f"published commit {change.commit_id}",
            f"{PUBLISHER_RETRY_BUDGET} attempts lost to other writers",
        )

    def require(
        self,
        state: State,
        expected: Mapping[TableKey, int],
        expected_head: CommitId | None = None,
        expected_schema: SchemaId | None = None,
    ) -> None:
        """Pass only when the schema and each named table are exactly as the caller saw them."""
        self.require_schema(state, expected_schema)
        for table_key, version in expected.items():
            pin = state.pins.get(table_key)
            actual = 0 if pin is None else pin.version
            if actual != version:
                raise VersionMismatch(table_key, version, actual)
        if expected_head is not None and (head := self.head(state)) != expected_head:
            raise PreconditionFailed(state.branch, expected_head, head)

    def require_schema(self, state: State, expected: SchemaId | None) -> None:
        """Pass only when the branch has this schema, or none is named."""
        actual = self.schema(state)
        if expected is not None and actual is not None and actual != expected:
            raise SchemaChanged(state.branch, expected, actual)

    def _publish_once(self, state: State, change: Change) -> Commit:
        commit = Commit(
            id=change.commit_id,
            parent=self.head(state),
            merged_parent=change.merged_parent,
            merged_from=change.merged_from,
            actor=change.actor,
            created_at=time.time_ns() // 1000,
            branch=owner_of(state.branch),
            manifest_version=state.version + 1,
            operation_id=change.operation_id,
            mark=change.mark,
        )
        failpoints.hit("publish.before")
        transaction = self._stage(state, change, commit)
        failpoints.hit("publish.staged")
        handle = self._datasets.commit(state.handle, transaction)
        stamp.require_supported(handle.schema, uri=self._uri)  # of versions it was rebased over
        commit = replace(commit, manifest_version=int(handle.version))
        self._advance(state, handle, change)
        self._stats.event("phase_c.published", branch=state.branch, commit=commit.id)
        failpoints.hit("publish.after")
        return commit

    def _stage(self, state: State, change: Change, commit: Commit) -> Transaction:
        """Stage the new rows together with the removal of the head row they supersede."""
        old_head = self._head_row_of(state)
        # The branch's first commit replaces the head row it inherited: without an existing row to
        # collide on, two first commits would both go through.
        rows: list[Row] = [head_row(state.branch, commit.id, self._next_schema(state, change))]
        new = (pin for pin in change.new_tables if _declaration(pin) not in state.declared)
        rows += (table_row(pin.table_key, pin.location) for pin in new)
        rows += map(version_row, change.pins)
        rows += map(tombstone_row, change.tombstones)
        rows.append(commit_row(commit))
        with self._datasets.lance_call("stage_publish", state.branch):
            fragments = write_fragments(manifest_batch(rows), state.handle, mode="append")
            return Transaction(
                state.version,
                _replacing(state.handle, state.heads[old_head].address, old_head, fragments),
            )

    def _next_schema(self, state: State, change: Change) -> SchemaId | None:
        return change.schema or self.schema(state)

    def _advance(self, state: State, handle: Handle, change: Change) -> None:
        """Remember what was just published without reading it back."""
        if handle.version != state.version + 1:
            return  # rebased over a fold: the next look reads it
        ids = frozenset(fragment.fragment_id for fragment in handle.get_fragments())
        new = max(ids)
        old_head = self._head_row_of(state)
        heads = {row: at for row, at in state.heads.items() if row != old_head}
        schema = self._next_schema(state, change)
        heads[head_id(state.branch)] = Head(change.commit_id, new << 32, schema)  # its first row
        stones = (*state.tombstones, *change.tombstones)
        pins = visible((*state.pins.values(), *change.pins), stones)
        declared = state.declared | set(map(_declaration, change.new_tables))
        self._looked[state.branch] = now_s()
        self._remember(
            replace(
                state,
                handle=handle,
                seen=ids,
                pins=pins,
                tombstones=stones,
                heads=heads,
                declared=declared,
            )
        )

    def close(self) -> None:
        """Drop everything remembered."""
        with self._turn:
            self._states.clear()
            self._looked.clear()
            self._met.clear()
            self._snapshots.clear()
            self._past.clear()

    def forget(self, branch: str) -> None:
        """Drop what is remembered of a branch."""
        with self._turn:
            self._states.pop(branch, None)
            self._looked.pop(branch, None)
            self._met.pop(branch, None)
            self._snapshots.pop(branch, None)
            self._past.pop(branch, None)


def create(
    datasets: Datasets,
    pins: Iterable[TablePin],
    genesis: CommitId,
    actor: str | None,
    schema: SchemaId | None = None,
) -> None:
    """Write the first version of a manifest: every table, and a commit without parent or data."""
    commit = Commit(genesis, None, None, actor, time.time_ns() // 1000, None, 1)
    rows = [head_row(MAIN, genesis, schema)]
    for pin in pins:
        rows += [table_row(pin.table_key, pin.location), version_row(pin)]
    rows.append(commit_row(commit))
    datasets.create(LOCATION, manifest_batch(rows))


def _replacing(
    handle: Handle, address: int, head: str, fragments: list[FragmentMetadata]
) -> LanceOperation.BaseOperation:
    """The update that swaps the head row for the new rows. It must touch the old row's fragment:
    that is what the compare-and-swap collides on."""
    fragment_id = address >> 32
    fragment = handle.get_fragment(fragment_id)
    if fragment is None:
        raise StorageFailed("staged a publish", f"the fragment of {head} is gone")
    left = fragment.delete_rows([address & 0xFFFFFFFF])
    if left is not None and left.num_deletions == fragment.num_deletions:
        raise StorageFailed("staged a publish", f"{head} is not where the manifest showed it")
    fields = list(range(len(MANIFEST_SCHEMA) + 1))
    return LanceOperation.Update(
        removed_fragment_ids=[fragment_id] if left is None else [],
        updated_fragments=[] if left is None else [left],
        new_fragments=fragments,
        fields_for_preserving_frag_bitmap=fields,
        update_mode="rewrite_rows",
    )


def _quoted(text: str) -> str:
    return text.replace("'", "''")


def _latest_pins(rows: pa.Table) -> list[TablePin]:
    """The latest version of each table, branch and folder. Arrow drops history before Python sees
    it."""
    rows = rows.filter(pc.equal(rows["object_type"], TABLE_VERSION))
    rows = rows.sort_by("table_version")
    columns = ["metadata", "table_version", "row_count"]
    groups = rows.group_by(["table_key", "table_branch", "location"], use_threads=False)
    last = groups.aggregate(
        [(column, "last", pc.ScalarAggregateOptions(skip_nulls=False)) for column in columns]
    )
    last = last.rename_columns([name.removesuffix("_last") for name in last.column_names])
    return [decode_pin(row) for row in last.to_pylist()]


def _declared(rows: pa.Table) -> frozenset[tuple[TableKey, str]]:
    rows = rows.filter(pc.equal(rows["object_type"], TABLE))
    names = map(TableKey, rows["table_key"].to_pylist())
    return frozenset(zip(names, rows["location"].to_pylist(), strict=True))


def _declaration(pin: TablePin) -> tuple[TableKey, str]:
    return pin.table_key, pin.location


def _tombstones(rows: pa.Table) -> tuple[Tombstone, ...]:
    rows = rows.filter(pc.equal(rows["object_type"], TABLE_TOMBSTONE))
    return tuple(
        Tombstone(
            TableKey(row["table_key"]),
            row["table_version"],
            row["table_branch"],
            row["location"] or "",
        )
        for row in rows.to_pylist()
    )


def _heads(rows: pa.Table) -> dict[str, Head]:
    rows = rows.filter(pc.equal(rows["object_type"], GRAPH_HEAD))
    return {row["object_id"]: decode_head(row) for row in rows.to_pylist()}
