"""Writes of the Spark data source: a load whose tasks Spark runs and whose commit is one call.

Spark makes a writer in one process, runs `write` in tasks, and calls `commit` in a third process;
what they share travels in the writer and in the tasks' messages. None of these has a session, so
keys and rows to merge are exchanged through block files beside the graph, on a disk or in an object
store, one or a few for each task.

Invariant: `commit` publishes once what all tasks staged, or raises with nothing visible. A
micro-batch is marked with its query and its epoch: one that comes again is recognised and left out.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from omnigraph.catalog.model import Catalog
from omnigraph.errors import BadRequest, OmnigraphError, StorageFailed
from omnigraph.exec.load.block_files import BlockFile, fetched
from omnigraph.exec.load.exchange import ThreadExchange
from omnigraph.exec.load.finish import Finish, IntakeResult
from omnigraph.exec.load.load_write import LoadWrite, begun
from omnigraph.exec.load.patch import PatchFinish
from omnigraph.exec.load.request import BY_ID, LoadRequest
from omnigraph.exec.load.scratch import scratch_folder
from omnigraph.exec.load.spill import Spill
from omnigraph.exec.upkeep.after_load import after_load
from omnigraph.pipeline.shared_scratch import SharedFolder, scratch_parent
from omnigraph.pipeline.source_options import SourceOptions
from omnigraph.pipeline.tasks import LoadJob, PartDone, gathered, run_batches
from omnigraph.storage.protocol.intent import AlreadyMarked
from omnigraph.storage.store import Store

BUCKETS = 64
"""Buckets of keys in the files of tasks, for the size of a DataFrame is not known beforehand. The
commit joins them until they are large enough."""

_WORKER = "daemon.py"  # the program of Spark's Python workers

QUERY_PROPERTY = "sql.streaming.queryId"
"""Local property with the id of a task's streaming query, the same after a restart."""


@dataclass
class Message(WriterCommitMessage):
    """Commit message of a task: its result, its files and their folder, its streaming query."""

    done: PartDone
    files: list[BlockFile]
    folder: SharedFolder
    query: str | None


class _LoadWriter:
    """Base of the batch and the stream writer: prepare, run in tasks, commit."""

    def __init__(self, options: SourceOptions, *, overwrite: bool) -> None:
        if options.snapshot is not None or options.where is not None:
            raise BadRequest("snapshot and where are options of a read")
        if options.columns is not None:
            raise BadRequest(
                "columns of a write are renamed", 'write them as JSON: {"theirs": "ours"}'
            )
        if overwrite and options.mode not in (None, "overwrite"):
            raise BadRequest(f"mode('overwrite') contradicts the option mode={options.mode}")
        self._options = options
        self._mode = options.mode or ("overwrite" if overwrite else "append")
        self._job: LoadJob | None = None
        self._folder: SharedFolder | None = None

    def _request(self, catalog: Catalog, once: str | None = None) -> LoadRequest:
        return LoadRequest(
            mode=self._mode,
            branch=self._options.branch,
            owner=self._options.owner(catalog),
            columns=dict(self._options.renamed),
            note=self._options.note,
            once=once,
            is_ordered=False,
        )

    def _prepare(self) -> None:
        """Make the job that the tasks get. The branch has its own copy of the table from here
        on."""
        store, schemas = self._options.open(read_only=False)
        catalog = schemas.current(self._options.branch).catalog
        request = self._request(catalog)
        assert request.owner is not None
        write = LoadWrite(store, catalog, request)
        table = request.owner.table
        self._folder = SharedFolder.beside(store)
        self._job = LoadJob(
            uri=store.where.uri,
            storage_options=store.where.storage_options,
            catalog=catalog,
            request=request,
            bases={} if self._mode in BY_ID else {table: write.base(table)},
            are_joined=True,
        )

    def _written(self, batches: Iterator[pa.RecordBatch]) -> Message:
        assert self._job is not None
        assert self._folder is not None
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(QUERY_PROPERTY)
        out = Spill(self._folder.uri, BUCKETS, options=self._folder.options)
        done = run_batches(self._job, batches, out)
        out.flush()
        return Message(done, out.files, self._folder, query)

    def _commit(self, messages: Sequence[WriterCommitMessage | None], once: str | None) -> None:
        store, schemas = self._options.open(read_only=False)
        catalog = schemas.current(self._options.branch).catalog
        request = self._request(catalog, once)
        delivered = [message for message in messages if isinstance(message, Message)]
        if once is not None and store.marked(request.branch, once) is not None:
            return
        with scratch_folder(Path(scratch_parent(store))) as folder:
            taken = self._finish(store, catalog, request, delivered, folder)
        # A stream of batches leaves upkeep to its owner, unless it is asked for.
        timing = self._options.indexes or ("now" if once is None else "later")
        if once is None or timing == "now":
            actor = request.note.actor
            after_load(store, catalog, request.branch, taken.counts, indexes=timing, actor=actor)

    def _finish(
        self,
        store: Store,
        catalog: Catalog,
        request: LoadRequest,
        delivered: Sequence[Message],
        folder: Path,
    ) -> IntakeResult:
        taken = gathered((message.done for message in delivered), keep_rejects=False)
        files = fetched([file for message in delivered for file in message.files], folder)
        blocks = Spill(folder, BUCKETS, files=files)
        exchange = ThreadExchange(folder, blocks.coarsened())
        taken.rows = blocks
        finish_kind = PatchFinish if request.mode == "patch" else Finish
        finish = finish_kind(store, catalog, request, blocks, taken, exchange)
        finish.commit(begun(store, catalog, request), lambda stage, rows: None)
        return taken


