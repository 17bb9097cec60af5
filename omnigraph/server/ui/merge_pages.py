"""Merge review: what a merge would do, its conflicts side by side, and the merge itself.

Invariant: the page names the two commits that it looked at, and its merge is made on those or not
at all. Looking writes nothing.
"""

from collections.abc import Mapping
from types import MappingProxyType

from omnigraph.arguments import as_given
from omnigraph.errors import OmnigraphError
from omnigraph.server.call import Answer, RouteCall
from omnigraph.server.ui.merge_previews import (
    NOTHING,
    form_answers,
    kept_answers,
    preview_or_why,
)
from omnigraph.server.ui.ui_forms import fields, required
from omnigraph.server.ui.ui_points import branch_names
from omnigraph.server.ui.ui_render import link, moved_with, page, refusal_of
from omnigraph.storage.names import MAIN


def merge_review(call: RouteCall) -> Answer:
    """What a merge would do, without doing it."""
    call.only("source", "target", "by")
    source, target = call.one("source") or "", call.one("target") or MAIN
    return _review(call, source, target, call.one("by") or "entity")


def _review(
    call: RouteCall,
    source: str,
    target: str,
    by: str,
    problem: str | None = None,
    status: int = 200,
    draft: Mapping[str, str] = MappingProxyType({}),
) -> Answer:
    values = preview_or_why(call, source, target, by) if source else NOTHING
    return page(
        call,
        "merge.html",
        status=status,
        problem=problem,
        section="merge",
        source=source,
        target=target,
        by=by,
        branches=branch_names(call.graph),
        draft={name: draft.get(name, "") for name in ("message", "delete")},
        answered=kept_answers(draft),
        **values,
    )


def merge(call: RouteCall) -> Answer:
    """Merge with the answers of the form, if neither branch moved since it was shown."""
    form = fields(call)
    source = required(form, "source", "the branch to take from")
    target = required(form, "target", "the branch to commit to")
    by = form.get("by") or "entity"
    call.facts.update(branch=target)
    deletes = form.get("delete") == "on"
    try:
        done = call.graph.branches.merge(
            source,
            target,
            actor=call.actor,
            message=form.get("message") or None,
            delete_source=deletes,
            by=as_given(by),
            resolve=form_answers(call, target, form),
            if_source=form.get("source_commit") or None,
            if_target=form.get("target_commit") or None,
        )
    except OmnigraphError as cause:
        text, status = refusal_of(cause)
        return _review(call, source, target, by, f"not merged: {text}", status, form)
    notice = f"merged {source} into {target}: {done.kind.replace('_', ' ')}"
    if done.branch_deleted:
        notice += f"; deleted {source}"
    if done.commit is None:
        return moved_with(call, link(call.graph_id), notice)
    call.facts.update(commit=done.commit.id)
    return moved_with(call, link(call.graph_id, "commits", done.commit.id), notice)
