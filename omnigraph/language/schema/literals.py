"""Literals and intervals as the schema language writes them.

Invariant: a literal that is written reads back as the same value; floats have no exponent.
"""

from decimal import Decimal

from omnigraph.language.reader import quote
from omnigraph.language.schema.ast import Literal


def format_interval(low: int | float | None, high: int | float | None) -> str:
    """`low..high` with an open bound left out."""
    written = ["" if bound is None else format_literal(bound) for bound in (low, high)]
    return "..".join(written)


def format_literal(value: Literal) -> str:
    """A literal as the language writes it. Floats have no exponent there."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, int):
        return str(value)
    text = format(Decimal(repr(value)), "f")
    return text if "." in text else f"{text}.0"


def format_default(value: Literal | tuple[Literal, ...]) -> str:
    """A default as the language writes it."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(format_literal, value))}]"
    return format_literal(value)
