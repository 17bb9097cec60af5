"""Mutation executor: runs checked statements into staging, checks the rules, commits once.

    values ─▶ statements ─▶ validate ─▶ stage ─▶ commit
    of the    pending       pending +   files    the one
    request   state         committed   only     protocol

Invariant: all statements or none. A mutation of inserts and upserts alone is retried from a newer
base: they are known by their keys. Updates and deletes raise `VersionMismatch` when another
writer came first, unless `retries` asks for the whole query to run again as if it had come later.
"""

import time
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from omnigraph import environment
from omnigraph.catalog.model import Catalog
from omnigraph.errors import (
    BadRequest,
    Conflict,
    ConstraintViolated,
    PreconditionFailed,
    Refused,
    VersionMismatch,
)
from omnigraph.exec.limits import Limits, watched
from omnigraph.exec.mutate.apply_statement import apply_statement, apply_to_rows
from omnigraph.exec.mutate.staging import Staging
from omnigraph.exec.mutate.validate import validate
from omnigraph.exec.read.reading import Reading
from omnigraph.exec.search.vector_fill import VectorFill, embedded_properties
from omnigraph.exec.values.computed import given_of
from omnigraph.exec.values.constants import Given
from omnigraph.exec.values.from_params import stored
from omnigraph.exec.values.scalars import ReadExternal
from omnigraph.exec.values.vector_base import vector_base
from omnigraph.language.moments import cut_count
from omnigraph.plan import ir, mutation_ir
from omnigraph.plan.facts import tables_read
from omnigraph.plan.params import bind_parameters
from omnigraph.storage.external import ExternalBlobs
from omnigraph.storage.locks.turns import LockTaken, Turn
from omnigraph.storage.names import require_text
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.protocol.once import written_once
from omnigraph.storage.protocol.write import Write
from omnigraph.storage.records import NO_NOTE, Commit, CommitId, CommitNote
from omnigraph.storage.retry import STRICT, change_budget
from omnigraph.storage.store import Store
from omnigraph.types import Kind, Scalar, ValueType, parse_table_key

_BY_KEY = mutation_ir.InsertNode | mutation_ir.InsertEdge | mutation_ir.UpsertRow
"""Statements that are prepared again from a newer base: what they write is known by its key."""

Matches = Callable[[mutation_ir.MatchedRows], pa.Table]
"""The rows that the match of a statement finds."""


@dataclass(frozen=True, slots=True)
class MutationResult:
    """Result of a mutation. `commit` is None when it changed nothing; `rounded` counts values
    given that were cut to the millisecond, by `Type.property`. `repeated`: nothing was done, the
    commit is that of an earlier mutation `once`.

    >>> done = graph.mutate("query q() { update Person set { age: 37 } where age = 36 }")
    >>> done.affected_nodes
    1
    """

    branch: str
    query_name: str
    affected_nodes: int
    affected_edges: int
    actor_id: str | None
    commit: Commit | None
    rounded: dict[str, int] = field(default_factory=dict)
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """A mutation plan with its parameters, branch and precondition."""

    plan: mutation_ir.MutationPlan
    given: Given
    branch: str
    note: CommitNote = NO_NOTE
    if_commit: str | None = None
    retries: int = 0
    external: ExternalBlobs = field(default_factory=lambda: ExternalBlobs(()))
    once: str | None = None  # a name of this mutation: a branch has one commit of it at most
    fill: VectorFill | None = None  # of vectors that are made from texts
    reading: Reading | None = None  # runs what statements match

    @property
    def matches(self) -> bool:
        """Whether a statement writes what a pattern finds."""
        return reads_by_match(self.plan)


def reads_by_match(plan: mutation_ir.MutationPlan) -> bool:
    """Whether a statement of a mutation writes what a pattern finds."""
    return any(isinstance(each, mutation_ir.MatchedRows) for each in plan.statements)


