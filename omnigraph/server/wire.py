"""Request and response bodies (JSON) of the HTTP API, as msgspec structs.

Invariant: a member with a default is left out of a response where it has that default; a member
without one is always written, as null where there is no value. Unknown members of a request are
ignored, but for an export. The OpenAPI document is made of these classes.
"""

from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from omnigraph.server.refusals import HttpRefusal

Params = Annotated[Any, Meta(extra_json_schema={"type": ["object", "null"]})]
B = TypeVar("B", bound="Body")


class Body(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A JSON object of the API."""


# ---- flat


class HealthOutput(Body, kw_only=True):
    """That the server answers, and which one it is."""

    status: str
    version: str
    internal_schema_version: int
    source_version: str | UnsetType = UNSET


class GraphReadiness(Body, kw_only=True):
    """Whether one graph is open."""

    graph_id: str
    open: bool
    policy_digest: str | UnsetType = UNSET  # of the policy in force in this worker


class WorkerReadiness(Body, kw_only=True):
    """A worker: the digest of the queries, policies, providers and tokens that it has in force, and
    what has a newer set that cannot be used."""

    worker: int
    applied: str
    kept: list[str]


class PoolReadiness(Body, kw_only=True):
    """A thread pool of the answering worker. `stuck_ms`: how long every thread of it has been busy
    with one job; 0 if one is free."""

    name: str
    stuck_ms: int
    limit_ms: int | None  # the deadline of its jobs, if they have one


class ReadyOutput(Body, kw_only=True):
    """Whether every graph is open and no thread pool is stuck beyond the deadline of its jobs, and
    what each worker has in force."""

    ready: bool
    graphs: list[GraphReadiness]
    pools: list[PoolReadiness]
    workers: list[WorkerReadiness]


class WhoamiOutput(Body, kw_only=True):
    """The actor of a token, and what the server lets actors do: open, trusted, read_only or
    policy."""

    actor_id: str | None
    access: str


class GraphEntry(Body, kw_only=True):
    """One served graph."""

    graph_id: str
    uri: str


class GraphList(Body, kw_only=True):
    """Every served graph, by id."""

    graphs: list[GraphEntry]


# ---- reads


class QueryRequest(Body, kw_only=True):
    """A read of one text."""

    query: str
    name: str | None = None
    params: Params = None
    branch: str | None = None
    snapshot: str | None = None


class LegacyReadRequest(Body, kw_only=True):
    """A read, in the older spelling."""

    query_source: str
    query_name: str | None = None
    params: Params = None
    branch: str | None = None
    snapshot: str | None = None


class ReadTarget(Body, kw_only=True):
    """What was read: a branch or a snapshot."""

    branch: str | None
    snapshot: str | None


class LegacyReadOutput(Body, kw_only=True):
    """The rows of a read."""

    query_name: str
    target: ReadTarget
    row_count: int
    columns: list[str] | UnsetType = UNSET
    rows: list[dict[str, Any]]
    warnings: list[str] | UnsetType = UNSET


class ReadOutput(LegacyReadOutput, kw_only=True):
    """The rows of a read, and the commit they were read from."""

    graph_commit_id: str | UnsetType = UNSET


class QueryParameter(Body, kw_only=True):
    """One parameter of a stored query."""

    name: str
    kind: str
    item_kind: str | UnsetType = UNSET
    vector_dim: int | UnsetType = UNSET
    nullable: bool


class QueryCatalogEntry(Body, kw_only=True):
    """One stored query."""

    name: str
    tool_name: str
    description: str | UnsetType = UNSET
    instruction: str | UnsetType = UNSET
    mutation: bool
    params: list[QueryParameter]


class QueryCatalog(Body, kw_only=True):
    """Every stored query of a graph."""

    queries: list[QueryCatalogEntry]


class InvokeStoredQueryRequest(Body, kw_only=True):
    """Parameters and target of a stored query."""

    params: Params = None
    branch: str | None = None
    snapshot: str | None = None
    expect_mutation: bool | None = None
    message: str | None = None
    metadata: dict[str, str] | None = None


class DatasetTopology(Body, kw_only=True):
    """The topology file of a table: the version it is of, its size and how far it is behind."""

    dataset_version: int
    dataset_branch: str
    bytes: int
    rows_behind: int


class SnapshotDataset(Body, kw_only=True):
    """One type in a snapshot."""

    entity_kind: str
    type_name: str
    dataset_path: str
    published_dataset_version: int
    native_dataset_branch: str | None
    entity_count: int
    topology: DatasetTopology | UnsetType = UNSET


class SnapshotOutput(Body, kw_only=True):
    """Every type of a branch with its version and count."""

    graph_branch: str | None
    graph_manifest_version: int
    internal_schema_version: int
    graph_commit_id: str | UnsetType = UNSET
    datasets: list[SnapshotDataset]


# ---- writes


class EntityCounts(Body, kw_only=True):
    """How many entities of one type a commit changed."""

    inserted: int
    updated: int
    deleted: int


class CommitOutput(Body, kw_only=True):
    """One graph commit; `created_at` counts microseconds."""

    graph_commit_id: str
    graph_branch: str | None
    graph_manifest_version: int
    parent_commit_id: str | None
    merged_parent_commit_id: str | None
    actor_id: str | None
    created_at: int
    message: str | UnsetType = UNSET
    metadata: dict[str, str] | UnsetType = UNSET
    merged_branch: str | UnsetType = UNSET
    counts: dict[str, EntityCounts] | UnsetType = UNSET
    schema_steps: list[dict[str, Any]] | UnsetType = UNSET


class ChangeRequest(Body, kw_only=True):
    """A mutation of one text; `query_source` and `query_name` are older spellings."""

    query: str | None = None
    query_source: str | None = None
    name: str | None = None
    query_name: str | None = None
    params: Params = None
    branch: str | None = None
    message: str | None = None
    metadata: dict[str, str] | None = None
    embed: str | None = None


class ChangeOutput(Body, kw_only=True):
    """Result of a mutation."""

    branch: str
    query_name: str
    affected_nodes: int
    affected_edges: int
    actor_id: str | None
    commit: CommitOutput | None
    rounded: dict[str, int] | UnsetType = UNSET
    warnings: list[str] | UnsetType = UNSET


class IngestRequest(Body, kw_only=True):
    """A load of NDJSON, as a text."""

    data: str
    branch: str | None = None
    from_: str | None = msgspec.field(name="from", default=None)
    mode: str | None = None
    message: str | None = None
    metadata: dict[str, str] | None = None
    embed: str | None = None


class TypeLoad(Body, kw_only=True):
    """How many entities of one type a load read."""

    name: str
    entities_loaded: int


class BuiltIndex(Body, kw_only=True):
    """One index that a load built or extended."""

    table: str
    property: str
    kind: str


class LoadIndexesOutput(Body, kw_only=True):
    """Indexes that a load built after its commit, in a commit of their own."""

    built: list[BuiltIndex]
    graph_commit_id: str | None
    missing: str | UnsetType = UNSET  # that some could not be built, and what to do


class GraphBatchLoadOutput(Body, kw_only=True):
    """Result of a load."""

    branch: str
    base_branch: str | None
    branch_created: bool
    mode: str
    nodes: list[TypeLoad]
    edges: list[TypeLoad]
    total_entities: int
    actor_id: str | None
    commit: CommitOutput | None
    rounded: dict[str, int] | UnsetType = UNSET
    beside_equal: dict[str, int] | UnsetType = UNSET
    indexes: LoadIndexesOutput | UnsetType = UNSET


class IngestOutput(GraphBatchLoadOutput, kw_only=True):
    """Result of a load, and which graph it went to."""

    uri: str


# ---- branches, commits, schema


class BranchList(Body, kw_only=True):
    """The names of all branches."""

    branches: list[str]
    heads: dict[str, str] | UnsetType = UNSET


class BranchCreateRequest(Body, kw_only=True):
    """A new branch."""

    name: str
    from_: str | None = msgspec.field(name="from", default=None)
    lease_seconds: int | None = None
    renew: bool = False


class BranchCreateOutput(Body, kw_only=True):
    """The branch that was created, or whose lease was renewed."""

    uri: str
    from_: str = msgspec.field(name="from")
    name: str
    actor_id: str | None
    lease_seconds: int | UnsetType = UNSET


class BranchDeleteOutput(Body, kw_only=True):
    """The branch that was deleted."""

    uri: str
    name: str
    actor_id: str | None


class MergeResolution(Body, kw_only=True):
    """The decision of one conflict: `source`, `target`, or properties to set."""

    entity_kind: str | None = None
    type_name: str
    entity_id: str
    take: str | dict[str, Any]


class BranchMergeRequest(Body, kw_only=True):
    """A merge of one branch into another."""

    source: str
    target: str | None = None
    delete_branch: bool = False
    by: str | None = None
    resolutions: list[MergeResolution] | None = None
    if_source_commit: str | None = None
    if_target_commit: str | None = None
    dry_run: bool = False
    message: str | None = None
    metadata: dict[str, str] | None = None


class BranchMergeOutput(Body, kw_only=True):
    """Outcome of a merge."""

    source: str
    target: str
    outcome: str
    actor_id: str | None
    branch_deleted: bool | UnsetType = UNSET
    branch_delete_error: str | UnsetType = UNSET
    commit: CommitOutput | UnsetType = UNSET
    kept_edges: list[dict[str, Any]] | UnsetType = UNSET
    schema_steps: list[dict[str, Any]] | UnsetType = UNSET
    dry_run: bool | UnsetType = UNSET
    statistics: list[dict[str, Any]] | UnsetType = UNSET
    merge_conflicts: list[dict[str, Any]] | UnsetType = UNSET
    changes: list[dict[str, Any]] | UnsetType = UNSET


class CommitList(Body, kw_only=True):
    """Commits, newest first."""

    commits: list[CommitOutput]
    next_page_token: str | UnsetType = UNSET


class SchemaOutput(Body, kw_only=True):
    """The schema as it was written."""

    schema_source: str
    schema_id: str | UnsetType = UNSET
    catalog: dict[str, Any] | UnsetType = UNSET


class SchemaApplyRequest(Body, kw_only=True):
    """The next schema."""

    schema_source: str
    allow_data_loss: bool = False
    branch: str | None = None
    backfill: dict[str, str] | None = None
    message: str | None = None
    metadata: dict[str, str] | None = None


class SchemaApplyOutput(Body, kw_only=True):
    """Result of a schema change."""

    uri: str
    supported: bool
    applied: bool
    step_count: int
    graph_manifest_version: int
    steps: list[dict[str, Any]]
    commit: CommitOutput | UnsetType = UNSET


# ---- codec

_decoders: dict[type[Body], msgspec.json.Decoder[Any]] = {}
_encode = msgspec.json.Encoder().encode


def decoded(body: bytes, shape: type[B]) -> B:
    """A request body of one shape, or a refusal with status 400."""
    decoder = _decoders.get(shape)
    if decoder is None:
        decoder = _decoders[shape] = msgspec.json.Decoder(shape)
    try:
        value: B = decoder.decode(body)
    except msgspec.ValidationError as cause:
        raise HttpRefusal(400, f"the request body is not as expected: {cause}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as cause:
        raise HttpRefusal(400, f"the request body is not JSON: {cause}") from None
    return value


def decoded_list(data: bytes, shape: type[B]) -> list[B]:
    """Bodies of one shape that this program has encoded."""
    values: list[B] = msgspec.json.decode(data, type=list[shape])  # type: ignore[valid-type]
    return values


def encoded(value: Any) -> bytes:
    """A response body."""
    return _encode(value)
