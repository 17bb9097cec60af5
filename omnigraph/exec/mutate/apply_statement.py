"""Statements of a mutation, run into the pending rows: insert, upsert, update, delete.

Invariant: a statement changes pending rows alone, and sees what earlier ones of its query did. What
follows a match sees the graph as the write found it; the check of the query has made sure that this
is the same.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, assert_never

import pyarrow as pa
from ulid import ULID

from omnigraph.catalog.ids import entity_id
from omnigraph.catalog.model import Catalog, EdgeType, NodeType, Type
from omnigraph.errors import ConstraintViolated, Violation
from omnigraph.exec.mutate.staging import Staging, update_each
from omnigraph.exec.search.vector_fill import embedded_properties
from omnigraph.exec.values.computed import constants_of
from omnigraph.exec.values.default_cells import default_values
from omnigraph.exec.values.named_ids import end_id
from omnigraph.plan import ir, mutation_ir
from omnigraph.plan.end_types import end_type
from omnigraph.plan.expressions import needs
from omnigraph.types import TableKey, ValueType, parse_table_key

Stored = Callable[[ir.Expr, ValueType, str], Any]
"""Evaluates an expression to a stored value of a type; the text names the property in errors."""

StoredConstant = Callable[[ir.Constant, ValueType, str], Any]
"""The same, of a value."""

Cells = Callable[[ir.Expr, ValueType, str], Sequence[Any]]
"""The stored values of an expression, one a row."""


def apply_statement(
    staging: Staging,
    given: Stored,
    statement: mutation_ir.PlainStatement,
    *,
    makes_vectors: bool,
) -> None:
    """Run one statement into the pending rows."""
    match statement:
        case mutation_ir.InsertNode() | mutation_ir.InsertEdge():
            _insert(staging, statement, 1, lambda *asked: [given(*asked)])
        case mutation_ir.UpsertRow():
            _upsert(staging, statement, 1, lambda *asked: [given(*asked)], makes_vectors)
        case mutation_ir.UpdateRows(table=table, sets=sets, where=where):
            fixed = tuple(s for s in sets if not needs(s.value))
            read = tuple(s for s in sets if needs(s.value))
            values = {s.name: given(s.value, s.type, _what(table, s)) for s in fixed}
            if makes_vectors:
                values |= _outdated(staging.catalog.of(table), {each.name for each in sets})
            staging.table(table).update(where, values, read)
        case mutation_ir.DeleteRows(table=table, where=where, cascades=cascades):
            staging.delete(table, where, cascades)
        case _:
            assert_never(statement)


def apply_to_rows(
    staging: Staging,
    given: Stored,
    stored: StoredConstant,
    op: mutation_ir.MatchedRows,
    rows: pa.Table,
    *,
    makes_vectors: bool,
) -> None:
    """Run a statement for each of the rows that its match found."""
    types = {column.name: column.type for column in op.read.columns}

    def cells(value: ir.Expr, target: ValueType, what: str) -> Sequence[Any]:
        if not isinstance(value, ir.Param) or value.name not in types:
            return [given(value, target, what)] * rows.num_rows if rows.num_rows else []
        column = rows.column(value.name).combine_chunks()
        return [stored(each, target, what) for each in constants_of(column, types[value.name])]

    statement = op.statement
    match statement:
        case mutation_ir.InsertNode() | mutation_ir.InsertEdge():
            _insert(staging, statement, rows.num_rows, cells)
        case mutation_ir.UpsertRow():
            _upsert(staging, statement, rows.num_rows, cells, makes_vectors)
        case mutation_ir.UpdateRows(table=table, sets=sets):
            values = {s.name: cells(s.value, s.type, _what(table, s)) for s in sets}
            if makes_vectors:
                outdated = _outdated(staging.catalog.of(table), set(values))
                values |= {name: [None] * rows.num_rows for name in outdated}
            ids = rows.column(0).to_pylist()
            each = zip(*values.values(), strict=True)
            last = dict(
                zip(ids, (dict(zip(values, row, strict=True)) for row in each), strict=True)
            )
            last.pop(None, None)
            update_each(staging.table(table), last)
        case mutation_ir.DeleteRows(table=table, cascades=cascades):
            ids = dict.fromkeys(id for id in rows.column(0).to_pylist() if id is not None)
            staging.delete_ids(table, list(ids), cascades)
        case _:
            assert_never(statement)


def _what(table: TableKey, column: mutation_ir.SetColumn) -> str:
    _, type_name = parse_table_key(table)
    return f"{type_name}.{column.name}"


def _rows(
    catalog: Catalog,
    statement: mutation_ir.InsertNode | mutation_ir.InsertEdge | mutation_ir.UpsertRow,
    count: int,
    cells: Cells,
) -> list[dict[str, Any]]:
    """The values that a statement gives to the entities it writes."""
    columns: dict[str, Sequence[Any]] = {}
    if not isinstance(statement, mutation_ir.InsertNode) and statement.source is not None:
        assert statement.target is not None
        edge = catalog.of(statement.table)
        assert isinstance(edge, EdgeType)
        for end, word, given, node in (
            ("src", "from", statement.source, catalog.nodes[edge.source]),
            ("dst", "to", statement.target, catalog.nodes[edge.target]),
        ):
            named = cells(given, end_type(node, given), word)
            columns[end] = [each if each is None else end_id(node, each) for each in named]
    for each in statement.sets:
        columns[each.name] = cells(each.value, each.type, _what(statement.table, each))
    return [{name: values[row] for name, values in columns.items()} for row in range(count)]


def _insert(
    staging: Staging,
    statement: mutation_ir.InsertNode | mutation_ir.InsertEdge,
    count: int,
    cells: Cells,
) -> None:
    owner = staging.catalog.of(statement.table)
    defaults = default_values(owner)
    for values in _rows(staging.catalog, statement, count, cells):
        row = {**defaults, **values}
        _require_key(owner, values if isinstance(owner, NodeType) else row)
        derived = entity_id(owner, values if isinstance(owner, NodeType) else row)
        name = str(ULID()) if derived is None else derived
        staging.table(statement.table).insert({"id": name, **row}, strict=derived is None)


def _require_key(owner: Type, values: Mapping[str, Any]) -> None:
    """Refuse a null key at once: without it the entity has no id for the rules to report."""
    for name in owner.key:
        if values.get(name) is None:
            text = f"insert @key property '{name}' cannot contain null"
            broken = Violation("key", owner.name, name, None, None, text)
            raise ConstraintViolated((broken,), 1)


def _outdated(owner: Type, names: Collection[str]) -> dict[str, None]:
    """The vectors of texts that a statement sets, which it does not set itself: made anew."""
    pairs = embedded_properties(owner)
    return {p.name: None for p, e in pairs if e.source in names and p.name not in names}


def _upsert(
    staging: Staging,
    statement: mutation_ir.UpsertRow,
    count: int,
    cells: Cells,
    makes_vectors: bool,
) -> None:
    owner = staging.catalog.of(statement.table)
    table, latest = staging.table(statement.table), dict[str, dict[str, Any]]()
    for values in _rows(staging.catalog, statement, count, cells):
        if makes_vectors:
            values |= _outdated(owner, set(values))
        _require_key(owner, values)
        name = entity_id(owner, values)
        assert name is not None
        latest[name] = {"id": name, **values}
    if count == 1:
        for row in latest.values():
            table.upsert(row, key=owner.key, defaults=default_values(owner))
        return
    sets = {
        name: {column: cell for column, cell in row.items() if column not in ("id", *owner.key)}
        for name, row in latest.items()
    }
    known = update_each(table, sets)
    for name, row in latest.items():
        if name not in known:
            table.insert({**default_values(owner), **row}, strict=True)
