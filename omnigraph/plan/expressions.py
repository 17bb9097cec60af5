"""Conjunction of typed expressions, and the variables an expression reads.

Invariant: pure; every kind of expression is matched.
"""

from collections.abc import Iterable
from typing import assert_never

from omnigraph.plan import ir


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
