"""Bodies of what goes beyond 0.10: tags, undo, transactions, lint and explain.

Invariant: as in `wire`: a member with a default is left out where it has that default.
"""

from typing import Any

from msgspec import UNSET, UnsetType

from omnigraph.server.wire import Body, CommitOutput, MergeResolution, Params


class TagCreateRequest(Body, kw_only=True):
    """A name for a commit: that of any point in time, main's head by default."""

    name: str
    point: str | None = None


class TagOutput(Body, kw_only=True):
    """One tag."""

    name: str
    graph_branch: str | None
    graph_manifest_version: int
    graph_commit_id: str


class TagList(Body, kw_only=True):
    """Every tag, by name."""

    tags: list[TagOutput]


class TagDeleteOutput(Body, kw_only=True):
    """The tag that was deleted."""

    name: str
    actor_id: str | None


class RevertRequest(Body, kw_only=True):
    """A commit to undo, or with `to` the commits after it up to that one."""

    commit: str
    to: str | None = None
    branch: str | None = None
    by: str | None = None
    resolutions: list[MergeResolution] | None = None
    dry_run: bool = False
    message: str | None = None
    metadata: dict[str, str] | None = None


class RestoreRequest(Body, kw_only=True):
    """A point in time to go back to, with all types or some."""

    point: str
    types: list[str] | None = None
    branch: str | None = None
    dry_run: bool = False
    message: str | None = None
    metadata: dict[str, str] | None = None


class UndoOutput(Body, kw_only=True):
    """Outcome of a revert or a restore."""

    outcome: str
    branch: str
    undone: list[str]
    graph_commit_id: str | None
    actor_id: str | None
    message: str | None
    dry_run: bool
    statistics: list[dict[str, Any]]
    commit: CommitOutput | None
    reason: str | UnsetType = UNSET
    kept_edges: list[dict[str, Any]] | UnsetType = UNSET
    merge_conflicts: list[dict[str, Any]] | UnsetType = UNSET
    changes: list[dict[str, Any]] | UnsetType = UNSET


class TransactionStatement(Body, kw_only=True):
    """One read or mutation of a transaction."""

    query: str
    name: str | None = None
    params: Params = None


class TransactionRequest(Body, kw_only=True):
    """Statements that become one commit or none."""

    branch: str | None = None
    statements: list[TransactionStatement]
    if_commit: str | None = None
    message: str | None = None
    metadata: dict[str, str] | None = None


class TransactionResult(Body, kw_only=True):
    """What one statement answered: rows of a read, or counts of a mutation."""

    query_name: str
    row_count: int | UnsetType = UNSET
    columns: list[str] | UnsetType = UNSET
    rows: list[dict[str, Any]] | UnsetType = UNSET
    affected_nodes: int | UnsetType = UNSET
    affected_edges: int | UnsetType = UNSET


class TransactionOutput(Body, kw_only=True):
    """Results in the order of the statements, and the one commit."""

    branch: str
    results: list[TransactionResult]
    actor_id: str | None
    commit: CommitOutput | None


class TextRequest(Body, kw_only=True):
    """A text to check, on the schema of a branch."""

    query: str
    name: str | None = None
    branch: str | None = None


class LintOutput(Body, kw_only=True):
    """Faults and doubts of a text."""

    status: str
    queries_processed: int
    errors: int
    warnings: int
    infos: int
    results: list[dict[str, Any]]
    findings: list[dict[str, Any]]


class ExplainOutput(Body, kw_only=True):
    """The plan of a query, line by line."""

    query_name: str
    plan: list[str]


class IndexStateOutput(Body, kw_only=True):
    """One index: current, behind, missing or pending, and how many of the rows it covers."""

    entity_kind: str
    type_name: str
    property: str
    kind: str
    state: str
    rows: int
    rows_covered: int
    reason: str | UnsetType = UNSET


class IndexList(Body, kw_only=True):
    """Every index that the schema asks for."""

    indexes: list[IndexStateOutput]
    graph_commit_id: str


class OperationOutput(Body, kw_only=True):
    """State of the write with an idempotency key: committed, running or unknown."""

    key: str
    state: str
    commit: CommitOutput | None
