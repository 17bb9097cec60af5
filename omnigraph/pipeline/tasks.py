"""Tasks of a load on Spark: read a part, check a bucket, and gather the results.

Invariant: a task returns no rows, only names of files it wrote, counts, and samples of violations.
Its files count through that result alone.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa

from omnigraph.catalog.model import Catalog
from omnigraph.errors import OmnigraphError, StorageFailed
from omnigraph.exec.load.checks import CheckOutcome, KeyCheck, run_check, without_losers
from omnigraph.exec.load.decode import LineBlock
from omnigraph.exec.load.finish import IntakeResult, Losers
from omnigraph.exec.load.intake import FRAGMENT_BYTES, FragmentSink, Intake, RowSink
from omnigraph.exec.load.lines import line_count
from omnigraph.exec.load.ndjson import Owner
from omnigraph.exec.load.pieces import Piece, pieces_of_part, ready_piece
from omnigraph.exec.load.request import BY_ID, LoadRequest
from omnigraph.exec.load.sources import Part
from omnigraph.exec.load.spill import KeyFile, Spill, read_keys
from omnigraph.exec.rules.faults import Faults, merged
from omnigraph.storage.lance.staging import Fragments
from omnigraph.storage.opening import open_store
from omnigraph.storage.records import TablePin
from omnigraph.types import TableKey


@dataclass(frozen=True, slots=True)
class LoadJob:
    """Everything that a task of a load needs."""

    uri: str
    storage_options: dict[str, str] | None
    catalog: Catalog
    request: LoadRequest
    folder: str
    buckets: int
    pins: dict[TableKey, TablePin]


@dataclass(slots=True)
class PartDone:
    """Result of a task: no rows, only the files it wrote, counts and violations."""

    index: int
    lines: int = 0
    counts: Counter[TableKey] = field(default_factory=Counter)
    rounded: Counter[str] = field(default_factory=Counter)
    faults: Faults = field(default_factory=Faults)
    fragments: dict[TableKey, Fragments] = field(default_factory=dict)
    rows: list[KeyFile] = field(default_factory=list)
    keys: list[KeyFile] = field(default_factory=list)
    error: OmnigraphError | None = None


def run_part(job: LoadJob, part: Part) -> PartDone:
    """Read one part: the whole work of a task."""
    return run_pieces(job, part.index, pieces_of_part(part))


def run_pieces(job: LoadJob, index: int, pieces: Iterator[Piece]) -> PartDone:
    """Decode and check pieces, and write their rows and keys."""
    done = PartDone(index, faults=Faults(job.request.rejects is not None))
    folder = Path(job.folder)
    sink = _sink(job, folder)
    spill = Spill(folder, job.buckets)
    intake = Intake(spill, sink, done.faults, done.counts, done.rounded)
    try:
        for piece in pieces:
            faults, rows = ready_piece(job.catalog, job.request, piece, job.buckets)
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
    spill.flush()
    done.keys = spill.files
    if isinstance(sink, RowSink):
        sink.spill.flush()
        done.rows = sink.spill.files
    else:
        done.fragments = sink.written
    return done


def _sink(job: LoadJob, folder: Path) -> FragmentSink | RowSink:
    if job.request.mode in BY_ID:
        spill = Spill(folder, job.buckets, FRAGMENT_BYTES)
        return RowSink(spill, are_partial=job.request.mode == "patch")
    store = open_store(job.uri, read_only=True, storage_options=job.storage_options)
    replacing = job.request.mode == "overwrite"
    # Tasks are what runs at once on Spark, and each has the memory for one fragment.
    return FragmentSink(store.tables, job.pins.__getitem__, replacing=replacing, threads=1)


@dataclass(frozen=True, slots=True)
class BucketJob:
    """One rule over one bucket."""

    check: KeyCheck
    owner: Owner
    bucket: int
    files: tuple[KeyFile, ...]
    losers: Losers


def run_bucket(job: BucketJob) -> CheckOutcome:
    """Check one rule over one bucket of keys."""
    read = without_losers(partial(read_keys, job.files), job.losers)
    return run_check(job.check, job.owner, job.bucket, read)


def run_batches(job: LoadJob, batches: Iterator[pa.RecordBatch]) -> PartDone:
    """Load a partition of a DataFrame where it is."""
    index = partition_number()

    def pieces() -> Iterator[Piece]:
        row = 1
        for batch in batches:
            yield Piece(index, None, row, pa.Table.from_batches([batch]))
            row += batch.num_rows

    return run_pieces(job, index, pieces())


def partition_number() -> int:
    """Number of the partition that this task works on."""
    from pyspark import TaskContext  # noqa: PLC0415

    context = TaskContext.get()
    return 0 if context is None else int(context.partitionId())


def gathered(
    results: Iterable[PartDone], folder: Path, buckets: int, *, keep_rejects: bool
) -> tuple[IntakeResult, Spill]:
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
    taken.rows = Spill(folder, buckets, files=[file for result in done for file in result.rows])
    key_files = [file for result in done for file in result.keys]
    return taken, Spill(folder, buckets, files=key_files)
