"""Live graphs of a cluster: looked at, created, migrated and deleted below its storage root.

    <storage>/graphs/<graph-id>.omni

Invariant: a look writes nothing, and one that fails is an error, never "no graph". A live schema is
the declared one if no migration step lies between them: layout and comments do not count.
"""

from dataclasses import dataclass
from typing import Any

from omnigraph.catalog.schema_diff import MigrationPlan
from omnigraph.cluster.resources import digest_of_content, graph_address, graph_path
from omnigraph.cluster.state_lock import moment
from omnigraph.errors import NotFound, OmnigraphError
from omnigraph.graph import init
from omnigraph.graph import open as open_graph
from omnigraph.storage.cluster_objects import ClusterObjects


@dataclass(frozen=True, slots=True)
class GraphSight:
    """What a look at a graph saw, on its branch main."""

    graph: str
    uri: str
    exists: bool
    manifest_version: int | None = None
    schema_digest: str | None = None
    desired_digest: str | None = None
    matches: bool | None = None  # whether its schema is the declared one
    migration: dict[str, Any] | None = None  # what lies between them
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The observation that the ledger keeps."""
        return {
            "kind": "graph",
            "address": graph_address(self.graph),
            "graph_uri": self.uri,
            "observed_at": moment(),
            "exists": self.exists,
            "graph_manifest_version": self.manifest_version,
            "schema_digest": self.schema_digest,
            "desired_schema_digest": self.desired_digest,
            "schema_matches_desired": self.matches,
            "error": self.error,
        }


def look_at_graph(
    objects: ClusterObjects, graph: str, desired: tuple[str, str] | None
) -> GraphSight:
    """Look at a graph. `desired` is the digest and the text of its declared schema, if any."""
    uri = objects.join(graph_path(graph))
    digest = None if desired is None else desired[0]
    try:
        opened = open_graph(uri, read_only=True, storage_options=objects.options)
    except NotFound:
        matches = None if desired is None else False
        return GraphSight(graph, uri, False, desired_digest=digest, matches=matches)
    except OmnigraphError as cause:
        return GraphSight(graph, uri, True, desired_digest=digest, error=str(cause))
    try:
        with opened:
            live = digest_of_content(opened.schema.text.encode())
            version = opened.snapshot("main").manifest_version
            migration = None
            if desired is not None and live != digest:
                migration = _document(opened.schema.plan(desired[1]))
    except OmnigraphError as cause:
        return GraphSight(graph, uri, True, desired_digest=digest, error=str(cause))
    matches = None if desired is None else live == digest or not (migration or {}).get("steps")
    return GraphSight(graph, uri, True, version, live, digest, matches, migration)


def _document(plan: MigrationPlan) -> dict[str, Any]:
    """A plan as JSON, each step with its line for people."""
    steps = [{**step.to_json(), "text": str(step)} for step in plan.steps]
    return plan.to_json() | {"steps": steps}


def create_graph(objects: ClusterObjects, graph: str, schema: str) -> None:
    """A new graph of a schema; what an interrupted attempt left is used or replaced."""
    init(objects.join(graph_path(graph)), schema, storage_options=objects.options).close()


def migrate_graph(objects: ClusterObjects, graph: str, schema: str, actor: str | None) -> None:
    """Change the schema of a graph. What is dropped stays in earlier commits."""
    uri = objects.join(graph_path(graph))
    with open_graph(uri, storage_options=objects.options) as opened:
        opened.schema.apply(schema, actor=actor)


def delete_graph(objects: ClusterObjects, graph: str) -> None:
    """Remove a graph with all its files."""
    objects.delete_graph(graph_path(graph))


def is_half_deleted(objects: ClusterObjects, graph: str) -> bool:
    """Whether the deletion of a graph was begun and cut off."""
    return objects.is_half_deleted(graph_path(graph))


def has_files(objects: ClusterObjects, graph: str) -> bool:
    """Whether there is anything of a graph."""
    return bool(objects.list(graph_path(graph)))
