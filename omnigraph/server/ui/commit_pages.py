"""Commit pages: the DAG in lanes with filters, and one commit with its changes and actions.

Invariant: lanes are drawn for whole histories alone: a filter leaves a list. A page goes on from
the commit that ended the last one.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from omnigraph.draw.commit_lanes import commits_picture, lane_rows, row_svg
from omnigraph.draw.commit_order import in_order, reachable
from omnigraph.errors import BadRequest, ChangeFeedGap, MergeConflicts, NoChanges, OmnigraphError
from omnigraph.exec.changes.tokens import sealed, unsealed
from omnigraph.server.call import Answer, RouteCall
from omnigraph.server.change_routes import listing_filters
from omnigraph.server.ui.change_rows import change_rows
from omnigraph.server.ui.commit_log import commit_log
from omnigraph.server.ui.ui_forms import fields, required
from omnigraph.server.ui.ui_points import branch_names, branch_of_form
from omnigraph.server.ui.ui_render import SVG, download, link, moved_with, page, refusal_of
from omnigraph.storage.records import Commit
from omnigraph.types import parse_table_key

_COMMITS, _CHANGES = 50, 50
_FILTERS = ("branch", "actor", "type", "since", "until")


def commits(call: RouteCall) -> Answer:
    """A page of commits, newest first, as a graph or as a filtered list."""
    call.only(*_FILTERS, "page_token")
    chosen = {name: call.one(name) or "" for name in _FILTERS}
    listed = _listed(call, chosen)
    start = _start(call, chosen, listed)
    shown = listed[start : start + _COMMITS]
    is_whole = not any(chosen[name] for name in _FILTERS[1:])
    more = None
    if len(listed) > start + _COMMITS:
        more = sealed("ui-commits", [call.graph_id, *chosen.values()], shown[-1].id)
    names = call.graph.commits.names()
    rows = lane_rows(shown) if is_whole else [None] * len(shown)
    lanes = max((row.lanes for row in rows if row is not None), default=1)
    return page(
        call,
        "commits.html",
        section="commits",
        chosen=chosen,
        branches=branch_names(call.graph),
        types=[owner.name for owner in call.graph.schema.catalog.types],
        rows=[
            {
                "commit": commit,
                "names": names.get(commit.id, ()),
                "lanes": None if row is None else Markup(row_svg(row, lanes)),
            }
            for commit, row in zip(shown, rows, strict=True)
        ],
        more=more and link(call.graph_id, "commits", **chosen, page_token=more),
        live={"branch": chosen["branch"], "head": listed[0].id if listed else ""},
    )


def commits_svg(call: RouteCall) -> Answer:
    """The newest commits as a picture."""
    chosen = {name: call.one(name) or "" for name in _FILTERS}
    shown = _listed(call, chosen)[:_COMMITS]
    title = f"Commits of {chosen['branch'] or 'all branches'}"
    picture = commits_picture(title, shown, call.graph.commits.names())
    return download(picture.to_svg(), SVG, "commits.svg")


def _listed(call: RouteCall, chosen: dict[str, str]) -> Sequence[Commit]:
    log = commit_log(call)
    listed: Sequence[Commit] = log.order
    if chosen["branch"]:
        head = call.graph.commits.get(chosen["branch"])
        listed = in_order(reachable(log.commits, [head.id]))
    if chosen["actor"]:
        listed = [each for each in listed if each.actor == chosen["actor"]]
    if chosen["type"]:
        listed = [each for each in listed if chosen["type"] in _types_of(each)]
    since, until = _moment(chosen["since"]), _moment(chosen["until"])
    if since is not None:
        listed = [each for each in listed if each.created_at >= since]
    if until is not None:
        listed = [each for each in listed if each.created_at < until]
    return listed


def _types_of(commit: Commit) -> set[str]:
    return {parse_table_key(key)[1] for key in commit.counts}


def _moment(text: str) -> int | None:
    """A day or a moment in UTC, in microseconds."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadRequest(f"'{text[:40]}' is no day", "write 2026-01-31") from None
    return int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1_000_000)


