"""Facts of a review for its page: the preview of its merge, checks, comments, what is new.

Invariant: a part that cannot be read says why; the rest of the page is shown without it.
"""

from collections import defaultdict
from itertools import islice
from typing import Any

from omnigraph.errors import OmnigraphError
from omnigraph.graph.review_records import Review, ReviewComment
from omnigraph.server.call import RouteCall
from omnigraph.server.ui.change_rows import change_rows
from omnigraph.server.ui.merge_previews import NOTHING, preview_or_why
from omnigraph.server.ui.ui_render import link, refusal_of

_CHANGES, _COMMENTS = 50, 100
_Entity = tuple[str | None, str | None, str | None]


def current_approvals(review: Review) -> int:
    """How many others approve the source as it is now."""
    actors = {each.actor for each in review.approvals if each.is_current}
    return len(actors - {review.author})


def review_preview(call: RouteCall, review: Review, by: str, *, is_open: bool) -> dict[str, Any]:
    """What the merge of an open review would do, the checks that it fails, and why neither can be
    said."""
    if not is_open:
        return NOTHING
    try:
        return preview_or_why(call, review.source, review.target, by)
    except OmnigraphError as cause:
        compare = link(call.graph_id, "compare", from_=review.target, to=review.source)
        return NOTHING | {"compare": compare, "unread": refusal_of(cause)[0]}


def since_approval(call: RouteCall, review: Review) -> dict[str, Any]:
    """What changed on the source since it was last approved, if that approval has lapsed."""
    values: dict[str, Any] = {
        "since": None,
        "new_changes": [],
        "new_schema_steps": (),
        "new_more": False,
        "new_unread": None,
        "new_compare": None,
    }
    last = max(review.approvals, key=lambda each: each.created_at, default=None)
    head = review.source_commit
    if last is None or last.is_current or head is None:
        return values
    values |= {"since": last}
    try:
        diff = call.graph.diff(last.source_commit, head)
        values["new_schema_steps"] = diff.schema_steps
        changes = list(islice(diff, _CHANGES + 1))
        values["new_changes"] = change_rows(call, changes[:_CHANGES], last.source_commit, head)
    except OmnigraphError as cause:
        return values | {"new_unread": refusal_of(cause)[0]}
    compare = link(call.graph_id, "compare", from_=last.source_commit, to=head)
    return values | {"new_more": len(changes) > _CHANGES, "new_compare": compare}


def shown_comments(call: RouteCall, review: Review, before: int | None) -> dict[str, Any]:
    """The newest comments before a number, oldest first, each with the page of its entity."""
    end = len(review.comments) if before is None else min(before - 1, len(review.comments))
    start = max(0, end - _COMMENTS)
    comments = review.comments[start:end]
    links = _entity_links(call, review, comments)
    earlier = link(call.graph_id, "reviews", review.id, before=start + 1) if start else None
    return {
        "comments": [
            {"comment": each, "number": number, "link": links.get(_entity(each))}
            for number, each in enumerate(comments, start + 1)
        ],
        "earlier": earlier,
        "later": link(call.graph_id, "reviews", review.id) if end < len(review.comments) else None,
    }


def _entity(comment: ReviewComment) -> _Entity:
    return comment.entity_kind, comment.type_name, comment.entity_id


def _entity_links(
    call: RouteCall, review: Review, comments: tuple[ReviewComment, ...]
) -> dict[_Entity, str]:
    """Where the entities of comments can be looked at: on the source, else on the target."""
    ids: defaultdict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for kind, name, entity in map(_entity, comments):
        if kind is not None and name is not None and entity is not None:
            ids[kind, name][entity] = None
    links: dict[_Entity, str] = {}
    for point in (review.target, review.source if review.source_commit else None):
        for (kind, name), named in ids.items() if point else ():
            try:
                listed = call.graph.listed(kind, name, list(named), snapshot=point)
            except OmnigraphError:
                continue  # a type or a branch that is not there
            for each in listed:
                address = link(call.graph_id, "entities", kind, name, each.id, point=point)
                links[kind, name, each.id] = address
    return links
