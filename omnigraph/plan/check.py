"""Type checking: queries to typed trees, every name resolved, or the first fault.

Invariant: a typed tree can be lowered without asking the catalog or the source again.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from omnigraph.catalog.model import Catalog
from omnigraph.catalog.near_names import did_you_mean
from omnigraph.deferred import deferred
from omnigraph.language.query import ast
from omnigraph.light_dataclass import dataclass
from omnigraph.plan import ir
from omnigraph.plan.expressions import substituted
from omnigraph.plan.fixed_values import fixed_value
from omnigraph.plan.function_types import common_type
from omnigraph.plan.object_columns import spread
from omnigraph.plan.operands import as_type, nullable_if, parameter_operand
from omnigraph.plan.patterns import check_pattern, inner_matches
from omnigraph.plan.returns import TypedReturn, check_return
from omnigraph.plan.scope import Names, NodeVar, Scope
from omnigraph.plan.typed import TypedPattern
from omnigraph.types import INTEGERS, Span, ValueType

if TYPE_CHECKING:
    from omnigraph.plan import mutation_ir
    from omnigraph.plan.matched_writes import check_matched
    from omnigraph.plan.statements import check_statement
else:
    mutation_ir = deferred("omnigraph.plan", "mutation_ir")
    check_matched = deferred("omnigraph.plan.matched_writes", "check_matched")
    check_statement = deferred("omnigraph.plan.statements", "check_statement")


_CLAUSES_A_STAGE = 3  # it runs as up to three operators


@dataclass(frozen=True, slots=True)
class TypedRead:
    """A checked read."""

    pattern: TypedPattern
    returns: TypedReturn
    distinct: bool
    limit: int | None
    offset: int
    limit_from: ir.Param | None
    offset_from: ir.Param | None
    parameters: tuple[ir.Parameter, ...]
    computed: tuple[ir.Computed, ...]
    stages: "tuple[TypedStage, ...]" = ()


@dataclass(frozen=True, slots=True)
class TypedStage:
    """A checked stage, and what its columns are called from there on."""

    read: TypedRead
    outs: tuple[ir.StageColumn, ...]


@dataclass(frozen=True, slots=True)
class TypedMatched:
    """A checked statement, and the read whose rows it is done for."""

    read: TypedRead
    statement: "mutation_ir.PlainStatement"


@dataclass(frozen=True, slots=True)
class TypedMutation:
    """A checked mutation. Its statements need no further lowering, but for the reads of some."""

    statements: "tuple[mutation_ir.PlainStatement | TypedMatched, ...]"
    parameters: tuple[ir.Parameter, ...]
    computed: tuple[ir.Computed, ...]


@dataclass(frozen=True, slots=True)
class TypedUnion:
    """Checked reads of one shape, and the types of their columns."""

    reads: tuple[TypedRead, ...]
    union: ast.Union
    types: tuple[ValueType, ...]


Typed = TypedRead | TypedUnion | TypedMutation


def check_query(query: ast.Query, catalog: Catalog, source: str) -> Typed:
    """The typed query, or `TypeCheckError`."""
    names = Names(catalog, source, {p.name: p.type for p in query.parameters})
    names.count_values(len(query.parameters), query.span)
    parameters = tuple(_parameter(catalog, source, p) for p in query.parameters)
    body = query.body
    if isinstance(body, ast.Mutation):
        statements = tuple(_statement(names, s) for s in body.statements)
        return TypedMutation(statements, parameters, tuple(names.computed.values()))
    if isinstance(body, ast.Read):
        return _checked_read(names, body, parameters)[0]
    reads = tuple(_checked_read(names, read, parameters, in_union=True)[0] for read in body.reads)
    types = _column_types(names, body, reads)
    computed = tuple(names.computed.values())
    return TypedUnion(tuple(replace(read, computed=computed) for read in reads), body, types)


def _statement(
    names: Names, statement: ast.Statement
) -> "mutation_ir.PlainStatement | TypedMatched":
    if isinstance(statement, ast.Update | ast.Delete) or statement.rows is None:
        assert not isinstance(statement, ast.UpdateMatched | ast.DeleteMatched)
        return check_statement(names, statement)
    return TypedMatched(*check_matched(names, statement, statement.rows, _checked_read))


def _checked_read(
    names: Names,
    body: ast.Read,
    parameters: tuple[ir.Parameter, ...] = (),
    *,
    in_union: bool = False,
) -> tuple[TypedRead, Scope]:
    """A read, and the scope of its last part."""
    scope, stages = Scope(names), list[TypedStage]()
    for each in body.stages:
        stage, scope = _stage(scope, each, parameters)
        stages.append(stage)
    part = _checked_part(scope, body, parameters, in_union=in_union)
    return replace(part, stages=tuple(stages)), scope


def _stage(
    scope: Scope, stage: ast.Read, parameters: tuple[ir.Parameter, ...]
) -> tuple[TypedStage, Scope]:
    """A stage, and the scope that it leaves."""
    names, after = scope.names, Scope(scope.names)
    names.count_clause(stage.span, _CLAUSES_A_STAGE)
    for projection in stage.projections:
        if projection.object_fields:
            text = "an object cannot go on to another match"
            hint = "let the variable go on, and make the object in return"
            raise names.fail(projection.span, text, code="T9", hint=hint)
        is_named = isinstance(projection.expression, ast.Variable) or projection.alias is not None
        if not is_named:
            text = "a value that goes on needs a name"
            hint = "write it with as: count(*) as n"
            raise names.fail(projection.span, text, hint=hint)
    typed = _checked_part(scope, stage, parameters)
    outs = list[ir.StageColumn]()
    for projection, column in zip(stage.projections, typed.returns.columns, strict=True):
        given = projection.expression
        variable = given if isinstance(given, ast.Variable) else None
        name = projection.alias.text if projection.alias is not None else str(column.name)
        if name in names.parameters or after.find(name) or after.element(name):
            raise names.fail(projection.span, f"${name} is bound already", hint="choose another")
        bound = None if variable is None else scope.find(variable.name)
        if isinstance(bound, NodeVar) and isinstance(column.value, ir.EntityId):
            after.bind(name, replace(bound, var=ir.Var(name)))
            outs.append(ir.StageColumn(ir.Var(name), bound.var))
        else:
            slot = names.slot(name)
            after.values[name] = ir.SlotRef(slot, column.type)
            outs.append(ir.StageColumn(slot))
    return TypedStage(typed, tuple(outs)), after


def _checked_part(
    scope: Scope,
    body: ast.Read,
    parameters: tuple[ir.Parameter, ...],
    *,
    in_union: bool = False,
) -> TypedRead:
    """A read from the rows of a scope."""
    names = scope.names
    names.count_values(len(body.projections) + len(body.orderings), body.span)
    pattern = check_pattern(scope, body.clauses)
    shown = spread(scope, body.projections, in_union=in_union)
    body = replace(body, projections=shown.projections)
    matches = list(pattern.matches)

    def inner(clauses: tuple[ast.Clause, ...], span: Span, exists: bool) -> ir.Slot:
        matches.append(inner_matches(scope, clauses, span, exists))
        return matches[-1].slot

    returns = check_return(scope, body, inner, shown.object_columns)
    pattern = replace(pattern, matches=tuple(matches))
    computed = tuple(names.computed.values())
    limit, offset = body.limit, body.offset
    limit_from, offset_from = _count_parameter(names, limit), _count_parameter(names, offset)
    return TypedRead(
        pattern=pattern,
        returns=returns,
        distinct=body.distinct,
        limit=None if limit is None else 0 if isinstance(limit, ast.Variable) else limit,
        offset=0 if offset is None or isinstance(offset, ast.Variable) else offset,
        limit_from=limit_from,
        offset_from=offset_from,
        parameters=parameters,
        computed=computed,
    )


def _column_types(
    names: Names, union: ast.Union, reads: tuple[TypedRead, ...]
) -> tuple[ValueType, ...]:
    """The types of the columns of a union, or T7 for reads that have no shape in common."""
    shapes = [read.returns.columns for read in reads]
    objects = [[(o.start, o.fields) for o in read.returns.object_columns] for read in reads]
    for read, own in zip(union.reads[1:], objects[1:], strict=True):
        if own != objects[0]:
            text = "the objects of a union must have the same fields in the same columns"
            raise names.fail(read.span, text, code="T7", hint="name them: name: $c.title")
    for read, shape in zip(union.reads[1:], shapes[1:], strict=True):
        if len(shape) != len(shapes[0]):
            text = f"a union of {len(shapes[0])} columns and of {len(shape)}"
            hint = "each query of a union returns the same columns"
            raise names.fail(read.span, text, code="T7", hint=hint)
    types = list[ValueType]()
    for number, columns in enumerate(zip(*shapes, strict=True)):
        kinds = [column.type for column in columns]
        common = kinds[0] if len(set(kinds)) == 1 else common_type(kinds)
        if common is None:
            listed = " and ".join(dict.fromkeys(map(str, kinds)))
            text = f"column {number + 1} of a union must have one type, not {listed}"
            raise names.fail(union.reads[-1].span, text, code="T7", hint="cast it: I64(x)")
        if not all(union.keeps_equal) and (common.is_list or common.is_vector):
            text = f"rows cannot be made distinct by a {common}"
            raise names.fail(union.reads[-1].span, text, code="T9", hint="write union all")
        types.append(nullable_if(common, any(kind.nullable for kind in kinds)))
    return tuple(types)


def _count_parameter(names: Names, count: int | ast.Variable | None) -> ir.Param | None:
    """The parameter that says how many rows; None for a count that is written down."""
    if not isinstance(count, ast.Variable):
        return None
    parameter = parameter_operand(names, count)
    if parameter is None:
        text = f"${count.name} is not a declared parameter"
        near = did_you_mean(count.name, names.parameters, listed=False)
        hint = f"{near} declare it: query name(${count.name}: I64)".strip()
        raise names.fail(count.span, text, code="T14", hint=hint)
    if parameter.type.scalar not in INTEGERS or parameter.type.is_list:
        text = f"limit and offset take whole numbers, ${count.name} is {parameter.type}"
        raise names.fail(count.span, text, code="T7", hint="declare it as I64")
    return parameter


def _parameter(catalog: Catalog, source: str, declared: ast.Parameter) -> ir.Parameter:
    """A declared parameter with its default, which sees no other parameter."""
    given, names = declared.default, Names(catalog, source, {})
    if given is None:
        return ir.Parameter(declared.name, declared.type)
    what = f"${declared.name}"
    if isinstance(given, ast.Literal | ast.ListLiteral):
        value: ir.Expr = as_type(names, given, declared.type, what)
    else:
        value = fixed_value(names, given, declared.type, what)
        value = _unfolded(value, tuple(names.computed.values()))
    return ir.Parameter(declared.name, declared.type, value)


def _unfolded(value: ir.Expr, computed: tuple[ir.Computed, ...]) -> ir.Expr:
    """The expression itself, in the place of the parameters that would hold its parts."""
    parts = dict[str, ir.Expr]()

    def known(part: object) -> ir.Expr | None:
        return parts.get(part.name) if isinstance(part, ir.Param) else None

    for each in computed:
        parts[each.name] = substituted(each.value, known)
    whole: ir.Expr = substituted(value, known)
    return whole
