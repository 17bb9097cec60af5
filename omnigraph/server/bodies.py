"""Engine results as response bodies: commits, rows, loads, merges, snapshots, changes.

Invariant: pure. One function a result, and nothing here decides anything.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UNSET, UnsetType

from omnigraph.errors import MergeConflict
from omnigraph.exec.changes.diff import Changes
from omnigraph.exec.changes.feed import FeedBlock, cause_document
from omnigraph.exec.load.request import LoadIndexes, LoadResult
from omnigraph.exec.merge.run import MergeOutcome
from omnigraph.exec.merge.undo import UndoOutcome
from omnigraph.exec.mutate.run import MutationResult
from omnigraph.exec.read.result import QueryResult, json_rows
from omnigraph.server import wire, wire_beyond
from omnigraph.server.call import RouteCall
from omnigraph.server.idempotency import shown_metadata
from omnigraph.server.moment_members import moments_in_changes
from omnigraph.storage.names import MAIN
from omnigraph.storage.records import Commit, Snapshot, TopologyState
from omnigraph.types import Kind, counts_of_kind, parse_table_key


def commit_output(commit: Commit) -> wire.CommitOutput:
    """A graph commit."""
    return wire.CommitOutput(
        graph_commit_id=commit.id,
        graph_branch=commit.branch,
        graph_manifest_version=commit.manifest_version,
        parent_commit_id=commit.parent,
        merged_parent_commit_id=commit.merged_parent,
        actor_id=commit.actor,
        created_at=commit.created_at,
        message=commit.message or UNSET,
        metadata=shown_metadata(commit) or UNSET,
        merged_branch=UNSET if commit.merged_from is None else commit.merged_from[0],
        counts=_counts(commit) or UNSET,
        schema_steps=[step.to_json() for step in commit.schema_steps] or UNSET,
    )


def _counts(commit: Commit) -> dict[str, wire.EntityCounts]:
    return {
        key: wire.EntityCounts(inserted=rows.inserted, updated=rows.updated, deleted=rows.deleted)
        for key, rows in sorted(commit.counts.items())
    }


def read_output(
    result: QueryResult,
    branch: str | None,
    snapshot: str | None,
    *,
    legacy: bool = False,
    warnings: list[str] | UnsetType = UNSET,
) -> wire.LegacyReadOutput:
    """The rows of a read."""
    return wire.ReadOutput(
        query_name=result.query_name,
        target=wire.ReadTarget(branch=branch, snapshot=snapshot),
        row_count=len(result),
        columns=result.columns or UNSET,
        rows=json_rows(result),
        graph_commit_id=UNSET if legacy else result.commit_id,
        warnings=warnings,
    )


def change_output(
    done: MutationResult, warnings: list[str] | UnsetType = UNSET
) -> wire.ChangeOutput:
    """The result of a mutation."""
    return wire.ChangeOutput(
        branch=done.branch,
        query_name=done.query_name,
        affected_nodes=done.affected_nodes,
        affected_edges=done.affected_edges,
        actor_id=done.actor_id,
        commit=None if done.commit is None else commit_output(done.commit),
        rounded=done.rounded or UNSET,
        warnings=warnings,
    )


def _loads(counts: Mapping[str, int]) -> list[wire.TypeLoad]:
    return [wire.TypeLoad(name=name, entities_loaded=count) for name, count in counts.items()]


def load_output(done: LoadResult, uri: str | None = None) -> wire.GraphBatchLoadOutput:
    """The result of a load; with `uri`, as the routes say it that name the graph. One that was
    done before counts what its commit wrote."""
    nodes, edges = done.nodes, done.edges
    if done.repeated:
        written = {key: c.inserted + c.updated for key, c in done.commit.counts.items()}
        nodes = counts_of_kind(written, Kind.NODE)
        edges = counts_of_kind(written, Kind.EDGE)
    facts: dict[str, Any] = {
        "branch": done.branch,
        "base_branch": done.base_branch,
        "branch_created": done.branch_created,
        "mode": done.mode,
        "nodes": _loads(nodes),
        "edges": _loads(edges),
        "total_entities": sum(nodes.values()) + sum(edges.values()),
        "actor_id": done.actor_id,
        "commit": commit_output(done.commit),
        "rounded": done.rounded or UNSET,
        "beside_equal": done.beside_equal or UNSET,
        "indexes": _load_indexes(done.indexes),
    }
    if uri is None:
        return wire.GraphBatchLoadOutput(**facts)
    return wire.IngestOutput(uri=uri, **facts)


_UNBUILT = (
    "indexes could not be built; `omnigraph optimize` builds them, and queries scan until then"
)


def _load_indexes(indexes: LoadIndexes) -> wire.LoadIndexesOutput | UnsetType:
    """The indexes that a load built. Why others are missing names the storage, and stays here."""
    if not indexes.built and indexes.missing is None:
        return UNSET
    return wire.LoadIndexesOutput(
        built=[
            wire.BuiltIndex(table=note.table, property=note.column, kind=str(note.kind))
            for note in indexes.built
        ],
        graph_commit_id=indexes.commit_id,
        missing=UNSET if indexes.missing is None else _UNBUILT,
    )


_PREVIEW = ("kept_edges", "schema_steps", "dry_run", "statistics", "merge_conflicts", "changes")


def undo_output(done: UndoOutcome) -> wire_beyond.UndoOutput:
    """The outcome of a revert or a restore."""
    commit = None if done.commit is None else commit_output(done.commit)
    shown = {**done.to_json(), **_conflicts(done.conflicts)}
    return wire_beyond.UndoOutput(**shown, commit=commit)


def _conflicts(conflicts: Sequence[MergeConflict]) -> dict[str, Any]:
    """The conflicts of a preview, each with the entity as it was and as both sides have it."""
    images = ("base", "ours", "theirs")
    shown = [c.to_json() | {name: getattr(c, name) for name in images} for c in conflicts]
    return {"merge_conflicts": shown} if shown else {}


def merge_output(done: MergeOutcome) -> wire.BranchMergeOutput:
    """The outcome of a merge, with the commit that it published."""
    shown = {**done.to_json(), **_conflicts(done.conflicts)}
    return wire.BranchMergeOutput(
        source=done.source,
        target=done.target,
        outcome=done.kind,
        actor_id=done.actor,
        branch_deleted=UNSET if done.branch_deleted is None else done.branch_deleted,
        branch_delete_error=done.branch_delete_error or UNSET,
        commit=UNSET if done.commit is None else commit_output(done.commit),
        **{name: shown[name] for name in _PREVIEW if name in shown},
    )


def snapshot_output(snapshot: Snapshot) -> wire.SnapshotOutput:
    """Every type with its table version and count of entities."""
    datasets = []
    for key, pin in sorted(snapshot.tables.items()):
        kind, type_name = parse_table_key(key)
        datasets.append(
            wire.SnapshotDataset(
                entity_kind=str(kind),
                type_name=type_name,
                dataset_path=pin.location,
                published_dataset_version=pin.version,
                native_dataset_branch=pin.branch,
                entity_count=pin.row_count,
                topology=_topology(snapshot.topology.get(key)),
            )
        )
    return wire.SnapshotOutput(
        graph_branch=snapshot.branch,
        graph_manifest_version=snapshot.manifest_version,
        internal_schema_version=snapshot.internal_schema_version,
        graph_commit_id=snapshot.commit_id,
        datasets=datasets,
    )


def _topology(state: TopologyState | None) -> wire.DatasetTopology | UnsetType:
    if state is None:
        return UNSET
    return wire.DatasetTopology(
        dataset_version=state.version,
        dataset_branch=state.branch or MAIN,
        bytes=state.bytes,
        rows_behind=state.rows_behind,
    )


def block_output(call: RouteCall, block: FeedBlock) -> dict[str, Any]:
    """One commit of the feed with its changes."""
    moments = moments_in_changes(call, block.changes)
    return {**block.to_json(), "cause": cause_output(block.cause), **moments}


def cause_output(cause: Commit) -> dict[str, Any]:
    """The commit behind changes, with what its writer said about it."""
    shown = cause_document(cause)
    shown["graph_manifest_version"] = cause.manifest_version
    if cause.merged_from is not None:
        shown["merged_branch"] = cause.merged_from[0]
    if counts := _counts(cause):
        shown["counts"] = counts
    if cause.message is not None:
        shown["message"] = cause.message
    if metadata := shown_metadata(cause):
        shown["metadata"] = metadata
    return shown


def changes_page(call: RouteCall, changes: Changes, limit: int) -> dict[str, Any]:
    """A page of changes, the one that the call names by its token."""
    page = changes.page(limit, call.one("page_token"))
    shown: dict[str, Any] = {"changes": [change.to_json() for change in page.changes]}
    shown |= moments_in_changes(call, page.changes)
    if page.next_page_token is not None:
        shown["next_page_token"] = page.next_page_token
    return shown
