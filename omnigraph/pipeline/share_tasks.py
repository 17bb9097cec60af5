"""Spark tasks of a query: shares of its plan's rows, solved to Arrow batches (mapInArrow).

Invariant: a task runs the plan that one process runs, against the one snapshot that the driver
chose, with its parameters and its moment, and passes on batches of bounded size. An executor keeps
what it mapped for the next query, as a process does. A refusal crosses as what it is: the driver
raises the error that the task raised.
"""

import base64
import pickle
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from omnigraph.errors import NotFound, OmnigraphError, StorageFailed
from omnigraph.exec.limits import Limits
from omnigraph.exec.profile import Figures
from omnigraph.exec.read.added_up import ROWS_ALONE
from omnigraph.exec.read.reading import Reading
from omnigraph.exec.read.share import Share
from omnigraph.exec.search.embed import Provider
from omnigraph.exec.values.constants import Given
from omnigraph.lru import Lru
from omnigraph.pipeline.executors import Where
from omnigraph.pipeline.worker_garbage import spare_what_is_loaded
from omnigraph.plan import ir
from omnigraph.storage.records import CommitId, Snapshot

_OPEN_MAX = 4
_ENDLESS_MS = 10**12
"""Spark watches over its tasks: their time has no limit of ours."""

_MARK = "omnigraph-error:"
_MARKED = re.compile(rf"{_MARK}([A-Za-z0-9+/=]+)")

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Asked:
    """A read as a task gets it."""

    where: Where
    plan: ir.ReadPlan
    given: Given
    snapshot: Snapshot
    limits: Limits
    embedder: Provider | None


@dataclass(frozen=True, slots=True)
class ShareTask:
    """Solves the shares whose numbers it gets; of one share alone the whole plan."""

    asked: Asked
    of: int | None
    schema: pa.Schema
    ended: Callable[[Figures], None]

    def run(self, numbers: Batches) -> Batches:
        """The columns of these shares."""
        reading = _reading(self.asked)
        reading.embedder = self.asked.embedder
        try:
            for batch in numbers:
                for number in batch.column(0).to_pylist():
                    for part in self._parts(reading, number):
                        yield from as_schema(part, self.schema)
        except StorageFailed:
            raise  # another attempt may do better
        except OmnigraphError as error:
            raise Refusal(error) from None
        spare_what_is_loaded()

    def _parts(self, reading: Reading, number: int) -> Iterator[pa.Table]:
        asked = self.asked
        if self.of is not None:
            share = Share(number, self.of)
            yield from reading.parts(asked.plan, asked.given, asked.snapshot, share, self.ended)
            return
        answer = reading.answer(asked.plan, asked.given, asked.snapshot)
        self.ended(answer.figures)
        yield answer.columns


class Refusal(Exception):
    """An error that the driver is to raise, in a text that Spark passes on."""

    def __init__(self, error: OmnigraphError) -> None:
        pickled = base64.b64encode(pickle.dumps(error)).decode()
        super().__init__(f"{error} [{_MARK}{pickled}]")


def refusal_in(text: str) -> OmnigraphError | None:
    """The error that a task raised, from what Spark says about it."""
    marked = _MARKED.search(text)
    if marked is None:
        return None
    error = pickle.loads(base64.b64decode(marked[1]))
    return error if isinstance(error, OmnigraphError) else None


def as_schema(part: pa.Table, schema: pa.Schema) -> Batches:
    """A table as batches of the columns that Spark expects, by their order."""
    if schema.names == [ROWS_ALONE] and not part.num_columns:
        part = pa.table({ROWS_ALONE: pa.nulls(part.num_rows)})
    columns = [
        part.column(n).cast(field.type) for n, field in enumerate(schema) if part.num_columns
    ]
    yield from pa.Table.from_arrays(columns, schema=schema).combine_chunks().to_batches()


@dataclass(slots=True)
class _OpenGraph:
    """A graph that this executor has open, and the last commit that was read in it."""

    reading: Reading
    commit: CommitId

    def is_at(self, where: Where, commit: CommitId) -> bool:
        """Check that the graph at the address still has the last commit: a graph that was removed
        and made again there, or restored from a backup, gives its table versions numbers that
        these had."""
        if commit == self.commit:
            return True
        store = where.open()
        try:
            store.history.get(self.commit)
        except NotFound:
            return False
        finally:
            store.close()
        self.commit = commit
        return True


_OPEN: Lru[tuple[str, str, Limits], _OpenGraph] = Lru(_OPEN_MAX)


def _reading(asked: Asked) -> Reading:
    where, limits, commit = asked.where, asked.limits, asked.snapshot.commit_id
    key = where.uri, repr(sorted((where.storage_options or {}).items())), limits
    known = _OPEN.get(key)
    if known is not None and known.is_at(where, commit):
        return known.reading
    made = _OpenGraph(Reading(where.open(), replace(limits, time_ms_max=_ENDLESS_MS)), commit)
    replaced = [] if known is None else [known]
    for each in (*replaced, *_OPEN.put(key, made)):
        each.reading.close()
    return made.reading
