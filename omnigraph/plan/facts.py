"""Query metadata derived from a plan: result fields, types read, types written.

Invariant: reads and writes name every type whose data the plan may look at or change, sorted and
without repeats.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import assert_never

from omnigraph.catalog.model import Catalog, EdgeType
from omnigraph.language.query import ast
from omnigraph.plan import ir, mutation_ir
from omnigraph.plan.returns import is_compound
from omnigraph.types import Scalar, TableKey, ValueType, parse_table_key


@dataclass(frozen=True, slots=True)
class Field:
    """One result value. `item_kind` is set for lists, `vector_dim` for vectors, `fields` for
    objects that are made of some."""

    name: str
    kind: str
    nullable: bool
    item_kind: str | None = None
    vector_dim: int | None = None
    fields: "tuple[Field, ...]" = ()

    def to_json(self) -> dict[str, object]:
        document: dict[str, object] = {"name": self.name, "kind": self.kind}
        if self.item_kind is not None:
            document["item_kind"] = self.item_kind
        if self.vector_dim is not None:
            document["vector_dim"] = self.vector_dim
        if self.fields:
            document["fields"] = [field.to_json() for field in self.fields]
        return {**document, "nullable": self.nullable}


@dataclass(frozen=True, slots=True)
class Operation:
    """The metadata of a query: its result fields, and the tables it reads and writes."""

    result: tuple[Field, ...]
    reads: tuple[TableKey, ...]
    writes: tuple[TableKey, ...]

    def to_json(self) -> dict[str, object]:
        return {
            "result": [field.to_json() for field in self.result],
            "reads": [_fact(table) for table in self.reads],
            "writes": [_fact(table) for table in self.writes],
        }


def _fact(table: TableKey) -> dict[str, str]:
    kind, type_name = parse_table_key(table)
    return {"kind": str(kind), "type_name": type_name}


def describe(query: ast.Query, plan: mutation_ir.Plan, catalog: Catalog) -> Operation:
    """The operation of a query that compiled to `plan`."""
    match plan:
        case ir.ReadPlan():
            assert not isinstance(query.body, ast.Mutation)
            read = query.body if isinstance(query.body, ast.Read) else query.body.reads[0]
            result = tuple(_fields(read.projections, _columns(plan), plan.object_columns))
            return Operation(result, _sorted(tables_read(plan, catalog)), ())
        case mutation_ir.MutationPlan(statements=statements):
            reads = _sorted(tables_read(plan, catalog))
            writes = _sorted(table for s in statements for table in tables_written(s))
            return Operation((), reads, writes)
        case _:
            assert_never(plan)


def _sorted(tables: Iterable[TableKey]) -> tuple[TableKey, ...]:
    return tuple(sorted(set(tables)))


def tables_read(plan: mutation_ir.Plan, catalog: Catalog) -> frozenset[TableKey]:
    """Every table whose data decides the result. Both ends of an edge count as read."""
    match plan:
        case ir.ReadPlan(union=ir.Union(parts=parts)):
            return frozenset[TableKey]().union(*(tables_read(part, catalog) for part in parts))
        case ir.ReadPlan(pattern=pattern):
            return frozenset[TableKey]().union(*(_op_tables(op, catalog) for op in pattern))
        case mutation_ir.MutationPlan(statements=statements):
            return frozenset[TableKey]().union(*(_statement_reads(s, catalog) for s in statements))
        case _:
            assert_never(plan)


def _op_tables(op: ir.PatternOp, catalog: Catalog) -> frozenset[TableKey]:
    match op:
        case ir.NodeScan(table=table, members=members):
            return frozenset({table} if members is None else {m.table for m in members})
        case ir.Expand(edge=edge) | ir.ExpandEdges(edge=edge):
            declared = catalog.of(edge)
            assert isinstance(declared, EdgeType)
            ends = (catalog.nodes[declared.source].table, catalog.nodes[declared.target].table)
            return frozenset({edge, *ends})
        case ir.ExpandPaths(legs=legs):
            walked = {table for leg in legs for table in (leg.edge, leg.source, leg.target)}
            return frozenset({*op.targets, *walked})
        case ir.Filter() | ir.Unwind() | ir.Stage():
            return frozenset()
        case ir.SemiJoin(inner=inner) | ir.Matches(inner=inner) | ir.LeftJoin(inner=inner):
            return frozenset[TableKey]().union(*(_op_tables(o, catalog) for o in inner))
        case _:
            assert_never(op)


def _statement_reads(statement: mutation_ir.StatementOp, catalog: Catalog) -> frozenset[TableKey]:
    match statement:
        case mutation_ir.MatchedRows(read=read, statement=inner):
            return tables_read(read, catalog) | _statement_reads(inner, catalog)
        case mutation_ir.InsertEdge(table=table, source_table=source, target_table=target):
            return frozenset({table, source, target})
        case mutation_ir.UpsertRow(table=table, end_tables=ends):
            return frozenset({table, *ends})
        case (
            mutation_ir.InsertNode(table=table)
            | mutation_ir.UpdateRows(table=table)
            | mutation_ir.DeleteRows(table=table)
        ):
            return frozenset({table})
        case _:
            assert_never(statement)


def tables_written(statement: mutation_ir.StatementOp) -> frozenset[TableKey]:
    """Every table a statement may change, those it cascades to included."""
    match statement:
        case mutation_ir.MatchedRows(statement=inner):
            return tables_written(inner)
        case mutation_ir.DeleteRows(table=table, cascades=cascades):
            return frozenset({table, *(cascade.edge for cascade in cascades)})
        case (
            mutation_ir.InsertNode(table=table)
            | mutation_ir.InsertEdge(table=table)
            | mutation_ir.UpsertRow(table=table)
            | mutation_ir.UpdateRows(table=table)
        ):
            return frozenset({table})
        case _:
            assert_never(statement)


# Result fields


def _columns(plan: ir.ReadPlan) -> tuple[ir.OutputColumn, ...]:
    if plan.union is None:
        return plan.columns
    pairs = zip(plan.columns, plan.union.types, strict=True)
    return tuple(replace(column, type=kind) for column, kind in pairs)


def _fields(
    projections: tuple[ast.Projection, ...],
    columns: tuple[ir.OutputColumn, ...],
    objects: tuple[ir.ObjectColumn, ...],
) -> Iterator[Field]:
    """A field for each column. `$v.*` has as many as follow that are properties of its variable."""
    waiting, shapes = deque(columns), deque(objects)
    for projection in projections:
        if projection.object_fields:
            yield _object_field(shapes.popleft(), waiting)
            continue
        star = projection.expression
        if not isinstance(star, ast.EveryProperty):
            if waiting:
                yield _field(projection, waiting.popleft())
            continue
        while waiting and _is_property_of(star.variable.name, waiting[0]):
            column = waiting.popleft()
            name = ast.Name(column.name.partition(".")[2])
            yield _field(ast.Projection(ast.PropertyRef(star.variable, name)), column)


def _object_field(shape: ir.ObjectColumn, waiting: deque[ir.OutputColumn]) -> Field:
    if shape.may_be_null:
        waiting.popleft()
    fields = tuple(typed_field(name, waiting.popleft().type) for name in shape.fields)
    return Field(shape.name, "object", shape.may_be_null, fields=fields)


def _is_property_of(variable: str, column: ir.OutputColumn) -> bool:
    value = column.value
    return isinstance(value, ir.Column) and column.name == f"{variable}.{value.name}"


def _field(projection: ast.Projection, column: ir.OutputColumn) -> Field:
    name = projection.alias.text if projection.alias else _static_name(projection.expression)
    value_type = column.type
    if isinstance(projection.expression, ast.Variable) and isinstance(column.value, ir.EntityId):
        return Field(name, "object", value_type.nullable)
    return typed_field(name, value_type)


def typed_field(name: str, value_type: ValueType) -> Field:
    """The field of a value of a type: of a result, or of a parameter."""
    if value_type.is_vector:
        return Field(name, "vector", value_type.nullable, vector_dim=value_type.dimension)
    if value_type.is_list:
        item = _kind(value_type.scalar)
        return Field(name, "list", value_type.nullable, item_kind=item)
    return Field(name, _kind(value_type.scalar), value_type.nullable)


def _kind(scalar: Scalar) -> str:
    match scalar:
        case Scalar.STRING:
            return "string"
        case Scalar.BLOB:
            return "blob"
        case Scalar.BOOL:
            return "bool"
        case Scalar.I32 | Scalar.U32:
            return "int"
        case Scalar.I64 | Scalar.U64:
            return "bigint"
        case Scalar.F32 | Scalar.F64:
            return "float"
        case Scalar.DATE:
            return "date"
        case Scalar.DATETIME:
            return "datetime"
        case Scalar.VECTOR:
            return "vector"
        case _:
            assert_never(scalar)


def _static_name(expression: ast.Expr) -> str:
    """The bare property or function name: descriptors do not use runtime column names."""
    match expression:
        case ast.PropertyRef(property=name):
            return name.text
        case ast.Variable(name=text):
            return text
        case ast.Aggregate(function=function) | ast.TextCall(function=function):
            return str(function)
        case ast.Nearest() | ast.Bm25() | ast.Rrf():
            return type(expression).__name__.lower()
        case ast.Now():
            return "now"
        case ast.Call(function=name):
            return name.text
        case _:
            return "expression" if is_compound(expression) else "literal"
