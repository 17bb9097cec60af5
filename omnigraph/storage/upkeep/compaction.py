"""Fewer, larger fragments and whole indexes for one table: planned, done anywhere, staged.

    plan ─▶ rewrites and segments, each a task for any process ─▶ stage on the newest version

Invariant: no row changes, and a task names fragments that a version of the table has for ever. What
was done against one version is staged on a later one only when the later has all that was used as
it was: the same fragments with the same deletions, the same columns, the same indexes. So tasks run
without a lock, and rows that others append meanwhile cost no repetition.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from lance.dataset import Index

from omnigraph.costs import COSTS
from omnigraph.errors import StorageFailed
from omnigraph.light_dataclass import dataclass
from omnigraph.storage import failpoints
from omnigraph.storage.lance import index_segments
from omnigraph.storage.lance.compaction_groups import merge_groups
from omnigraph.storage.lance.datasets import Datasets, Handle
from omnigraph.storage.lance.index_segments import IndexPlan, IndexRequest
from omnigraph.storage.lance.inline_commits import InlineResidual, rewrite_counts
from omnigraph.storage.lance.staging import StagedWrite
from omnigraph.storage.lance.tables import Tables
from omnigraph.storage.objects import Objects
from omnigraph.storage.protocol.commit import Step
from omnigraph.storage.records import TablePin, WriteBase


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Fragments that become one."""

    base: WriteBase
    fragments: tuple[int, ...]
    ordered: bool  # whether an ordered index will cover them
    rows: int = 0


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """A part of a segment of an index; `segment` counts those of the plan."""

    base: WriteBase
    segment: int
    request: IndexRequest
    fragments: tuple[int, ...]


Task = Rewrite | SegmentPart
Outcome = str | Index
"""What a task gives back. It pickles, and holds no rows."""

RunTasks = Callable[[Sequence[Task]], Sequence[Outcome]]


@dataclass(frozen=True, slots=True)
class TablePlan:
    """What a table needs."""

    base: WriteBase
    fragments: int
    rewrites: tuple[Rewrite, ...]
    indexes: IndexPlan

    @property
    def is_empty(self) -> bool:
        return not self.rewrites and not self.indexes.segments

    @property
    def moves_many(self) -> bool:
        """Whether more than a tenth of the rows get other addresses."""
        return 10 * sum(rewrite.rows for rewrite in self.rewrites) > self.base.row_count

    def tasks(self, *, parts: int = 1) -> tuple[Task, ...]:
        """The work, in pieces. A segment that can be merged is cut into so many parts."""
        return (*self.rewrites, *self._segment_parts(parts))

    def _segment_parts(self, parts: int) -> Iterable[SegmentPart]:
        for number, segment in enumerate(self.indexes.segments):
            # The partitions of a vector index are those of all its vectors together.
            cuts = 1 if segment.request.index_type.startswith("IVF") else parts
            for cut in range(min(cuts, len(segment.fragments))):
                yield SegmentPart(self.base, number, segment.request, segment.fragments[cut::cuts])


@dataclass(frozen=True, slots=True)
class TableDone:
    """A plan, and what came of its tasks."""

    plan: TablePlan
    rewrites: tuple[str, ...]
    segments: tuple[Index, ...]

    @property
    def counts(self) -> tuple[int, int]:
        """How many fragments go, and how many come."""
        return rewrite_counts(self.rewrites)


