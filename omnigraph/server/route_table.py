"""Route table: every endpoint with its operation id, policy action, bodies and statuses.

Invariant: an endpoint is one row, and dispatch, authorization, limits and the OpenAPI document all
read that row. A path is matched by its percent-encoded segments, so an encoded slash belongs to the
name it stands in.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from urllib.parse import unquote_to_bytes

from omnigraph.server import (
    blob_route,
    change_routes,
    legacy,
    read_routes,
    wire,
    wire_changes,
    write_routes,
)
from omnigraph.server.call import NDJSON
from omnigraph.server.legacy import Route, with_old_keys
from omnigraph.server.refusals import HttpRefusal
from omnigraph.server.wire import Body

GRAPH = "/graphs/{graph_id}"
BYTES = "application/octet-stream"


class Lane(StrEnum):
    """Thread pool of a route."""

    READ = "read"
    WRITE = "write"


class BodySize(StrEnum):
    """Cap on a request body."""

    NONE = "none"
    DEFAULT = "default"
    LOAD = "load"
    SPOOLED = "spooled"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter or header of an endpoint."""

    name: str
    about: str
    where: str = "query"
    required: bool = False
    repeated: bool = False
    is_number: bool = False


@dataclass(frozen=True)
class ApiEndpoint:
    """One method of one path."""

    method: str
    path: str
    operation: str
    action: str | None
    route: Route
    about: str
    answers: type[Body] | str
    request: type[Body] | str | None = None
    body_required: bool = True
    lane: Lane = Lane.READ
    size: BodySize = BodySize.NONE
    parameters: tuple[Parameter, ...] = ()
    statuses: tuple[int, ...] = (200,)
    refusals: tuple[int, ...] = ()
    successor: str | None = None  # of a deprecated route
    flat: bool = False

    @cached_property
    def segments(self) -> tuple[str, ...]:
        """The parts of the path; `{name}` for a parameter."""
        return tuple(self.path.strip("/").split("/"))

    @property
    def names(self) -> tuple[str, ...]:
        """Path parameters."""
        return tuple(part[1:-1] for part in self.segments if part.startswith("{"))


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
_LOAD = (
    _BRANCH,
    Parameter("from", "Create the branch from this one if it is missing."),
    Parameter("mode", "append, merge (the default) or overwrite."),
)
_BLOB = (
    Parameter("entity", "node or edge.", required=True),
    Parameter("type", "Its type.", required=True),
    Parameter("id", "Its id.", required=True),
    Parameter("property", "The Blob property.", required=True),
    _BRANCH,
    Parameter("snapshot", "As it was at a commit."),
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
_WRITES = (400, 404, 409, 412, 413, 415, 424, 503)


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
        "/branches", "cluster_listBranches", "read", read_routes.branches, answers=wire.BranchList
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
        parameters=(_BRANCH, _LIMIT, _TOKEN),
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
    _get("/schema", "cluster_getSchema", "read", read_routes.schema, answers=wire.SchemaOutput),
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
        parameters=(_BRANCH,),
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


NESTED = _TABLE
FLAT = tuple(_flattened(each) for each in _TABLE if each.operation in _FLAT)


@dataclass(slots=True)
class _Branching:
    """A node of the tree of path segments."""

    literal: "dict[str, _Branching]"
    named: "_Branching | None"
    methods: dict[str, ApiEndpoint]
    takes_rest: bool = False  # a branch name may stand with its slashes unencoded


class Router:
    """Finds the endpoint of a method and a path."""

    def __init__(self, endpoints: tuple[ApiEndpoint, ...]) -> None:
        self.endpoints = endpoints
        self._root = _Branching({}, None, {})
        for endpoint in endpoints:
            self._add(endpoint)

    def _add(self, endpoint: ApiEndpoint) -> None:
        node = self._root
        for part in endpoint.segments:
            if part.startswith("{"):
                node.named = node.named or _Branching({}, None, {})
                node = node.named
            else:
                node = node.literal.setdefault(part, _Branching({}, None, {}))
        node.methods[endpoint.method] = endpoint
        node.takes_rest |= endpoint.segments[-1] == "{branch}"

    def find(self, method: str, raw_path: bytes) -> tuple[ApiEndpoint, dict[str, str]]:
        """The endpoint and its path parameters, or 404 or 405."""
        encoded_parts = raw_path.split(b"?", 1)[0].lstrip(b"/").split(b"/")
        parts = [_decoded(part) for part in encoded_parts]
        methods: set[str] = set()
        for node, values in self._walk(self._root, parts, ()):
            endpoint = node.methods.get(method)
            if endpoint is not None:
                return endpoint, dict(zip(endpoint.names, values, strict=True))
            methods.update(node.methods)
        if methods:
            allowed = ", ".join(sorted(methods))
            raise HttpRefusal(405, f"{method} is not for this path", {"Allow": allowed})
        raise HttpRefusal(404, "there is no such route")

    def _walk(
        self, node: _Branching, parts: list[str], values: tuple[str, ...]
    ) -> Iterator[tuple[_Branching, tuple[str, ...]]]:
        """Every node that a path leads to; words come before names."""
        if not parts:
            yield node, values
            return
        word, rest = parts[0], parts[1:]
        if word in node.literal:
            yield from self._walk(node.literal[word], rest, values)
        if node.named is not None and word:
            yield from self._walk(node.named, rest, (*values, word))
            if rest and node.named.takes_rest and all(rest):
                yield node.named, (*values, "/".join(parts))


def _decoded(part: bytes) -> str:
    try:
        return unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        raise HttpRefusal(400, "the path is not UTF-8") from None
