"""JSON documents of commits, snapshots, recoveries, roundings and source errors, as the wire has
them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from omnigraph.types import parse_table_key

if TYPE_CHECKING:
    from omnigraph.errors import SourceError
    from omnigraph.storage.records import Commit, Snapshot, TopologyState
    from omnigraph.storage.recovery_records import Recovery
    from omnigraph.types import SchemaStep


def commit_document(commit: Commit) -> dict[str, object]:
    """A graph commit."""
    return {
        "graph_commit_id": commit.id,
        "graph_branch": commit.branch,
        "graph_manifest_version": commit.manifest_version,
        "parent_commit_id": commit.parent,
        "merged_parent_commit_id": commit.merged_parent,
        "actor_id": commit.actor,
        "created_at": commit.created_at,
        "message": commit.message,
        "metadata": dict(commit.metadata),
        "counts": {
            key: {"inserted": rows.inserted, "updated": rows.updated, "deleted": rows.deleted}
            for key, rows in sorted(commit.counts.items())
        },
        **schema_document(commit.schema_steps),
    }


def schema_document(steps: Iterable[SchemaStep]) -> dict[str, object]:
    """Return the member of a document with schema steps; empty without a step."""
    shown = [step.to_json() for step in steps]
    return {"schema_steps": shown} if shown else {}


def rounded_document(rounded: Mapping[str, int]) -> dict[str, object]:
    """The member of a write's document that says which values were rounded; none if none was."""
    return {"rounded": dict(rounded)} if rounded else {}


def rounded_lines(rounded: Mapping[str, int]) -> list[str]:
    """A sentence for each property of which a write rounded values."""
    return [
        f"rounded {count} {'value' if count == 1 else 'values'} of {name} to milliseconds"
        for name, count in rounded.items()
    ]


def snapshot_document(snapshot: Snapshot) -> dict[str, object]:
    """A snapshot: every type with its table version and count of entities."""
    return {
        "graph_branch": snapshot.branch,
        "graph_manifest_version": snapshot.manifest_version,
        "internal_schema_version": snapshot.internal_schema_version,
        "datasets": [
            {
                "entity_kind": str(kind),
                "type_name": type_name,
                "dataset_path": pin.location,
                "published_dataset_version": pin.version,
                "native_dataset_branch": pin.branch or "main",
                "entity_count": pin.row_count,
                **_topology(snapshot.topology.get(key)),
            }
            for key, pin in sorted(snapshot.tables.items())
            for kind, type_name in [parse_table_key(key)]
        ],
    }


def _topology(state: TopologyState | None) -> dict[str, object]:
    """The topology file of a table; nothing for a table that has none."""
    if state is None:
        return {}
    return {
        "topology": {
            "dataset_version": state.version,
            "dataset_branch": state.branch or "main",
            "bytes": state.bytes,
            "rows_behind": state.rows_behind,
        }
    }


def recovery_document(recovery: Recovery) -> dict[str, object]:
    """One row of the recovery audit."""
    return {
        "operation_id": recovery.operation_id,
        "graph_commit_id": recovery.graph_commit_id,
        "recovery_kind": recovery.recovery_kind,
        "recovery_for_actor": recovery.recovery_for_actor,
        "sidecar_writer_kind": recovery.sidecar_writer_kind,
        "graph_branch": recovery.graph_branch,
        "per_table_outcomes": [
            {
                "table_key": outcome.table_key,
                "from_version": outcome.from_version,
                "to_version": outcome.to_version,
            }
            for outcome in recovery.per_table_outcomes
        ],
        "created_at": recovery.created_at,
    }


def source_error_document(cause: SourceError) -> dict[str, object]:
    """An error in a schema or a query, with its position."""
    return {
        "message": cause.headline,
        "code": cause.code,
        "line": cause.line,
        "column": cause.column,
        "byte_span": list(cause.byte_span),
        "hint": cause.hint,
    }
