"""Review pages: the reviews of a graph, and one with all that decides whether it is merged.

Invariant: an approval and a merge are of the commits that the page showed, or not made. What the
policy forbids on the branches of a review is not offered; every form asks the graph all the same.
"""

from collections.abc import Callable
from typing import Any

from omnigraph.arguments import as_given
from omnigraph.errors import BadRequest, NotFound, OmnigraphError
from omnigraph.graph.review_records import OPEN, STATES, Review
from omnigraph.server.call import Answer, RouteCall
from omnigraph.server.ui.merge_previews import form_answers, kept_answers
from omnigraph.server.ui.review_facts import (
    current_approvals,
    review_preview,
    shown_comments,
    since_approval,
)
from omnigraph.server.ui.ui_forms import fields, required
from omnigraph.server.ui.ui_points import branch_names
from omnigraph.server.ui.ui_render import link, may, moved_with, page, refusal_of
from omnigraph.storage.names import MAIN

_REVIEWS = 50
_ALL = "all"
_OPENING = ("source", "target", "title", "text")
_DRAFT = ("kind", "type", "id", "text", "message", "delete")


def reviews(call: RouteCall) -> Answer:
    """Reviews of a state, newest first, and where another one is opened."""
    call.only("state", "source", "target", "page_token")
    return _reviews_page(
        call, {"source": call.one("source") or "", "target": call.one("target") or ""}
    )


def _reviews_page(
    call: RouteCall, draft: dict[str, str], problem: str | None = None, status: int = 200
) -> Answer:
    state = call.one("state") or OPEN
    listed = call.graph.reviews.list(
        state=None if state == _ALL else state, limit=_REVIEWS + 1, before=call.one("page_token")
    )
    shown = listed[:_REVIEWS]
    token = shown[-1].id if len(listed) > _REVIEWS else None
    return page(
        call,
        "reviews.html",
        status=status,
        problem=problem,
        section="reviews",
        state=state,
        states=(*STATES, _ALL),
        reviews=[{"review": each, "approvals": current_approvals(each)} for each in shown],
        more=token and link(call.graph_id, "reviews", state=state, page_token=token),
        branches=branch_names(call.graph),
        draft={name: draft.get(name, "") for name in _OPENING}
        | {"target": draft.get("target") or MAIN},
    )


def open_review(call: RouteCall) -> Answer:
    """Open a review."""
    form = fields(call)
    target = form.get("target") or MAIN
    call.facts.update(branch=target)
    try:
        opened = call.graph.reviews.open(
            required(form, "source", "the branch to take from"),
            target,
            title=required(form, "title", "the title of the review"),
            text=form.get("text", ""),
            actor=call.actor,
        )
    except OmnigraphError as cause:
        why, status = refusal_of(cause)
        return _reviews_page(call, form, f"not opened: {why}", status)
    return moved_with(call, link(call.graph_id, "reviews", opened.id), "opened this review")


def review(call: RouteCall) -> Answer:
    """One review: what it would do, conflicts, checks, comments, approvals."""
    call.only("by", "before", "kind", "type", "id")
    about = {name: call.one(name) or "" for name in ("kind", "type", "id")}
    return _review_page(call, about)


def _review_page(
    call: RouteCall, draft: dict[str, str], problem: str | None = None, status: int = 200
) -> Answer:
    shown = call.graph.reviews.get(call.path["review"])
    call.facts.update(branch=shown.target)
    by = draft.get("by") or call.one("by") or "entity"
    is_open = shown.state == OPEN and shown.source_commit is not None
    may_review = _may_here(call, "review", shown)
    approvals = current_approvals(shown)
    has_approved = call.actor in {each.actor for each in shown.approvals if each.is_current}
    return page(
        call,
        "review.html",
        status=status,
        problem=problem,
        section="reviews",
        review=shown,
        is_open=is_open,
        source=shown.source,
        target=shown.target,
        by=by,
        draft={name: draft.get(name, "") for name in _DRAFT},
        approvals=approvals,
        answered=kept_answers(draft),
        lacks=max(0, shown.required_approvals - approvals),
        is_own=call.actor is not None and call.actor == shown.author,
        has_approved=has_approved,
        may_review=may_review,
        may_approve=may_review
        and is_open
        and not has_approved
        and call.actor not in (None, shown.author),
        may_decide=may_review and is_open and call.actor not in (None, shown.author),
        may_merge=_may_here(call, "branch_merge", shown),
        may_delete=shown.source != MAIN and may(call, "branch_delete"),
        types=[owner.name for owner in call.graph.schema.catalog.types],
        **shown_comments(call, shown, call.number("before", 1)),
        **since_approval(call, shown),
        **review_preview(call, shown, by, is_open=is_open),
    )


