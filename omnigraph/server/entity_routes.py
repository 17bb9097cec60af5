"""Entity routes: one node or edge with its edges counted, and the commits that changed it.

Invariant: a route is one call on the graph and one rendering. A page of a history reads no further
back than it goes.
"""

from itertools import islice
from typing import Any, TypedDict

from omnigraph.errors import NotFound
from omnigraph.exec.changes.diff import require_page_size
from omnigraph.exec.changes.entity_history import EntityRevision
from omnigraph.exec.changes.tokens import sealed, unsealed
from omnigraph.server.bodies import cause_output
from omnigraph.server.call import Answer, RouteCall, answered
from omnigraph.server.moment_members import moments_in_changes, moments_of_type

_REVISIONS = 100


def entity(call: RouteCall) -> Answer:
    """One node or edge: its values, and how many edges of each type a node has."""
    call.only("branch", "snapshot")
    view = call.graph.entity(*_named(call), **_point(call))
    return answered({**view.to_json(), **moments_of_type(call, view.type_id, view.moments)})


def history(call: RouteCall) -> Answer:
    """A page of the commits that changed a node or edge, newest first, with before and after."""
    call.only("branch", "snapshot", "limit", "page_token")
    limit, token = call.number("limit"), call.one("page_token")
    limit = _REVISIONS if limit is None else limit
    require_page_size(limit)
    named, point = _named(call), _point(call)
    scope = [*named, point["branch"], point["snapshot"]]
    before = None if token is None else unsealed(token, "history", scope)
    revisions = call.graph.history(*named, **point, before=before)
    rows = list(islice(revisions, limit + 1))
    shown: dict[str, Any] = {"revisions": [_revision(call, each) for each in rows[:limit]]}
    if len(rows) > limit:
        shown["next_page_token"] = sealed("history", scope, rows[limit - 1].cause.id)
    elif revisions.unreadable is not None:
        shown["first_unreadable_commit_id"] = revisions.unreadable
    elif not rows and token is None:
        kind, type_name, entity_id = named
        raise NotFound(f"{kind} {type_name}", entity_id, "no commit has or had it")
    return answered(shown)


def _named(call: RouteCall) -> tuple[str, str, str]:
    return call.path["kind"], call.path["type"], call.path["id"]


class _PointArguments(TypedDict):
    branch: str | None
    snapshot: str | None


def _point(call: RouteCall) -> _PointArguments:
    branch, snapshot = call.one("branch"), call.one("snapshot")
    call.facts.update(branch=branch)
    return {"branch": branch, "snapshot": snapshot}


def _revision(call: RouteCall, revision: EntityRevision) -> dict[str, Any]:
    shown = {"cause": cause_output(revision.cause), "change": revision.change.to_json()}
    return shown | moments_in_changes(call, [revision.change])