def _start(call: RouteCall, chosen: dict[str, str], listed: Sequence[Commit]) -> int:
    token = call.one("page_token")
    if token is None:
        return 0
    last = unsealed(token, "ui-commits", [call.graph_id, *chosen.values()])
    return next((n for n, each in enumerate(listed, start=1) if each.id == last), len(listed))


def commit(call: RouteCall) -> Answer:
    """One commit: who, when, why, and what it changed, property by property."""
    call.only("kind", "type", "op", "page_token")
    return _commit_page(call)


def _commit_page(
    call: RouteCall, problem: str | None = None, status: int = 200, **more: Any
) -> Answer:
    shown = call.graph.commits.get(call.path["commit_id"])
    changes, token, unread = [], None, None
    try:
        listing = call.graph.commits.changes(shown.id, **listing_filters(call))
        read = listing.page(_CHANGES, call.one("page_token"))
        changes, token = list(read.changes), read.next_page_token
    except (NoChanges, ChangeFeedGap) as cause:
        unread = str(cause)
    values = {"conflicts": (), "draft": {}, "drafted": "", **more}
    return page(
        call,
        "commit.html",
        status=status,
        problem=problem,
        section="commits",
        commit=shown,
        names=call.graph.commits.names().get(shown.id, ()),
        parents=[call.graph.commits.get(each) for each in shown.parents if _is_known(call, each)],
        counts=_counts(shown),
        changes=change_rows(call, changes, shown.parent, shown.id),
        unread=unread,
        more=token and link(call.graph_id, "commits", shown.id, page_token=token),
        branches=branch_names(call.graph),
        **values,
    )


def _is_known(call: RouteCall, commit_id: str) -> bool:
    try:
        call.graph.commits.get(commit_id)
    except OmnigraphError:
        return False
    return True


def _counts(shown: Commit) -> list[dict[str, Any]]:
    return [
        {"kind": str(parse_table_key(key)[0]), "name": parse_table_key(key)[1], "rows": rows}
        for key, rows in sorted(shown.counts.items())
    ]


def branch_here(call: RouteCall) -> Answer:
    """Create a branch at a commit."""
    form = fields(call)
    try:
        name = required(form, "name", "the name of the branch")
        made = call.graph.branches.create(name, from_=call.path["commit_id"])
    except OmnigraphError as cause:
        return _refused(call, cause, "branch", form)
    return moved_with(call, link(call.graph_id, "commits", branch=made), f"created branch {made}")


def _refused(
    call: RouteCall, cause: OmnigraphError, drafted: str, form: dict[str, str], **more: Any
) -> Answer:
    """The page with why a form was refused, and what was typed in it."""
    return _commit_page(call, *refusal_of(cause), drafted=drafted, draft=form, **more)


def tag_here(call: RouteCall) -> Answer:
    """Name a commit."""
    form = fields(call)
    try:
        name = required(form, "name", "the name of the tag")
        tag = call.graph.tags.create(name, call.path["commit_id"])
    except OmnigraphError as cause:
        return _refused(call, cause, "tag", form)
    notice = f"tagged as {tag.name}"
    return moved_with(call, link(call.graph_id, "commits", tag.commit_id), notice)


def revert_here(call: RouteCall) -> Answer:
    """Undo a commit as a new commit of a branch, which may be made for it."""
    form = fields(call)
    commit_id = call.path["commit_id"]
    try:
        with branch_of_form(call, form) as branch:
            done = call.graph.revert(
                commit_id, onto=branch, actor=call.actor, message=form.get("message") or None
            )
    except MergeConflicts as cause:
        return _refused(call, cause, "revert", form, conflicts=cause.conflicts[:20])
    except OmnigraphError as cause:
        return _refused(call, cause, "revert", form)
    call.facts.update(branch=branch)
    target = commit_id if done.commit is None else done.commit.id
    notice = f"reverted on {branch}" if done.commit else f"there was nothing to undo on {branch}"
    return moved_with(call, link(call.graph_id, "commits", target), notice)
