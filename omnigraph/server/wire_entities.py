"""Bodies about one entity: its values and edge counts, and its history.

Invariant: as in `wire`: a member with a default is left out where it has that default.
"""

from typing import Any

from msgspec import UNSET, UnsetType

from omnigraph.server.wire import Body
from omnigraph.server.wire_changes import ChangeCause, ChangeEndpoints, ChangeType, EntityChange


class EdgeCountOutput(Body, kw_only=True):
    """How many edges of a type leave a node (`out`) or lead to it (`in`)."""

    type_name: str
    direction: str
    count: int


class EntityOutput(Body, kw_only=True):
    """One node or edge of a snapshot; `edges` are those of a node."""

    kind: str
    type: ChangeType
    id: str
    properties: dict[str, Any]
    endpoints: ChangeEndpoints | UnsetType = UNSET
    edges: list[EdgeCountOutput]
    graph_commit_id: str


class RevisionOutput(Body, kw_only=True):
    """One commit that changed an entity, and how."""

    cause: ChangeCause
    change: EntityChange


class EntityHistoryOutput(Body, kw_only=True):
    """A page of the commits that changed an entity, newest first. The last page names the
    first commit that cleanup made unreadable, if there is one."""

    revisions: list[RevisionOutput]
    next_page_token: str | UnsetType = UNSET
    first_unreadable_commit_id: str | UnsetType = UNSET
