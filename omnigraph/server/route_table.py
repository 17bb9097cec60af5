"""Route table: every endpoint of a graph, and the flat ones of the older API.

Invariant: an endpoint is one row, and everything that depends on it is made from that row.
"""

from dataclasses import replace

from omnigraph.server import (
    blob_route,
    change_routes,
    legacy,
    read_routes,
    stored_routes,
    wire,
    wire_changes,
    write_routes,
)
from omnigraph.server.beyond_table import BEYOND
from omnigraph.server.call import NDJSON
from omnigraph.server.endpoint import ApiEndpoint, BodySize, Lane, Parameter
from omnigraph.server.endpoint_rows import (
    BRANCH,
    FILTERS,
    GRAPH,
    LIMIT,
    TOKEN,
    WRITES,
    get_row,
    post_row,
    write_row,
)
from omnigraph.server.legacy import with_old_keys
from omnigraph.server.review_table import REVIEWS
from omnigraph.server.row_formats import ARROW, CSV, PARQUET

BYTES = "application/octet-stream"

_IF_COMMIT = Parameter(
    write_routes.IF_COMMIT, "The commit that the branch must be at.", "header", required=True
)
_SNAPSHOT = Parameter("snapshot", "As it was at a commit.")
_LOAD = (
    BRANCH,
    Parameter("from", "Create the branch from this one if it is missing."),
    Parameter("mode", "append, merge (the default), patch or overwrite."),
    Parameter("message", "What the commit says about itself."),
    Parameter("type", "The node type of rows that do not name theirs."),
    Parameter("edge", "The edge type of rows that do not name theirs."),
    Parameter("meta", "A text kept with the commit: key=text.", repeated=True),
    Parameter("indexes", "When indexes are built: now or later."),
    Parameter("embed", "When vectors of texts are made: now or later."),
    Parameter("on_duplicate", "An id that comes twice in a merge: last or refuse."),
)
_BLOB = (
    Parameter("entity", "node or edge.", required=True),
    Parameter("type", "Its type.", required=True),
    Parameter("id", "Its id.", required=True),
    Parameter("property", "The Blob property.", required=True),
    BRANCH,
    _SNAPSHOT,
)
_PUT_BLOB = (
    *(each for each in _BLOB if each.name != "snapshot"),
    Parameter("message", "What the commit says about itself."),
    Parameter("If-Match", "Only if the ETag is one of these.", "header"),
)
_BLOB_HEADERS = tuple(
    Parameter(name, about, "header")
    for name, about in (
        ("Range", "Bytes to read: bytes=a-b, a- or -n."),
        ("If-Match", "Only if the ETag is one of these."),
        ("If-None-Match", "304 if the ETag is one of these."),
        ("If-Range", "The range only if this is the ETag."),
    )
)

