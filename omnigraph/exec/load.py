"""Bulk load in one process: any input, any size, one commit.

    read ─▶ decode ─▶ row rules ─▶ keys aside, rows to files ─▶ key rules ─▶ stage ─▶ commit

Invariant: no table head moves before every row and every rule was looked at. Memory follows the
size of a block and of a bucket of keys, not that of the input.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import orjson
import pyarrow as pa

from omnigraph.catalog.model import Catalog, NodeType
from omnigraph.errors import BadRequest, NotFound
from omnigraph.exec.checks import Outcome, id_keys, losers_of, run_check, without_losers
from omnigraph.exec.columnar import rows_of
from omnigraph.exec.committed import Committed, Mode, Planned
from omnigraph.exec.decode import Block, Decoded, Decoder, decode_records, decode_stream
from omnigraph.exec.faults import Faults, Reject
from omnigraph.exec.intake import FragmentSink, Intake, RowSink, kept_rows
from omnigraph.exec.records import Owner
from omnigraph.exec.sources import Part, blocks, read_records, tables
from omnigraph.exec.spill import Spill, place_of
from omnigraph.storage.names import MAIN
from omnigraph.storage.records import Commit
from omnigraph.storage.store import Store
from omnigraph.storage.tables import Fragments
from omnigraph.storage.write import Write, prepared_again
from omnigraph.types import TableKey

MODES: tuple[Mode, ...] = ("append", "merge", "overwrite")
BUCKET_BYTES = 256 << 20
_BLOCKS_AHEAD = 2
Item = TypeVar("Item")
Done = TypeVar("Done")
Losers = dict[TableKey, pa.Array]
RunChecks = Callable[[list[Planned], Spill, Spill, Losers], Faults]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a load is: the stage, the rows it has seen and the seconds it has run."""

    stage: str
    rows: int
    seconds: float


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """What to load, with everything decided but the engine."""

    mode: Mode
    branch: str = MAIN
    owner: Owner | None = None  # of columnar input
    columns: Mapping[str, str] = field(default_factory=dict)
    rejects: Path | None = None
    actor: str | None = None
    progress: Callable[[Progress], None] | None = None
    permissive: bool = False  # the older, forgiving format, read as a whole


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What a load did. `nodes` and `edges` count input rows by type, in name order."""

    branch: str
    base_branch: str | None
    branch_created: bool
    mode: Mode
    nodes: dict[str, int]
    edges: dict[str, int]
    engine: str
    actor_id: str | None
    commit: Commit

    @property
    def total_entities(self) -> int:
        """Nodes and edges together."""
        return sum(self.nodes.values()) + sum(self.edges.values())


@dataclass(frozen=True, slots=True)
class Piece:
    """Some of the input on its way: lines of a file, or columns."""

    part: int
    file: str | None
    first: int
    data: Block | pa.Table | tuple[Any, ...]
    is_text: bool = False


@dataclass(slots=True)
class Taken:
    """What was read: counts, faults, keys and where the rows are."""

    counts: dict[TableKey, int]
    faults: Faults
    fragments: dict[TableKey, Fragments] = field(default_factory=dict)
    files: dict[TableKey, list[str]] = field(default_factory=dict)


def pieces_of(parts: tuple[Part, ...]) -> Iterator[Piece]:
    """The input of files, a piece at a time."""
    for part in parts:
        yield from pieces_of_part(part)


def pieces_of_part(part: Part) -> Iterator[Piece]:
    """One file, or a part of it."""
    if part.format == "json":
        for block in blocks(part):
            yield Piece(part.index, part.label, block.line, block)
        return
    if part.format == "records":
        yield Piece(part.index, part.label, part.first, read_records(part))
        return
    row = part.first
    for table in tables(part):
        yield Piece(part.index, part.label, row, table, part.format == "csv")
        row += table.num_rows


def decode_piece(catalog: Catalog, request: LoadRequest, piece: Piece) -> Decoded:
    """Typed rows and faults of a piece."""
    keep = request.rejects is not None
    if isinstance(piece.data, Block) and request.permissive:
        return decode_stream(catalog, piece.data)
    if isinstance(piece.data, Block):
        decoder = Decoder(
            catalog, owner=request.owner, rename=dict(request.columns), keep_rejects=keep
        )
        return decoder.decode(piece.data)
    if isinstance(piece.data, tuple):
        return decode_records(
            catalog,
            piece.data,
            owner=request.owner,
            rename=request.columns,
            first=piece.first,
            part=piece.part,
        )
    if request.owner is None:
        raise BadRequest(
            f"{piece.file or 'the input'} holds columns", "say which with type= or edge="
        )
    rows, faults = rows_of(
        catalog,
        request.owner,
        piece.data,
        rename=request.columns,
        is_text=piece.is_text,
        first=piece.first,
        part=piece.part,
        file=piece.file,
        keep_rejects=keep,
    )
    return Decoded([] if rows is None else [rows], faults)


def load_local(
    store: Store,
    catalog: Catalog,
    request: LoadRequest,
    pieces: Iterator[Piece],
    *,
    size_bytes: int,
) -> tuple[Commit, dict[TableKey, int]]:
    """Load in this process. `size_bytes` is a guess of the input's size."""
    with scratch_folder() as folder:
        loading = Loading(store, catalog, request, folder, bucket_count(size_bytes))
        return loading.run(pieces)


