"""Reviews of a served graph over HTTP.

Invariant: a verb sends one request, a listing a page at a time; the actor is that of the token.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import orjson

from omnigraph.arguments import checked
from omnigraph.costs import COSTS
from omnigraph.errors import NotFound, NotServed
from omnigraph.exec.merge.resolve import Resolve
from omnigraph.exec.merge.run import MergeOutcome
from omnigraph.exec.progress import Progress
from omnigraph.graph.review_records import Review, ReviewApproval, ReviewComment, is_review_id
from omnigraph.graph.reviews import ReviewsView, entity_members
from omnigraph.remote.answers import resolutions_of, settled
from omnigraph.remote.from_wire import merge_of, schema_steps_of
from omnigraph.remote.http_connection import JSON, REPLAY, encoded, given
from omnigraph.remote.remote_session import RemoteSession
from omnigraph.storage.names import MAIN


class RemoteReviews(ReviewsView):
    """The reviews of a served graph."""

    def __init__(self, session: RemoteSession) -> None:
        self._session = session
        self._http = session.http

    @checked
    def open(
        self,
        source: str,
        target: str = MAIN,
        *,
        title: str,
        text: str = "",
        actor: str | None = None,
    ) -> Review:
        """Ask for a review of what a merge of one branch into another would bring."""
        self._session.require_branch(source, target)
        body = {"source": source, "target": target, "title": title, "text": text}
        return self._write("/reviews", body, actor)

    @checked
    def list(
        self,
        *,
        state: str | None = None,
        source: str | None = None,
        target: str | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> tuple[Review, ...]:
        """Every review, newest first; those of a state (open, merged, closed), or of branches. With
        `limit` the first of them, and with `before` those older than that review."""
        reviews: list[Review] = []
        token = before
        while True:
            size = (
                COSTS.remote_page_reviews
                if limit is None
                else min(limit - len(reviews), COSTS.remote_page_reviews)
            )
            asked = given(state=state, source=source, target=target, limit=size, page_token=token)
            page = self._http.document("/reviews", asked)
            reviews += map(review_of, page["reviews"])
            token = page.get("next_page_token")
            if token is None or len(reviews) == limit:
                return tuple(reviews)

    @checked
    def get(self, review_id: str) -> Review:
        """One review, or `NotFound`."""
        return review_of(self._http.document(_path(review_id)))

    @checked
    def comment(
        self,
        review_id: str,
        text: str,
        *,
        entity: Sequence[str] | None = None,
        actor: str | None = None,
    ) -> Review:
        """Comment on a review as a whole, or on an entity: its kind, type and id."""
        kind, type_name, entity_id = entity_members(entity)
        about = {"entity_kind": kind, "type_name": type_name, "entity_id": entity_id}
        return self._write(_path(review_id, "/comments"), {"text": text, **about}, actor)

    @checked
    def approve(
        self,
        review_id: str,
        *,
        if_source: str | None = None,
        resolve: Resolve = None,
        by: str = "entity",
        actor: str | None = None,
    ) -> Review:
        """Approve the source as it is now; with `if_source` only at that commit, and with `resolve`
        a merge with these answers to conflicts."""
        body: dict[str, Any] = {"if_source_commit": if_source}
        if isinstance(resolve, Mapping):
            body |= {"by": by, "resolutions": resolutions_of(resolve)}
        elif resolve is not None:  # a preview tells the conflicts that it is about
            body |= {"by": by, "resolutions": self._previewed(review_id, by, resolve)}
        return self._write(_path(review_id, "/approve"), body, actor)

    @checked
    def close(self, review_id: str, *, actor: str | None = None) -> Review:
        """End a review without a merge. To close it again changes nothing."""
        return self._write(_path(review_id, "/close"), {}, actor)

    @checked
    def merge(
        self,
        review_id: str,
        *,
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
        delete_source: bool = False,
        by: str = "entity",
        resolve: Resolve = None,
        progress: Callable[[Progress], None] | None = None,
        dry_run: bool = False,
        if_source: str | None = None,
        if_target: str | None = None,
        checks: Sequence[str | os.PathLike[str]] = (),
    ) -> MergeOutcome:
        """Merge a review as one commit; of one that is merged the outcome is returned again."""
        if checks:
            raise NotServed("reviews.merge(checks=)", self._http.uri, "the server has its own")
        if not dry_run:
            self._session.require_writable()
        self._session.require_own_actor(actor)
        body = {
            "delete_branch": delete_source,
            "by": by,
            "if_source_commit": if_source,
            "if_target_commit": if_target,
            "dry_run": dry_run,
            "message": message,
            "metadata": metadata,
        }

        def send(resolutions: list[dict[str, Any]], **more: Any) -> MergeOutcome:
            # Repeated as it is after a lost answer: a review has one merge.
            asked = encoded({**body, "resolutions": resolutions, **more})
            answer = self._http.write_once(_path(review_id, "/merge"), asked, JSON)
            document, repeated = orjson.loads(answer.content), REPLAY in answer.headers
            return merge_of(document, self._http.uri, repeated=repeated)

        return settled(send, resolve, partial(send, dry_run=True))

    def _previewed(self, review_id: str, by: str, resolve: Resolve) -> Sequence[Mapping[str, Any]]:
        """Return the answers that `resolve` gives to the conflicts of a review's merge."""
        last: list[dict[str, Any]] = []

        def send(resolutions: list[dict[str, Any]]) -> MergeOutcome:
            last[:] = resolutions
            body = {"by": by, "dry_run": True, "resolutions": resolutions}
            answer = self._http.write_once(_path(review_id, "/merge"), encoded(body), JSON)
            return merge_of(orjson.loads(answer.content), self._http.uri, repeated=False)

        settled(send, resolve)
        return last

    def _write(self, path: str, body: dict[str, Any], actor: str | None) -> Review:
        self._session.require_writable()
        self._session.require_own_actor(actor)
        return review_of(self._http.write("POST", path, body))


def _path(review_id: str, verb: str = "") -> str:
    if not review_id or not is_review_id(review_id):  # no path holds it
        raise NotFound("review", review_id[:80])
    return f"/reviews/{review_id}{verb}"


def review_of(document: Mapping[str, Any]) -> Review:
    """A review of a JSON answer."""
    return Review(
        document["id"],
        document["source"],
        document["target"],
        document["title"],
        document["text"],
        document["author_id"],
        document["created_at"],
        document["state"],
        tuple(
            ReviewComment(
                each["author_id"],
                each["text"],
                each["created_at"],
                each.get("entity_kind"),
                each.get("type_name"),
                each.get("entity_id"),
            )
            for each in document["comments"]
        ),
        tuple(
            ReviewApproval(
                each["actor_id"],
                each["source_commit_id"],
                each["created_at"],
                each["is_current"],
                resolutions=each.get("resolutions", 0),
            )
            for each in document["approvals"]
        ),
        document["ended_by"],
        document["ended_at"],
        document["merge_commit_id"],
        document["source_commit_id"],
        document["required_approvals"],
        schema_steps_of(document),
    )
