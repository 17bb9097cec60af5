"""What Lance commits by itself: the one door to its inline commits.

    restore   Lance accepts a restore against any concurrent commit and silently orphans it, so no
              staged form could be safer. Only recovery calls it, under the table's lock.
    compact   Rewriting fragments reserves ids and then rewrites: two versions, both inline. Only
              folding calls it: for a table inside a sidecar and under its lock, for `__manifest`
              under the branch's publish lock.

Invariant: each method is called with the lock held that its paragraph names.
"""

from typing import Any

from lance.dataset import LanceOperation, Transaction
from lance.optimize import Compaction, CompactionOptions

from omnigraph.storage.datasets import OPERATION_PROPERTY, Datasets, Handle
from omnigraph.storage.indexing import inherited
from omnigraph.storage.records import OperationId


class InlineResidual:
    """The inline commits of Lance that have no staged form."""

    def __init__(self, datasets: Datasets) -> None:
        self._datasets = datasets

    def restore(self, head: Handle, version: int, operation: OperationId) -> Handle:
        """Make the content of an earlier version the head again."""
        transaction = Transaction(head.version, LanceOperation.Restore(version))
        transaction.transaction_properties = {OPERATION_PROPERTY: operation}
        return self._datasets.commit(head, transaction)

    def compact(self, head: Handle, *, target_rows: int) -> int:
        """Rewrite runs of fragments smaller than `target_rows`; how many tasks that took.

        What the index of another branch covers stays as it is.
        `head` must be a handle nobody else uses: Lance moves it to the new version.
        """
        options = CompactionOptions(
            target_rows_per_fragment=target_rows, materialize_deletions=False
        )
        with self._datasets.lance_call("compact", head.uri):
            plan: Any = Compaction.plan(head, options)
            fixed = inherited(head)
            tasks = [t for t in plan.tasks if fixed.isdisjoint(f.id for f in t.fragments)]
            results = [task.execute(head) for task in tasks]
            if results:
                Compaction.commit(head, results, options)
        return len(results)
