"""Operands: properties, parameters and literals of a query to typed expressions.

Invariant: an operand that comes out of here has exactly one type, and a constant is stored in the
form of the type it is used as, or refused because it would have to change.
"""

from typing import assert_never

from omnigraph.catalog.near_names import did_you_mean
from omnigraph.catalog.numbers import as_float, as_integer
from omnigraph.language.query import ast
from omnigraph.plan import ir
from omnigraph.plan.scope import EdgeVar, Names, NodeVar, Scope
from omnigraph.types import ID_TYPE, INTEGERS, NUMERICS, Scalar, Span, ValueType

NOW = ir.Now(ValueType(Scalar.DATETIME))
BOOL = ValueType(Scalar.BOOL)
COUNT = ValueType(Scalar.I64)
NUMBER = ValueType(Scalar.F64, nullable=True)
INTEGER = ValueType(Scalar.I64, nullable=True)
UNSIGNED = ValueType(Scalar.U64, nullable=True)
UNTYPED_NULL = ir.Const(None, ValueType(Scalar.STRING, nullable=True))

_ENDPOINTS = {"from": ir.End.SRC, "to": ir.End.DST}


def compatible(left: ValueType, right: ValueType) -> bool:
    """Whether two types may meet: both lists or both single, the same scalar or both numeric."""
    if left.is_list != right.is_list or left.is_vector != right.is_vector:
        return False
    if left.is_vector:
        return left.dimension == right.dimension
    return left.scalar == right.scalar or (left.scalar in NUMERICS and right.scalar in NUMERICS)


def element(value_type: ValueType) -> ValueType:
    """The type of a list's elements."""
    return ValueType(value_type.scalar, enum_values=value_type.enum_values)


def property_operand(scope: Scope, ref: ast.PropertyRef, *, code: str = "T6") -> ir.Operand:
    """`$v.p`, `$v.id`, `$e.from` or `$e.to`."""
    names, name = scope.names, ref.variable.name
    bound = scope.find(name)
    if bound is None:
        raise names.unbound(name, ref.variable.span, code)
    word = ref.property.text
    if word == "id":
        return ir.EntityId(bound.var, nullable_if(ID_TYPE, bound.optional))
    if isinstance(bound, EdgeVar) and word in _ENDPOINTS:
        end_type = nullable_if(ID_TYPE, bound.optional)
        return ir.EndpointId(bound.var, _ENDPOINTS[word], end_type)
    owner = bound.node if isinstance(bound, NodeVar) else bound.edge
    declared = names.property(owner, ref.property, code)
    column_type = nullable_if(declared.type, bound.optional)
    return ir.Column(bound.var, declared.name, declared.id, column_type)


def nullable_if(value_type: ValueType, condition: bool) -> ValueType:
    """The type, nullable as well if the condition holds."""
    if not condition or value_type.nullable:
        return value_type
    return ValueType(
        value_type.scalar,
        True,
        value_type.is_list,
        value_type.enum_values,
        value_type.dimension,
    )


def literal_operand(literal: ast.Literal | ast.ListLiteral) -> ir.Const:
    """A constant as the type its form has by itself."""
    if isinstance(literal, ast.ListLiteral):
        scalars = {item.scalar for item in literal.items}
        scalar = Scalar.F64 if Scalar.F64 in scalars else next(iter(scalars), None)
        values = tuple(item.value for item in literal.items)
        return ir.Const(values, ValueType(scalar or Scalar.STRING, is_list=True))
    if literal.scalar is None:
        return UNTYPED_NULL
    return ir.Const(literal.value, ValueType(literal.scalar))


def parameter_operand(names: Names, variable: ast.Variable) -> ir.Param | None:
    """The parameter of that name. It wins over a variable."""
    declared = names.parameters.get(variable.name)
    return None if declared is None else ir.Param(variable.name, declared)


