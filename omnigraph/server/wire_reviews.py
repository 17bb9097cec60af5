"""Bodies of the routes of reviews.

Invariant: as in `wire`: a member with a default is left out where it has that default.
"""

from typing import Any

from msgspec import UNSET, UnsetType

from omnigraph.server.wire import Body, MergeResolution


class ReviewOpenRequest(Body, kw_only=True):
    """A review of what a merge of one branch into another would bring."""

    source: str
    target: str | None = None
    title: str
    text: str | None = None


class ReviewCommentRequest(Body, kw_only=True):
    """A comment on the review as a whole, or on an entity: then all three of its members."""

    text: str
    entity_kind: str | None = None
    type_name: str | None = None
    entity_id: str | None = None


class ReviewApproveRequest(Body, kw_only=True):
    """An approval of the source as it is now, or only at the commit that was looked at; of a merge
    with these resolutions, if there are some."""

    if_source_commit: str | None = None
    by: str | None = None
    resolutions: list[MergeResolution] | None = None


class ReviewCloseRequest(Body, kw_only=True):
    """The end of a review; it says nothing more."""


class ReviewMergeRequest(Body, kw_only=True):
    """How a review is merged; as a merge of branches."""

    delete_branch: bool = False
    by: str | None = None
    resolutions: list[MergeResolution] | None = None
    if_source_commit: str | None = None
    if_target_commit: str | None = None
    dry_run: bool = False
    message: str | None = None
    metadata: dict[str, str] | None = None


class ReviewCommentOutput(Body, kw_only=True):
    """One comment; on the whole review where it has no entity."""

    author_id: str | None
    text: str
    created_at: int
    entity_kind: str | UnsetType = UNSET
    type_name: str | UnsetType = UNSET
    entity_id: str | UnsetType = UNSET


class ReviewApprovalOutput(Body, kw_only=True):
    """One approval, and whether the source is still at the commit that it is of. `resolutions`
    counts the answers to conflicts that it covers."""

    actor_id: str
    source_commit_id: str
    created_at: int
    is_current: bool
    resolutions: int


class ReviewOutput(Body, kw_only=True):
    """A review as it stands."""

    id: str
    source: str
    target: str
    title: str
    text: str
    author_id: str | None
    created_at: int
    state: str
    source_commit_id: str | None
    required_approvals: int
    schema_steps: list[dict[str, Any]] | UnsetType = UNSET
    approvals: list[ReviewApprovalOutput]
    comments: list[ReviewCommentOutput]
    ended_by: str | None
    ended_at: int | None
    merge_commit_id: str | None


class ReviewList(Body, kw_only=True):
    """Reviews, newest first."""

    reviews: list[ReviewOutput]
    next_page_token: str | UnsetType = UNSET
