"""Bulk load in one process: any input, any size, one commit.

    read ─▶ decode ─▶ row rules ─▶ keys spilled, rows to files ─▶ key rules ─▶ stage ─▶ commit

Invariant: memory is bounded by a block of input, a bucket of keys and the numbers of some million
edges, not by the input.
"""

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

from omnigraph.catalog.model import Catalog
from omnigraph.costs import COSTS
from omnigraph.exec.allocator import give_back
from omnigraph.exec.load.exchange import AHEAD, THREADS, ThreadExchange, write_threads
from omnigraph.exec.load.finish import Finish, IntakeResult
from omnigraph.exec.load.intake import FragmentSink, Intake, Ready, RowSink
from omnigraph.exec.load.load_write import LoadWrite
from omnigraph.exec.load.patch import PatchFinish
from omnigraph.exec.load.pieces import Piece, ready_piece
from omnigraph.exec.load.request import BY_ID, LoadRequest
from omnigraph.exec.load.scratch import scratch_folder
from omnigraph.exec.load.spill import Spill
from omnigraph.exec.progress import Meter
from omnigraph.exec.rules.faults import Faults
from omnigraph.exec.threads import in_order
from omnigraph.exec.topology.end_numbers import EndNumbers
from omnigraph.storage.records import Commit
from omnigraph.storage.store import Store

_UNKNOWN_BYTES = 1 << 30


def load_local(
    store: Store,
    catalog: Catalog,
    request: LoadRequest,
    pieces: Iterator[Piece],
    *,
    size_bytes: int | None,
) -> tuple[Commit, IntakeResult]:
    """Load in this process. `size_bytes` estimates the rows of the input; None is unknown."""
    if size_bytes is None:
        begin = tuple(islice(pieces, 2))
        size_bytes = _UNKNOWN_BYTES if len(begin) > 1 else 0
        pieces = chain(begin, pieces)
    with scratch_folder() as folder:
        loading = Loading(store, catalog, request, folder, size_bytes)
        return loading.run(pieces)


class Loading:
    """State of one load in one process."""

    def __init__(
        self, store: Store, catalog: Catalog, request: LoadRequest, folder: Path, size_bytes: int
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._request = request
        self._folder = folder
        self._is_large = size_bytes >= COSTS.large_load_bytes_min
        self._keys = Spill(folder, bucket_count(size_bytes))
        self._files: list[str | None] = []
        self._meter = Meter(request.progress)

    def run(self, pieces: Iterator[Piece]) -> tuple[Commit, IntakeResult]:
        """Read everything, check everything, commit once."""
        request = self._request
        write = LoadWrite(self._store, self._catalog, request)
        taken = self._take(write, pieces)
        self._give_back()
        finish_kind = PatchFinish if request.mode == "patch" else Finish
        exchange = ThreadExchange(self._folder, self._keys.buckets)
        finish = finish_kind(
            self._store, self._catalog, request, self._keys, taken, exchange, self._files
        )
        commit = finish.commit(write.current, self._meter.report)
        self._give_back()
        return commit, taken

    def _give_back(self) -> None:
        """A stage ended whose threads are gone, and with them the use of their free memory."""
        if self._is_large:
            give_back()

    def _take(self, write: LoadWrite, pieces: Iterator[Piece]) -> IntakeResult:
        request = self._request
        sink = (
            RowSink(
                Spill(self._folder, self._keys.buckets, COSTS.fragment_bytes_max),
                are_partial=request.mode == "patch",
            )
            if request.mode in BY_ID
            else FragmentSink(
                self._store.tables,
                write.base,
                replacing=request.mode == "overwrite",
                threads=write_threads(),
            )
        )
        intake = Intake(self._keys, sink, Faults(request.rejects is not None))
        # Committed nodes stay only where a load appends.
        ends = None
        if request.mode == "append":
            ends = EndNumbers(self._store, lambda table: write.current.read(table).pin)

        def ready(piece: Piece) -> tuple[Piece, Faults, list[Ready]]:
            return piece, *ready_piece(self._catalog, request, piece, self._keys.buckets, ends)

        for piece, faults, batches in in_order(ready, pieces, threads=THREADS, ahead=AHEAD):
            if piece.part >= len(self._files):
                self._files += [piece.file] * (piece.part + 1 - len(self._files))
            intake.faults.merge(faults)
            for rows in batches:
                intake.take(rows, piece.part)
            self._meter.report("read", intake.counts.total())
        sink.finish()
        taken = IntakeResult(dict(intake.counts), intake.faults, rounded=intake.rounded)
        if isinstance(sink, RowSink):
            taken.rows = sink.spill
        else:
            taken.fragments = sink.written
            taken.ends = {} if ends is None else ends.loaded
            for table, loaded in taken.ends.items():
                loaded.fragments = sink.written.get(table, ())
        return taken


def bucket_count(size_bytes: int) -> int:
    """How many buckets keep the keys of an input of this size within memory."""
    return max(1, min(512, -(-size_bytes // COSTS.key_bucket_bytes)))