class Loading:
    """One load in one process."""

    def __init__(
        self, store: Store, catalog: Catalog, request: LoadRequest, folder: Path, buckets: int
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._request = request
        self._folder = folder
        self._keys = Spill(folder, buckets)
        self._files: list[str | None] = []
        self._started = time.monotonic()

    def run(self, pieces: Iterator[Piece]) -> tuple[Commit, dict[TableKey, int]]:
        """Read everything, check everything, commit once."""
        request = self._request
        schema = self._catalog.schema_id
        write = self._store.begin(request.branch, kind="load", actor=request.actor, schema=schema)
        taken = self._take(write, pieces)
        finish = Finish(
            self._store, self._catalog, request, self._keys, taken, self._folder, self._files
        )
        commit = finish.commit(write, self._told)
        return commit, taken.counts

    def _take(self, write: Write, pieces: Iterator[Piece]) -> Taken:
        request = self._request
        sink = (
            RowSink(self._folder)
            if request.mode == "merge"
            else FragmentSink(self._store.tables, write.base, replacing=request.mode == "overwrite")
        )
        intake = Intake(self._keys, sink, Faults(request.rejects is not None))
        decode = lambda piece: (piece, decode_piece(self._catalog, request, piece))  # noqa: E731
        for piece, decoded in _ahead(decode, pieces):
            if piece.part >= len(self._files):
                self._files += [piece.file] * (piece.part + 1 - len(self._files))
            intake.faults.merge(decoded.faults)
            for rows in decoded.rows:
                intake.take(rows, piece.part, piece.file)
            self._told("read", intake.counts.total())
        sink.finish()
        taken = Taken(dict(intake.counts), intake.faults)
        if isinstance(sink, RowSink):
            taken.files = sink.files
        else:
            taken.fragments = sink.written
        return taken

    def _told(self, stage: str, rows: int) -> None:
        if self._request.progress is not None:
            self._request.progress(Progress(stage, rows, time.monotonic() - self._started))


@dataclass(slots=True)
class Finish:
    """From rows that were read to the commit: the same for every engine."""

    store: Store
    catalog: Catalog
    request: LoadRequest
    keys: Spill
    taken: Taken
    folder: Path
    files: Sequence[str | None] = ()
    first_lines: Sequence[int] = ()
    run_checks: RunChecks = field(default_factory=lambda: run_all)
    _losers: Losers = field(default_factory=dict)

    def commit(self, write: Write, told: Callable[[str, int], None]) -> Commit:
        """Check the key rules, stage and publish; again from a new base when a writer of other
        rows came first. Files that were written stay good for the next attempt."""
        attempts = iter([write])

        def attempt() -> Commit:
            request = self.request
            current = next(attempts, None) or self.store.begin(
                request.branch, kind="load", actor=request.actor, schema=self.catalog.schema_id
            )
            told("check", sum(self.taken.counts.values()))
            self._check(current)
            told("stage", sum(self.taken.counts.values()))
            self._stage(current)
            return current.commit()

        # An overwrite is what its caller saw or nothing.
        done = attempt() if self.request.mode == "overwrite" else prepared_again(attempt)
        told("done", sum(self.taken.counts.values()))
        return done

    @property
    def touched(self) -> frozenset[TableKey]:
        named = self.request.owner
        return frozenset(self.taken.counts) | ({named.table} if named is not None else set())

    def _check(self, write: Write) -> None:
        faults = Faults(self.taken.faults.keep_rejects)
        faults.merge(self.taken.faults)
        self._losers = self._find_losers()
        held = Spill(self.folder, self.keys.buckets)
        planned = Committed(
            self.catalog, self.request.mode, self.touched, write.read, self.keys.read, held
        ).checks()
        faults.merge(self.run_checks(planned, self.keys, held, self._losers))
        if faults:
            told = faults.located(self.files, self.first_lines)
            if self.request.rejects is not None:
                write_rejects(self.request.rejects, told.rejects)
            raise told.error()

    def _find_losers(self) -> Losers:
        """Rows that a later one of the same id replaces. A key that comes twice is refused."""
        found: Losers = {}
        if self.request.mode == "merge":
            for table in self.touched:
                owner = _owner(self.catalog, table)
                if isinstance(owner, NodeType) and owner.key:
                    continue
                lost = losers_of(owner, self.keys.buckets, self.keys.read)
                if len(lost):
                    found[table] = lost
        return found

    def _stage(self, write: Write) -> None:
        replacing = self.request.mode == "overwrite"
        for table in sorted(self.touched):
            if self.request.mode == "merge":
                self._stage_merge(write, table)
            elif replacing or self.taken.fragments.get(table):
                fragments = self.taken.fragments.get(table, ())
                write.fragments(table, fragments, replacing=replacing)

    def _stage_merge(self, write: Write, table: TableKey) -> None:
        files = self.taken.files.get(table, [])
        if not files:
            return
        owner = _owner(self.catalog, table)
        rows = kept_rows(owner, files, self._losers.get(table))
        base = write.base(table)
        if not write.read(table).count() or not self.keys.rows(id_keys(table).name):
            # Nothing can be replaced.
            fragments = self.store.tables.write_fragments(base, rows, replacing=False)
            write.fragments(table, fragments)
        else:
            write.upsert(table, rows)


def run_all(planned: list[Planned], keys: Spill, held: Spill, losers: Losers) -> Faults:
    """Every check over every bucket, one after the other."""
    faults = Faults(keep_rejects=True)

    def read(name: str, bucket: int) -> pa.Table | None:
        parts = [t for t in (keys.read(name, bucket), held.read(name, bucket)) if t is not None]
        return pa.concat_tables(parts) if parts else None

    read_kept = without_losers(read, losers)

    for check, owner in planned:
        for bucket in range(keys.buckets):
            add_outcome(faults, run_check(check, owner, bucket, read_kept))
    return faults


def add_outcome(faults: Faults, outcome: Outcome) -> None:
    """Count what a check found, each with the part and line it came from."""
    for at, violation in outcome.violations:
        part, line = (0, None) if at is None else place_of(at)
        faults.add(part, replace(violation, line=line))
    more = outcome.total - len(outcome.violations)
    if more > 0:
        faults.counts[outcome.violations[0][1].rule] += more


def _owner(catalog: Catalog, table: TableKey) -> Owner:
    kind, _, name = table.partition(":")
    found = catalog.nodes.get(name) if kind == "node" else catalog.edges.get(name)
    if found is None:
        raise NotFound("type", name)
    return found


def bucket_count(size_bytes: int) -> int:
    """How many buckets keep the keys of an input of this size within memory."""
    return max(1, min(512, -(-size_bytes // BUCKET_BYTES)))


@contextmanager
def scratch_folder(parent: Path | None = None) -> Iterator[Path]:
    """A folder that is gone afterwards."""
    path = Path(tempfile.mkdtemp(prefix="omnigraph-load-", dir=parent))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def write_rejects(folder: Path, rejects: list[Reject]) -> None:
    """Every bad record with its reason, as NDJSON."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "rejects.jsonl").open("wb") as file:
        for reject in rejects:
            violation = reject.violation
            entry = {
                "file": violation.file,
                "line": violation.line,
                "rule": violation.rule,
                "type": violation.type_name or None,
                "id": violation.id,
                "value": violation.value,
                "reason": violation.text,
                "record": reject.record,
            }
            file.write(orjson.dumps(entry) + b"\n")


def _ahead(work: Callable[[Item], Done], items: Iterator[Item]) -> Iterator[Done]:
    """The results in order, a few of them worked out ahead in other threads."""
    with ThreadPoolExecutor(min(_BLOCKS_AHEAD, os.cpu_count() or 1)) as pool:
        waiting: list[Future[Done]] = []
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > _BLOCKS_AHEAD:
                yield waiting.pop(0).result()
        for job in waiting:
            yield job.result()
