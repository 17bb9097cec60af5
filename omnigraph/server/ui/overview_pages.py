"""Overview of a graph: branches, types, recoveries, upkeep; and branches made and deleted.

Invariant: nothing is counted by scanning: sizes are those that the manifest keeps, and a branch's
distance from main follows from the commits that differ.
"""

from typing import Any

from omnigraph.draw.branch_states import BranchState, branch_states
from omnigraph.errors import OmnigraphError
from omnigraph.server.call import Answer, RouteCall
from omnigraph.server.ui.commit_log import commit_log
from omnigraph.server.ui.ui_forms import fields, required
from omnigraph.server.ui.ui_points import branch_names
from omnigraph.server.ui.ui_render import link, moved, page, refusal_of
from omnigraph.storage.names import MAIN

_BRANCHES = 30


def overview(call: RouteCall) -> Answer:
    """What a graph holds and where its branches stand."""
    call.only("after", "notice")
    return overview_page(call)


def overview_page(call: RouteCall, problem: str | None = None, status: int = 200) -> Answer:
    """The overview, with what went wrong on it."""
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
        return overview_page(call, *refusal_of(cause))
    call.facts.update(branch=name)
    if form.get("next") == "commits":
        return moved(link(call.graph_id, "commits", branch=name))
    return moved(link(call.graph_id, notice=f"created branch {name}"))


def delete_branch(call: RouteCall) -> Answer:
    """Delete a branch."""
    name = required(fields(call), "name", "the name of the branch")
    call.facts.update(branch=name)
    try:
        call.graph.branches.delete(name)
    except OmnigraphError as cause:
        return overview_page(call, *refusal_of(cause))
    return moved(link(call.graph_id, notice=f"deleted branch {name}"))