class BatchWriter(_LoadWriter, DataSourceArrowWriter):
    """Writes one DataFrame as one commit."""

    def __init__(self, options: SourceOptions, *, overwrite: bool) -> None:
        super().__init__(options, overwrite=overwrite)
        self._prepare()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: check and stage a partition."""
        with _told_in_one_sentence():
            return self._written(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Check the whole and publish it."""
        assert self._folder is not None
        with _told_in_one_sentence():
            self._commit(messages, None)
        self._folder.discard()

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Forget it. What tasks staged is in no table, and cleanup removes it."""
        assert self._folder is not None
        self._folder.discard()


class StreamWriter(_LoadWriter, DataSourceStreamArrowWriter):
    """Writes each micro-batch as one commit, once."""

    def __init__(self, options: SourceOptions, *, overwrite: bool) -> None:
        super().__init__(options, overwrite=overwrite)
        if self._mode == "overwrite":
            raise BadRequest("a stream cannot overwrite: each batch would remove the one before")

    def __getstate__(self) -> dict[str, object]:
        # The writer that tasks get is pickled; the one that commits is made anew and needs no job.
        if self._job is None:
            self._prepare()
        return self.__dict__.copy()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: check and stage a partition of a micro-batch."""
        with _told_in_one_sentence():
            return self._written(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Check the micro-batch and publish it, unless it is there already."""
        delivered = [message for message in messages if isinstance(message, Message)]
        if not delivered:
            return  # no partition, no rows
        query = delivered[0].query
        if query is None:
            raise StorageFailed("committed a micro-batch", "Spark did not say of which query")
        # A driver that was taken for dead may be faster.
        with suppress(AlreadyMarked), _told_in_one_sentence():
            self._commit(messages, mark_of(query, batchId))
        self._forget(delivered)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Forget it."""
        self._forget([message for message in messages if isinstance(message, Message)])

    def _forget(self, delivered: Sequence[Message]) -> None:
        for folder in {message.folder for message in delivered}:
            folder.discard()


@contextmanager
def _told_in_one_sentence() -> Iterator[None]:
    """Leave the traceback out of a refusal: Spark's workers hand it to the caller as text, frames
    and all. An error of another kind keeps its own."""
    try:
        yield
    except OmnigraphError:
        if Path(sys.argv[0]).name == _WORKER:
            sys.tracebacklimit = 0
        raise


def mark_of(query: str, epoch: int) -> str:
    """The name of a micro-batch in the history of a branch."""
    return f"{query}/{epoch}"
