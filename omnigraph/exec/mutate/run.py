"""A checked mutation, run: statements into staging, rules, one commit.

    values ─▶ statements ─▶ validate ─▶ stage ─▶ commit
    of the    pending       pending +   files    the one
    request   state         committed   only     protocol

Invariant: all statements or none. A mutation of inserts alone may be prepared again from a newer
base, because what it writes does not depend on what it read; updates and deletes are told that
another writer came first.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, assert_never

from ulid import ULID

from omnigraph.catalog.ids import entity_id
from omnigraph.catalog.model import Catalog, NodeType
from omnigraph.errors import (
    Conflict,
    ConstraintViolated,
    PreconditionFailed,
    Refused,
    VersionMismatch,
    Violation,
)
from omnigraph.exec.mutate.staging import Staging, type_of_table
from omnigraph.exec.mutate.validate import validate
from omnigraph.exec.values.constants import Given
from omnigraph.exec.values.from_input import ReadExternal
from omnigraph.exec.values.from_params import require_text, stored
from omnigraph.plan import ir
from omnigraph.plan.params import bind_parameters
from omnigraph.storage.external import ExternalBlobs
from omnigraph.storage.locks.turns import Turn
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.protocol.write import Write
from omnigraph.storage.records import Commit, CommitId
from omnigraph.storage.store import Store
from omnigraph.types import Kind, Scalar, TableKey, ValueType

_ID = ValueType(Scalar.STRING)

Stored = Callable[[ir.Expr, ValueType, str], Any]
"""The value of an expression as a column of some type holds it; the text says whose it is."""


@dataclass(frozen=True, slots=True)
class MutationResult:
    """What a mutation did. `commit` is None when it changed nothing."""

    branch: str
    query_name: str
    affected_nodes: int
    affected_edges: int
    actor_id: str | None
    commit: Commit | None


@dataclass(frozen=True, slots=True)
class Request:
    """A mutation to run, and where."""

    plan: ir.MutationPlan
    given: Given
    branch: str
    actor: str | None = None
    if_commit: str | None = None
    external: ExternalBlobs = field(default_factory=lambda: ExternalBlobs(()))


def request(
    plan: ir.MutationPlan,
    params: object,
    *,
    branch: str,
    actor: str | None = None,
    if_commit: str | None = None,
    external: ExternalBlobs | None = None,
) -> Request:
    """A request whose parameters have values and whose moment is now."""
    values = bind_parameters(plan.parameters, params)
    require_text(values)
    given = Given(values, time.time_ns() // 1_000_000)
    return Request(plan, given, branch, actor, if_commit, external or ExternalBlobs(()))


def run_mutation(store: Store, catalog: Catalog, asked: Request) -> MutationResult:
    """Commit what the statements do, or raise with nothing of it visible."""
    if asked.if_commit is not None:
        return _run_if(store, catalog, asked, CommitId(asked.if_commit))
    if all(isinstance(s, ir.InsertNode | ir.InsertEdge) for s in asked.plan.statements):
        return _insert(store, catalog, asked)
    return _attempt(store, catalog, asked)


def _insert(store: Store, catalog: Catalog, asked: Request) -> MutationResult:
    """Inserts alone may begin again. So they begin where this process saw the branch a moment ago
    and leave it to the commit to find that out of date; a refusal counts once it is not."""
    kind = asked.branch, tuple(statement.table for statement in asked.plan.statements)
    if not store.turns.is_crowded(kind):
        write = _begun(store, catalog, asked, recent=True)
        try:
            return _ended(store, write, catalog, asked)
        except (Refused, Conflict):
            if store.is_current(write):
                raise
    return store.turns.prepared_again(
        lambda turn: _attempt(store, catalog, asked, turn=turn), kind=kind
    )


def _run_if(store: Store, catalog: Catalog, asked: Request, head: CommitId) -> MutationResult:
    """Run on exactly this head. A head never comes back, so two looks enclose what was read."""
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
    return _ended(store, _begun(store, catalog, asked, turn=turn), catalog, asked, expected_head)


def _begun(
    store: Store,
    catalog: Catalog,
    asked: Request,
    *,
    turn: Turn | None = None,
    recent: bool = False,
) -> Write:
    return store.begin(
        asked.branch,
        kind=WriterKind.MUTATION,
        actor=asked.actor,
        schema=catalog.schema_id,
        recent=recent,
        turn=turn,
    )


def _ended(
    store: Store,
    write: Write,
    catalog: Catalog,
    asked: Request,
    expected_head: CommitId | None = None,
) -> MutationResult:
    """Run the statements through a write that was begun, and commit it."""
    staging = Staging(write, catalog, asked.given)
    values = partial(_stored, asked.given, asked.external.read)
    counts = {Kind.NODE: 0, Kind.EDGE: 0}
    for statement in asked.plan.statements:
        counts[_kind(statement.table)] += _run(staging, catalog, values, statement)
    validate(staging).require_none()
    commit = None
    if staging.changes_anything():
        staging.stage()
        commit = store.commit(write, expected_head=expected_head)
    return MutationResult(
        branch=asked.branch,
        query_name=asked.plan.name,
        affected_nodes=counts[Kind.NODE] + staging.removed_count(Kind.NODE),
        affected_edges=counts[Kind.EDGE] + staging.removed_count(Kind.EDGE),
        actor_id=asked.actor,
        commit=commit,
    )


def _kind(table: TableKey) -> Kind:
    return Kind(table.partition(":")[0])


# ---- statements


def _run(staging: Staging, catalog: Catalog, given: Stored, statement: ir.StatementOp) -> int:
    """Run one statement; how many rows it wrote. Removed rows are counted at the end."""
    match statement:
        case ir.InsertNode():
            return _insert_node(staging, catalog, given, statement)
        case ir.InsertEdge():
            return _insert_edge(staging, given, statement)
        case ir.UpdateRows(table=table, sets=sets, where=where):
            return staging.table(table).update(where, _values(given, table, sets))
        case ir.DeleteRows(table=table, where=where, cascades=cascades):
            staging.delete(table, where, cascades)
            return 0
        case _:
            assert_never(statement)


def _insert_node(
    staging: Staging, catalog: Catalog, given: Stored, statement: ir.InsertNode
) -> int:
    node = type_of_table(catalog, statement.table)
    assert isinstance(node, NodeType)
    values = _values(given, statement.table, statement.sets)
    _require_key(node, values)
    derived = entity_id(node, values)
    row = {"id": str(ULID()) if derived is None else derived, **values}
    staging.table(statement.table).insert(row, strict=derived is None)
    return 1


def _require_key(node: NodeType, values: Mapping[str, Any]) -> None:
    """A node without its key has no id to be checked under, so this cannot wait for the rules."""
    for name in node.key:
        if values.get(name) is None:
            text = f"insert @key property '{name}' cannot contain null"
            broken = Violation("key", node.name, name, None, None, text)
            raise ConstraintViolated((broken,), 1)


def _insert_edge(staging: Staging, given: Stored, statement: ir.InsertEdge) -> int:
    row = {
        "id": str(ULID()),
        "src": given(statement.source, _ID, "from"),
        "dst": given(statement.target, _ID, "to"),
        **_values(given, statement.table, statement.sets),
    }
    staging.table(statement.table).insert(row, strict=True)
    return 1


def _values(given: Stored, table: TableKey, sets: tuple[ir.SetColumn, ...]) -> dict[str, Any]:
    type_name = table.partition(":")[2]
    return {s.name: given(s.value, s.type, f"{type_name}.{s.name}") for s in sets}


def _stored(given: Given, read: ReadExternal, value: ir.Expr, target: ValueType, what: str) -> Any:
    return stored(given.of(value), target, what=what, read=read)
