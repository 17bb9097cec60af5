"""Overview of a graph: branches, types, recoveries, upkeep; and branches made and deleted.

Invariant: nothing is counted by scanning: sizes are those that the manifest keeps, and a branch's
distance from main follows from the commits that differ.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from omnigraph.draw.branch_states import BranchState, branch_states
from omnigraph.draw.commit_order import reachable
from omnigraph.errors import OmnigraphError
from omnigraph.server.call import Answer, RouteCall
from omnigraph.server.ui.commit_log import commit_log
from omnigraph.server.ui.ui_forms import fields, required
from omnigraph.server.ui.ui_points import branch_names
from omnigraph.server.ui.ui_render import link, moved, moved_with, page, refusal_of
from omnigraph.storage.names import MAIN

_BRANCHES = 30


def overview(call: RouteCall) -> Answer:
    """What a graph holds and where its branches stand."""
    call.only("after")
    return overview_page(call)


def overview_page(
    call: RouteCall,
    problem: str | None = None,
    status: int = 200,
    *,
    draft: Mapping[str, str] = MappingProxyType({}),
    deleting: "_Unmerged | None" = None,
) -> Answer:
    """The overview, with what went wrong on it, what was typed, and the branch whose deletion is to
    be confirmed."""
    graph = call.graph
    names = branch_names(graph)
    after = call.one("after")
    rest = names if after is None else [n for n in names if (n != MAIN, n) > (after != MAIN, after)]
    head = graph.snapshot(MAIN)
    return page(
        call,
        "overview.html",
        status=status,
        problem=problem,
        section="overview",
        draft={"name": draft.get("name", ""), "from": draft.get("from") or MAIN},
        deleting=deleting,
        branches=_branches(call, rest[:_BRANCHES]),
        all_branches=names,
        more=rest[_BRANCHES - 1] if len(rest) > _BRANCHES else None,
        tags=graph.tags.list(),
        types=_types(call, {key: pin.row_count for key, pin in head.tables.items()}),
        recoveries=graph.recoveries.list()[:3],
        waiting=[
            each for each in graph.indexes(snapshot=head.commit_id) if each.state != "current"
        ],
        topology={key: state for key, state in head.topology.items() if state.rows_behind},
        live={"branch": "", "head": head.commit_id},
    )


def _branches(call: RouteCall, names: list[str]) -> list[BranchState]:
    log = commit_log(call)
    return list(branch_states(names, log.names, log.commits, MAIN))


def _types(call: RouteCall, counts: dict[Any, int]) -> list[dict[str, Any]]:
    catalog = call.graph.schema.catalog
    return [
        {
            "kind": str(owner.kind),
            "name": owner.name,
            "id": int(owner.id),
            "count": counts.get(owner.table, 0),
            "type": owner,
        }
        for owner in catalog.types
    ]


def new_branch(call: RouteCall) -> Answer:
    """Create a branch."""
    form = fields(call)
    try:
        name = call.graph.branches.create(
            required(form, "name", "the name of the branch"), from_=form.get("from") or MAIN
        )
    except OmnigraphError as cause:
        return overview_page(call, *refusal_of(cause), draft=form)
    call.facts.update(branch=name)
    if form.get("next") == "commits":
        return moved(link(call.graph_id, "commits", branch=name))
    return moved_with(call, link(call.graph_id), f"created branch {name}")


@dataclass(frozen=True, slots=True)
class _Unmerged:
    """A branch with commits that no other branch has, and what was typed to delete it."""

    name: str
    commits: int
    head: str
    typed: str = ""


def delete_branch(call: RouteCall) -> Answer:
    """Delete a branch; one with commits that no other branch has once its name was typed."""
    form = fields(call)
    name = required(form, "name", "the name of the branch")
    call.facts.update(branch=name)
    try:
        left = _unmerged(call, name)
        typed = form.get("confirm", "").strip()
        if left.commits and (typed != name or form.get("head") != left.head):
            return _ask_to_confirm(call, replace(left, typed=typed), is_asked="confirm" in form)
        call.graph.branches.delete(name)
    except OmnigraphError as cause:
        return overview_page(call, *refusal_of(cause))
    return moved_with(call, link(call.graph_id), f"deleted branch {name}")


def _ask_to_confirm(call: RouteCall, left: _Unmerged, *, is_asked: bool) -> Answer:
    problem = None
    if is_asked:
        problem = "nothing was deleted: the name was not typed, or the branch moved meanwhile"
    return overview_page(call, problem, 409, deleting=left)


def _unmerged(call: RouteCall, name: str) -> _Unmerged:
    """The commits of a branch that would be lost with it."""
    head = call.graph.commits.get(name).id
    log = commit_log(call)
    others = (each for each, labels in log.names.items() if set(labels) - {name})
    known = reachable(log.commits, [each for each in others if each in log.commits])
    lost = reachable(log.commits, [head]).keys() - known.keys()
    return _Unmerged(name, len(lost), head)
