"""`Graph.revert` and `Graph.restore`: past changes undone as new commits.

Invariant: these methods find the commits that are named and ask the merge room, nothing else.
"""

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from omnigraph.arguments import checked
from omnigraph.catalog.model import Catalog
from omnigraph.deferred import deferred
from omnigraph.exec.points import Points
from omnigraph.exec.progress import Progress
from omnigraph.exec.schemas import Schemas, under_schema
from omnigraph.graph.policy_guard import PolicyGuard
from omnigraph.storage.names import MAIN
from omnigraph.storage.store import Store
from omnigraph.types import MergeUnit

if TYPE_CHECKING:
    from omnigraph.exec.merge.decide import Answers
    from omnigraph.exec.merge.resolve import Resolve
    from omnigraph.exec.merge.restore import restore_message, run_restore
    from omnigraph.exec.merge.revert import CommitRange, run_revert
    from omnigraph.exec.merge.undo import UndoOutcome, UndoRequest, not_reclaimed
else:
    Answers = deferred("omnigraph.exec.merge.decide", "Answers")
    Resolve = deferred("omnigraph.exec.merge.resolve", "Resolve")
    restore_message = deferred("omnigraph.exec.merge.restore", "restore_message")
    run_restore = deferred("omnigraph.exec.merge.restore", "run_restore")
    CommitRange = deferred("omnigraph.exec.merge.revert", "CommitRange")
    run_revert = deferred("omnigraph.exec.merge.revert", "run_revert")
    UndoOutcome = deferred("omnigraph.exec.merge.undo", "UndoOutcome")
    UndoRequest = deferred("omnigraph.exec.merge.undo", "UndoRequest")
    not_reclaimed = deferred("omnigraph.exec.merge.undo", "not_reclaimed")


class UndoVerbs:
    """The verbs of a graph that undo: `revert` and `restore`."""

    _store: Store
    _schemas: Schemas
    _points: Points
    _guard: PolicyGuard

    @checked
    def revert(
        self,
        commit: str,
        to: str | None = None,
        *,
        onto: str = MAIN,
        by: MergeUnit = "entity",
        resolve: Resolve = None,
        dry_run: bool = False,
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> UndoOutcome:
        """Undo a commit as one new commit of a branch, or raise `MergeConflicts` where entities
        were changed again since. With `to`, undo the commits after the first one up to that one.
        Each is named by any point in time.

        Conflicts are answered as in a merge: `ours` is the branch, `theirs` the state before.

        >>> graph.revert("main", dry_run=True).kind
        'reverted'
        """
        actor = self._guard.changes(onto, actor)
        commits = CommitRange(self._points.resolve(commit, kind="commit"))
        self._guard.copies(commits.last.branch, onto)
        if to is not None:
            commits = CommitRange(self._points.resolve(to, kind="commit"), since=commits.last)
            self._guard.copies(commits.last.branch, onto)
        stated = commits.message() if message is None else message

        def attempt(catalog: Catalog) -> UndoOutcome:
            answers = Answers.checked(catalog.types, by, resolve)
            asked = UndoRequest(onto, answers, dry_run, actor, stated, metadata, progress)
            return run_revert(self._store, self._schemas, catalog, commits, asked)

        return under_schema(self._schemas, attempt, onto)

    @checked
    def restore(
        self,
        point: str,
        types: Collection[str] | None = None,
        *,
        branch: str = MAIN,
        dry_run: bool = False,
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> UndoOutcome:
        """Make a branch's content that of a point, or that of some types, as one new commit.

        >>> graph.restore("main~1", dry_run=True).kind
        'restored'
        """
        actor = self._guard.changes(branch, actor)
        with not_reclaimed(point):
            past = self._points.snapshot(point)
        self._guard.copies(past.branch, branch)
        stated = restore_message(past, types) if message is None else message
        asked = UndoRequest(branch, Answers(), dry_run, actor, stated, metadata, progress)
        return under_schema(
            self._schemas,
            lambda catalog: run_restore(self._store, self._schemas, catalog, past, types, asked),
            branch,
        )