def _may_here(call: RouteCall, action: str, shown: Review) -> bool:
    """Whether the actor may do an action on the branches of a review."""
    if not may(call, action):
        return False
    try:
        call.require(action, shown.source, shown.target)
    except OmnigraphError:
        return False
    return True


def comment(call: RouteCall) -> Answer:
    """Comment on a review, or on an entity in it."""
    form = fields(call)

    def commented(review_id: str) -> str:
        entity = [form.get(name, "").strip() for name in ("kind", "type", "id")]
        if any(entity) and not all(entity):
            raise BadRequest("an entity is its kind, type and id", "give all three, or none")
        call.graph.reviews.comment(
            review_id,
            required(form, "text", "the text of the comment"),
            entity=entity if all(entity) else None,
            actor=call.actor,
        )
        return "commented"

    return _done(call, form, commented)


def approve(call: RouteCall) -> Answer:
    """Approve the source as the page showed it."""
    form = fields(call)

    def approved(review_id: str) -> str:
        seen = required(form, "source_commit", "the commit that is approved")
        target = call.graph.reviews.get(review_id).target
        call.graph.reviews.approve(
            review_id,
            if_source=seen,
            by=as_given(form.get("by") or "entity"),
            resolve=form_answers(call, target, form),
            actor=call.actor,
        )
        return "approved"

    return _done(call, form, approved)


def close(call: RouteCall) -> Answer:
    """End a review without a merge."""

    def closed(review_id: str) -> str:
        call.graph.reviews.close(review_id, actor=call.actor)
        return "closed this review"

    return _done(call, fields(call), closed)


def merge_reviewed(call: RouteCall) -> Answer:
    """Merge a review with the answers of the form, if neither branch moved since it was shown."""
    form = fields(call)

    def merged(review_id: str) -> str:
        shown = call.graph.reviews.get(review_id)
        done = call.graph.reviews.merge(
            review_id,
            actor=call.actor,
            message=form.get("message") or None,
            delete_source=form.get("delete") == "on",
            by=as_given(form.get("by") or "entity"),
            resolve=form_answers(call, shown.target, form),
            if_source=required(form, "source_commit", "the commit that is merged"),
            if_target=required(form, "target_commit", "the commit that it is merged into"),
        )
        call.facts.update(commit=None if done.commit is None else done.commit.id)
        notice = f"merged {done.source} into {done.target}: {done.kind.replace('_', ' ')}"
        if done.branch_deleted:
            return f"{notice}; deleted {done.source}"
        return f"{notice}; {done.branch_delete_error}" if done.branch_delete_error else notice

    return _done(call, form, merged)


def _done(call: RouteCall, form: dict[str, str], act: Callable[[str], str]) -> Answer:
    """The page of a review after something was done to it, or with why it was not."""
    review_id = call.path["review"]
    try:
        notice = act(review_id)
    except NotFound as cause:
        if cause.kind == "review":
            raise
        return _refused(call, form, cause)
    except OmnigraphError as cause:
        return _refused(call, form, cause)
    return moved_with(call, link(call.graph_id, "reviews", review_id), notice)


def _refused(call: RouteCall, form: dict[str, Any], cause: OmnigraphError) -> Answer:
    why, status = refusal_of(cause)
    return _review_page(call, form, f"nothing was done: {why}", status)
