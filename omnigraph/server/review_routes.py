"""Routes of reviews: open, list, show, comment, approve, close and merge.

Invariant: a route is one call on the graph and one rendering. Who may do what is asked by the
graph: reading is `read`, merging `branch_merge`, everything else `review`.
"""

from omnigraph.arguments import as_given
from omnigraph.errors import BadRequest
from omnigraph.server import wire_reviews
from omnigraph.server.bodies import merge_output
from omnigraph.server.call import Answer, RouteCall, answered, branch_or_main
from omnigraph.server.idempotency import OWN, REPLAY
from omnigraph.server.write_routes import resolved

_PAGE = 100
_PAGE_MAX = 1_000
_AS_USUAL = wire_reviews.ReviewMergeRequest()
_NOW = wire_reviews.ReviewApproveRequest()


def open_review(call: RouteCall) -> Answer:
    """Ask for a review of what a merge would bring."""
    body = call.json(wire_reviews.ReviewOpenRequest)
    target = branch_or_main(body.target)
    call.facts.update(branch=target)
    review = call.graph.reviews.open(
        body.source, target, title=body.title, text=body.text or "", actor=call.actor
    )
    return answered(review.to_json())


def reviews(call: RouteCall) -> Answer:
    """Reviews, newest first."""
    call.only("state", "source", "target", "limit", "page_token")
    limit = min(call.number("limit", 1) or _PAGE, _PAGE_MAX)
    listed = call.graph.reviews.list(
        state=call.one("state"),
        source=call.one("source"),
        target=call.one("target"),
        limit=limit + 1,
        before=call.one("page_token"),
    )
    page = listed[:limit]
    more = {"next_page_token": page[-1].id} if len(listed) > limit else {}
    return answered({"reviews": [each.to_json() for each in page], **more})


def review(call: RouteCall) -> Answer:
    """One review, with its comments and approvals."""
    return answered(call.graph.reviews.get(call.path["review"]).to_json())


def comment(call: RouteCall) -> Answer:
    """Comment on a review, or on an entity in it."""
    body = call.json(wire_reviews.ReviewCommentRequest)
    entity = (body.entity_kind, body.type_name, body.entity_id)
    named = tuple(each for each in entity if each is not None)
    if len(named) not in (0, len(entity)):
        raise BadRequest("an entity is its kind, type and id", "give all three, or none")
    done = call.graph.reviews.comment(
        call.path["review"], body.text, entity=named or None, actor=call.actor
    )
    return answered(done.to_json())


def approve(call: RouteCall) -> Answer:
    """Approve the source as it is now."""
    body = call.json(wire_reviews.ReviewApproveRequest) if call.body else _NOW
    done = call.graph.reviews.approve(
        call.path["review"],
        if_source=body.if_source_commit,
        by=as_given(body.by or "entity"),
        resolve=resolved(body.resolutions),
        actor=call.actor,
    )
    return answered(done.to_json())


def close(call: RouteCall) -> Answer:
    """End a review without a merge."""
    return answered(call.graph.reviews.close(call.path["review"], actor=call.actor).to_json())


def merge_review(call: RouteCall) -> Answer:
    """Merge a review as one commit; of one that is merged the outcome is answered again."""
    body = call.json(wire_reviews.ReviewMergeRequest) if call.body else _AS_USUAL
    for name in body.metadata or ():
        if name.startswith(OWN):
            raise BadRequest(f"metadata '{name}': names with '{OWN}' are the program's own")
    done = call.graph.reviews.merge(
        call.path["review"],
        actor=call.actor,
        delete_source=body.delete_branch,
        by=as_given(body.by or "entity"),
        resolve=resolved(body.resolutions),
        dry_run=body.dry_run,
        if_source=body.if_source_commit,
        if_target=body.if_target_commit,
        message=body.message,
        metadata=body.metadata,
    )
    call.facts.update(branch=done.target, commit=None if done.commit is None else done.commit.id)
    answer = answered(merge_output(done))
    if done.repeated:
        answer.headers.update(REPLAY)
    return answer
