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
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, assert_never

from ulid import ULID

from omnigraph import environment
from omnigraph.catalog.ids import entity_id
from omnigraph.catalog.model import Catalog, NodeType, Type
from omnigraph.errors import (
    BadRequest,
    Conflict,
    ConstraintViolated,
    PreconditionFailed,
    Refused,
    VersionMismatch,
    Violation,
)
from omnigraph.exec.mutate.staging import Staging
from omnigraph.exec.mutate.validate import validate
from omnigraph.exec.search.vector_fill import VectorFill, embedded_properties
from omnigraph.exec.values.computed import given_of
from omnigraph.exec.values.constants import Given
from omnigraph.exec.values.default_cells import default_values
from omnigraph.exec.values.from_params import require_text, stored
from omnigraph.exec.values.scalars import ReadExternal
from omnigraph.exec.values.selection import rows_by_key
from omnigraph.language.moments import cut_count
from omnigraph.plan import ir, mutation_ir
from omnigraph.plan.expressions import needs
from omnigraph.plan.params import bind_parameters
from omnigraph.storage.external import ExternalBlobs
from omnigraph.storage.locks.turns import Turn
from omnigraph.storage.names import require_text as require_plain
from omnigraph.storage.protocol.intent import AlreadyMarked, WriterKind
from omnigraph.storage.protocol.write import Write
from omnigraph.storage.records import NO_NOTE, Commit, CommitId, CommitNote
from omnigraph.storage.retry import change_budget
from omnigraph.storage.store import Store
from omnigraph.types import ID_TYPE, Kind, Scalar, TableKey, ValueType, parse_table_key

_BY_KEY = mutation_ir.InsertNode | mutation_ir.InsertEdge | mutation_ir.UpsertRow
"""Statements that are prepared again from a newer base: what they write is known by its key."""

