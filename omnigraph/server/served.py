"""Graphs of one worker: opened at its start, closed at its end.

Invariant: a graph that cannot be opened is answered as not found and tried again now and then;
the others are served, unless every graph is required.
"""

import threading
import time

from omnigraph.errors import OmnigraphError
from omnigraph.graph import Graph
from omnigraph.graph import open as open_graph
from omnigraph.server.refusals import HttpRefusal
from omnigraph.server.serve_settings import GRAPH_ID, RESERVED_IDS

_RETRY_SECONDS = 5.0


class ServedGraphs:
    """Open graphs by id."""

    def __init__(self, uris: dict[str, str]) -> None:
        self._uris = uris
        self._open: dict[str, Graph] = {}
        self._tried: dict[str, float] = {}
        self._lock = threading.Lock()

    def open_all(self, *, require_all: bool) -> dict[str, str]:
        """Open every graph; why those are not open that are not. With `require_all`, raise."""
        faults = {}
        for graph_id in self._uris:
            try:
                self._try(graph_id)
            except OmnigraphError as cause:
                if require_all or len(self._uris) == 1:
                    raise
                faults[graph_id] = str(cause)
        return faults

    def _try(self, graph_id: str) -> Graph:
        with self._lock:
            graph = self._open.get(graph_id)
            if graph is None:
                self._tried[graph_id] = time.monotonic()
                graph = self._open[graph_id] = open_graph(self._uris[graph_id])
            return graph

    def get(self, graph_id: str) -> Graph:
        """An open graph, or 400 or 404."""
        graph = self._open.get(graph_id)
        if graph is not None:
            return graph
        if not GRAPH_ID.fullmatch(graph_id) or graph_id in RESERVED_IDS:
            raise HttpRefusal(400, f"'{graph_id[:80]}' is no graph id")
        raise HttpRefusal(404, f"graph '{graph_id}' not found")

    def retry(self) -> None:
        """Try again to open what is not open, if that was a while ago."""
        for graph_id in self._uris:
            waited = time.monotonic() - self._tried.get(graph_id, 0.0)
            if graph_id not in self._open and waited > _RETRY_SECONDS:
                try:
                    self._try(graph_id)
                except OmnigraphError:
                    continue

    def listed(self) -> list[tuple[str, str]]:
        """Ids and addresses of the open graphs."""
        return sorted((graph_id, graph.uri) for graph_id, graph in self._open.items())

    def readiness(self) -> dict[str, bool]:
        """Whether each graph is open."""
        return {graph_id: graph_id in self._open for graph_id in sorted(self._uris)}

    @property
    def only(self) -> str | None:
        """The id of the one graph, if there is one alone."""
        return next(iter(self._uris)) if len(self._uris) == 1 else None

    def opened(self) -> list[Graph]:
        """The open graphs."""
        return list(self._open.values())

    def close(self) -> None:
        """Close every graph."""
        for graph in self._open.values():
            graph.close()
        self._open.clear()