class Compactor:
    """Plans, does and stages the upkeep of tables."""

    def __init__(self, datasets: Datasets, tables: Tables, objects: Objects) -> None:
        self._datasets = datasets
        self._objects = objects
        self._tables = tables
        self._residual = InlineResidual(datasets)

    def plan(
        self, pin: WriteBase, requests: Sequence[IndexRequest], *, compacts: bool = True
    ) -> TablePlan:
        """What makes fragments few and brings these indexes up to date; with `compacts` off, the
        indexes alone."""
        handle = self._datasets.handle(pin)
        with self._datasets.lance_call("plan_upkeep", pin.table_key):
            apart = _coverage(handle, requests)
            fixed = index_segments.inherited(handle)
            free = [each for each in handle.get_fragments() if each.fragment_id not in fixed]
            groups = merge_groups(free, apart) if compacts else ()
            ordered = any(request.index_type == "BTREE" for request in requests)
            return TablePlan(
                pin,
                len(handle.get_fragments()),
                tuple(Rewrite(pin, group, ordered, _rows(handle, group)) for group in groups),
                index_segments.planned(handle, requests, groups),
            )

    def run(self, task: Task) -> Outcome:
        """Do one task."""
        failpoints.hit("upkeep.task")
        handle = self._datasets.own(task.base)
        if isinstance(task, Rewrite):
            return self._residual.rewritten(
                handle, task.fragments, target_rows=COSTS.compact_rows_max, ordered=task.ordered
            )
        with self._datasets.lance_call("build_segment", task.base.table_key):
            return index_segments.build_part(handle, task.request, task.fragments)

    def gather(
        self, plan: TablePlan, tasks: Sequence[Task], outcomes: Sequence[Outcome]
    ) -> TableDone:
        """Put together what tasks gave back."""
        handle = self._datasets.own(plan.base)
        parts: dict[int, list[Index]] = {}
        for task, outcome in zip(tasks, outcomes, strict=True):
            if isinstance(task, SegmentPart):
                assert isinstance(outcome, Index)
                parts.setdefault(task.segment, []).append(outcome)
        with self._datasets.lance_call("finish_segments", plan.base.table_key):
            segments = [
                index_segments.finished(handle, plan.indexes.segments[number].request, built)
                for number, built in sorted(parts.items())
            ]
        rewrites = tuple(text for text in outcomes if isinstance(text, str))
        return TableDone(plan, rewrites, tuple(segments))

    def holds(self, done: TableDone, now: TablePin) -> bool:
        """Whether a version still has all that was used."""
        base = done.plan.base
        if now == base:
            return True
        if now.home != base.home:
            return False
        before, after = self._datasets.handle(base), self._datasets.handle(now)
        if before.schema != after.schema or _segments(before) != _segments(after):
            return False
        used = {number for rewrite in done.plan.rewrites for number in rewrite.fragments}
        used |= {number for each in done.plan.indexes.segments for number in each.fragments}
        return _metadata(before, used) == _metadata(after, used)

    def stage(self, done: TableDone, now: WriteBase) -> tuple[StagedWrite, tuple[Step, ...]]:
        """What was done, on a version that `holds` it: the indexes, and then the fragments."""
        handle = self._datasets.handle(now)
        if done.segments:
            with self._datasets.lance_call("stage_create_indexes", now.table_key):
                transaction = index_segments.staged(handle, done.plan.indexes, done.segments)
            first = StagedWrite(now, handle, transaction)
        else:
            first = self._tables.stage_nothing(now)
        if not done.rewrites:
            return first, ()
        return first, (lambda pin: self._commit_rewrites(done, pin),)

    def drop(self, done: TableDone) -> None:
        """Delete the segments of indexes that were built and will not be committed. A failure costs
        room until a later cleanup, no more."""
        folder = self._datasets.folder(done.plan.base)
        named = _segments(self._datasets.handle(done.plan.base)) if done.segments else set()
        with suppress(StorageFailed):
            for uuid in {str(segment.uuid) for segment in done.segments} - named:
                self._objects.delete_prefix(f"{folder}/_indices/{uuid}")

    def _commit_rewrites(self, done: TableDone, pin: WriteBase) -> WriteBase:
        head = self._datasets.open(pin.location, pin.branch, pin.version)
        head = self._residual.commit_rewrites(head, done.rewrites)
        return self._tables.pinned(pin, head)


def _coverage(handle: Handle, requests: Sequence[IndexRequest]) -> dict[int, frozenset[str]]:
    """By fragment: the segments over it of indexes that nobody asks for, and the indexes that leave
    it out. No commit may mix them."""
    requested = {request.name for request in requests}
    left_out = index_segments.left_out(handle, requests)
    segments = {number: set(names) for number, names in left_out.items()}
    for index in handle.describe_indices():
        if index.name not in requested:
            for segment in index.segments:
                for number in segment.fragment_ids:
                    segments.setdefault(number, set()).add(str(segment.uuid))
    return {number: frozenset(uuids) for number, uuids in segments.items()}


def _rows(handle: Handle, fragments: Sequence[int]) -> int:
    own = (each for each in handle.get_fragments() if each.fragment_id in fragments)
    return sum(int(each.metadata.physical_rows) for each in own)


def _segments(handle: Handle) -> set[str]:
    return {str(segment.uuid) for index in handle.describe_indices() for segment in index.segments}


def _metadata(handle: Handle, fragment_ids: set[int]) -> dict[int, Any]:
    """By fragment: its files, its deletions and its columns."""
    return {
        each.fragment_id: each.metadata.to_json()
        for each in handle.get_fragments()
        if each.fragment_id in fragment_ids
    }
