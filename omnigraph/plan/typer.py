"""Type inference of expressions: operators, calls, `case` and conditions to typed expressions.

Invariant: an expression that comes out has one type, every function in it takes its arguments, and
a part that reads no row is a parameter that the request works out once. What a name means differs
from clause to clause, so each clause hands in its own reading of references (`Leaf`).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import assert_never

from omnigraph.catalog.near_names import did_you_mean
from omnigraph.catalog.regex import regex_error
from omnigraph.language.query import ast
from omnigraph.light_dataclass import dataclass
from omnigraph.plan import ir
from omnigraph.plan.expressions import alternatives, needs, type_of
from omnigraph.plan.function_types import Function, arithmetic_type, common_type, is_moment
from omnigraph.plan.functions import FUNCTIONS
from omnigraph.plan.operands import (
    NOW,
    UNTYPED_NULL,
    compatible,
    element,
    literal_operand,
    nullable_if,
    require_comparable,
    require_enum_value,
)
from omnigraph.plan.scope import Names
from omnigraph.query_limits import checkpoint
from omnigraph.types import INTEGERS, NUMERICS, Scalar, Span, ValueType

Leaf = Callable[[ast.Expr], ir.Expr]
"""The meaning of a variable, a property, an alias, an aggregate, a search or an inner pattern."""

DAY_MS = 86_400_000
_DURATION_HINT = "write now() - 30d, or $a.at > $b.at + 2h; a difference of moments is a number"
_Operator = ast.ArithmeticOperator
_KERNELS = {
    _Operator.ADD: "add",
    _Operator.SUBTRACT: "subtract",
    _Operator.MULTIPLY: "multiply",
    _Operator.DIVIDE: "divide",
    _Operator.REMAINDER: "remainder",
}
_F64 = ValueType(Scalar.F64)
_I64 = ValueType(Scalar.I64)
_DATETIME = ValueType(Scalar.DATETIME)


@dataclass(frozen=True, slots=True)
class Typer:
    """Types the expressions of one clause."""

    names: Names
    leaf: Leaf
    entity: Callable[[ast.Variable], ir.Expr | None] = lambda _variable: None
    """The id of an entity, where `is null` asks whether a variable is bound."""

    path: Callable[[ast.Call], ir.Expr | None] = lambda _call: None
    """What a call asks about a path; None for a call about something else."""

    inside_case: bool = False
    """Whether what is typed may never be worked out, and so is not worked out beforehand."""

    def truth(self, expression: ast.Expr) -> ir.Expr:
        """A condition, or T7 for an expression that is not true or false."""
        typed = self.value(expression)
        kind = type_of(typed)
        if kind.scalar is Scalar.BOOL and not kind.is_list:
            return typed
        text = f"a condition is true or false, this is {kind}"
        hint = "compare it with something"
        raise self.names.fail(expression.span, text, code="T7", hint=hint)

    def value(self, expression: ast.Expr) -> ir.Expr:
        """An expression of any type."""
        checkpoint()
        match expression:
            case ast.Literal() | ast.ListLiteral():
                return literal_operand(expression)
            case ast.Now():
                return NOW
            case ast.Arithmetic():
                return self._arithmetic(expression)
            case ast.Negative():
                return self._negative(expression)
            case ast.Call():
                return self._call(expression)
            case ast.Case():
                return self._case(expression)
            case ast.Duration(span=span):
                text = "a duration stands beside a date or a moment"
                raise self.names.fail(span, text, code="T7", hint=_DURATION_HINT)
            case ast.Comparison():
                return self._comparison(expression)
            case ast.IsNull(subject=subject, negated=negated):
                bound = self.entity(subject) if isinstance(subject, ast.Variable) else None
                return ir.IsNull(self.value(subject) if bound is None else bound, negated)
            case ast.Membership(subject=subject, collection=collection):
                return self.membership(self.value(subject), collection, subject.span)
            case ast.Not(condition=inner):
                return ir.Not(self.truth(inner))
            case ast.And(conditions=parts):
                return ir.And(tuple(map(self.truth, parts)))
            case ast.Or(conditions=parts):
                return alternatives([self.truth(part) for part in parts])
            case (
                ast.Variable()
                | ast.PropertyRef()
                | ast.EveryProperty()
                | ast.OwnProperty()
                | ast.Alias()
                | ast.TextCall()
                | ast.TextCondition()
                | ast.Nearest()
                | ast.Bm25()
                | ast.Rrf()
                | ast.Aggregate()
                | ast.CountBlock()
                | ast.Exists()
            ):
                return self.leaf(expression)
            case _:
                assert_never(expression)

    def _made(self, value: ir.Call | ir.Case) -> ir.Expr:
        """The expression, or the parameter that holds it if it reads no row."""
        if self.inside_case or needs(value):
            return value
        return self.names.compute(value, value.type)

    # Operators

    def _arithmetic(self, expression: ast.Arithmetic) -> ir.Expr:
        if isinstance(expression.left, ast.Duration) or isinstance(expression.right, ast.Duration):
            return self._shifted(expression)
        left, right = self.value(expression.left), self.value(expression.right)
        left, right = _beside_unsigned(left, right), _beside_unsigned(right, left)
        left_type, right_type = type_of(left), type_of(right)
        nullable = left_type.nullable or right_type.nullable
        operator = expression.operator
        if operator is _Operator.ADD and left_type.is_text and right_type.is_text:
            kind = ValueType(Scalar.STRING, nullable)
            return self._made(ir.Call("concat", (left, right), kind))
        if operator is _Operator.SUBTRACT and is_moment(left_type) and is_moment(right_type):
            return self._difference(left, right, nullable)
        kind_of_numbers = arithmetic_type(left_type, right_type)
        if kind_of_numbers is None:
            text = f"{operator} cannot take {left_type} and {right_type}"
            hint = _arithmetic_hint(operator, left_type, right_type)
            raise self.names.fail(expression.span, text, code="T7", hint=hint)
        result = _F64 if operator is _Operator.DIVIDE else kind_of_numbers
        call = ir.Call(_KERNELS[operator], (left, right), nullable_if(result, nullable))
        return self._made(call)

    def _shifted(self, expression: ast.Arithmetic) -> ir.Expr:
        """A date or a moment, sooner or later by a duration."""
        first, second, operator = expression.left, expression.right, expression.operator
        if isinstance(first, ast.Duration) and operator is _Operator.ADD:
            first, second = second, first
        if not isinstance(second, ast.Duration) or operator not in (
            _Operator.ADD,
            _Operator.SUBTRACT,
        ):
            text = "a duration can only be added to a date or a moment, or taken from it"
            raise self.names.fail(expression.span, text, code="T7", hint="write now() - 30d")
        moment = self.value(first)
        kind = type_of(moment)
        if not is_moment(kind):
            text = f"a duration cannot be added to {kind}"
            raise self.names.fail(first.span, text, code="T7", hint="it takes a Date or a DateTime")
        sign = 1 if operator is _Operator.ADD else -1
        if kind.scalar is Scalar.DATETIME:
            span = ir.Const(sign * second.milliseconds, _I64)
            return self._made(ir.Call("add_ms", (moment, span), kind))
        days, rest = divmod(second.milliseconds, DAY_MS)
        if rest:
            text = "a Date takes whole days"
            hint = "write datetime(…) around the date"
            raise self.names.fail(second.span, text, code="T7", hint=hint)
        return self._made(ir.Call("date_add", (moment, ir.Const(sign * days, _I64)), kind))

    def _difference(self, left: ir.Expr, right: ir.Expr, nullable: bool) -> ir.Expr:
        """Days between dates, milliseconds between moments."""
        result = ValueType(Scalar.I64, nullable)
        if type_of(left).scalar is Scalar.DATE and type_of(right).scalar is Scalar.DATE:
            return self._made(ir.Call("days_between", (left, right), result))
        left, right = self._as_moment(left), self._as_moment(right)
        return self._made(ir.Call("ms_between", (left, right), result))

    def _as_moment(self, value: ir.Expr) -> ir.Expr:
        """A date as its first moment."""
        kind = type_of(value)
        if kind.scalar is not Scalar.DATE:
            return value
        if isinstance(value, ir.Const) and isinstance(value.value, int):
            return ir.Const(value.value * DAY_MS, _DATETIME)
        return self._made(ir.Call("datetime", (value,), nullable_if(_DATETIME, kind.nullable)))

    def _negative(self, expression: ast.Negative) -> ir.Expr:
        operand = self.value(expression.operand)
        kind = type_of(operand)
        if not kind.is_numeric:
            raise self.names.fail(expression.span, f"{kind} has no opposite", code="T7")
        result = _I64 if kind.scalar in INTEGERS else _F64
        return self._made(ir.Call("negate", (operand,), nullable_if(result, kind.nullable)))

    # Calls

    def _call(self, call: ast.Call) -> ir.Expr:
        of_path = self.path(call)
        if of_path is not None:
            return of_path
        function = self._function(call)
        arguments = self._arguments(call, function)
        types = [type_of(argument) for argument in arguments]
        result = function.result(types)
        if result is None:
            listed = ", ".join(map(str, types))
            text = f"{function.name} does not take {listed}"
            hint = f"{function.signature}: {function.about}"
            raise self.names.fail(call.span, text, code="T25", hint=hint)
        _require_unit(self.names, call, function)
        if function.null_safe:
            nullable = all(kind.nullable for kind in types)
        else:
            nullable = result.nullable or any(kind.nullable for kind in types)
        return self._made(ir.Call(function.name, arguments, nullable_if(result, nullable)))

    def _function(self, call: ast.Call) -> Function:
        function = FUNCTIONS.get(call.function.text)
        if function is None:
            raise _unknown(self.names, call)
        if not function.least <= len(call.arguments) <= function.most:
            text = f"{function.name} takes {function.takes}, not {len(call.arguments)}"
            raise self.names.fail(
                call.function.span, text, code="T25", hint=f"write {function.signature}"
            )
        return function

    def _arguments(self, call: ast.Call, function: Function) -> tuple[ir.Expr, ...]:
        arguments = [self.value(argument) for argument in call.arguments]
        if function.result in (FUNCTIONS["cosine"].result,):
            arguments = _as_vectors(arguments)
        if function.result is common_type:
            arguments = self._alike(arguments)
        return tuple(arguments)

    def _alike(self, arguments: Sequence[ir.Expr]) -> list[ir.Expr]:
        """Values of one type: a `null` takes the type of the others, dates become moments."""
        known = [each for each in arguments if each is not UNTYPED_NULL]
        common = common_type([type_of(each) for each in known]) if known else None
        if common is None:
            return list(arguments)
        alike = [
            ir.Const(None, nullable_if(common, True)) if each is UNTYPED_NULL else each
            for each in arguments
        ]
        if common.scalar is Scalar.DATETIME:
            alike = [self._as_moment(each) for each in alike]
        return alike

    def _case(self, expression: ast.Case) -> ir.Expr:
        inner = replace(self, inside_case=True)
        conditions = [inner.truth(branch.condition) for branch in expression.branches]
        given = [branch.value for branch in expression.branches]
        given += [] if expression.otherwise is None else [expression.otherwise]
        values = inner._alike([inner.value(each) for each in given])
        types = [type_of(value) for value in values]
        common = common_type(types)
        if common is None:
            listed = " and ".join(dict.fromkeys(map(str, types)))
            text = f"the values of a case must have one type, not {listed}"
            raise self.names.fail(expression.span, text, code="T7")
        nullable = expression.otherwise is None or any(kind.nullable for kind in types)
        otherwise = None if expression.otherwise is None else values[-1]
        pairs = zip(conditions, values[: len(conditions)], strict=True)
        branches = tuple(ir.Branch(condition, value) for condition, value in pairs)
        return self._made(ir.Case(branches, otherwise, nullable_if(common, nullable)))

    # Conditions

    def _comparison(self, comparison: ast.Comparison) -> ir.Expr:
        left, right = comparison.left, comparison.right
        if isinstance(left, ast.TextCall) or isinstance(right, ast.TextCall):
            return self._text_polarity(comparison)
        return self.compare(comparison, self.value(left), self.value(right))

    def _text_polarity(self, comparison: ast.Comparison) -> ir.Expr:
        """`search(…) = true`, `search(…) != false` and their opposites."""
        left, right = comparison.left, comparison.right
        call, polarity = (left, right) if isinstance(left, ast.TextCall) else (right, left)
        equal = comparison.comparator is ast.Comparator.EQ
        if (
            not isinstance(polarity, ast.Literal)
            or polarity.scalar is not Scalar.BOOL
            or comparison.comparator not in (ast.Comparator.EQ, ast.Comparator.NE)
        ):
            raise self.names.fail(
                comparison.span,
                "a text condition can only be compared with true or false, by = or !=",
                code="T7",
            )
        predicate = self.leaf(call)
        return predicate if equal == bool(polarity.value) else ir.Not(predicate)

    def compare(self, comparison: ast.Comparison, left: ir.Expr, right: ir.Expr) -> ir.Expr:
        """The predicate of two operands, or T7."""
        left_type, right_type = type_of(left), type_of(right)
        match comparison.comparator:
            case ast.Comparator.CONTAINS:
                return self._contains(comparison, left, right)
            case (
                ast.Comparator.STARTS_WITH | ast.Comparator.ENDS_WITH | ast.Comparator.MATCHES
            ) as word:
                if not (_is_text(left) and _is_text(right)):
                    text = f"{word} needs two strings, not {left_type} and {right_type}"
                    raise self.names.fail(comparison.span, text, code="T7")
                if word is ast.Comparator.STARTS_WITH:
                    return ir.TextContains(left, right, prefix=True)
                _require_pattern(self.names, comparison)
                nullable = left_type.nullable or right_type.nullable
                kind = ValueType(Scalar.BOOL, nullable)
                return self._made(ir.Call(str(word), (left, right), kind))
            case (
                ast.Comparator.EQ
                | ast.Comparator.NE
                | ast.Comparator.LT
                | ast.Comparator.LE
                | ast.Comparator.GT
                | ast.Comparator.GE
            ) as comparator:
                left, right = self._comparable(left, right)
                left_type, right_type = type_of(left), type_of(right)
                require_comparable(self.names, left_type, comparison.left.span)
                require_comparable(self.names, right_type, comparison.right.span)
                if not compatible(left_type, right_type):
                    text = f"cannot compare {left_type} with {right_type}"
                    hint = _moment_hint(left_type, right_type)
                    raise self.names.fail(comparison.span, text, code="T7", hint=hint)
                if comparator in (ast.Comparator.EQ, ast.Comparator.NE):
                    require_enum_value(self.names, left, right, comparison.right.span)
                    require_enum_value(self.names, right, left, comparison.left.span)
                return ir.Compare(ir.CompareOp(str(comparator)), left, right)
            case _:
                assert_never(comparison.comparator)

    def _comparable(self, left: ir.Expr, right: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
        """A `null` takes the type of the other side; a date beside a moment is one."""
        if left is UNTYPED_NULL:
            return ir.Const(None, type_of(right)), right
        if right is UNTYPED_NULL:
            return left, ir.Const(None, type_of(left))
        kinds = type_of(left), type_of(right)
        if all(map(is_moment, kinds)) and kinds[0].scalar is not kinds[1].scalar:
            return self._as_moment(left), self._as_moment(right)
        return left, right

    def _contains(self, comparison: ast.Comparison, left: ir.Expr, right: ir.Expr) -> ir.Expr:
        left_type, right_type = type_of(left), type_of(right)
        if left_type.is_list and not left_type.is_blob:
            if right is UNTYPED_NULL or compatible(element(left_type), right_type):
                return ir.ListContains(left, right)
        elif _is_text(left) and _is_text(right):
            return ir.TextContains(left, right, prefix=False)
        text = (
            "contains needs a list and an element, or two strings, "
            f"not {left_type} and {right_type}"
        )
        raise self.names.fail(comparison.span, text, code="T7")

    def membership(self, value: ir.Expr, collection: ast.Expr, span: Span) -> ir.Expr:
        """`value in collection`, or T7."""
        names, kind = self.names, type_of(value)
        require_comparable(names, kind, span)
        items = self.value(collection)
        list_type = type_of(items)
        if not list_type.is_list:
            text, hint = f"in needs a list, not {list_type}", "declare the parameter as [String]"
            raise names.fail(collection.span, text, code="T7", hint=hint)
        empty = isinstance(collection, ast.ListLiteral) and not collection.items
        if value is UNTYPED_NULL or empty:
            return ir.ListContains(items, value)
        if not compatible(element(list_type), kind):
            text = f"a {kind} is never in a list of type {list_type}"
            raise names.fail(collection.span, text, code="T7")
        require_enum_value(names, value, items, collection.span)
        return ir.ListContains(items, value)


_OTHER_NAMES = {
    "len": "write length(text), or size(list)",
    "count": "write count(*) or count($v.property)",
    "substr": "write substring(text, start, count)",
    "tolower": "write lower(text)",
    "toupper": "write upper(text)",
    "ifnull": "write coalesce(x, y)",
    "nvl": "write coalesce(x, y)",
    "pow": "write power(x, y)",
    "mod": "write x % y",
    "if": "write case when … then … else … end",
    "cast": "write the type's name: I64(x)",
    "concat": "write a + b",
    "ceiling": "write ceil(x)",
    "like": "write text matches pattern, or contains",
    "regexp": "write text matches pattern",
}


def _is_text(value: ir.Expr) -> bool:
    return value is UNTYPED_NULL or type_of(value).is_text


def _beside_unsigned(value: ir.Expr, other: ir.Expr) -> ir.Expr:
    """A whole number that is written down and not negative takes the side of a U64."""
    kind = type_of(other)
    if kind.scalar is not Scalar.U64 or kind.is_list or not isinstance(value, ir.Const):
        return value
    number = value.value
    if value.type.scalar is not Scalar.I64 or not isinstance(number, int) or number < 0:
        return value
    return ir.Const(number, kind if not kind.nullable else ValueType(Scalar.U64))


def _as_vectors(arguments: list[ir.Expr]) -> list[ir.Expr]:
    """Lists of numbers that are written down as vectors."""
    made = list[ir.Expr]()
    for each in arguments:
        if isinstance(each, ir.Const) and isinstance(each.value, tuple) and each.type.is_list:
            numbers = [item for item in each.value if isinstance(item, int | float)]
            if numbers and len(numbers) == len(each.value):
                floats = tuple(map(float, numbers))
                each = ir.Const(floats, ValueType(Scalar.VECTOR, dimension=len(floats)))
        made.append(each)
    return made


def _moment_hint(left: ValueType, right: ValueType) -> str:
    scalars = {left.scalar, right.scalar}
    if Scalar.STRING not in scalars and not scalars & NUMERICS:
        return ""
    if Scalar.DATE in scalars:
        return 'write a date as date("2024-01-31")'
    if Scalar.DATETIME in scalars:
        return 'write a moment as datetime("2024-01-31T10:00:00Z")'
    return ""


def _arithmetic_hint(operator: _Operator, left: ValueType, right: ValueType) -> str:
    kinds = (left, right)
    if operator is _Operator.ADD and any(kind.is_text for kind in kinds):
        return "String(x) makes a text of a number"
    if any(map(is_moment, kinds)):
        return "a duration is written 30d or 2h; add_days(d, n) takes a number"
    if any(kind.is_list for kind in kinds):
        return "element(list, n) is one element"
    return ""


def _unknown(names: Names, call: ast.Call) -> Exception:
    name = call.function.text
    aggregates = [str(function) for function in ast.AggregateFunction]
    hint = did_you_mean(name, (*FUNCTIONS, *aggregates), listed=False)
    text = f"there is no function '{name}'"
    if name in aggregates:
        text, hint = f"{name} takes one argument", f"write {name}($v.property)"
    elif name in ("exists", "optional"):
        hint = f"write {name} {{ … }}"
    elif name in _OTHER_NAMES:
        hint = _OTHER_NAMES[name]
    return names.fail(call.function.span, text, code="T25", hint=hint)


def _require_unit(names: Names, call: ast.Call, function: Function) -> None:
    if not function.units:
        return
    unit = call.arguments[-1]
    if not isinstance(unit, ast.Literal) or unit.value not in function.units:
        word = str(unit.value) if isinstance(unit, ast.Literal) else ""
        text = f"{function.name} needs a unit as a literal"
        hint = did_you_mean(word, function.units)
        raise names.fail(unit.span, text, code="T25", hint=hint)


def _require_pattern(names: Names, comparison: ast.Comparison) -> None:
    """A regular expression that is written down is checked before the query runs."""
    pattern = comparison.right
    if comparison.comparator is not ast.Comparator.MATCHES or not isinstance(pattern, ast.Literal):
        return
    fault = regex_error(str(pattern.value)) if pattern.scalar is Scalar.STRING else None
    if fault is not None:
        text = f"this is no regular expression: {fault}"
        raise names.fail(pattern.span, text, code="T7")
