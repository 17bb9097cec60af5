"""Bodies of change feeds, diffs, baselines and exports.

Invariant: as in `wire`: a member with a default is left out where it has that default.
"""

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from omnigraph.server.wire import Body, EntityCounts


class ChangeCause(Body, kw_only=True):
    """The commit behind changes."""

    graph_commit_id: str
    parent_commit_id: str | UnsetType = UNSET
    merged_parent_commit_id: str | UnsetType = UNSET
    authored_branch: str
    actor_id: str | UnsetType = UNSET
    authored_at: int
    message: str | UnsetType = UNSET
    metadata: dict[str, str] | UnsetType = UNSET
    graph_manifest_version: int | UnsetType = UNSET
    merged_branch: str | UnsetType = UNSET
    counts: dict[str, EntityCounts] | UnsetType = UNSET
    schema_steps: list[dict[str, Any]] | UnsetType = UNSET


class ChangeType(Body, kw_only=True):
    """The type of a changed entity."""

    id: str
    name: str


class ChangeEndpoints(Body, kw_only=True):
    """The two ends of an edge."""

    from_: str = msgspec.field(name="from")
    to: str


class EntityImage(Body, kw_only=True):
    """An entity before or after a change."""

    properties: dict[str, Any]
    endpoints: ChangeEndpoints | UnsetType = UNSET


class EntityChange(Body, kw_only=True):
    """One entity that differs."""

    kind: str
    type: ChangeType
    id: str
    op: str
    before: EntityImage | UnsetType = UNSET
    after: EntityImage | UnsetType = UNSET


class CommitChangesOutput(Body, kw_only=True):
    """A page of what one commit changed."""

    cause: ChangeCause
    changes: list[EntityChange]
    next_page_token: str | UnsetType = UNSET


class DiffOutput(Body, kw_only=True):
    """A page of what differs between two points in time."""

    from_commit_id: str
    to_commit_id: str
    schema_steps: list[dict[str, Any]] | UnsetType = UNSET
    changes: list[EntityChange]
    next_page_token: str | UnsetType = UNSET


class ChangeBlock(Body, kw_only=True):
    """One commit of the feed."""

    cause: ChangeCause
    changes: list[EntityChange]


class ChangeFeedOutput(Body, kw_only=True):
    """A page of the feed: with `next_page_token`, or as its last one with `cursor`."""

    blocks: list[ChangeBlock]
    next_page_token: str | UnsetType = UNSET
    cursor: str | UnsetType = UNSET
    caught_up: bool | UnsetType = UNSET


class BaselineRequest(Body, kw_only=True):
    """What a baseline and the feed behind it are narrowed to."""

    branch: str | None = None
    kind: list[str] | None = None
    type: list[str] | None = None
    op: list[str] | None = None


class ExportRequest(Body, kw_only=True, forbid_unknown_fields=True):
    """Which types of which branch to export."""

    branch: str | None = None
    snapshot: str | None = None
    type_names: list[str] | None = None


class FlatExportRequest(ExportRequest, kw_only=True, forbid_unknown_fields=True):
    """An export of the flat route; `table_keys` is an older spelling of `type_names`."""

    table_keys: list[str] | None = None
