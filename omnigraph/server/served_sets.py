"""Sets of graphs to serve: graphs by address with folders of stored queries, or a whole cluster.

Invariant: what cannot be served at all is refused before a port is opened; a graph of a cluster
that cannot be served is left out with its reason.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

from omnigraph.cluster.diagnostics import ClusterRefusal
from omnigraph.cluster.query_catalog import texts_of_folder
from omnigraph.cluster.served_state import ServedGraphState, served_state
from omnigraph.errors import BadRequest
from omnigraph.policy.decisions import policy_file_text
from omnigraph.policy.document_members import Members, read_document, require_version
from omnigraph.policy.merge_demands import TargetCheck, read_checks
from omnigraph.server.serve_settings import (
    GRAPH_ID,
    RESERVED_IDS,
    GraphExtras,
    graphs_by_id,
)

CHECKS_FILE = "checks.yaml"
"""Beside the stored queries: `version: 1` and `checks: [{target: main, query: no_orphans}]`."""


@dataclass(frozen=True, slots=True)
class ServedSet:
    """Addresses by id, what each graph is served with, and what is left out."""

    graphs: dict[str, str]
    extras: dict[str, GraphExtras] = field(default_factory=dict)
    quarantined: dict[str, str] = field(default_factory=dict)
    cluster: str | None = None
    cluster_policy: str | None = None

    @property
    def has_policy(self) -> bool:
        """Whether the cluster applied a policy."""
        return self.cluster_policy is not None or any(
            each.policy is not None for each in self.extras.values()
        )


def set_of_graphs(uris: list[str], ids: list[str], folders: list[str]) -> ServedSet:
    """Graphs by address. A folder of queries is given as DIR where there is one graph, else as
    ID=DIR."""
    graphs = graphs_by_id(uris, ids)
    extras: dict[str, GraphExtras] = {}
    for word in folders:
        graph_id, equals, folder = word.partition("=")
        if graph_id not in graphs:
            if len(graphs) > 1:
                raise BadRequest(f"--queries '{word}' names no served graph", "write ID=DIR")
            graph_id, folder = next(iter(graphs)), word
        elif not equals:
            folder = word
        if graph_id in extras:
            raise BadRequest(f"--queries is given twice for '{graph_id}'", "use one folder")
        extras[graph_id] = extras_of_folder(folder)
    return ServedSet(graphs, extras)


def extras_of_folder(folder: str) -> GraphExtras:
    """The stored queries of a folder, and the checks of merges in its `checks.yaml`."""
    file = Path(folder) / CHECKS_FILE
    checks: tuple[TargetCheck, ...] = ()
    if file.exists():
        where = str(file)
        document = Members.of(
            read_document(policy_file_text(file), where), where, ("version", "checks")
        )
        require_version(document)
        checks = read_checks(document)
    named = tuple((check.target, check.query) for check in checks)
    return GraphExtras(
        queries=texts_of_folder(folder), checks=named, folder=os.path.abspath(folder)
    )


def set_of_cluster(cluster: str) -> ServedSet:
    """The graphs that a cluster has applied."""
    try:
        state = served_state(cluster)
    except ClusterRefusal as refusal:
        raise refusal.as_error() from None
    quarantined = dict(state.quarantined)
    graphs, extras = {}, {}
    for graph_id, graph in state.graphs.items():
        if not GRAPH_ID.fullmatch(graph_id) or graph_id in RESERVED_IDS:
            quarantined[graph_id] = "its id cannot stand in a path: use letters, digits and hyphens"
            continue
        graphs[graph_id] = graph.uri
        extras[graph_id] = _extras(graph)
    if not graphs:
        graph_id, fault = next(iter(quarantined.items()))
        text = f"cluster_no_healthy_graphs {state.root}: no graph can be served; "
        raise BadRequest(f"{text}'{graph_id}': {fault}")
    return ServedSet(graphs, extras, quarantined, state.root, state.server_policy)


def _extras(graph: ServedGraphState) -> GraphExtras:
    return GraphExtras(
        queries=dict(graph.queries),
        profile=None if graph.profile is None else dict(graph.profile),
        blob_bases=graph.blob_bases,
        policy=graph.policy,
    )
