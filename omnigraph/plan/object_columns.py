"""Objects and `$v.*` of a `return` spread into plain columns, which later leave as they are meant.

Invariant: the columns of an object stand side by side, under names that no alias can have. Nothing
after this knows objects, until a result is made: groups, `distinct`, order and shares see columns.
"""

from collections.abc import Iterator

from omnigraph.language.query import ast
from omnigraph.light_dataclass import dataclass
from omnigraph.plan import ir
from omnigraph.plan.returns import has_aggregate
from omnigraph.plan.scope import EdgeVar, NodeVar, Scope

_PRESENCE = "?"


@dataclass(frozen=True, slots=True)
class SpreadReturn:
    """Plain projections, and which of them are the fields of objects."""

    projections: tuple[ast.Projection, ...]
    object_columns: tuple[ir.ObjectColumn, ...]


def spread(
    scope: Scope, projections: tuple[ast.Projection, ...], *, in_union: bool = False
) -> SpreadReturn:
    """The columns, one a property for `$v.*` and one a field for an object.

    In a union every object may be null, so that the parts have columns alike.
    """
    columns, objects = list[ast.Projection](), list[ir.ObjectColumn]()
    for projection in projections:
        star = projection.expression
        if projection.object_fields:
            start = len(columns)
            shape = _object(scope, projection, start, in_union)
            columns += _columns(projection, shape, tuple(_fields(scope, projection)))
            objects.append(shape)
        elif isinstance(star, ast.EveryProperty):
            for ref in _every_property(scope, star.variable, star):
                columns.append(ast.Projection(ref, span=star.span))
        else:
            columns.append(projection)
    return SpreadReturn(tuple(columns), tuple(objects))


def _object(
    scope: Scope, projection: ast.Projection, start: int, in_union: bool
) -> ir.ObjectColumn:
    variable = projection.expression
    assert isinstance(variable, ast.Variable)
    if variable.name in scope.names.parameters or scope.find(variable.name) is None:
        text = f"${variable.name} is no node and no edge of the match"
        hint = "an object is made of one: $p as person { name, age }"
        raise scope.names.fail(variable.span, text, code="T6", hint=hint)
    bound = _bound(scope, variable, variable)
    names = list[str]()
    for name, value in _fields(scope, projection):
        if name in names:
            text = f"the object has a field '{name}' twice"
            hint = "give one of them another name: other: $p.name"
            raise scope.names.fail(value.span, text, code="T13", hint=hint)
        names.append(name)
    if not names:
        text = f"${variable.name} has no properties to make an object of"
        raise scope.names.fail(projection.span, text, code="T6", hint="return $v, its id")
    if all(has_aggregate(value) for _, value in _fields(scope, projection)):
        text = f"no field of this object says which ${variable.name} it is about"
        hint = "beside aggregates, give it a property that rows are grouped by"
        raise scope.names.fail(projection.span, text, code="T9", hint=hint)
    own = projection.alias.text if projection.alias is not None else variable.name
    return ir.ObjectColumn(own, start, tuple(names), bound.optional or in_union)


def _columns(
    projection: ast.Projection,
    shape: ir.ObjectColumn,
    values: tuple[tuple[str, ast.Expr], ...],
) -> Iterator[ast.Projection]:
    """The columns of an object: whether it is there, if it may be null, and its fields."""
    if shape.may_be_null:
        presence = ast.IsNull(projection.expression, negated=True, span=projection.span)
        yield _column(shape, _PRESENCE, presence)
    for name, value in values:
        yield _column(shape, name, value)


def _column(shape: ir.ObjectColumn, name: str, value: ast.Expr) -> ast.Projection:
    alias = ast.Name(f"{shape.name}.{name}", span=value.span)
    return ast.Projection(value, alias, span=value.span)


def _fields(scope: Scope, projection: ast.Projection) -> Iterator[tuple[str, ast.Expr]]:
    variable = projection.expression
    assert isinstance(variable, ast.Variable)
    for field in projection.object_fields:
        if field.name is None:
            for ref in _every_property(scope, variable, field):
                yield ref.property.text, ref
        elif field.value is None:
            yield field.name.text, ast.PropertyRef(variable, field.name, span=field.span)
        else:
            yield field.name.text, field.value


def _every_property(
    scope: Scope, variable: ast.Variable, node: ast.Node
) -> Iterator[ast.PropertyRef]:
    """Every property that can be returned, blobs aside."""
    bound = _bound(scope, variable, node)
    owner = bound.node if isinstance(bound, NodeVar) else bound.edge
    for declared in owner.properties:
        if not declared.type.is_blob:
            name = ast.Name(declared.name, span=node.span)
            yield ast.PropertyRef(variable, name, span=node.span)


def _bound(scope: Scope, variable: ast.Variable, node: ast.Node) -> NodeVar | EdgeVar:
    bound = scope.find(variable.name)
    if bound is None:
        raise scope.names.unbound(variable.name, node.span, "T6")
    return bound
