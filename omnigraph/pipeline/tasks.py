"""Tasks of a load on Spark that read a part of its input, and their results as one.

Invariant: a task puts keys, and rows that meet others by id, into the exchange. Its result has no
rows, only metadata of fragments it wrote, counts, and samples of violations; its fragments count
through that result alone. A part that is read again in the same order gives the same ids.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from omnigraph.catalog.model import Catalog
from omnigraph.errors import OmnigraphError, StorageFailed
from omnigraph.exec.load.decode import LineBlock
from omnigraph.exec.load.finish import IntakeResult
from omnigraph.exec.load.intake import FragmentSink, Intake, JoiningSink, RowSink
from omnigraph.exec.load.lines import line_count
from omnigraph.exec.load.pieces import Piece, pieces_of_part, ready_piece
from omnigraph.exec.load.request import BY_ID, LoadRequest
from omnigraph.exec.load.sources import Part
from omnigraph.exec.load.spill import Spill
from omnigraph.exec.rules.faults import Faults, merged
from omnigraph.exec.values.mint import minted_in_series, new_series
from omnigraph.storage.lance.staging import Fragments
from omnigraph.storage.opening import open_store
from omnigraph.storage.records import WriteBase
from omnigraph.types import TableKey


@dataclass(frozen=True, slots=True)
class LoadJob:
    """Everything that a task of a load needs."""

    uri: str
    storage_options: dict[str, str] | None
    catalog: Catalog
    request: LoadRequest
    bases: dict[TableKey, WriteBase]
    are_joined: bool = False  # whether parts with few rows are written together
    series: int = field(default_factory=new_series)  # of the ids that are minted


@dataclass(slots=True)
class PartDone:
    """Result of a task: no rows, only the fragments it wrote, counts and violations."""

    index: int
    lines: int = 0
    counts: Counter[TableKey] = field(default_factory=Counter)
    rounded: Counter[str] = field(default_factory=Counter)
    faults: Faults = field(default_factory=Faults)
    fragments: dict[TableKey, Fragments] = field(default_factory=dict)
    error: OmnigraphError | None = None


def run_part(job: LoadJob, part: Part | Piece, out: Spill) -> PartDone:
    """Read one part: the whole work of a task."""
    if isinstance(part, Piece):
        return run_pieces(job, part.part, iter([part]), out)
    return run_pieces(job, part.index, pieces_of_part(part), out)


def run_pieces(job: LoadJob, index: int, pieces: Iterator[Piece], out: Spill) -> PartDone:
    """Decode and check pieces, put their keys, and write or put their rows."""
    done = PartDone(index, faults=Faults(job.request.rejects is not None))
    sink = _sink(job, index, out)
    intake = Intake(out, sink, done.faults, done.counts, done.rounded)
    try:
        with minted_in_series(job.series, index):
            for piece in pieces:
                faults, rows = ready_piece(job.catalog, job.request, piece, out.buckets)
                done.faults.merge(faults)
                for ready in rows:
                    intake.take(ready, piece.part)
                if isinstance(piece.data, LineBlock):
                    done.lines += line_count(piece.data.data)
        sink.finish()
    except StorageFailed:
        raise  # Another attempt may do better.
    except OmnigraphError as error:
        done.error = error
        return done
    if isinstance(sink, FragmentSink):
        done.fragments = sink.written
    return done


def _sink(job: LoadJob, index: int, out: Spill) -> FragmentSink | RowSink:
    if job.request.mode in BY_ID:
        return RowSink(out, are_partial=job.request.mode == "patch")
    store = open_store(job.uri, read_only=True, storage_options=job.storage_options)
    replacing, base = job.request.mode == "overwrite", job.bases.__getitem__
    # Tasks are what runs at once on Spark, and each has the memory for one fragment.
    if job.are_joined:
        return JoiningSink(
            store.tables, base, replacing=replacing, threads=1, spill=out, part=index
        )
    return FragmentSink(store.tables, base, replacing=replacing, threads=1)


def run_batches(job: LoadJob, batches: Iterator[pa.RecordBatch], out: Spill) -> PartDone:
    """Load a partition of a DataFrame where it is."""
    index = partition_number()

    def pieces() -> Iterator[Piece]:
        row = 1
        for batch in batches:
            yield Piece(index, None, row, pa.Table.from_batches([batch]))
            row += batch.num_rows

    return run_pieces(job, index, pieces(), out)


def partition_number() -> int:
    """Number of the partition that this task works on."""
    from pyspark import TaskContext  # noqa: PLC0415

    context = TaskContext.get()
    return 0 if context is None else int(context.partitionId())


def gathered(results: Iterable[PartDone], *, keep_rejects: bool) -> IntakeResult:
    """The results of all tasks as one, in the order of the parts."""
    done = sorted(results, key=lambda each: each.index)
    for result in done:
        if result.error is not None:
            raise result.error
    taken = IntakeResult({}, merged((r.faults for r in done), keep_rejects=keep_rejects))
    counts: Counter[TableKey] = Counter()
    for result in done:
        counts.update(result.counts)
        taken.rounded.update(result.rounded)
        for table, fragments in result.fragments.items():
            taken.fragments[table] = (*taken.fragments.get(table, ()), *fragments)
    taken.counts = dict(counts)
    return taken
