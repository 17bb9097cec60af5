"""Change feed as a stream of Spark: `spark.readStream.format("omnigraph")` without a type.

Invariant: an offset is a cursor of the feed, which any process can go on from. A batch is the
changes of whole commits, in order by `number` and `position`; given again after a crash it is the
same. Data that cleanup took away is an error that names the commit, never a gap in the rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import orjson
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from omnigraph.errors import BadRequest
from omnigraph.exec.changes.diff import Change, Filters, commit_changes
from omnigraph.exec.changes.feed import AFTER, BEGINNING, Feed
from omnigraph.pipeline.source_options import SourceOptions
from omnigraph.storage.records import Commit, CommitId

CHANGES = pa.schema(
    [
        pa.field("commit", pa.string(), nullable=False),
        pa.field("number", pa.int64(), nullable=False),  # of the commit on its branch
        pa.field("position", pa.int64(), nullable=False),  # within the commit
        pa.field("actor", pa.string()),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("type", pa.string(), nullable=False),
        pa.field("id", pa.string(), nullable=False),
        pa.field("op", pa.string(), nullable=False),
        pa.field("before", pa.string()),  # images as JSON, as the change feed writes them
        pa.field("after", pa.string()),
    ]
)

_BATCH_ROWS = 4_096
_CURSOR = "cursor"


@dataclass
class CommitPartition(InputPartition):
    """One commit of a batch."""

    commit: str
    parent: str | None
    number: int


class ChangesReader(DataSourceStreamReader):
    """Reads the changes of one branch, a task for each commit."""

    def __init__(self, options: SourceOptions) -> None:
        unfit = {
            "snapshot": options.snapshot,
            "where": options.where,
            "columns": options.columns,
            "type or edge": options.type or options.edge,
        }
        for name, value in unfit.items():
            if value is not None:
                raise BadRequest(
                    f"a stream of changes has no option {name}",
                    "select the rows and columns of the DataFrame that it gives",
                )
        self._options = options
        self._feed()  # the branch is there, or this says so at once

    def _feed(self) -> Feed:
        store, schemas = self._options.open(read_only=True)
        return Feed(store, schemas, self._options.branch, Filters())

    def initialOffset(self) -> dict[str, str]:
        """Behind `startingCommit`; from the beginning of the branch if there is none."""
        feed = self._feed()
        point = self._options.starting_commit
        beyond = feed.start_at(BEGINNING if point is None else f"{AFTER}{point}")
        return {_CURSOR: feed.cursor_at(beyond.id)}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, str]:
        """The head of the branch, or the last commit that one batch may have."""
        feed = self._feed()
        if start is None:
            raise BadRequest("this PySpark cannot stream changes", "use pyspark 4.2 or later")
        ahead = feed.after(feed.commit_at(start[_CURSOR]).id)
        taken = ahead[: self._options.commits_max] if self._options.commits_max else ahead
        return {_CURSOR: feed.cursor_at(taken[-1].id)} if taken else start

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        """The commits of a batch, without those of actors that are left out."""
        feed = self._feed()
        first, last = feed.commit_at(start[_CURSOR]), feed.commit_at(end[_CURSOR])
        begun, ended = feed.number(first.id), feed.number(last.id)
        commits = islice(feed.after(first.id), max(0, ended - begun))
        return [
            CommitPartition(commit.id, commit.parent, begun + count)
            for count, commit in enumerate(commits, start=1)
            if commit.actor is None or commit.actor not in self._options.skipped_actors
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The changes of one commit as Arrow batches."""
        assert isinstance(partition, CommitPartition)
        store, schemas = self._options.open(read_only=True)
        commits = store.history.dag(self._options.branch)
        commit = commits[CommitId(partition.commit)]
        parent = commits.get(CommitId(partition.parent or ""))
        changes = iter(commit_changes(store, schemas, commit, Filters(), parent=parent))
        position = 0
        while rows := list(islice(changes, _BATCH_ROWS)):
            shown = [
                _row(commit, partition.number, position + n, each) for n, each in enumerate(rows)
            ]
            yield from pa.Table.from_pylist(shown, CHANGES).to_batches()
            position += len(rows)


def _row(commit: Commit, number: int, position: int, change: Change) -> dict[str, Any]:
    images = (
        None if image is None else orjson.dumps(image.to_json()).decode()
        for image in (change.before, change.after)
    )
    before, after = images
    return {
        "commit": commit.id,
        "number": number,
        "position": position,
        "actor": commit.actor,
        "kind": change.kind,
        "type": change.type,
        "id": change.id,
        "op": change.op,
        "before": before,
        "after": after,
    }
