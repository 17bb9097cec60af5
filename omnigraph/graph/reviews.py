"""Reviews of a graph: a merge that is talked about and approved before it is made.

    open ─▶ comments, approvals ─▶ merged
                                └▶ closed

Invariant: an approval binds the commit that the source is at and the answers to conflicts, and
lapses when the source moves; an author cannot approve. Only an actor who may read both branches
opens, sees and changes a review: it shows their heads. The merge of a review is a merge `once`
under the review's name: of two at once, or of one that is repeated after a crash, there is one
commit.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from omnigraph.arguments import checked
from omnigraph.deferred import deferred
from omnigraph.errors import BadRequest, LimitExceeded, OwnReview, PreconditionFailed, ReviewEnded
from omnigraph.exec.progress import Progress
from omnigraph.exec.schemas import Schemas
from omnigraph.graph.merge_verb import MergeVerb
from omnigraph.graph.policy_guard import PolicyGuard
from omnigraph.graph.review_answers import previewed_answers
from omnigraph.graph.review_gate import ReviewGate
from omnigraph.graph.review_records import (
    CLOSED,
    MERGED,
    OPEN,
    STATES,
    Review,
    ReviewApproval,
    ReviewComment,
    ReviewRecords,
    now_us,
)
from omnigraph.policy.actions import Action
from omnigraph.storage.names import MAIN, require_text
from omnigraph.storage.records import TRANSACTIONS
from omnigraph.storage.store import Store
from omnigraph.types import MergeUnit

if TYPE_CHECKING:
    from ulid import ULID

    from omnigraph.exec.merge.resolve import Resolve
    from omnigraph.exec.merge.run import MergeOutcome
else:
    ULID = deferred("ulid", "ULID")
    Resolve = deferred("omnigraph.exec.merge.resolve", "Resolve")
    MergeOutcome = deferred("omnigraph.exec.merge.run", "MergeOutcome")

TITLE_MAX = 300
TEXT_MAX = 64 << 10
COMMENTS_MAX = 2_000
_KINDS = ("node", "edge")


class ReviewsView:
    """The reviews of a graph."""

    def __init__(
        self,
        store: Store,
        schemas: Schemas,
        guard: PolicyGuard,
        records: ReviewRecords,
        branches: MergeVerb,
    ) -> None:
        self._store = store
        self._schemas = schemas
        self._guard = guard
        self._records = records
        self._branches = branches
        self._gate = ReviewGate(store, schemas, guard, records)

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
        """Ask for a review of what a merge of one branch into another would bring.

        >>> name = graph.branches.create("review/x")
        >>> review = graph.reviews.open(name, title="Ages")
        >>> review.state, review.source
        ('open', 'review/x')
        """
        source, target = source.strip(), target.strip()
        author = self._guard.require(Action.REVIEW, source, target, actor)
        self._guard.reads_each((source, target), actor)
        require_bounded("the title of a review", title, TITLE_MAX)
        if not title.strip():
            raise BadRequest("a review needs a title", "say what it is about")
        require_bounded("the text of a review", text, TEXT_MAX)
        if source == target:
            raise BadRequest(f"cannot merge branch '{source}' into itself", "name two branches")
        if source.startswith(TRANSACTIONS) or target.startswith(TRANSACTIONS):
            raise BadRequest("the branch of a transaction cannot be reviewed", "name another one")
        for branch in (source, target):
            self._store.snapshot(branch)
        review = Review(str(ULID()), source, target, title.strip(), text, author, now_us())
        self._records.create(review)
        return self._gate.shown(review)

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
        `limit` the first of them, and with `before` those older than that review: no more records
        are read than it takes.

        >>> graph.reviews.list(state="open")
        ()
        """
        self._guard.reads_graph()
        if limit is not None and limit < 1:
            raise BadRequest(f"cannot list {limit} reviews", "ask for one or more")
        if before is not None:
            require_text("an id of a review", before)
        if state is not None and state not in STATES:
            raise BadRequest(f"'{state}' is no state of a review", f"use {', '.join(STATES)}")
        stored = self._records.open(before) if state == OPEN else self._records.all(before)
        shown = (
            self._gate.shown(review)
            for review in stored
            if source in (None, review.source) and target in (None, review.target)
            if self._guard.may_read_each((review.source, review.target))
        )
        matching = (each for each in shown if state in (None, each.state))
        return tuple(islice(matching, None if limit is None else min(limit, sys.maxsize)))

    @checked
    def get(self, review_id: str) -> Review:
        """One review, or `NotFound`.

        >>> name = graph.branches.create("review/x")
        >>> review = graph.reviews.open(name, title="Ages")
        >>> graph.reviews.get(review.id).title
        'Ages'
        """
        self._guard.require_ever(Action.READ)
        review = self._records.get(review_id)
        self._guard.reads_each((review.source, review.target))
        return self._gate.shown(review)

    @checked
    def comment(
        self,
        review_id: str,
        text: str,
        *,
        entity: Sequence[str] | None = None,
        actor: str | None = None,
    ) -> Review:
        """Comment on a review as a whole, or on an entity: its kind, type and id.

        >>> name = graph.branches.create("review/x")
        >>> review = graph.reviews.open(name, title="Ages")
        >>> graph.reviews.comment(review.id, "Is that so?").comments[0].text
        'Is that so?'
        """
        author = self._may_review(review_id, actor)
        require_bounded("a comment", text, TEXT_MAX)
        if not text.strip():
            raise BadRequest("a comment needs a text", "say something")
        about = entity_members(entity)

        def commented(review: Review) -> Review:
            if len(review.comments) >= COMMENTS_MAX:
                raise LimitExceeded("comments of a review", len(review.comments) + 1, COMMENTS_MAX)
            comment = ReviewComment(author, text, now_us(), *about)
            return replace(review, comments=(*review.comments, comment))

        return self._gate.shown(self._records.change(review_id, commented))

    @checked
    def approve(
        self,
        review_id: str,
        *,
        if_source: str | None = None,
        resolve: Resolve = None,
        by: MergeUnit = "entity",
        actor: str | None = None,
    ) -> Review:
        """Approve the source as it is now; with `if_source` only at that commit. The approval
        lapses when the source moves. With `resolve`, as `merge` takes it, it covers a merge with
        these answers to conflicts and no other.

        >>> name = graph.branches.create("review/x")
        >>> review = graph.reviews.open(name, title="Ages")
        >>> graph.reviews.approve(review.id, actor="act-bob").approvals[0].actor
        'act-bob'
        """
        approver = self._may_review(review_id, actor)
        if approver is None:
            raise BadRequest("an approval is somebody's", "pass actor=, or --as")
        review = self._gate.shown(self._records.get(review_id))
        head = self._store.snapshot(review.source).commit_id
        if if_source is not None and if_source != head:
            raise PreconditionFailed(review.source, if_source, head)
        _require_open(review)
        branches = review.source, review.target
        answers = previewed_answers(self._store, self._schemas, *branches, by, resolve)
        digest = self._gate.digest(review, head, answers)
        approval = ReviewApproval(approver, head, now_us(), digest=digest, resolutions=len(answers))

        def approved(review: Review) -> Review:
            _require_open(review)
            if review.author == approver:
                raise OwnReview(
                    Action.REVIEW, approver, review.source, review.target, review=review.id
                )
            own = [each for each in review.approvals if each.actor == approver]
            if any(each.covers((digest,), None if answers else head) for each in own):
                return review
            kept = tuple(
                each for each in review.approvals if each not in own or each.source_commit == head
            )
            return replace(review, approvals=(*kept, approval))

        return self._gate.shown(self._records.change(review_id, approved))

    @checked
    def close(self, review_id: str, *, actor: str | None = None) -> Review:
        """End a review without a merge. To close it again changes nothing.

        >>> name = graph.branches.create("review/x")
        >>> review = graph.reviews.open(name, title="Ages")
        >>> graph.reviews.close(review.id).state
        'closed'
        """
        closer = self._may_review(review_id, actor)
        if self._gate.shown(self._records.get(review_id)).state == MERGED:
            raise ReviewEnded(review_id, MERGED)

        def closed(review: Review) -> Review:
            if review.state == MERGED:
                raise ReviewEnded(review.id, MERGED)
            return review if review.state == CLOSED else review.ended(CLOSED, closer)

        return self._gate.shown(self._records.change(review_id, closed))

    @checked
    def merge(
        self,
        review_id: str,
        *,
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
        delete_source: bool = False,
        by: MergeUnit = "entity",
        resolve: Resolve = None,
        progress: Callable[[Progress], None] | None = None,
        dry_run: bool = False,
        if_source: str | None = None,
        if_target: str | None = None,
        checks: Sequence[str | os.PathLike[str]] = (),
    ) -> MergeOutcome:
        """Merge a review as one commit, whose message is its title by default. Of a review that is
        merged the outcome is returned again; options are those of `branches.merge`.

        >>> branch = graph.branch(graph.branches.create("review/x"))
        >>> done = branch.load([{"name": "Fay"}], "merge", type="Person")
        >>> review = graph.reviews.open("review/x", title="Fay joins")
        >>> graph.reviews.merge(review.id).commit.message
        'Fay joins'
        """
        self._guard.require_ever(Action.BRANCH_MERGE, actor=actor)
        review = self._records.get(review_id)
        actor = self._guard.merges(review.source, review.target, actor)
        review = self._gate.shown(review)
        if review.state == CLOSED or (review.state == MERGED and not self._is_marked(review)):
            raise ReviewEnded(review.id, review.state)
        if if_source is None and review.state == OPEN:
            if_source = review.source_commit  # what was looked at, also without a policy
        done = self._branches.merge(
            review.source,
            review.target,
            actor=actor,
            message=message or review.title,
            metadata=metadata,
            delete_source=delete_source,
            by=by,
            resolve=resolve,
            progress=progress,
            dry_run=dry_run,
            if_source=if_source,
            if_target=if_target,
            once=None if dry_run else review.mark,
            checks=checks,
        )
        if not dry_run:
            merger = done.actor if done.commit is None else done.commit.actor
            self._gate.note_merged(review, merger, None if done.commit is None else done.commit.id)
        return done

    def _is_marked(self, review: Review) -> bool:
        """Whether a review was merged as such, and not by a merge of its branches."""
        return self._store.marked(review.target, review.mark) is not None

    def _may_review(self, review_id: str, actor: str | None) -> str | None:
        """The actor of a change of a review, once it is allowed."""
        self._guard.require_ever(Action.REVIEW, actor=actor)
        review = self._records.get(review_id)
        acting = self._guard.require(Action.REVIEW, review.source, review.target, actor)
        self._guard.reads_each((review.source, review.target), actor)
        return acting


def _require_open(review: Review) -> None:
    if review.state != OPEN:
        raise ReviewEnded(review.id, review.state)


def require_bounded(what: str, text: str, chars_max: int) -> None:
    """Pass for a text that can be written down and is not too long."""
    require_text(what, text)
    if len(text) > chars_max:
        raise LimitExceeded(what, len(text), chars_max)


def entity_members(entity: Sequence[str] | None) -> tuple[str | None, str | None, str | None]:
    if entity is None:
        return None, None, None
    if isinstance(entity, str) or len(entity) != 3:
        raise BadRequest("an entity is its kind, type and id", 'write ("node", "Person", "Ada")')
    kind, type_name, entity_id = entity
    if kind not in _KINDS:
        raise BadRequest(f"'{kind}' is no kind of entity", f"use {' or '.join(_KINDS)}")
    for what, value in (("a type", type_name), ("an id", entity_id)):
        require_bounded(what, value, TEXT_MAX)
    return kind, type_name, entity_id
