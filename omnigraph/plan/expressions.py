"""Conjunction of typed expressions, their types, the variables they read, and substitution.

Invariant: pure; every kind of expression is matched.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, assert_never

from omnigraph.plan import ir
from omnigraph.query_limits import checkpoint
from omnigraph.types import Scalar, ValueType

_TRUTH = ValueType(Scalar.BOOL)
_MAYBE = ValueType(Scalar.BOOL, nullable=True)


def conjunction(parts: Iterable[ir.Expr]) -> ir.Expr | None:
    """All parts as one condition; None when there are none."""
    flat = list[ir.Expr]()
    for part in parts:
        flat.extend(part.parts if isinstance(part, ir.And) else (part,))
    if not flat:
        return None
    return flat[0] if len(flat) == 1 else ir.And(tuple(flat))


def needs(expression: ir.Expr) -> frozenset[str]:
    """The variables and slots an expression reads from its row."""
    match expression:
        case ir.Const() | ir.Param() | ir.Now():
            return frozenset()
        case ir.Column(var=var) | ir.EntityId(var=var) | ir.EndpointId(var=var):
            return frozenset({var})
        case ir.SlotRef(slot=slot):
            return frozenset({slot})
        case ir.Call(arguments=arguments):
            return frozenset[str]().union(*map(needs, arguments))
        case ir.Case(branches=branches, otherwise=otherwise):
            inner = [part for b in branches for part in (b.condition, b.value)]
            inner += [] if otherwise is None else [otherwise]
            return frozenset[str]().union(*map(needs, inner))
        case ir.Compare(left=left, right=right):
            return needs(left) | needs(right)
        case ir.ListContains(items=items, value=value):
            return needs(items) | needs(value)
        case ir.TextContains(text=text, part=part):
            return needs(text) | needs(part)
        case ir.IsNull(operand=operand):
            return needs(operand)
        case ir.TextMatch(column=column, query=query, edits_max=edits):
            return needs(column) | needs(query) | (needs(edits) if edits else frozenset())
        case ir.And(parts=parts) | ir.Or(parts=parts):
            return frozenset[str]().union(*map(needs, parts))
        case ir.Not(part=part):
            return needs(part)
        case _:
            assert_never(expression)


def terms_in(expression: ir.Expr) -> int:
    """Return how many leaves a condition has: comparisons, memberships and truth values."""
    match expression:
        case ir.And(parts=parts) | ir.Or(parts=parts):
            return sum(map(terms_in, parts))
        case ir.Not(part=part):
            return terms_in(part)
        case _:
            return 1


def depth_of(expression: ir.Expr) -> int:
    """Return how many levels of `and`, `or` and `not` a condition has above its leaves."""
    match expression:
        case ir.And(parts=parts) | ir.Or(parts=parts):
            return 1 + max(map(depth_of, parts))
        case ir.Not(part=part):
            return 1 + depth_of(part)
        case _:
            return 0


def alternatives(parts: Sequence[ir.Expr]) -> ir.Expr:
    """Return `or` of conditions; alternatives for one value become a list of constants.

    `a = 1 or a = 2 or b > 3` is `a in [1, 2] or b > 3`, which takes no stack to evaluate. A list
    stands where its first alternative stood.
    """
    lists = dict[tuple[ir.Expr, Scalar], list[ir.Constant]]()
    places = list[ir.Expr | tuple[ir.Expr, Scalar]]()
    for part in parts:
        single = _alternative(part)
        if single is None:
            places.append(part)
            continue
        subject, scalar, constants = single
        if (subject, scalar) not in lists:
            lists[subject, scalar] = []
            places.append((subject, scalar))
        lists[subject, scalar].extend(constants)
    made = list[ir.Expr]()
    for place in places:
        if not isinstance(place, tuple):
            made.append(place)
            continue
        items = list(dict.fromkeys(lists[place]))
        subject, scalar = place
        if len(items) == 1:
            made.append(ir.Compare(ir.CompareOp.EQ, subject, ir.Const(items[0], ValueType(scalar))))
        else:
            listed = ir.Const(tuple(items), ValueType(scalar, is_list=True))
            made.append(ir.ListContains(listed, subject))
    return made[0] if len(made) == 1 else ir.Or(tuple(made))


def _alternative(part: ir.Expr) -> tuple[ir.Expr, Scalar, tuple[ir.Constant, ...]] | None:
    """Return the value that a condition compares with constants; None for another condition."""
    match part:
        case ir.Compare(op=ir.CompareOp.EQ, left=subject, right=ir.Const() as constant):
            pass
        case ir.Compare(op=ir.CompareOp.EQ, left=ir.Const() as constant, right=subject):
            pass
        case ir.ListContains(items=ir.Const(value=tuple() as items, type=kind), value=subject):
            return (subject, kind.scalar, items) if items and _is_subject(subject) else None
        case _:
            return None
    if constant.value is None or constant.type.is_list or constant.type.is_vector:
        return None
    return (subject, constant.type.scalar, (constant.value,)) if _is_subject(subject) else None


def _is_subject(value: ir.Expr) -> bool:
    return isinstance(value, ir.Column | ir.EntityId | ir.EndpointId | ir.SlotRef)


def type_of(expression: ir.Expr) -> ValueType:
    """The type of an expression; a condition is a truth value, null where it is unknown."""
    if isinstance(expression, ir.Operand):
        return expression.type
    return _TRUTH if isinstance(expression, ir.IsNull | ir.TextMatch) else _MAYBE


def substituted(expression: Any, known: Callable[[Any], ir.Expr | None]) -> Any:
    """The expression with each part that `known` has another form of replaced, outer ones first."""
    other = known(expression) if is_dataclass(expression) else None
    if other is not None:
        return other
    if isinstance(expression, tuple):
        return tuple(substituted(part, known) for part in expression)
    if not is_dataclass(expression) or isinstance(expression, ValueType | type):
        return expression
    members = {f.name: substituted(getattr(expression, f.name), known) for f in fields(expression)}
    return replace(expression, **members)


def size_of(part: Any, most: int) -> int:
    """Return how many parts and items a plan has, counted no further than `most`."""
    waiting, count = [part], 0
    while waiting and count < most:
        each = waiting.pop()
        count += 1
        if isinstance(each, tuple):
            waiting.extend(each[:most])
        elif is_dataclass(each):
            waiting.extend(getattr(each, member.name) for member in fields(each))
    return count


Kind = TypeVar("Kind")


def parts_of_kind(part: Any, kind: type[Kind]) -> Iterator[Kind]:
    """Every part of a plan that is of one class."""
    waiting = [part]  # no generator in a generator: each level would pass every part on
    while waiting:
        checkpoint()
        each = waiting.pop()
        if isinstance(each, kind):
            yield each
        if isinstance(each, tuple):
            waiting.extend(reversed(each))
        elif is_dataclass(each):
            waiting.extend(getattr(each, member.name) for member in reversed(fields(each)))
