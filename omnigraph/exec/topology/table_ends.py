"""Ends of all edges of a table as numbers: a streamed scan, in this process or shared by tasks.

    fragments ─▶ batches of both ends ─▶ numbers by the node files: eight bytes an edge

Invariant: the numbers are in the order of the table, whoever worked them out. The ids of the ends
are never in memory together, so a driver holds numbers alone. A task that does not find the very
node files that it was named gives nothing, and the table is scanned here.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.costs import COSTS
from omnigraph.errors import OmnigraphError
from omnigraph.exec.threads import in_order
from omnigraph.exec.topology.end_numbers import Ends
from omnigraph.exec.topology.short_ids import ShortIds, short_ids
from omnigraph.light_dataclass import dataclass
from omnigraph.storage.derived.mapped_file import DamagedFile
from omnigraph.storage.derived.node_file import NodeFile
from omnigraph.storage.lance.derived_bases import NodeBase
from omnigraph.storage.lance.reader import TableReader
from omnigraph.storage.records import TablePin
from omnigraph.storage.store import Store

_THREADS = 2
_AHEAD = 8


@dataclass(frozen=True, slots=True)
class EndsTask:
    """Fragments of an edge table version, and the node files at both ends by version and digest."""

    pin: TablePin
    fragments: tuple[int, ...]
    nodes: tuple[TablePin, TablePin]
    digests: tuple[str, str]


@dataclass(frozen=True, slots=True)
class EndsTasks:
    """Where the tasks of a large table are run, and how many at once."""

    run: Callable[[Sequence[EndsTask]], Sequence[Ends | None]]
    parallelism: int


def table_ends(
    store: Store, reader: TableReader, bases: tuple[NodeBase, NodeBase], tasks: EndsTasks | None
) -> Ends:
    """The numbers at both ends of every edge of a version, -1 for a node newer than its file."""
    if tasks is not None and reader.pin.row_count >= COSTS.shared_scan_rows_min:
        try:
            shared = _shared(reader, bases, tasks)
        except OmnigraphError as cause:
            store.stats.event("derived.unshared", cause=str(cause))
            shared = None
        if shared is not None:
            return shared
    return _scanned(reader, (bases[0].file, bases[1].file))


def run_task(store: Store, task: EndsTask) -> Ends | None:
    """The numbers of some fragments; None without the node files."""
    try:
        bases = [store.derived.nodes(pin) for pin in task.nodes]
        near, far = (None if base is None else base.file for base in bases)
        if near is None or far is None or (near.digest, far.digest) != task.digests:
            return None
        return _scanned(store.tables.reader(task.pin), (near, far), task.fragments)
    except DamagedFile:
        return None


def _shared(reader: TableReader, bases: tuple[NodeBase, NodeBase], tasks: EndsTasks) -> Ends | None:
    digests = bases[0].file.digest, bases[1].file.digest
    groups = _groups(reader.fragments(), tasks.parallelism)
    pins = bases[0].pin, bases[1].pin
    parts = tasks.run([EndsTask(reader.pin, group, pins, digests) for group in groups])
    known = [part for part in parts if part is not None]
    return _joined(known) if len(known) == len(groups) else None


def _groups(fragments: dict[int, int], count: int) -> list[tuple[int, ...]]:
    """Fragments in their order, in groups of about as many rows."""
    share = -(-sum(fragments.values()) // max(count, 1))
    groups: list[list[int]] = [[]]
    rows = 0
    for fragment, own in fragments.items():
        if groups[-1] and rows >= share * len(groups):
            groups.append([])
        groups[-1].append(fragment)
        rows += own
    return [tuple(group) for group in groups if group]


def _scanned(
    reader: TableReader, files: tuple[NodeFile, NodeFile], fragments: Sequence[int] | None = None
) -> Ends:
    near = _NodeIds(files[0])
    far = near if files[0] is files[1] else _NodeIds(files[1])

    def numbered(batch: pa.RecordBatch) -> Ends:
        return near.numbers(batch["src"]), far.numbers(batch["dst"])

    batches = reader.batches(["src", "dst"], fragments=fragments)
    return _joined(list(in_order(numbered, batches, threads=_THREADS, ahead=_AHEAD)))


def _joined(parts: Sequence[Ends]) -> Ends:
    if not parts:
        return np.empty(0, np.int32), np.empty(0, np.int32)
    near, far = zip(*parts, strict=True)
    return np.concatenate(near), np.concatenate(far)


class _NodeIds:
    """The ids of one node file, as many ends are looked up in them."""

    def __init__(self, file: NodeFile) -> None:
        self._file = file
        self._short: ShortIds | None = short_ids(file.strings)

    def numbers(self, ids: pa.Array) -> np.ndarray:
        """The numbers of ends; -1 for a node that the version of the file does not have."""
        file = self._file
        if self._short is not None:
            flat = self._short.numbers(pa.chunked_array([ids]))
        else:
            numbers = pc.index_in(ids.cast(file.strings.type), value_set=file.strings)
            flat = numbers.fill_null(-1).to_numpy(zero_copy_only=False)
        if len(file.gone):
            flat = np.where(np.isin(flat, file.gone), -1, flat)
        return flat.astype(np.int32, copy=False)
