"""Route table: every endpoint of a graph, and the flat ones of the older API.

Invariant: an endpoint is one row, and everything that depends on it is made from that row.
"""

from dataclasses import replace

from omnigraph.server import (
    blob_route,
    change_routes,
    legacy,
    more_routes,
    read_routes,
    wire,
    wire_beyond,
    wire_changes,
    write_routes,
)
from omnigraph.server.call import NDJSON
from omnigraph.server.endpoint import ApiEndpoint, BodySize, Lane, Parameter
from omnigraph.server.legacy import Route, with_old_keys
from omnigraph.server.row_formats import ARROW, CSV, PARQUET

GRAPH = "/graphs/{graph_id}"
BYTES = "application/octet-stream"

_BRANCH = Parameter("branch", "Which branch; main by default.")
_TOKEN = Parameter("page_token", "Goes on where a page ended.")
_LIMIT = Parameter("limit", "At most this many to a page.", is_number=True)
_FILTERS = (
    Parameter("kind", "Only node or edge.", repeated=True),
    Parameter("type", "Only this type.", repeated=True),
    Parameter("op", "Only insert, update or delete.", repeated=True),
)
_IF_COMMIT = Parameter(
    write_routes.IF_COMMIT, "The commit that the branch must be at.", "header", required=True
)
_SNAPSHOT = Parameter("snapshot", "As it was at a commit.")
_LOAD = (
    _BRANCH,
    Parameter("from", "Create the branch from this one if it is missing."),
    Parameter("mode", "append, merge (the default), patch or overwrite."),
    Parameter("message", "What the commit says about itself."),
    Parameter("type", "The node type of rows that do not name theirs."),
    Parameter("edge", "The edge type of rows that do not name theirs."),
    Parameter("meta", "A text kept with the commit: key=text.", repeated=True),
    Parameter("on_duplicate", "An id that comes twice in a merge: last or refuse."),
)
_BLOB = (
    Parameter("entity", "node or edge.", required=True),
    Parameter("type", "Its type.", required=True),
    Parameter("id", "Its id.", required=True),
    Parameter("property", "The Blob property.", required=True),
    _BRANCH,
    _SNAPSHOT,
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

_READS = (400, 404)
_WRITES = (400, 404, 409, 412, 413, 415, 422, 424, 503)


def _post(name: str, operation: str, action: str, route: Route, **facts: object) -> ApiEndpoint:
    about = (route.__doc__ or "").strip()
    row = {"size": BodySize.DEFAULT, "refusals": (400, 404, 413, 415), **facts}
    return ApiEndpoint("POST", f"{GRAPH}{name}", operation, action, route, about, **row)  # type: ignore[arg-type]


def _get(name: str, operation: str, action: str, route: Route, **facts: object) -> ApiEndpoint:
    about = (route.__doc__ or "").strip()
    row = {"refusals": _READS, **facts}
    return ApiEndpoint("GET", f"{GRAPH}{name}", operation, action, route, about, **row)  # type: ignore[arg-type]


def _write(name: str, operation: str, action: str, route: Route, **facts: object) -> ApiEndpoint:
    row = {"lane": Lane.WRITE, "refusals": _WRITES, **facts}
    return _post(name, operation, action, route, **row)


_TABLE: tuple[ApiEndpoint, ...] = (
    _post(
        "/query",
        "cluster_query",
        "read",
        read_routes.query,
        request=wire.QueryRequest,
        answers=wire.ReadOutput,
        other_media=(ARROW, CSV),
    ),
    _post(
        "/read",
        "cluster_read",
        "read",
        read_routes.legacy_read,
        request=wire.LegacyReadRequest,
        answers=wire.LegacyReadOutput,
        successor="query",
    ),
    _write(
        "/mutate",
        "cluster_mutate",
        "change",
        write_routes.mutate,
        request=wire.ChangeRequest,
        answers=wire.ChangeOutput,
    ),
    _write(
        "/mutate/if-graph-commit",
        "cluster_mutate_if_graph_commit",
        "change",
        write_routes.mutate_if,
        request=wire.ChangeRequest,
        answers=wire.ChangeOutput,
        parameters=(_IF_COMMIT,),
    ),
    _write(
        "/change",
        "cluster_change",
        "change",
        write_routes.mutate,
        request=wire.ChangeRequest,
        answers=wire.ChangeOutput,
        successor="mutate",
    ),
    _get(
        "/queries",
        "cluster_list_queries",
        "read",
        read_routes.stored_queries,
        answers=wire.QueryCatalog,
    ),
    _post(
        "/queries/{name}",
        "cluster_invoke_query",
        "invoke_query",
        read_routes.invoke,
        request=wire.InvokeStoredQueryRequest,
        body_required=False,
        answers=wire.ReadOutput,
    ),
    _write(
        "/queries/{name}/if-graph-commit",
        "cluster_invoke_query_if_graph_commit",
        "invoke_query",
        write_routes.invoke_if,
        request=wire.InvokeStoredQueryRequest,
        body_required=False,
        answers=wire.ChangeOutput,
        parameters=(_IF_COMMIT,),
    ),
    _write(
        "/load",
        "cluster_load",
        "change",
        write_routes.load,
        request=wire.IngestRequest,
        answers=wire.IngestOutput,
        size=BodySize.LOAD,
        other_bodies=(PARQUET, ARROW),
        parameters=_LOAD,
    ),
    _write(
        "/load/ndjson",
        "cluster_loadNdjson",
        "change",
        write_routes.load_ndjson,
        request=NDJSON,
        answers=wire.GraphBatchLoadOutput,
        size=BodySize.SPOOLED,
        parameters=_LOAD,
    ),
    _write(
        "/ingest",
        "cluster_ingest",
        "change",
        write_routes.ingest,
        request=wire.IngestRequest,
        answers=wire.IngestOutput,
        size=BodySize.LOAD,
        successor="load",
    ),
    _get(
        "/branches",
        "cluster_listBranches",
        "read",
        read_routes.branches,
        answers=wire.BranchList,
        parameters=(Parameter("heads", "true: also the commits of their heads."),),
    ),
    _write(
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
    _write(
        "/branches/merge",
        "cluster_mergeBranches",
        "branch_merge",
        write_routes.merge,
        request=wire.BranchMergeRequest,
        answers=wire.BranchMergeOutput,
    ),
    _get(
        "/commits",
        "cluster_listCommits",
        "read",
        read_routes.commits,
        answers=wire.CommitList,
        parameters=(
            _BRANCH,
            _LIMIT,
            _TOKEN,
            Parameter("actor", "Only those of this actor."),
            Parameter("all_branches", "true: of every branch."),
        ),
        refusals=(400, 404, 413),
    ),
    _get(
        "/commits/{commit_id}",
        "cluster_getCommit",
        "read",
        read_routes.one_commit,
        answers=wire.CommitOutput,
    ),
    _get(
        "/commits/{commit_id}/changes",
        "cluster_getCommitChanges",
        "read",
        change_routes.commit_changes,
        answers=wire_changes.CommitChangesOutput,
        parameters=(_TOKEN, _LIMIT, *_FILTERS),
        refusals=(400, 404, 409, 410, 413),
    ),
    _get(
        "/changes",
        "cluster_pollChanges",
        "read",
        change_routes.poll,
        answers=wire_changes.ChangeFeedOutput,
        parameters=(
            _BRANCH,
            Parameter("cursor", "Where a poll ended."),
            Parameter("start", "now, beginning or after:<commit id>."),
            Parameter("wait_ms", "Wait this long for a commit if there is none.", is_number=True),
            _TOKEN,
            _LIMIT,
            *_FILTERS,
        ),
        refusals=(400, 404, 409, 410, 413),
    ),
    _post(
        "/changes/baseline",
        "cluster_captureChangeBaseline",
        "export",
        change_routes.baseline,
        request=wire_changes.BaselineRequest,
        answers=NDJSON,
    ),
    _post(
        "/export",
        "cluster_export",
        "export",
        change_routes.export,
        request=wire_changes.ExportRequest,
        answers=NDJSON,
    ),
    _get(
        "/schema",
        "cluster_getSchema",
        "read",
        read_routes.schema,
        answers=wire.SchemaOutput,
        parameters=(_BRANCH, _SNAPSHOT, Parameter("catalog", "true: also its catalog.")),
        refusals=(400, 404, 410),
    ),
    _write(
        "/schema/apply",
        "cluster_applySchema",
        "schema_apply",
        write_routes.apply_schema,
        request=wire.SchemaApplyRequest,
        answers=wire.SchemaApplyOutput,
    ),
    _get(
        "/snapshot",
        "cluster_getSnapshot",
        "read",
        read_routes.snapshot,
        answers=wire.SnapshotOutput,
        parameters=(_BRANCH, _SNAPSHOT),
        refusals=(400, 404, 410),
    ),
    _get(
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
        _get(
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
)

BEYOND: tuple[ApiEndpoint, ...] = (
    _get(
        "/operations/{key}",
        "cluster_getOperation",
        "read",
        more_routes.operation,
        answers=wire_beyond.OperationOutput,
        parameters=(_BRANCH,),
    ),
    _get("/tags", "cluster_listTags", "read", more_routes.tags, answers=wire_beyond.TagList),
    _write(
        "/tags",
        "cluster_createTag",
        "branch_create",
        more_routes.tag_point,
        request=wire_beyond.TagCreateRequest,
        answers=wire_beyond.TagOutput,
    ),
    replace(
        _write(
            "/tags/{tag}",
            "cluster_deleteTag",
            "branch_delete",
            more_routes.untag,
            answers=wire_beyond.TagDeleteOutput,
            size=BodySize.NONE,
        ),
        method="DELETE",
    ),
    _write(
        "/revert",
        "cluster_revert",
        "change",
        more_routes.revert,
        request=wire_beyond.RevertRequest,
        answers=wire_beyond.UndoOutput,
    ),
    _write(
        "/restore",
        "cluster_restore",
        "change",
        more_routes.go_back,
        request=wire_beyond.RestoreRequest,
        answers=wire_beyond.UndoOutput,
    ),
    _write(
        "/transactions",
        "cluster_transact",
        "change",
        more_routes.transact,
        request=wire_beyond.TransactionRequest,
        answers=wire_beyond.TransactionOutput,
    ),
    _get(
        "/diff",
        "cluster_diff",
        "read",
        more_routes.diff,
        answers=wire_changes.DiffOutput,
        parameters=(
            Parameter("from", "The earlier point in time.", required=True),
            Parameter("to", "The later one.", required=True),
            _TOKEN,
            _LIMIT,
            *_FILTERS,
        ),
        refusals=(400, 404, 409, 410, 413),
    ),
    _post(
        "/lint",
        "cluster_lint",
        "read",
        more_routes.lint,
        request=wire_beyond.TextRequest,
        answers=wire_beyond.LintOutput,
    ),
    _post(
        "/explain",
        "cluster_explain",
        "read",
        more_routes.explain,
        request=wire_beyond.TextRequest,
        answers=wire_beyond.ExplainOutput,
    ),
    _get(
        "/changes/stream",
        "cluster_streamChanges",
        "read",
        change_routes.poll,
        answers="text/event-stream",
        parameters=(
            _BRANCH,
            Parameter("cursor", "Where a poll ended."),
            Parameter("start", "now, beginning or after:<commit id>."),
            *_FILTERS,
            Parameter("Last-Event-ID", "The cursor of the last event seen.", "header"),
        ),
        refusals=(400, 404, 409, 410, 413),
    ),
)

_OLD_KEYS = {
    "cluster_listCommits": legacy.in_commits,
    "cluster_getCommit": legacy.in_commit,
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
    "cluster_read",
    "cluster_change",
    "cluster_ingest",
    "cluster_export",
    "cluster_getSchema",
    "cluster_applySchema",
    "cluster_getSnapshot",
)


def _flattened(nested: ApiEndpoint) -> ApiEndpoint:
    add = _OLD_KEYS.get(nested.operation)
    return replace(
        nested,
        path=nested.path.removeprefix(GRAPH),
        operation=nested.operation.removeprefix("cluster_"),
        route=nested.route if add is None else with_old_keys(nested.route, add),
        flat=True,
    )


NESTED = (*_TABLE, *BEYOND)
FLAT = tuple(_flattened(each) for each in _TABLE if each.operation in _FLAT)
