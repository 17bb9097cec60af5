"""Formatter of `.gq` files, behind `omnigraph fmt`.

Invariant: `parse_queries(format_query_text(text)) == parse_queries(text)`, and every comment stays,
in its order and beside what it was written beside.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass, replace

from omnigraph.language.layout import Dialect, Group, LexedToken, format_source
from omnigraph.language.query import ast
from omnigraph.language.query.parser import parse_queries

_TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/'
    r"|\$?[A-Za-z_][A-Za-z0-9_]*|[0-9]+(?:ms|[smhdw])\b|[0-9]+(?:\.[0-9]+)?|!=|>=|<=|[^ \t\r\n]",
    re.DOTALL,
)
_OPERATORS = frozenset(
    {"not", "and", "or", "in", "is", "contains", "starts_with", "ends_with", "matches", "distinct"}
    | {"case", "when", "then", "else", "where", "as"}
)
"""Words before a value. A word before a parenthesis names a call, but for these."""

_NO_CALLS = _OPERATORS | {"end", "true", "false", "null"}
_BEFORE_A_SIGN = _OPERATORS | {*"([{,:=<>+-*/%", "!=", ">=", "<="}
_SECTIONS = frozenset({"match", "return", "having", "order", "limit", "offset", "union", "with"})
_BODY_STARTS = frozenset({"match", "insert", "upsert", "update", "delete"})
_ITEMS = (
    ast.Query,
    *(
        ast.Binding,
        ast.Traversal,
        ast.Path,
        ast.Negation,
        ast.OptionalBlock,
        ast.Unwind,
        ast.Filter,
    ),
    *(ast.PropertyMatch, ast.Projection, ast.ObjectField, ast.Ordering),
    *(ast.Insert, ast.Upsert, ast.Update, ast.Delete, ast.Assignment),
    *(ast.UpdateMatched, ast.DeleteMatched),
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
        if isinstance(node, ast.Path):  # its traversal begins no line
            node = replace(node.traversal, span=node.span)
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
    if token.text in (",", ")", "]", ".", "?", ":") or previous.text in ("(", "[", ".", "@"):
        return False
    if previous.text == "-" and (position == 1 or tokens[position - 2].text in _BEFORE_A_SIGN):
        return False
    if token.text == "(":
        if position > 1 and tokens[position - 2].text == "as":
            return True
        word = previous.text[0].isalpha() or previous.text[0] == "_"
        return not word or previous.text in _NO_CALLS
    if token.text == "{":
        return not (position + 1 < len(tokens) and tokens[position + 1].text.isdecimal())
    if previous.text == ":":
        # `$a $k:knows $b` binds an edge; `$a: Person` and `name: $n` do not.
        is_edge = token.text[0].islower() or token.text[0] in "_<"
        return not (is_edge and tokens[position - 2].text.startswith("$"))
    return not _in_edges(tokens, position)


def _opens_edge(tokens: Sequence[LexedToken], position: int) -> bool:
    """Whether this is the `<` of `<edge>` or `<edge|other>`, walked both ways."""
    if not 0 <= position < len(tokens) - 2 or tokens[position].text != "<":
        return False
    end = position + 1
    while end + 2 < len(tokens) and _is_name(tokens[end]) and tokens[end + 1].text == "|":
        end += 2
    return _is_name(tokens[end]) and end + 1 < len(tokens) and tokens[end + 1].text == ">"


def _in_edges(tokens: Sequence[LexedToken], position: int) -> bool:
    """Whether no space stands before a token of `edge|other` or `<edge|other>`."""
    token, previous = tokens[position].text, tokens[position - 1].text
    if "|" in (token, previous) or _opens_edge(tokens, position - 1):
        return True
    start = position - 2
    while start > 1 and tokens[start].text == "|":
        start -= 2
    return token == ">" and _opens_edge(tokens, start)


def _is_name(token: LexedToken) -> bool:
    return token.text[0].islower() or token.text[0] == "_"


def _wide_gaps(group: Group) -> bool:
    """Clauses that share a line stand two spaces apart; the parts of a query begin with a word."""
    first = group.items[0].elements[0] if group.items else None
    return group.opening.text == "{" and not (
        isinstance(first, LexedToken) and first.text in _BODY_STARTS
    )


_DIALECT = Dialect(_TOKEN, _starts, _spaced, _wide_gaps)
