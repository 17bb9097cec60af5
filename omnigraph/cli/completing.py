"""Words that a shell completes from a graph: branches, tags, types and stored queries.

Invariant: completion never fails and never writes: a graph that cannot be opened completes
nothing. The graph is the one that the words typed so far name, else that of the settings.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph import environment
from omnigraph.cli import scope

if TYPE_CHECKING:
    from omnigraph.graph import Graph


def branches(incomplete: str) -> list[str]:
    """Branches of the graph."""
    return _completed(incomplete, lambda graph: graph.branches.list())


def points(incomplete: str) -> list[str]:
    """Branches and tags of the graph, each of which names a commit."""
    return _completed(
        incomplete, lambda graph: (*graph.branches.list(), *(t.name for t in graph.tags.list()))
    )


def tags(incomplete: str) -> list[str]:
    """Tags of the graph."""
    return _completed(incomplete, lambda graph: (tag.name for tag in graph.tags.list()))


def types(incomplete: str) -> list[str]:
    """Node and edge types of the graph."""
    return _completed(incomplete, lambda graph: (t.name for t in graph.schema.catalog.types))


def node_types(incomplete: str) -> list[str]:
    """Node types of the graph."""
    return _completed(incomplete, lambda graph: graph.schema.catalog.nodes)


def edge_types(incomplete: str) -> list[str]:
    """Edge types of the graph."""
    return _completed(incomplete, lambda graph: graph.schema.catalog.edges)


def queries(incomplete: str) -> list[str]:
    """Queries of the file that is named, else the stored queries of the server."""
    words = _words()
    file = _after(words, ("--query",))
    if file is not None:
        return [name for name in _of_file(file) if name.startswith(incomplete)]
    return _completed(incomplete, _stored)


def _stored(graph: Graph) -> Iterable[str]:
    stored = getattr(graph, "stored_queries", None)
    return () if stored is None else (query.name for query in stored.list())


def _of_file(file: str) -> list[str]:
    from omnigraph.language.query.parser import parse_queries

    try:
        return [query.name.text for query in parse_queries(Path(file).read_text("utf-8")).queries]
    except Exception:  # noqa: BLE001  # nothing to complete
        return []


def _completed(incomplete: str, names: Callable[[Graph], Iterable[str]]) -> list[str]:
    from omnigraph.cli.engine import open_graph

    try:
        with open_graph(_uri(), read_only=True) as graph:
            return sorted(name for name in names(graph) if name.startswith(incomplete))
    except Exception:  # noqa: BLE001  # nothing to complete
        return []
    finally:
        scope.forget()


def _uri() -> str:
    from omnigraph.cli.address import graph_uri

    words = scope.take(_words())
    named = _after(words, ("--store", "--uri"))
    if named is None:
        named = next((word for word in reversed(words) if _is_graph(word)), None)
    return graph_uri(named)


def _words() -> list[str]:
    """The words before the one that is completed."""
    typed = environment.COMPLETE_WORDS.read() or environment.COMPLETE_ARGUMENTS.read() or ""
    try:
        return shlex.split(typed)[1:]
    except ValueError:  # a quote that is still open
        return typed.split()[1:]


def _after(words: list[str], flags: tuple[str, ...]) -> str | None:
    for number, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag in flags:
            return value if equals else next(iter(words[number + 1 :]), None)
    return None


def _is_graph(word: str) -> bool:
    return not word.startswith("-") and (
        "://" in word or word.endswith(".omni") or os.path.isdir(os.path.join(word, "__manifest"))
    )