Stored = Callable[[ir.Expr, ValueType, str], Any]
"""Evaluates an expression to a stored value of a type; the text names the property in errors."""


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
) -> Request:
    """A request with bound parameters; `now()` is the current time. Without `retries`, those of
    the environment."""
    values = bind_parameters(plan.parameters, params)
    require_text(values)
    given = given_of(plan, values, time.time_ns() // 1_000_000)
    again = _checked_retries(retries, if_commit)
    if once is not None:
        require_plain("the name of a mutation `once`", once)
    blobs = external or ExternalBlobs(())
    return Request(plan, given, branch, note, if_commit, again, blobs, once, fill)


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
    if asked.once is None:
        return _run_now(store, catalog, asked)
    store.heal()
    done = store.marked(asked.branch, asked.once)
    if done is not None:
        return _repeated(asked, done)
    try:
        return _run_now(store, catalog, asked)
    except AlreadyMarked as raced:
        return _repeated(asked, raced.commit)


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
    return _attempt(store, catalog, asked)


def are_by_key(asked: Request) -> bool:
    """Whether a mutation may be prepared again from a newer base without being asked to."""
    return all(isinstance(statement, _BY_KEY) for statement in asked.plan.statements)


def _insert(store: Store, catalog: Catalog, asked: Request) -> MutationResult:
    """Optimistic insert: begin from the head this process saw last, without reading the branch.
    The commit finds a stale base; a refusal counts only when the base is current."""
    kind = asked.branch, tuple(statement.table for statement in asked.plan.statements)
    if not store.turns.is_crowded(kind):
        write = begun(store, catalog, asked, recent=True)
        try:
            return _run_and_commit(store, write, catalog, asked)
        except (Refused, Conflict):
            if store.is_current(write):
                raise
    return store.turns.prepared_again(
        lambda turn: _attempt(store, catalog, asked, turn=turn), kind=kind
    )


def _run_again(store: Store, catalog: Catalog, asked: Request) -> MutationResult:
    """Run, and after a lost race again on the new head, up to `retries` times. A broken rule is a
    lost race too when the head moved meanwhile: what broke it may be gone."""
    kind = asked.branch, "again", tuple(statement.table for statement in asked.plan.statements)
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
    rounded = run_statements(staging, catalog, asked)
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


def run_statements(staging: Staging, catalog: Catalog, asked: Request) -> Counter[str]:
    """Run the statements into the pending rows; returns the values cut, by `Type.property`."""
    rounded: Counter[str] = Counter()
    values = partial(_stored, asked.given, asked.external.read, rounded)
    for statement in asked.plan.statements:
        _run(staging, catalog, values, statement, makes_vectors=asked.fill is not None)
    if asked.fill is not None:
        fill_vectors(staging, asked.fill)
    return rounded


def fill_vectors(staging: Staging, fill: VectorFill) -> None:
    """Give the pending rows the vectors of their texts."""
    for table in staging.touched():
        rows = table.rows()
        if not rows.num_rows or not embedded_properties(table.owner):
            continue
        reader = table.reader
        committed = partial(rows_by_key, reader, "id") if reader.pin.row_count else None
        table.put_columns(fill.filled(table.owner, rows, committed))


# ---- statements


def _run(
    staging: Staging,
    catalog: Catalog,
    given: Stored,
    statement: mutation_ir.StatementOp,
    *,
    makes_vectors: bool,
) -> None:
    """Run one statement into the pending rows."""
    match statement:
        case mutation_ir.InsertNode():
            _insert_node(staging, catalog, given, statement)
        case mutation_ir.InsertEdge():
            _insert_edge(staging, catalog, given, statement)
        case mutation_ir.UpsertRow():
            _upsert(staging, catalog, given, statement, makes_vectors=makes_vectors)
        case mutation_ir.UpdateRows(table=table, sets=sets, where=where):
            fixed = tuple(s for s in sets if not needs(s.value))
            read = tuple(s for s in sets if needs(s.value))
            values = _values(given, table, fixed)
            if makes_vectors:
                values |= _outdated(catalog.of(table), {each.name for each in sets})
            staging.table(table).update(where, values, read)
        case mutation_ir.DeleteRows(table=table, where=where, cascades=cascades):
            staging.delete(table, where, cascades)
        case _:
            assert_never(statement)


def _insert_node(
    staging: Staging, catalog: Catalog, given: Stored, statement: mutation_ir.InsertNode
) -> None:
    node = catalog.of(statement.table)
    assert isinstance(node, NodeType)
    values = _values(given, statement.table, statement.sets)
    _require_key(node, values)
    derived = entity_id(node, values)
    name = str(ULID()) if derived is None else derived
    row = {"id": name, **default_values(node), **values}
    staging.table(statement.table).insert(row, strict=derived is None)


def _require_key(owner: Type, values: Mapping[str, Any]) -> None:
    """Refuse a null key at once: without it the entity has no id for the rules to report."""
    for name in owner.key:
        if values.get(name) is None:
            text = f"insert @key property '{name}' cannot contain null"
            broken = Violation("key", owner.name, name, None, None, text)
            raise ConstraintViolated((broken,), 1)


def _insert_edge(
    staging: Staging, catalog: Catalog, given: Stored, statement: mutation_ir.InsertEdge
) -> None:
    edge = catalog.of(statement.table)
    values = {
        "src": given(statement.source, ID_TYPE, "from"),
        "dst": given(statement.target, ID_TYPE, "to"),
        **default_values(edge),
        **_values(given, statement.table, statement.sets),
    }
    _require_key(edge, values)
    derived = entity_id(edge, values)
    row = {"id": str(ULID()) if derived is None else derived, **values}
    staging.table(statement.table).insert(row, strict=derived is None)


def _outdated(owner: Type, names: Collection[str]) -> dict[str, None]:
    """The vectors of texts that a statement sets, which it does not set itself: made anew."""
    pairs = embedded_properties(owner)
    return {p.name: None for p, e in pairs if e.source in names and p.name not in names}


def _upsert(
    staging: Staging,
    catalog: Catalog,
    given: Stored,
    statement: mutation_ir.UpsertRow,
    *,
    makes_vectors: bool,
) -> None:
    owner = catalog.of(statement.table)
    values = _values(given, statement.table, statement.sets)
    if makes_vectors:
        values |= _outdated(owner, set(values))
    if statement.source is not None and statement.target is not None:
        values["src"] = given(statement.source, ID_TYPE, "from")
        values["dst"] = given(statement.target, ID_TYPE, "to")
    _require_key(owner, values)
    values["id"] = entity_id(owner, values)
    staging.table(statement.table).upsert(values, key=owner.key, defaults=default_values(owner))


def _values(
    given: Stored, table: TableKey, sets: tuple[mutation_ir.SetColumn, ...]
) -> dict[str, Any]:
    _, type_name = parse_table_key(table)
    return {s.name: given(s.value, s.type, f"{type_name}.{s.name}") for s in sets}


def _stored(
    given: Given,
    read: ReadExternal,
    rounded: Counter[str],
    value: ir.Expr,
    target: ValueType,
    what: str,
) -> Any:
    cell = stored(given.of(value), target, what=what, read=read)
    if target.scalar is Scalar.DATETIME:
        rounded[what] += cut_count([cell])
    return cell
