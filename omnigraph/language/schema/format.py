"""Formatter of `.pg` files, behind `omnigraph fmt`.

Invariant: `parse_schema(format_schema_text(text)) == parse_schema(text)`, and every comment stays,
in its order and beside what it was written beside.
"""

import re
from collections.abc import Iterator, Sequence

from omnigraph.language.layout import Dialect, Group, LexedToken, format_source
from omnigraph.language.schema.ast import Interface
from omnigraph.language.schema.parser import parse_schema

# A value of an enum may hold dashes, and begin with a digit.
_TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/'
    r"|(?:[A-Za-z0-9_]|-(?!>))+(?:\.[0-9]+)?|->|\.\.|[^ \t\r\n]",
    re.DOTALL,
)


def format_schema_text(source: str) -> str:
    """The text of a `.pg` file laid out, or `ParseError`."""
    return format_source(source, _DIALECT)


def _starts(source: str) -> frozenset[int]:
    return frozenset(_offsets(source))


def _offsets(source: str) -> Iterator[int]:
    for declaration in parse_schema(source).declarations:
        yield declaration.span.start
        yield from (member.span.start for member in declaration.properties)
        if not isinstance(declaration, Interface):
            yield from (constraint.span.start for constraint in declaration.constraints)


def _spaced(tokens: Sequence[LexedToken], position: int) -> bool:
    token = tokens[position]
    previous = tokens[position - 1] if position else None
    if previous is None or token.text == "," or previous.is_comment or token.is_comment:
        return token.text != ","
    if token.text == "..":
        return previous.text == ","
    if _is_default_sign(tokens, position) or _is_default_sign(tokens, position - 1):
        return True
    return not (
        token.text in (",", ")", "]", "?", ":", "(", "=")
        or previous.text in ("(", "[", "@", "=", "..")
    )


def _is_default_sign(tokens: Sequence[LexedToken], position: int) -> bool:
    """Whether a token is the `=` of a default, which stands between spaces: outside `@name(…)`."""
    if tokens[position].text != "=":
        return False
    for token in reversed(tokens[:position]):
        if token.text in ("{", "}", ")"):
            return True
        if token.text == "(":
            return False
    return True


def _wide_gaps(group: Group) -> bool:
    """Members that share a line and have no comma between them stand two spaces apart."""
    return group.opening.text == "{"


_DIALECT = Dialect(_TOKEN, _starts, _spaced, _wide_gaps)