_TABLE: tuple[ApiEndpoint, ...] = (
    post_row(
        "/query",
        "cluster_query",
        "read",
        read_routes.query,
        request=wire.QueryRequest,
        answers=wire.ReadOutput,
        other_media=(ARROW, CSV),
    ),
    post_row(
        "/read",
        "cluster_read",
        "read",
        read_routes.legacy_read,
        request=wire.LegacyReadRequest,
        answers=wire.LegacyReadOutput,
        successor="query",
    ),
    write_row(
        "/mutate",
        "cluster_mutate",
        "change",
        write_routes.mutate,
        request=wire.ChangeRequest,
        answers=wire.ChangeOutput,
    ),
    write_row(
        "/mutate/if-graph-commit",
        "cluster_mutate_if_graph_commit",
        "change",
        write_routes.mutate_if,
        request=wire.ChangeRequest,
        answers=wire.ChangeOutput,
        parameters=(_IF_COMMIT,),
    ),
    write_row(
        "/change",
        "cluster_change",
        "change",
        write_routes.mutate,
        request=wire.ChangeRequest,
        answers=wire.ChangeOutput,
        successor="mutate",
    ),
    get_row(
        "/queries",
        "cluster_list_queries",
        "read",
        stored_routes.stored_queries,
        answers=wire.QueryCatalog,
    ),
    post_row(
        "/queries/{name}",
        "cluster_invoke_query",
        "invoke_query",
        stored_routes.invoke,
        request=wire.InvokeStoredQueryRequest,
        body_required=False,
        answers=wire.ReadOutput,
        other_answers=(wire.ChangeOutput,),
        other_media=(ARROW, CSV),
        refusals=WRITES,
    ),
    write_row(
        "/queries/{name}/if-graph-commit",
        "cluster_invoke_query_if_graph_commit",
        "invoke_query",
        stored_routes.invoke_if,
        request=wire.InvokeStoredQueryRequest,
        body_required=False,
        answers=wire.ChangeOutput,
        parameters=(_IF_COMMIT,),
    ),
    write_row(
        "/load",
        "cluster_load",
        "change",
        write_routes.load,
        request=wire.IngestRequest,
        answers=wire.IngestOutput,
        size=BodySize.LOAD,
        other_bodies=(PARQUET, ARROW, CSV),
        parameters=_LOAD,
    ),
    write_row(
        "/load/ndjson",
        "cluster_loadNdjson",
        "change",
        write_routes.load_ndjson,
        request=NDJSON,
        answers=wire.GraphBatchLoadOutput,
        size=BodySize.SPOOLED,
        parameters=_LOAD,
    ),
    write_row(
        "/ingest",
        "cluster_ingest",
        "change",
        write_routes.ingest,
        request=wire.IngestRequest,
        answers=wire.IngestOutput,
        size=BodySize.LOAD,
        successor="load",
    ),
    get_row(
        "/branches",
        "cluster_listBranches",
        "read",
        read_routes.branches,
        answers=wire.BranchList,
        parameters=(Parameter("heads", "true: also the commits of their heads."),),
    ),
    write_row(
        "/branches",
        "cluster_createBranch",
        "branch_create",
        write_routes.new_branch,
        request=wire.BranchCreateRequest,
        answers=wire.BranchCreateOutput,
    ),
    ApiEndpoint(
        "DELETE",
        f"{GRAPH}/branches/{{branch}}",
        "cluster_deleteBranch",
        "branch_delete",
        write_routes.delete_branch,
        "Delete a branch.",
        wire.BranchDeleteOutput,
        lane=Lane.WRITE,
        refusals=(400, 404, 409),
    ),
    write_row(
        "/branches/merge",
        "cluster_mergeBranches",
        "branch_merge",
        write_routes.merge,
        request=wire.BranchMergeRequest,
        answers=wire.BranchMergeOutput,
    ),
    get_row(
        "/commits",
        "cluster_listCommits",
        "read",
        read_routes.commits,
        answers=wire.CommitList,
        parameters=(
            BRANCH,
            LIMIT,
            TOKEN,
            Parameter("actor", "Only those of this actor."),
            Parameter("all_branches", "true: of every branch."),
        ),
        refusals=(400, 404, 413),
    ),
    get_row(
        "/commits/{commit_id}",
        "cluster_getCommit",
        "read",
        read_routes.one_commit,
        answers=wire.CommitOutput,
    ),
    get_row(
        "/commits/{commit_id}/changes",
        "cluster_getCommitChanges",
        "read",
        change_routes.commit_changes,
        answers=wire_changes.CommitChangesOutput,
        parameters=(TOKEN, LIMIT, *FILTERS),
        refusals=(400, 404, 409, 410, 413),
    ),
    get_row(
        "/changes",
        "cluster_pollChanges",
        "read",
        change_routes.poll,
        answers=wire_changes.ChangeFeedOutput,
        parameters=(
            BRANCH,
            Parameter("cursor", "Where a poll ended."),
            Parameter("start", "now, beginning or after:<commit id>."),
            Parameter("wait_ms", "Wait this long for a commit if there is none.", is_number=True),
            TOKEN,
            LIMIT,
            *FILTERS,
        ),
        refusals=(400, 404, 409, 410, 413),
    ),
    post_row(
        "/changes/baseline",
        "cluster_captureChangeBaseline",
        "export",
        change_routes.baseline,
        request=wire_changes.BaselineRequest,
        body_required=False,
        answers=NDJSON,
    ),
    post_row(
        "/export",
        "cluster_export",
        "export",
        change_routes.export,
        request=wire_changes.ExportRequest,
        answers=NDJSON,
        other_media=(ARROW, CSV),
    ),
    get_row(
        "/schema",
        "cluster_getSchema",
        "read",
        read_routes.schema,
        answers=wire.SchemaOutput,
        parameters=(BRANCH, _SNAPSHOT, Parameter("catalog", "true: also its catalog.")),
        refusals=(400, 404, 410),
    ),
    write_row(
        "/schema/apply",
        "cluster_applySchema",
        "schema_apply",
        write_routes.apply_schema,
        request=wire.SchemaApplyRequest,
        answers=wire.SchemaApplyOutput,
    ),
    get_row(
        "/snapshot",
        "cluster_getSnapshot",
        "read",
        read_routes.snapshot,
        answers=wire.SnapshotOutput,
        parameters=(BRANCH, _SNAPSHOT),
        refusals=(400, 404, 410),
    ),
    get_row(
        "/blob",
        "cluster_getBlob",
        "read",
        blob_route.get_blob,
        answers=BYTES,
        parameters=(*_BLOB, *_BLOB_HEADERS),
        statuses=(200, 206, 302, 304),
        refusals=(400, 404, 412, 413, 416),
    ),
    replace(
        get_row(
            "/blob",
            "cluster_headBlob",
            "read",
            blob_route.head_blob,
            answers=BYTES,
            parameters=(*_BLOB, *_BLOB_HEADERS),
            statuses=(200, 302, 304),
            refusals=(400, 404, 412),
        ),
        method="HEAD",
    ),
    replace(
        write_row(
            "/blob",
            "cluster_putBlob",
            "change",
            blob_route.put_blob,
            request=BYTES,
            answers=wire.ChangeOutput,
            size=BodySize.BLOB,
            parameters=_PUT_BLOB,
        ),
        method="PUT",
    ),
)

