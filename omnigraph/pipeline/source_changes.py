"""Change feed as a stream of Spark: `spark.readStream.format("omnigraph")`.

    baseline ─▶ cursor ─▶ cursor ─▶ …
       all rows   commits   commits

Invariant: an offset is a cursor of the feed, which any process can go on from; the one before it
may be a baseline, whose rows are those of the commit that the batch ends at. A batch is the changes
of whole commits, and given again after a crash it is the same. Data that cleanup took away, and a
schema under which old rows no longer fit, are errors that name the commit, never a gap in the rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from omnigraph.catalog.additive import reshaping_steps
from omnigraph.catalog.model import Type
from omnigraph.costs import COSTS
from omnigraph.errors import BadRequest, NotFound
from omnigraph.exec.changes.diff import Filters, commit_changes, owners, readable
from omnigraph.exec.changes.feed import AFTER, BEGINNING, Feed
from omnigraph.exec.load.upsert import grouped
from omnigraph.exec.schemas import Schemas
from omnigraph.pipeline.source_options import SourceOptions
from omnigraph.pipeline.streamed_rows import Cause, baseline_rows, json_rows, type_in, typed_rows
from omnigraph.storage.records import Commit, CommitId, Snapshot
from omnigraph.storage.store import Store
from omnigraph.types import TypeId

try:
    from pyspark.sql.streaming.datasource import (
        ReadLimit,
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # PySpark 4.1 has the rest of the format, and no stream of changes
    ReadLimit = ReadMaxFiles = SupportsTriggerAvailableNow = object  # type: ignore[assignment,misc]

_CURSOR, _BASELINE = "cursor", "baseline"
Offset = dict[str, str]


@dataclass
class CommitPartition(InputPartition):
    """One commit of a batch."""

    commit: str
    parent: str | None
    number: int


@dataclass
class BaselinePartition(InputPartition):
    """Some fragments of one table at the commit of a baseline."""

    commit: str
    number: int
    type_id: TypeId
    fragments: tuple[int, ...]
    position: int  # of their first row


def typed_by(options: SourceOptions) -> Type | None:
    """The type whose changes are streamed, as the branch has it now; None for all types. One that
    is gone is looked for in the schemas before, so that the stream comes as far as it can."""
    if options.type is None and options.edge is None:
        return None
    store, schemas = options.open(read_only=True)
    head = store.snapshot(options.branch)
    try:
        return options.owner(schemas.of(head).catalog)
    except NotFound as missing:
        feed = Feed(store, schemas, options.branch, Filters())
        seen = {head.schema}
        for commit in reversed(feed.after(feed.start_at(BEGINNING).id)):
            with readable(commit.id):
                snapshot = store.history.snapshot_at(commit)
            if snapshot.schema not in seen:
                seen.add(snapshot.schema)
                catalog = schemas.of(snapshot).catalog
                known = catalog.nodes if options.type is not None else catalog.edges
                if missing.name in known:
                    return known[missing.name]
        raise


class ChangesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the changes of one branch, a task for each commit."""

    def __init__(self, options: SourceOptions, owner: Type | None = None) -> None:
        unfit = {
            "snapshot": options.snapshot,
            "where": options.where,
            "columns": options.columns,
        }
        for name, value in unfit.items():
            if value is not None:
                raise BadRequest(
                    f"a stream of changes has no option {name}",
                    "select the rows and columns of the DataFrame that it gives",
                )
        self._options = options
        self._owner = owner
        self._last: str | None = None  # the commit at which a query for what is there now ends
        self._feed()  # the branch is there, or this says so at once

    def _feed(self) -> Feed:
        return self._opened()[2]

    def _opened(self) -> tuple[Store, Schemas, Feed]:
        store, schemas = self._options.open(read_only=True)
        return store, schemas, Feed(store, schemas, self._options.branch, Filters())

    # Offsets

    def initialOffset(self) -> Offset:
        """The baseline, or behind `startingCommit`, or the beginning of the branch."""
        if self._options.starts_with_baseline:
            return {_BASELINE: self._options.branch}
        feed = self._feed()
        point = self._options.starting_commit
        beyond = feed.start_at(BEGINNING if point is None else f"{AFTER}{point}")
        return {_CURSOR: feed.cursor_at(beyond.id)}

    def getDefaultReadLimit(self) -> ReadLimit:
        """So many commits, which Spark's nearest word for is files."""
        if self._options.commits_max is None:
            return super().getDefaultReadLimit()
        return ReadMaxFiles(self._options.commits_max)

    def prepareForTriggerAvailableNow(self) -> None:
        """End at the commit that is the last one now."""
        feed = self._feed()
        self._last = feed.start_at("now").id

    def latestOffset(self, start: Offset | None = None, limit: ReadLimit | None = None) -> Offset:
        """The last commit that one batch may have: the head, or one before a change of the schema
        that rows do not survive."""
        if start is None:
            raise BadRequest("this PySpark cannot stream changes", "use pyspark 4.2 or later")
        store, schemas, feed = self._opened()
        last = CommitId(self._last) if self._last is not None else feed.start_at("now").id
        if _BASELINE in start:
            return {_CURSOR: feed.cursor_at(last)}
        first = feed.commit_at(start[_CURSOR])
        ahead = feed.after(first.id)[: max(0, feed.number(last) - feed.number(first.id))]
        commits_max = self._options.commits_max if limit is None else _commits(limit)
        taken = self._fitting(store, schemas, first, ahead[:commits_max])
        return {_CURSOR: feed.cursor_at(taken[-1].id)} if taken else start

    def _fitting(
        self, store: Store, schemas: Schemas, first: Commit, ahead: Sequence[Commit]
    ) -> Sequence[Commit]:
        """The commits before the first that reshapes rows; an error when that is the next one."""
        if not ahead:
            return ahead
        read = partial(_snapshot, store)
        with readable(ahead[0].id):
            before = read(first)
        if before.schema == read(ahead[-1]).schema:
            return ahead  # one that went there and back again is met by its task
        for count, commit in enumerate(ahead):
            after = read(commit)
            reason = self._reshaped(schemas, before, after)
            if reason is not None and count:
                return ahead[:count]
            if reason is not None:
                raise _stopped(commit.id, reason)
            before = after
        return ahead

    def _reshaped(self, schemas: Schemas, before: Snapshot, after: Snapshot) -> str | None:
        """What a commit did to the schema that old rows do not survive."""
        if before.schema == after.schema:
            return None
        old, new = schemas.of(before).catalog, schemas.of(after).catalog
        if self._owner is None:
            steps = reshaping_steps(old, new)
        else:
            was = type_in(old, self._owner)
            steps = () if was is None else reshaping_steps(old, new, was.name)
        return str(steps[0]) if steps else None

    # Rows

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The commits of a batch, without those of actors that are left out; or the tables of a
        baseline."""
        store, schemas, feed = self._opened()
        last = feed.commit_at(end[_CURSOR])
        if _BASELINE in start:
            # Its commit is the one that was noted as the end: a batch that comes again is the same.
            return self._baseline(store, schemas, last, feed.number(last.id))
        first = feed.commit_at(start[_CURSOR])
        begun, ended = feed.number(first.id), feed.number(last.id)
        commits = islice(feed.after(first.id), max(0, ended - begun))
        return [
            CommitPartition(commit.id, commit.parent, begun + count)
            for count, commit in enumerate(commits, start=1)
            if commit.actor is None or commit.actor not in self._options.skipped_actors
        ]

    def _baseline(
        self, store: Store, schemas: Schemas, commit: Commit, number: int
    ) -> list[InputPartition]:
        snapshot = _snapshot(store, commit)
        position = 0
        made: list[InputPartition] = []
        for owner in owners(schemas.of(snapshot).catalog):
            pin = snapshot.tables.get(owner.table)
            if pin is None or (self._owner is not None and owner.id != self._owner.id):
                continue
            with readable(commit.id), store.history.lost.reading(snapshot):
                fragments = store.tables.reader(pin).fragments()
            for part in grouped(fragments, COSTS.spark_change_rows):
                if part:
                    made.append(BaselinePartition(commit.id, number, owner.id, part, position))
                position += sum(fragments[each] for each in part)
        return made

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The changes of one commit, or a part of a baseline, as Arrow batches."""
        store, schemas = self._options.open(read_only=True)
        commits = store.history.dag(self._options.branch)
        if isinstance(partition, BaselinePartition):
            commit = commits[CommitId(partition.commit)]
            yield from self._read_baseline(store, schemas, commit, partition)
            return
        assert isinstance(partition, CommitPartition)
        commit = commits[CommitId(partition.commit)]
        parent = commits[CommitId(partition.parent or "")]
        with readable(commit.id):
            before = _snapshot(store, parent)
        reason = self._reshaped(schemas, before, _snapshot(store, commit))
        if reason is not None:
            raise _stopped(commit.id, reason)
        cause = Cause(commit.id, partition.number, commit.actor)
        only = Filters() if self._owner is None else Filters(types=(self._owner.id,))
        changes = commit_changes(store, schemas, commit, only, parent=parent)
        if self._owner is None:
            yield from json_rows(cause, changes)
        else:
            yield from typed_rows(cause, changes, self._owner)

    def _read_baseline(
        self, store: Store, schemas: Schemas, commit: Commit, part: BaselinePartition
    ) -> Iterator[pa.RecordBatch]:
        snapshot = _snapshot(store, commit)
        (owner,) = (o for o in owners(schemas.of(snapshot).catalog) if o.id == part.type_id)
        with readable(commit.id), store.history.lost.reading(snapshot):
            yield from baseline_rows(
                Cause(commit.id, part.number, commit.actor),
                self._owner or owner,
                store.tables.reader(snapshot.tables[owner.table]),
                part.fragments,
                part.position,
                is_typed=self._owner is not None,
            )


def _snapshot(store: Store, commit: Commit) -> Snapshot:
    with readable(commit.id):
        return store.history.snapshot_at(commit)


def _commits(limit: ReadLimit) -> int | None:
    """The commits that Spark lets one batch have; None for all there are."""
    return limit.max_files if isinstance(limit, ReadMaxFiles) else None


def _stopped(commit_id: str, reason: str) -> BadRequest:
    return BadRequest(
        f"the stream stops at commit '{commit_id}', which changed the schema: {reason}",
        f"start a new query with startingCommit={commit_id} and a checkpoint of its own",
    )
