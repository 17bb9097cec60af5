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
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import orjson
from lance import optimize
from lance.dataset import LanceOperation, Transaction
from lance.optimize import Compaction, CompactionOptions

from omnigraph.costs import COSTS
from omnigraph.storage.lance.datasets import OPERATION_PROPERTY, Datasets, Handle
from omnigraph.storage.lance.index_segments import inherited
from omnigraph.storage.lance.row_versions import (
    Joins,
    has_old_runs,
    has_recent_runs,
    joining,
)
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

    def compact(
        self,
        head: Handle,
        *,
        target_rows: int,
        folder: str | None = None,
        joins: Joins | None = None,
    ) -> int:
        """Rewrite runs of fragments smaller than `target_rows`; how many tasks that took. `joins`
        joins the row versions of old rows, by default as in a table.

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
            planned = [json.loads(task.json()) for task in plan.tasks]
            tasks = [each for each in planned if fixed.isdisjoint(_numbers(each))]
            if target_rows > COSTS.joined_runs_rows_max:
                tasks = [_of_old_rows(each, int(head.version)) for each in tasks]
            if tasks:
                tasks = [*tasks, *_with_old_runs(head, tasks, fixed)]
            rewrites = [str(_Task.from_json(json.dumps(t)).execute(head).json()) for t in tasks]
            if rewrites and folder is not None:
                self.flush_rewritten(folder, rewrites)
            if rewrites:
                Compaction.commit(head, _results(head, rewrites, joins), options)
        return len(rewrites)

    def flush_rewritten(self, folder: str, rewrites: Iterable[str]) -> None:
        """Return when the files of rewritten fragments are on disk."""
        each = [new for text in rewrites for new in json.loads(text)["new_fragments"]]
        names = [file["path"] for fragment in each for file in fragment["files"]]
        self._datasets.flusher.barrier(staged=[f"{folder}/data/{name}" for name in names])

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

    def commit_rewrites(
        self, head: Handle, rewrites: Sequence[str], joins: Joins | None = None
    ) -> Handle:
        """Make rewritten fragments the head. The caller vouches that `head` has the fragments they
        were made of as they were then."""
        with self._datasets.lance_call("commit_rewrites", head.uri):
            Compaction.commit(head, _results(head, rewrites, joins), CompactionOptions())
        return head


def _numbers(task: dict[str, Any]) -> set[int]:
    """The fragments of a task."""
    return {int(each["id"]) for each in task["task"]["fragments"]}


def _of_old_rows(task: dict[str, Any], version: int) -> dict[str, Any]:
    """A task without the last fragments whose row versions could not be joined yet: what is large
    is rarely rewritten, and would keep them. If that leaves less than half, the whole task."""
    fragments = task["task"]["fragments"]
    kept = len(fragments)
    while kept and has_recent_runs(fragments[kept - 1], version):
        kept -= 1
    rows = [int(each["physical_rows"]) for each in fragments]
    return (
        {**task, "task": {"fragments": fragments[:kept]}}
        if 2 * sum(rows[:kept]) > sum(rows)
        else task
    )


def _with_old_runs(
    head: Handle, tasks: list[dict[str, Any]], fixed: Collection[int]
) -> Iterator[dict[str, Any]]:
    """Tasks that rewrite other small fragments by themselves, whose row versions are worth
    joining."""
    taken = set(fixed).union(*map(_numbers, tasks))
    for fragment in head.get_fragments():
        if (
            fragment.fragment_id not in taken
            and fragment.physical_rows <= COSTS.joined_runs_rows_max
        ):
            facts = fragment.metadata.to_json()
            if has_old_runs(facts, int(head.version)):
                yield {**tasks[0], "task": {"fragments": [facts]}}


def _results(head: Handle, rewrites: Iterable[str], joins: Joins | None) -> list[Any]:
    """Rewrites as if they had been made of `head`, with the row versions of old rows joined. Lance
    would take the versions between for a conflict, although they left these fragments alone."""
    join = joins or joining(head)
    results = []
    for text in rewrites:
        rewrite = {**orjson.loads(text), "read_version": int(head.version)}
        join(rewrite["new_fragments"], rewrite["original_fragments"])
        results.append(_Result.from_json(orjson.dumps(rewrite).decode()))
    return results


def rewrite_counts(rewrites: Iterable[str]) -> tuple[int, int]:
    """How many fragments rewrites take away, and how many they bring."""
    metrics = [json.loads(text)["metrics"] for text in rewrites]
    return (
        sum(each["fragments_removed"] for each in metrics),
        sum(each["fragments_added"] for each in metrics),
    )
