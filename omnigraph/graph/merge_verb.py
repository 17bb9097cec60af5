"""`graph.branches.merge`: the one door of every merge, with its rights, approvals and checks.

Invariant: asked in this order: may the actor merge, has the merge the approvals that the policy
demands of its source and of its answers to conflicts, does its result pass the checks. The merge
that ends a transaction is asked about as a write of the block, and is neither reviewed nor checked.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from omnigraph.arguments import checked
from omnigraph.deferred import deferred
from omnigraph.errors import Forbidden, PreconditionFailed
from omnigraph.exec.progress import Progress
from omnigraph.exec.schemas import Schemas
from omnigraph.graph.late_reading import LateReading
from omnigraph.graph.merge_rules import MergeRules
from omnigraph.graph.policy_guard import PolicyGuard
from omnigraph.graph.review_answers import previewed_answers
from omnigraph.graph.review_gate import ReviewGate
from omnigraph.graph.review_records import Review, ReviewRecords
from omnigraph.graph.source_text import query_text
from omnigraph.storage.names import MAIN, require_text
from omnigraph.storage.protocol.intent import noted
from omnigraph.storage.store import Store
from omnigraph.types import MergeUnit

if TYPE_CHECKING:
    from omnigraph.exec.merge.checked_merge import CheckedMerges, checks_of
    from omnigraph.exec.merge.resolve import Resolve
    from omnigraph.exec.merge.run import MergeOutcome, MergeRequest, run_merge
    from omnigraph.exec.topology.build import topology_after_commit
else:
    CheckedMerges = deferred("omnigraph.exec.merge.checked_merge", "CheckedMerges")
    checks_of = deferred("omnigraph.exec.merge.checked_merge", "checks_of")
    Resolve = deferred("omnigraph.exec.merge.resolve", "Resolve")
    MergeOutcome = deferred("omnigraph.exec.merge.run", "MergeOutcome")
    MergeRequest = deferred("omnigraph.exec.merge.run", "MergeRequest")
    run_merge = deferred("omnigraph.exec.merge.run", "run_merge")
    topology_after_commit = deferred("omnigraph.exec.topology.build", "topology_after_commit")

CheckTexts = Sequence[str | os.PathLike[str]]
"""Texts of reads, or files of them."""


class MergeVerb:
    """Merges of branches."""

    _store: Store
    _schemas: Schemas
    _guard: PolicyGuard
    _late_reading: LateReading
    _rules: MergeRules
    _reviews: ReviewRecords

    @checked
    def merge(
        self,
        source: str,
        into: str = MAIN,
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
        once: str | None = None,
        checks: Sequence[str | os.PathLike[str]] = (),
    ) -> MergeOutcome:
        """Merge a branch into another as one commit, or raise `MergeConflicts`. `progress` gets
        the rows compared so far. `dry_run` writes nothing: its outcome has the changes, the
        conflicts and the edges that answers keep. `if_source` and `if_target` name the heads that
        the merge was decided on; one that moved is `PreconditionFailed`. `once` names this merge:
        if a commit of the target has that name, its outcome is returned and nothing is merged.
        `checks` are texts or files of reads that must give no rows on the merged graph, else it is
        `ChecksFailed`, and nothing is published; those that are declared are run too.

        >>> branch = graph.branch(graph.branches.create("review"))
        >>> done = branch.load([{"name": "Fay"}], "merge", type="Person")
        >>> graph.branches.merge("review", delete_source=True).kind
        'fast_forward'
        """
        actor = self._guard.merges(source, into, actor)
        if once is not None:
            require_text("the name of a merge `once`", once)
        denied = self._deleting_denied(source) if delete_source else None
        review = None
        if not dry_run and self._is_gated(into, actor, once, answers=resolve is not None):
            answers = previewed_answers(self._store, self._schemas, source, into, by, resolve)
            resolve = answers or None
            review = self._gate.require(source, into, actor, answers)
        if review is not None:
            if_source = _bound(review, if_source)
        asked = MergeRequest(
            source,
            into,
            noted(actor, message, metadata),
            delete_source and denied is None,
            by,
            resolve,
            progress,
            dry_run,
            if_source,
            if_target,
            once,
        )
        done = self._run(asked, checks)
        if done.commit is not None and not done.repeated and not dry_run:
            catalog = self._schemas.known(into.strip()).catalog
            topology_after_commit(self._store, catalog, done.commit)
        if review is not None and not done.repeated:
            commit_id = None if done.commit is None else done.commit.id
            self._gate.note_merged(review, actor, commit_id)
        if denied is None or dry_run:
            return done
        return replace(done, branch_deleted=False, branch_delete_error=str(denied))

    @property
    def _gate(self) -> ReviewGate:
        return ReviewGate(self._store, self._schemas, self._guard, self._reviews)

    def _is_gated(self, into: str, actor: str | None, once: str | None, *, answers: bool) -> bool:
        """Return whether a merge may need a review; a repeated merge needs none."""
        if self._guard.is_exempt:
            return False
        gate = self._gate
        if not gate.required(into) and not (answers and gate.asks_for_answers(into, actor)):
            return False
        return once is None or self._store.marked(into.strip(), once) is None

    def _run(self, asked: MergeRequest, checks: CheckTexts) -> MergeOutcome:
        """Merge under the checks of the call and those that are declared."""
        is_exempt = self._guard.is_exempt
        declared = () if is_exempt else self._rules.checks(asked.into, self._guard.policy)
        if not checks and not declared:
            return run_merge(self._store, self._schemas, asked)
        given = [check for text in checks for check in checks_of(query_text(text))]
        merges = CheckedMerges(self._store, self._schemas, self._late_reading())
        return merges.run(asked, tuple(dict.fromkeys((*declared, *given))))

    def _deleting_denied(self, source: str) -> Forbidden | None:
        """Why the source of a merge may not be deleted; the merge stands without it."""
        try:
            self._guard.deletes(source)
        except Forbidden as denied:
            return denied
        return None


def _bound(review: Review, if_source: str | None) -> str | None:
    """The commit of the source that a merge is bound to: the one that is approved."""
    head = review.source_commit
    if if_source is not None and if_source != head:
        raise PreconditionFailed(review.source, if_source, head)
    return head
