"""Graphs of one worker: opened at its start, closed at its end.

Invariant: a graph that cannot be opened is answered as not found and tried again now and then;
the others are served, unless every graph is required.
"""

import threading
import time
from collections.abc import Callable, Mapping

from omnigraph.cluster.embedding_profile import provider_of
from omnigraph.cluster.query_catalog import (
    NO_QUERIES,
    StoredQueries,
    require_checks,
    required_queries,
)
from omnigraph.errors import BadRequest, OmnigraphError
from omnigraph.graph import Graph
from omnigraph.graph import open as open_graph
from omnigraph.policy.merge_demands import TargetCheck
from omnigraph.server.refusals import HttpRefusal
from omnigraph.server.serve_settings import GRAPH_ID, NO_EXTRAS, RESERVED_IDS, GraphExtras

_RETRY_SECONDS = 5.0


class ServedGraphs:
    """Open graphs by id."""

    def __init__(
        self,
        uris: dict[str, str],
        extras: Mapping[str, GraphExtras] | None = None,
        quarantined: Mapping[str, str] | None = None,
        coalesce_ms: int | None = None,
    ) -> None:
        self._uris = uris
        self._coalesce_ms = coalesce_ms
        self._extras = extras or {}
        self._quarantined = quarantined or {}
        self._stored: dict[str, StoredQueries] = {}
        self._open: dict[str, Graph] = {}
        self._tried: dict[str, float] = {}
        self._lock = threading.Lock()

    def open_all(self, *, require_all: bool) -> dict[str, str]:
        """Open every graph; why those are not open that are not. With `require_all`, raise."""
        faults = dict(self._quarantined)
        if require_all and faults:
            graph_id, fault = next(iter(faults.items()))
            raise BadRequest(f"the graph '{graph_id}' cannot be served: {fault}")
        for graph_id in self._uris:
            try:
                self._try(graph_id)
            except OmnigraphError as cause:
                if require_all or len(self._uris) == 1:
                    raise
                faults[graph_id] = str(cause)
        if not self._open and faults:
            graph_id, fault = next(iter(faults.items()))
            raise BadRequest(f"no graph can be served; '{graph_id}': {fault}")
        return faults

    def _try(self, graph_id: str) -> Graph:
        with self._lock:
            graph = self._open.get(graph_id)
            if graph is None:
                self._tried[graph_id] = time.monotonic()
                graph, stored = self._opened(graph_id)
                self._stored[graph_id] = stored
                self._open[graph_id] = graph
            return graph

    def _opened(self, graph_id: str) -> tuple[Graph, StoredQueries]:
        """A graph with its own provider and bases, and its stored queries, all of which must
        type-check."""
        extras = self._extras.get(graph_id, NO_EXTRAS)
        provider = None if extras.profile is None else provider_of(extras.profile)
        graph = open_graph(
            self._uris[graph_id],
            external_blobs=extras.blob_bases,
            coalesce_ms=self._coalesce_ms,
        )
        try:
            stored, checks = _checked(extras, graph)
        except OmnigraphError:
            graph.close()
            raise
        graph.embed_with(provider)
        graph.check_merges(checks, extras.queries)
        return graph, stored

    def prepared(self, graph_id: str, extras: GraphExtras) -> Callable[[], None]:
        """Check another set for a graph; the call that puts it in force. It does not fail."""
        provider = None if extras.profile is None else provider_of(extras.profile)
        graph = self._open.get(graph_id)
        stored, checks = (NO_QUERIES, ()) if graph is None else _checked(extras, graph)

        def install() -> None:
            self._extras = {**self._extras, graph_id: extras}
            if graph is not None:
                self._stored = {**self._stored, graph_id: stored}
                graph.embed_with(provider)
                graph.check_merges(checks, extras.queries)

        return install

    def stored(self, graph_id: str) -> StoredQueries:
        """The stored queries of an open graph."""
        return self._stored.get(graph_id, NO_QUERIES)

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
        return {i: i in self._open for i in sorted({*self._uris, *self._quarantined})}

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


def _checked(extras: GraphExtras, graph: Graph) -> tuple[StoredQueries, tuple[TargetCheck, ...]]:
    """The stored queries and the checks of a set, if the schema of the graph allows them."""
    stored = required_queries(extras.queries, graph.schema.catalog)
    checks = tuple(TargetCheck(*each) for each in extras.checks)
    require_checks(stored, checks)
    return stored, checks
