"""Approval gate of merges: a policy may demand approvals of a review for merges into a branch.

Invariant: an approval counts if it is of somebody else than the review's author, for the commit
that the source is at now, by an actor whom the policy allows to review this target today. A merge
that passes is bound to that commit and to the answers that were approved, so approvals of it are
approvals of what is published. Answers that nobody approved are a change of the target.
"""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from omnigraph.deferred import deferred
from omnigraph.errors import ApprovalsMissing, Forbidden, NotFound, OmnigraphError, Reclaimed
from omnigraph.exec.schemas import Schemas
from omnigraph.graph.policy_guard import PolicyGuard
from omnigraph.graph.review_records import (
    MERGED,
    NO_ANSWERS,
    OPEN,
    Resolutions,
    Review,
    ReviewRecords,
    approval_digest,
)
from omnigraph.light_dataclass import dataclass
from omnigraph.policy.actions import Action
from omnigraph.storage.store import Store
from omnigraph.types import SchemaStep

if TYPE_CHECKING:
    from omnigraph.exec.merge.run import merge_schema_steps
else:
    merge_schema_steps = deferred("omnigraph.exec.merge.run", "merge_schema_steps")


@dataclass(frozen=True, slots=True)
class ReviewGate:
    """Decides whether merges have the approvals that they need, for one handle of a graph."""

    store: Store
    schemas: Schemas
    guard: PolicyGuard
    records: ReviewRecords

    def required(self, target: str) -> int:
        """How many approvals a merge into a branch needs."""
        policy = self.guard.policy
        return 0 if policy is None else policy.file.merges.approvals_for(target.strip())

    def asks_for_answers(self, target: str, actor: str | None) -> bool:
        """Return whether an actor needs approvals of answers to conflicts. One who may change the
        target needs none, nor does anybody where the target is neither protected nor reviewed."""
        policy, name = self.guard.policy, target.strip()
        if policy is None or not (name in policy.protected or self.required(name)):
            return False
        return not policy.decide(actor, Action.CHANGE, name).allowed

    def require(
        self, source: str, target: str, actor: str | None, resolutions: Resolutions = NO_ANSWERS
    ) -> Review | None:
        """Return the review whose approvals let a merge through, with the commit that they are for;
        None where none is needed. Raises `ApprovalsMissing`."""
        required, asks = self.required(target), False
        if resolutions and self.asks_for_answers(target, actor):
            required, asks = max(required, 1), True
        if not required:
            return None
        head = self.store.snapshot(source.strip()).commit_id
        branches = source.strip(), target.strip()
        steps = self._steps(*branches)
        digests = {approval_digest(head, branches[1], resolutions, steps)}
        if not asks:
            digests.add(approval_digest(head, branches[1], NO_ANSWERS, steps))
        nearest: tuple[int, str | None] = (0, None)
        for review in self.records.open():
            if (review.source, review.target) != branches:
                continue
            count = self.count(review, digests, None if asks else head)
            if count >= required:
                return replace(review, source_commit=head)
            nearest = max(nearest, (count, review.id), key=lambda each: (each[0], each[1] or ""))
        approvals, review_id = nearest
        raise ApprovalsMissing(
            Action.BRANCH_MERGE,
            actor,
            *branches,
            approvals=approvals,
            required=required,
            review=review_id,
            of_answers=asks,
        )

    def count(self, review: Review, digests: Collection[str], head: str | None) -> int:
        """Return how many approvals of a review count: those of one of the digests, and those
        without one of the commit `head`."""
        covering = (each for each in review.approvals if each.covers(digests, head))
        actors = {each.actor for each in covering}
        return sum(self._counts(review, actor) for actor in actors)

    def _counts(self, review: Review, actor: str) -> bool:
        if actor == review.author:
            return False
        policy = self.guard.policy
        if policy is None:
            return True
        return policy.decide(actor, Action.REVIEW, review.source, review.target).allowed

    def shown(self, review: Review) -> Review:
        """A review as it stands now: lapsed approvals, and a merge whose end nobody noted."""
        if review.state == OPEN:
            review = self._settled(review)
        head = None
        with suppress(NotFound):
            head = self.store.snapshot(review.source).commit_id
        approvals = tuple(
            replace(each, is_current=each.source_commit == head) for each in review.approvals
        )
        return replace(
            review,
            source_commit=head,
            approvals=approvals,
            required_approvals=self.required(review.target),
            schema_steps=self.schema_steps(review) if review.state == OPEN and head else (),
        )

    def schema_steps(self, review: Review) -> tuple[SchemaStep, ...]:
        """Return how the merge of a review would change the schema of its target; nothing where a
        branch or a commit between the two cannot be read, or may not be."""
        with suppress(Forbidden):
            self.guard.reads(review.source)
            return self._steps(review.source, review.target)
        return ()

    def digest(self, review: Review, head: str, answers: Resolutions) -> str:
        """Return the digest that an approval of a review binds, whoever asks for it."""
        steps = self._steps(review.source, review.target)
        return approval_digest(head, review.target, answers, steps)

    def _steps(self, source: str, target: str) -> tuple[SchemaStep, ...]:
        with suppress(NotFound, Reclaimed):
            return merge_schema_steps(self.store, self.schemas, source, target)
        return ()

    def _settled(self, review: Review) -> Review:
        """An open review, or a merged one if its merge was published before it was noted."""
        commit = None
        with suppress(NotFound):
            commit = self.store.marked(review.target, review.mark)
        if commit is None:
            return review
        return self.note_merged(review, commit.actor, commit.id, commit.created_at)

    def note_merged(
        self, review: Review, actor: str | None, commit_id: str | None, moment: int | None = None
    ) -> Review:
        """Write down that a review is merged. The merge stands, whatever comes of the note."""

        def merged(stored: Review) -> Review:
            if stored.state == MERGED:
                return stored
            return stored.ended(MERGED, actor, commit_id, moment)

        with suppress(OmnigraphError):  # a read-only handle; the next one that writes notes it
            return self.records.change(review.id, merged)
        return merged(review)
