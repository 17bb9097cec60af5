"""Error body of the HTTP API and its typed members.

Invariant: a new kind of error is a new optional member, never a new code.
"""

from typing import Any

from msgspec import UNSET, UnsetType

from omnigraph.server.wire import Body


class MergeConflictOutput(Body, kw_only=True):
    """One entity on which two branches disagree."""

    entity_kind: str
    type_name: str
    entity_id: str | None
    kind: str
    message: str
    table_key: str | UnsetType = UNSET
    row_id: str | UnsetType | None = UNSET


class FailedCheckOutput(Body, kw_only=True):
    """A check that gave rows on a merged graph: how many, and the first ones."""

    query: str
    row_count: int
    rows: list[dict[str, Any]]


class MissingApprovals(Body, kw_only=True):
    """The approvals that a merge needs and has."""

    required: int
    approvals: int
    review_id: str | UnsetType = UNSET
    with_resolutions: bool = False


class KeyConflict(Body, kw_only=True):
    """The id that a strict insert met."""

    entity_kind: str
    type_name: str
    entity_id: str | UnsetType = UNSET


class ReadSetConflict(Body, kw_only=True):
    """What moved under a write."""

    member: str
    expected: str | None
    actual: str | None


class ManifestConflict(Body, kw_only=True):
    """The table that moved under a write, by its versions."""

    table_key: str
    expected: int
    actual: int


class DatasetVersionConflict(Body, kw_only=True):
    """The type that moved under a write, by its versions."""

    entity_kind: str
    type_name: str
    expected_published_dataset_version: int
    actual_published_dataset_version: int


class PreconditionFailure(Body, kw_only=True):
    """The head that a conditional write expected."""

    expected: str
    actual: str | UnsetType = UNSET


class ResourceLimit(Body, kw_only=True):
    """The limit that was exceeded."""

    resource: str
    limit: int
    actual: int


class RecoveryNeeded(Body, kw_only=True):
    """The write that was interrupted."""

    operation_id: str


class BlobSource(Body, kw_only=True):
    """The external blob that cannot be read."""

    uri: str
    reason: str


class BlobRange(Body, kw_only=True):
    """The range that a blob does not have; `end` is exclusive."""

    start: int
    end: int
    length: int


class FeedGap(Body, kw_only=True):
    """The commit from which on history was reclaimed."""

    cursor: str | UnsetType = UNSET
    first_unreadable_commit_id: str


class DiffRefusal(Body, kw_only=True):
    """Why a commit has no diff."""

    reason: str
    graph_commit_id: str
    type_name: str | UnsetType = UNSET


class TextDiagnostic(Body, kw_only=True):
    """Where a text is wrong, and what may help."""

    code: str | None
    line: int
    column: int
    expected: str | None
    suggestion: str | None


class ErrorFault(Body, kw_only=True):
    """The class of an error in the library, and its facts; none where they name the storage."""

    name: str
    facts: dict[str, Any] | UnsetType = UNSET


class ErrorOutput(Body, kw_only=True):
    """Every error. The optional members tell its kind; `code` is a closed set."""

    error: str
    code: str | UnsetType = UNSET
    merge_conflicts: list[MergeConflictOutput] | UnsetType = UNSET
    failed_checks: list[FailedCheckOutput] | UnsetType = UNSET
    missing_approvals: MissingApprovals | UnsetType = UNSET
    key_conflict: KeyConflict | UnsetType = UNSET
    read_set_conflict: ReadSetConflict | UnsetType = UNSET
    manifest_conflict: ManifestConflict | UnsetType = UNSET
    published_dataset_version_conflict: DatasetVersionConflict | UnsetType = UNSET
    precondition_failure: PreconditionFailure | UnsetType = UNSET
    resource_limit: ResourceLimit | UnsetType = UNSET
    recovery_required: RecoveryNeeded | UnsetType = UNSET
    external_blob_source: BlobSource | UnsetType = UNSET
    blob_range: BlobRange | UnsetType = UNSET
    change_feed_gap: FeedGap | UnsetType = UNSET
    change_diff_refusal: DiffRefusal | UnsetType = UNSET
    diagnostic: TextDiagnostic | UnsetType = UNSET
    fault: ErrorFault | UnsetType = UNSET
