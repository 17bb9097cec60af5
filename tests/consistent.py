"""Graphs that a test opened, checked for consistency when it ends.

Tests marked `consistent` end with `assert_consistent` on every graph that they left open, so with
warm caches, and on a fresh handle of those that they closed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import omnigraph as og
from omnigraph.errors import GraphClosed, OmnigraphError
from omnigraph.graph import Graph
from omnigraph.testing import assert_consistent


@contextmanager
def recorded() -> Iterator[list[Graph]]:
    """Collect the graphs that are opened in a block."""
    opened: list[Graph] = []
    make = Graph.__init__

    def recording(self: Graph, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        opened.append(self)

    Graph.__init__ = recording  # type: ignore[method-assign]
    try:
        yield opened
    finally:
        Graph.__init__ = make  # type: ignore[method-assign]


def check_graphs(opened: list[Graph]) -> int:
    """Raise `Inconsistent` for a graph whose ways to read differ; how many were checked."""
    handles: dict[str, Graph | None] = {}
    for graph in opened:
        handles[graph.uri] = graph if _is_open(graph) else handles.get(graph.uri)
    for uri, handle in handles.items():
        if not Path(uri).exists():
            continue  # the test removed its folder
        if handle is not None:
            assert_consistent(handle)
        else:
            with og.open(uri) as fresh:
                assert_consistent(fresh)
    return len(handles)


def _is_open(graph: Graph) -> bool:
    try:
        graph.branches.list()
    except GraphClosed:
        return False
    except OmnigraphError:
        return True
    return True
