"""Completion of queries: keywords of the language and names of the schema that can come next.

Invariant: only the text before the cursor decides, and text that is no query yet is never an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.plan.functions import FUNCTIONS

if TYPE_CHECKING:
    from omnigraph.catalog.model import Catalog

KEYWORDS = (
    *(
        "query",
        "match",
        "return",
        "having",
        "order",
        "limit",
        "not",
        "and",
        "or",
        "in",
        "as",
        "desc",
    ),
    *("contains", "starts_with", "is null", "case", "when", "then", "else", "end", "count(*)"),
    *("insert", "upsert", "update", "delete", "set", "where"),
    *("collect", "median", "percentile", "stddev", "any", "all"),
    *("count", "sum", "avg", "min", "max", "search", "bm25", "nearest", "rrf", "now()", "null"),
)
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*$")
_DECLARED = re.compile(r"\$(\w+)\s*:\s*([A-Z]\w*)")
_TRAVERSED = re.compile(r"\$(\w+)\s+(?:\$\w+\s*:\s*)?<?(\w+)>?\s*(?:\{[^}]*\})?\s+\$(\w+)")
_OF_VARIABLE = re.compile(r"\$(\w+)\.(\w*)$")
_AFTER_COLON = re.compile(r"\$\w+\s*:\s*(\w*)$")
_AFTER_VERB = re.compile(r"\b(insert|upsert|update|delete)\s+(\w*)$")
_INSIDE_TYPE = re.compile(r"\b([A-Z]\w*)\s*(?:set\s*)?\{[^{}]*$")


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A completion, and what it is."""

    text: str
    about: str


@dataclass(frozen=True, slots=True)
class Suggester:
    """The names of a schema, as a query writes them."""

    catalog: Catalog

    def next(self, before: str) -> tuple[str, list[Suggestion]]:
        """The typed beginning of the next word, and its completions."""
        if match := _OF_VARIABLE.search(before):
            of = self._type_of(before, match[1])
            return match[2], _starting(match[2], self._properties(of))
        if match := _AFTER_COLON.search(before):
            return match[1], _starting(match[1], self._nodes())
        if match := _AFTER_VERB.search(before):
            return match[2], _starting(match[2], [*self._nodes(), *self._edges(lower=False)])
        typed = match[0] if (match := _WORD.search(before)) else ""
        words: list[Suggestion] = []
        if match := _INSIDE_TYPE.search(before):
            words += self._properties(match[1], ends=True)
        words += [Suggestion(keyword, "keyword") for keyword in KEYWORDS]
        words += [Suggestion(f.name, f"{f.signature}: {f.about}") for f in FUNCTIONS.values()]
        words += [*self._edges(lower=True), *self._nodes()]
        return typed, _starting(typed, words)

    def _type_of(self, before: str, variable: str) -> str | None:
        """The type of a variable: declared, or reached over an edge."""
        types = {m[1]: m[2] for m in _DECLARED.finditer(before)}
        for _ in range(8):  # a walk of so many steps can be followed
            for source, edge_name, target in _TRAVERSED.findall(before):
                edge = self.catalog.edge_declared(edge_name)
                if edge is None:
                    continue
                if target not in types:
                    types[target] = edge.target if types.get(source) != edge.target else edge.source
                types.setdefault(source, edge.source)
        for match in re.finditer(r"\$(\w+)\s*:\s*([a-z]\w*)\s+\$", before):  # an edge that is bound
            types.setdefault(match[1], match[2])
        return types.get(variable)

    def _nodes(self) -> list[Suggestion]:
        return [Suggestion(name, "node type") for name in self.catalog.nodes]

    def _edges(self, *, lower: bool) -> list[Suggestion]:
        """Edges as they are declared; what is written is one of the types of a family."""
        edges = {edge.name: edge for edge in self.catalog.edges_declared}
        if not lower:
            edges |= self.catalog.edges
        return [
            Suggestion(
                name[0].lower() + name[1:] if lower else name,
                f"edge {edge.source} -> {edge.target}",
            )
            for name, edge in edges.items()
        ]

    def _properties(self, type_name: str | None, *, ends: bool = False) -> list[Suggestion]:
        """The properties of a type; of every type, where the type is not known."""
        if type_name is None:
            nodes, edges = self.catalog.nodes.values(), self.catalog.edges.values()
            every = [p for owner in nodes for p in owner.properties]
            every += [p for owner in edges for p in owner.properties]
            return list({p.name: Suggestion(p.name, str(p.type)) for p in every}.values())
        node, edge = self.catalog.node(type_name), self.catalog.edge_declared(type_name)
        owner = node or edge or self.catalog.interfaces.get(type_name)
        if owner is None:
            return []
        words = [Suggestion(p.name, str(p.type)) for p in owner.properties]
        if edge is not None and node is None and ends:
            words += [Suggestion("from", edge.source), Suggestion("to", edge.target)]
        return words


def _starting(typed: str, words: list[Suggestion]) -> list[Suggestion]:
    fitting = [word for word in words if word.text.lower().startswith(typed.lower())]
    return [word for word in fitting if word.text != typed]


_OPAQUE = re.compile(r'"(?:[^"\\]|\\.)*"?|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)


def is_whole(text: str) -> bool:
    """Whether nothing that was opened is still open."""
    open_ = 0
    for char in _signs(text):
        if char in "{([":
            open_ += 1
        elif char in "})]":
            open_ -= 1
    return open_ <= 0 and not _string_open(text)


def _signs(text: str) -> Iterator[str]:
    return iter(_OPAQUE.sub("", text))


def _string_open(text: str) -> bool:
    return any(
        m[0].startswith('"') and (len(m[0]) == 1 or not m[0].endswith('"'))
        for m in _OPAQUE.finditer(text)
    )
