"""Stored queries in the query page: a list to choose from, and completions of their names.

Invariant: those who may not invoke queries see none. A stored read is shown as its text, which runs
like any other; a mutation is not offered, since the page never writes.
"""

import re
from typing import Any

from omnigraph.cluster.query_catalog import StoredQuery
from omnigraph.errors import NotFound, OmnigraphError
from omnigraph.language.query.parser import parse_queries
from omnigraph.policy import Action
from omnigraph.server.call import RouteCall

_COMMENTS_LAST = re.compile(r"(?:\s*(?://[^\n]*|/\*(?:[^*]|\*(?!/))*\*/))+\s*\Z")
_BEGINNING = re.compile(r"(?:^|\})\s*((?:query\s+)?([A-Za-z_]\w*)?)\Z")


def offered_queries(call: RouteCall) -> list[StoredQuery]:
    """The stored reads that the actor may run, by name."""
    try:
        call.require(Action.INVOKE_QUERY)
    except OmnigraphError:
        return []
    return [query for query in call.stored if not query.is_mutation]


def stored_text(call: RouteCall, name: str) -> str:
    """The text of one stored read, or `NotFound`."""
    for query in offered_queries(call):
        if query.name == name:
            return _text(query)
    raise NotFound("stored query", name[:80])


def stored_words(call: RouteCall, before: str) -> list[dict[str, Any]]:
    """Stored reads that a query which is just begun may become: taking one puts its text in the
    place of the last characters."""
    match = _BEGINNING.search(before)
    if match is None:
        return []
    typed = match[2] or ""
    if typed == "query":
        typed = ""
    return [
        {
            "text": query.name,
            "about": query.declaration.description or f"stored query {query.signature}",
            "insert": _text(query),
            "replaces": len(match[1]),
        }
        for query in offered_queries(call)
        if query.name.lower().startswith(typed.lower())
    ]


def _text(query: StoredQuery) -> str:
    """The query without the others of its file, and without the comments before the next one."""
    start = query.declaration.span.start
    starts = [each.span.start for each in parse_queries(query.source).queries]
    end = min((each for each in starts if each > start), default=len(query.source))
    return f"{_COMMENTS_LAST.sub('', query.source[start:end]).strip()}\n"