def as_type(
    names: Names, literal: ast.Literal | ast.ListLiteral, target: ValueType, what: str
) -> ir.Const:
    """The constant in the form of `target`, or T3."""
    try:
        return ir.Const(_convert(literal, target), target)
    except _LiteralUnfit as cause:
        text = f"{what} has type {target}; {cause} does not fit"
        hint = _literal_hint(target)
        if target.enum_values is not None and isinstance(literal, ast.Literal):
            near = did_you_mean(str(literal.value), target.enum_values, listed=False)
            hint = f"{near} {hint}".strip()
        raise names.fail(literal.span, text, code="T3", hint=hint) from None


class _LiteralUnfit(Exception):
    pass


def _convert(literal: ast.Literal | ast.ListLiteral, target: ValueType) -> ir.Constant:
    if isinstance(literal, ast.ListLiteral):
        return _convert_list(literal, target)
    if literal.scalar is None:
        if not target.nullable:
            raise _LiteralUnfit("null")
        return None
    if target.is_list or target.is_vector:
        raise _LiteralUnfit("a single value")
    return convert_scalar(literal.value, literal.scalar, target)


def _convert_list(literal: ast.ListLiteral, target: ValueType) -> ir.Constant:
    if target.is_vector:
        if len(literal.items) != target.dimension:
            raise _LiteralUnfit(f"a list of {len(literal.items)}")
        return tuple(
            convert_scalar(item.value, item.scalar, ValueType(Scalar.F32)) for item in literal.items
        )
    if not target.is_list:
        raise _LiteralUnfit("a list")
    inner = element(target)
    return tuple(convert_scalar(item.value, item.scalar, inner) for item in literal.items)


def convert_scalar(
    value: ast.ConstantValue, scalar: Scalar | None, target: ValueType
) -> ast.ConstantValue:
    """The value as `target` stores it. A number must keep its value; floats may lose digits."""
    if target.enum_values is not None and scalar is Scalar.STRING:
        if value not in target.enum_values:
            raise _LiteralUnfit(f"'{value}'")
        return value
    if target.scalar in NUMERICS and scalar in (Scalar.I64, Scalar.F64):
        assert isinstance(value, int | float)
        convert = as_integer if target.scalar in INTEGERS else as_float
        number = convert(value, target.scalar)
        if number is None:
            raise _LiteralUnfit(str(value))
        return number
    if scalar is target.scalar or (scalar is Scalar.STRING and target.is_blob):
        return value
    raise _LiteralUnfit(f"a value of type {scalar}")


def _literal_hint(target: ValueType) -> str:
    if target.enum_values is not None:
        return f"use one of {', '.join(target.enum_values)}"
    match target.scalar:
        case Scalar.DATE:
            return 'write date("2024-01-31")'
        case Scalar.DATETIME:
            return 'write datetime("2024-01-31T10:00:00Z") or now()'
        case Scalar.STRING | Scalar.BLOB | Scalar.BOOL | Scalar.VECTOR:
            return ""
        case Scalar.I32 | Scalar.I64 | Scalar.U32 | Scalar.U64 | Scalar.F32 | Scalar.F64:
            return ""
        case _:
            assert_never(target.scalar)


def require_enum_value(names: Names, column: ir.Expr, given: ir.Expr, span: Span) -> None:
    """T3 for a text, or one of a list, that no value of an enum can be equal to."""
    values = column.type.enum_values if isinstance(column, ir.Column) else None
    if values is None or not isinstance(given, ir.Const):
        return
    for value in given.value if isinstance(given.value, tuple) else (given.value,):
        if value is not None and value not in values:
            assert isinstance(column, ir.Column)
            near = did_you_mean(str(value), values, listed=False)
            hint = f"{near} {_literal_hint(column.type)}".strip()
            text = f"'{value}' is no value of {column.name}"
            raise names.fail(span, text, code="T3", hint=hint)


def require_comparable(names: Names, value_type: ValueType, span: Span) -> None:
    """T7 for values that have no order and no equality."""
    if value_type.is_blob or value_type.is_list or value_type.is_vector:
        hint = "use contains" if value_type.is_list else ""
        raise names.fail(span, f"a {value_type} cannot be compared", code="T7", hint=hint)