_OLD_KEYS = {
    "cluster_listCommits": legacy.in_commits,
    "cluster_getCommit": legacy.in_commit,
    "cluster_mutate": legacy.in_change,
    "cluster_change": legacy.in_change,
    "cluster_ingest": legacy.in_ingest,
    "cluster_mergeBranches": legacy.in_merge,
    "cluster_applySchema": legacy.in_schema_apply,
    "cluster_getSnapshot": legacy.in_snapshot,
}
_FLAT = (
    "cluster_listBranches",
    "cluster_createBranch",
    "cluster_deleteBranch",
    "cluster_mergeBranches",
    "cluster_listCommits",
    "cluster_getCommit",
    "cluster_query",
    "cluster_read",
    "cluster_mutate",
    "cluster_change",
    "cluster_ingest",
    "cluster_export",
    "cluster_getSchema",
    "cluster_applySchema",
    "cluster_getSnapshot",
)


def _flattened(nested: ApiEndpoint) -> ApiEndpoint:
    add = _OLD_KEYS.get(nested.operation)
    if nested.operation == "cluster_export":
        older = wire_changes.FlatExportRequest
        nested = replace(nested, request=older, route=change_routes.flat_export)
    return replace(
        nested,
        path=nested.path.removeprefix(GRAPH),
        operation=nested.operation.removeprefix("cluster_"),
        route=nested.route if add is None else with_old_keys(nested.route, add),
        flat=True,
    )


NESTED = (*_TABLE, *BEYOND, *REVIEWS)
FLAT = tuple(_flattened(each) for each in _TABLE if each.operation in _FLAT)
