"""Inline commits: the operations that Lance commits by itself, behind one door.

    restore   Lance accepts a restore against any concurrent commit and silently orphans it, so no
              staged form could be safer. Only recovery calls it, under the table's lock.
    compact   Rewriting fragments reserves ids and then rewrites: two versions, both inline. Called
              for a table inside a sidecar and under its lock, for `__manifest` under the branch's
              publish lock. `rewritten` does the work beforehand, anywhere, and moves no head;
              `commit_rewrites` makes it the head.

Invariant: each method is called with the lock held that its paragraph names.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from lance import optimize
from lance.dataset import LanceOperation, Transaction
from lance.optimize import Compaction, CompactionOptions

from omnigraph.storage.lance.datasets import OPERATION_PROPERTY, Datasets, Handle
from omnigraph.storage.lance.index_segments import inherited
from omnigraph.storage.records import OperationId

# The stubs of Lance do not know that these are read from text again.
_Task: Any = optimize.CompactionTask
_Result: Any = optimize.RewriteResult


class InlineResidual:
    """The inline commits of Lance that have no staged form."""

    def __init__(self, datasets: Datasets) -> None:
        self._datasets = datasets

    def restore(self, head: Handle, version: int, operation: OperationId) -> Handle:
        """Make the content of an earlier version the head again."""
        transaction = Transaction(head.version, LanceOperation.Restore(version))
        transaction.transaction_properties = {OPERATION_PROPERTY: operation}
        return self._datasets.commit(head, transaction)

    def compact(self, head: Handle, *, target_rows: int, folder: str | None = None) -> int:
        """Rewrite runs of fragments smaller than `target_rows`; how many tasks that took.

        Fragments that the index of another branch covers stay as they are. With the `folder` of the
        dataset, what was written is flushed before a version names it: inside a sidecar that is
        not needed, since a head that was not confirmed is undone unread.
        `head` must not be shared: Lance moves the handle to the new version.
        """
        options = CompactionOptions(
            target_rows_per_fragment=target_rows, materialize_deletions=False
        )
        with self._datasets.lance_call("compact", head.uri):
            plan: Any = Compaction.plan(head, options)
            fixed = inherited(head)
            tasks = [t for t in plan.tasks if fixed.isdisjoint(f.id for f in t.fragments)]
            results = [task.execute(head) for task in tasks]
            if results and folder is not None:
                self.flush_rewritten(folder, (each.json() for each in results))
            if results:
                Compaction.commit(head, results, options)
        return len(results)

    def flush_rewritten(self, folder: str, rewrites: Iterable[str]) -> None:
        """Return when the files of rewritten fragments are on disk."""
        each = [new for text in rewrites for new in json.loads(text)["new_fragments"]]
        names = [file["path"] for fragment in each for file in fragment["files"]]
        self._datasets.flusher.barrier(f"{folder}/data/{name}" for name in names)

    def rewritten(
        self, base: Handle, fragments: Iterable[int], *, target_rows: int, ordered: bool = False
    ) -> str:
        """Write the rows of some fragments as new files, without their deleted rows.

        The returned text can be committed by any process while those fragments stand as they are.
        Lance plans by itself only fragments that one segment of every index covers; the caller
        decides here.
        With `ordered`, an ordered index will cover the fragments by the time of the commit.
        """
        rewritten = set(fragments)
        options = CompactionOptions(target_rows_per_fragment=target_rows, max_source_fragments=1)
        with self._datasets.lance_call("rewrite", base.uri):
            plan: Any = Compaction.plan(base, options)
            settings = json.loads(plan.json())["options"]
            # An ordered index follows its rows only when their addresses were written down.
            settings["has_eager_remappable_index"] |= ordered
            files = [
                fragment.metadata.to_json()
                for fragment in base.get_fragments()
                if fragment.fragment_id in rewritten
            ]
            task = _Task.from_json(
                json.dumps(
                    {
                        "task": {"fragments": files},
                        "read_version": int(base.version),
                        "options": settings,
                    }
                )
            )
            return str(task.execute(base).json())

    def commit_rewrites(self, head: Handle, rewrites: Sequence[str]) -> Handle:
        """Make rewritten fragments the head. The caller vouches that `head` has the fragments they
        were made of as they were then."""
        with self._datasets.lance_call("commit_rewrites", head.uri):
            results = [_Result.from_json(_based_on(head, text)) for text in rewrites]
            Compaction.commit(head, results, CompactionOptions())
        return head


def _based_on(head: Handle, rewrite: str) -> str:
    """A rewrite as if it had been made of `head`. Lance would take the versions between for a
    conflict, although they left these fragments alone."""
    return json.dumps({**json.loads(rewrite), "read_version": int(head.version)})


def rewrite_counts(rewrites: Iterable[str]) -> tuple[int, int]:
    """How many fragments rewrites take away, and how many they bring."""
    metrics = [json.loads(text)["metrics"] for text in rewrites]
    return (
        sum(each["fragments_removed"] for each in metrics),
        sum(each["fragments_added"] for each in metrics),
    )