def request(
    plan: mutation_ir.MutationPlan,
    params: object,
    *,
    branch: str,
    note: CommitNote = NO_NOTE,
    if_commit: str | None = None,
    retries: int | None = None,
    external: ExternalBlobs | None = None,
    once: str | None = None,
    fill: VectorFill | None = None,
    reading: Reading | None = None,
) -> Request:
    """A request with bound parameters; `now()` is the current time. Without `retries`, those of
    the environment."""
    values = bind_parameters(plan.parameters, params)
    with watched(Limits.from_environment()):
        given = given_of(plan, values, time.time_ns() // 1_000_000)
    again = _checked_retries(retries, if_commit)
    if once is not None:
        require_text("the name of a mutation `once`", once)
    blobs = external or ExternalBlobs(())
    return Request(plan, given, branch, note, if_commit, again, blobs, once, fill, reading)


def _checked_retries(retries: int | None, if_commit: str | None) -> int:
    if retries is not None and retries < 0:
        raise BadRequest(f"retries is {retries}", "pass 0 or more")
    if if_commit is None:
        return environment.WRITE_RETRIES.read() if retries is None else retries
    if retries:
        raise BadRequest(
            "retries does not go with if_commit: a write for one head is not prepared on another",
            "pass one of them",
        )
    return 0


def run_mutation(store: Store, catalog: Catalog, asked: Request) -> MutationResult:
    """Run the statements and commit, or raise with nothing visible. One `once` that a commit of
    the branch is of already does nothing and returns that commit."""
    once = asked.once
    if once is None:
        return _run_now(store, catalog, asked)
    store.heal()
    return written_once(
        lambda: store.marked(asked.branch, once),
        lambda: _run_now(store, catalog, asked),
        lambda done: _repeated(asked, done),
    )


def _repeated(asked: Request, done: Commit) -> MutationResult:
    affected = {Kind.NODE: 0, Kind.EDGE: 0}
    for key, counts in done.counts.items():
        kind, _ = parse_table_key(key)
        affected[kind] += counts.inserted + counts.updated + counts.deleted
    return MutationResult(
        branch=asked.branch,
        query_name=asked.plan.name,
        affected_nodes=affected[Kind.NODE],
        affected_edges=affected[Kind.EDGE],
        actor_id=asked.note.actor,
        commit=done,
        repeated=True,
    )


def _run_now(store: Store, catalog: Catalog, asked: Request) -> MutationResult:
    if asked.if_commit is not None:
        return _run_if(store, catalog, asked, CommitId(asked.if_commit))
    if are_by_key(asked):
        return _insert(store, catalog, asked)
    if asked.retries:
        return _run_again(store, catalog, asked)
    kind = _kind(asked, "strict")
    return store.turns.prepared_again(
        lambda turn: _attempt(store, catalog, asked, turn=turn), budget=STRICT, kind=kind
    )


def _kind(asked: Request, how: str) -> Hashable:
    """Mutations of one kind take about the same locks: a delete those of edges too, one that is
    named `once` the publish lock."""
    shape = tuple((type(_plain(each)).__name__, each.table) for each in asked.plan.statements)
    return asked.branch, how, asked.once is None, shape


def are_by_key(asked: Request) -> bool:
    """Whether a mutation may be prepared again from a newer base without being asked to."""
    return all(isinstance(_plain(each), _BY_KEY) for each in asked.plan.statements)


def _plain(statement: mutation_ir.StatementOp) -> mutation_ir.PlainStatement:
    if isinstance(statement, mutation_ir.MatchedRows):
        return statement.statement
    return statement


def _insert(store: Store, catalog: Catalog, asked: Request) -> MutationResult:
    """Optimistic insert: begin from the head this process saw last, without reading the branch.
    The commit finds a stale base; a refusal counts only when the base is current. A match reads the
    branch: of one that finds nothing, no commit would tell that its base was stale."""
    kind = _kind(asked, "insert")
    first: Turn | None = None
    if not asked.matches and not store.turns.is_crowded(kind):
        first = Turn(may_lose=True)
        write = begun(store, catalog, asked, recent=True, turn=first)
        try:
            return _run_and_commit(store, write, catalog, asked)
        except (Refused, Conflict):
            if store.is_current(write):
                raise
        except LockTaken:
            pass
    return store.turns.prepared_again(
        lambda turn: _attempt(store, catalog, asked, turn=turn), kind=kind, lost=first
    )


def _run_again(store: Store, catalog: Catalog, asked: Request) -> MutationResult:
    """Run, and after a lost race again on the new head, up to `retries` times. A broken rule is a
    lost race too when the head moved meanwhile: what broke it may be gone."""
    kind = _kind(asked, "again")
    write: Write | None = None

    def attempt(turn: Turn) -> MutationResult:
        nonlocal write
        write = begun(store, catalog, asked, turn=turn)
        return _run_and_commit(store, write, catalog, asked)

    def is_race(loss: Exception) -> bool:
        broke_rule = isinstance(loss, ConstraintViolated)
        return not (broke_rule and write is not None and store.is_current(write))

    budget = change_budget(asked.retries)
    return store.turns.prepared_again(attempt, budget=budget, kind=kind, counts=is_race)


def _run_if(store: Store, catalog: Catalog, asked: Request, head: CommitId) -> MutationResult:
    """Run on exactly this head (compare-and-swap). A head never recurs, so checking it before and
    after encloses every read."""
    _require_head(store, asked.branch, head)
    try:
        result = _attempt(store, catalog, asked, expected_head=head)
    except (VersionMismatch, ConstraintViolated):
        _require_head(store, asked.branch, head)
        raise
    if result.commit is None:
        _require_head(store, asked.branch, head)
    return result


def _require_head(store: Store, branch: str, expected: CommitId) -> None:
    actual = store.snapshot(branch).commit_id
    if actual != expected:
        raise PreconditionFailed(branch, expected, actual)


def _attempt(
    store: Store,
    catalog: Catalog,
    asked: Request,
    *,
    expected_head: CommitId | None = None,
    turn: Turn | None = None,
) -> MutationResult:
    return _run_and_commit(
        store, begun(store, catalog, asked, turn=turn), catalog, asked, expected_head
    )


def begun(
    store: Store,
    catalog: Catalog,
    asked: Request,
    *,
    turn: Turn | None = None,
    recent: bool = False,
) -> Write:
    """A write for a mutation, on the head of its branch; `recent`: on the head seen last."""
    return store.begin(
        asked.branch,
        kind=WriterKind.MUTATION,
        **asked.note.stated,
        schema=catalog.schema_id,
        recent=recent,
        turn=turn,
    )


def _run_and_commit(
    store: Store,
    write: Write,
    catalog: Catalog,
    asked: Request,
    expected_head: CommitId | None = None,
) -> MutationResult:
    """Run the statements through an open write, and commit it."""
    staging = Staging(write, catalog, asked.given)
    rounded = run_statements(staging, asked, partial(_matched, store, write, staging, asked))
    validate(staging).require_none()
    commit = None
    if staging.changes_anything():
        staging.stage()
        commit = store.commit(write, expected_head=expected_head, mark=asked.once)
    nodes, edges = (staging.affected_count(kind) for kind in (Kind.NODE, Kind.EDGE))
    return result_of(asked, nodes, edges, rounded, commit)


def result_of(
    asked: Request, nodes: int, edges: int, rounded: Counter[str], commit: Commit | None
) -> MutationResult:
    """The result of a mutation that affected so many nodes and edges."""
    return MutationResult(
        branch=asked.branch,
        query_name=asked.plan.name,
        affected_nodes=nodes,
        affected_edges=edges,
        actor_id=asked.note.actor,
        commit=commit,
        rounded=dict(sorted((+rounded).items())),
    )


def _matched(
    store: Store, write: Write, staging: Staging, asked: Request, op: mutation_ir.MatchedRows
) -> pa.Table:
    """The rows of a match at the base of a write, whose commit holds only if the tables that were
    read stay as they are."""
    assert asked.reading is not None
    for table in sorted(tables_read(op.read, staging.catalog)):
        write.read(table)
    return asked.reading.rows_of(op.read, asked.given, store.snapshot(seen_by=write)).to_arrow()


def run_statements(staging: Staging, asked: Request, matches: Matches | None) -> Counter[str]:
    """Run the statements into the pending rows; returns the values cut, by `Type.property`."""
    rounded: Counter[str] = Counter()
    constant = partial(_stored, asked.external.read, rounded)
    makes_vectors = asked.fill is not None

    def values(value: ir.Expr, target: ValueType, what: str) -> Any:
        return constant(asked.given.of(value), target, what)

    for each in asked.plan.statements:
        if isinstance(each, mutation_ir.MatchedRows):
            assert matches is not None, "it has a commit of its own"
            rows = matches(each)
            apply_to_rows(staging, values, constant, each, rows, makes_vectors=makes_vectors)
        else:
            apply_statement(staging, values, each, makes_vectors=makes_vectors)
    if asked.fill is not None:
        fill_vectors(staging, asked.fill)
    return rounded


def fill_vectors(staging: Staging, fill: VectorFill) -> None:
    """Give the pending rows the vectors of their texts."""
    for table in staging.touched():
        rows = table.rows()
        if not rows.num_rows or not embedded_properties(table.owner):
            continue
        done = fill.filled(table.owner, rows, vector_base(table.reader, staging.recorded))
        table.put_columns(done.columns)
        staging.embeds(done.embedded)


def _stored(
    read: ReadExternal, rounded: Counter[str], value: ir.Constant, target: ValueType, what: str
) -> Any:
    cell = stored(value, target, what=what, read=read)
    if target.scalar is Scalar.DATETIME:
        rounded[what] += cut_count([cell])
    return cell
