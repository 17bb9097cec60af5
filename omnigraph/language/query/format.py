"""Formatter of `.gq` files, behind `omnigraph fmt`.

Invariant: `parse_queries(format_query_text(text)) == parse_queries(text)`, and every comment stays,
in its order and beside what it was written beside.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass

from omnigraph.language.layout import Dialect, Group, LexedToken, format_source
from omnigraph.language.query import ast
from omnigraph.language.query.parser import parse_queries

_TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/'
    r"|\$?[A-Za-z_][A-Za-z0-9_]*|[0-9]+(?:\.[0-9]+)?|!=|>=|<=|[^ \t\r\n]",
    re.DOTALL,
)
_CALLS = frozenset(
    {"date", "datetime", "now", "search", "fuzzy", "match_text", "nearest", "bm25", "rrf"}
    | {str(function) for function in ast.AggregateFunction}
)
_SECTIONS = frozenset({"match", "return", "order", "limit", "offset"})
_BODY_STARTS = frozenset({"match", "insert", "upsert", "update", "delete"})
_ITEMS = (
    ast.Query,
    *(ast.Binding, ast.Traversal, ast.Negation, ast.OptionalBlock, ast.Filter),
    *(ast.PropertyMatch, ast.Projection, ast.Ordering),
    *(ast.Insert, ast.Upsert, ast.Update, ast.Delete, ast.Assignment),
)


def format_query_text(source: str) -> str:
    """The text of a `.gq` file laid out, or `ParseError`."""
    return format_source(source, _DIALECT)


def _starts(source: str) -> frozenset[int]:
    return frozenset((*_offsets(parse_queries(source).queries), *_sections(source)))


def _offsets(node: object) -> Iterator[int]:
    if isinstance(node, tuple):
        for each in node:
            yield from _offsets(each)
    elif is_dataclass(node):
        if isinstance(node, _ITEMS):
            yield node.span.start
        for member in fields(node):
            yield from _offsets(getattr(node, member.name))


def _sections(source: str) -> Iterator[int]:
    """Offsets of `match`, `return` and the other parts of a read, which its tree lacks."""
    opened: list[str] = []
    is_read = False
    for match in _TOKEN.finditer(source):
        text = match.group()
        if text in ("{", "(", "["):
            opened.append(text)
            is_read = is_read and opened != ["{"]
        elif text in ("}", ")", "]"):
            opened.pop()
        elif opened == ["{"] and text in _SECTIONS:
            is_read = is_read or text == "match"
            if is_read:
                yield match.start()


def _spaced(tokens: Sequence[LexedToken], position: int) -> bool:
    token = tokens[position]
    previous = tokens[position - 1] if position else None
    if previous is None or token.text == "," or previous.is_comment or token.is_comment:
        return token.text != ","
    if token.text in (",", ")", "]", ".", "?", ":") or previous.text in ("(", "[", ".", "@", "-"):
        return False
    if token.text == "(":
        return not (
            previous.text in _CALLS
            or previous.text[0].isupper()
            or (position > 1 and tokens[position - 2].text in ("@", "query"))
        )
    if token.text == "{":
        return not (position + 1 < len(tokens) and tokens[position + 1].text.isdecimal())
    if previous.text == ":":
        # `$a $k:knows $b` binds an edge; `$a: Person` and `name: $n` do not.
        is_edge = token.text[0].islower() or token.text[0] in "_<"
        return not (is_edge and tokens[position - 2].text.startswith("$"))
    return not (_opens_edge(tokens, position - 1) or _opens_edge(tokens, position - 2))


def _opens_edge(tokens: Sequence[LexedToken], position: int) -> bool:
    """Whether this is the `<` of `<edge>`, an edge walked both ways."""
    return (
        0 <= position < len(tokens) - 2
        and tokens[position].text == "<"
        and (tokens[position + 1].text[0].islower() or tokens[position + 1].text[0] == "_")
        and tokens[position + 2].text == ">"
    )


def _wide_gaps(group: Group) -> bool:
    """Clauses that share a line stand two spaces apart; the parts of a query begin with a word."""
    first = group.items[0].elements[0] if group.items else None
    return group.opening.text == "{" and not (
        isinstance(first, LexedToken) and first.text in _BODY_STARTS
    )


_DIALECT = Dialect(_TOKEN, _starts, _spaced, _wide_gaps)
