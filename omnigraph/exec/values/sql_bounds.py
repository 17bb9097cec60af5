"""Bounds of SQL expressions that a user writes, for the engines that follow them by recursion.

Invariant: an expression that passes has no more operators and levels than DataFusion and Lance
follow on a small stack, and no chain of `NOT`, which takes their parser exponential time.
"""

import re

from omnigraph.errors import BadRequest
from omnigraph.query_limits import CONDITION_TERMS_MAX, FILTER_DEPTH_MAX

_TOKEN = re.compile(
    r"'(?:[^']|'')*'|\"[^\"]*\"|`[^`]*`|[A-Za-z_]\w*|[()\[\]{}]|[-+*/%=<>!|&^~]+|,|[^\s\w]|\w+"
)
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")
_OPERATOR_WORDS = frozenset({"and", "or", "not", "is", "like", "ilike", "between", "case", "when"})
_BRACKETS_MAX = 2 * FILTER_DEPTH_MAX


def require_bounded_sql(text: str, what: str, operators_max: int = CONDITION_TERMS_MAX) -> None:
    """Raise `BadRequest` if an SQL expression has too many operators or levels."""
    operators = depth = deepest = nots = 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in _OPENING:
            depth += 1
            deepest = max(deepest, depth)
        elif token in _CLOSING:
            depth -= 1
        elif token.lower() in _OPERATOR_WORDS or token[0] in "-+*/%=<>!|&^~":
            operators += 1
            nots += token.lower() == "not"
    for count, most, name in (
        (operators, operators_max, "operators"),
        (deepest, _BRACKETS_MAX, "levels of brackets"),
        (nots, FILTER_DEPTH_MAX, "NOT"),
    ):
        if count > most:
            raise BadRequest(
                f"invalid {what}: expected at most {most} {name}, found {count}",
                "simplify it, or write alternatives as IN (…)",
            )
