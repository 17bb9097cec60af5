"""Fast path of: the endpoint check of a bulk load — ends of edges numbered while they are read.

Reference: `exec/load/checks.py`, hash join of the ends with the ids of committed nodes.
Held equal by: `test_TP2_a_load_that_numbers_ends_refuses_what_the_key_check_refuses`.
Falls back: for ends without a number, whose keys are checked like any other; for nodes without a
file, ids longer than 64 bytes, small inputs, and in full when nodes changed before the commit.

Invariant: an end has a number only if its node is in the version that the load reads, so it needs
no other check. The numbers of all edges of a load, in the order of its rows, are the adjacency of
the table version that consists of the load's files and nothing else.
"""

from collections.abc import Callable
from threading import Lock

import numpy as np
import pyarrow as pa

from omnigraph.costs import COSTS
from omnigraph.exec.topology.short_ids import ShortIds, short_ids
from omnigraph.storage.derived.mapped_file import DamagedFile
from omnigraph.storage.lance.columns import KEY
from omnigraph.storage.lance.derived_bases import NodeBase
from omnigraph.storage.lance.staging import Fragments
from omnigraph.storage.records import TablePin
from omnigraph.storage.store import Store
from omnigraph.types import TableKey

Ends = tuple[np.ndarray, np.ndarray]


class NodeNumbers:
    """The numbers of one node table's ids at the version that a load reads."""

    def __init__(self, base: NodeBase, pin: TablePin, ids: ShortIds) -> None:
        self.base = base
        self.pin = pin
        self._ids = ids
        self._dead = _changed(base)

    def of(self, ids: pa.ChunkedArray) -> np.ndarray:
        """The number of each id, -1 where the version has no such node as far as its file
        tells."""
        numbers = self._ids.numbers(ids)
        if self._dead is not None:
            numbers[self._dead[numbers] & (numbers >= 0)] = -1
        return numbers


def _changed(base: NodeBase) -> np.ndarray | None:
    """Flags of the numbers whose nodes are gone, or were written or removed since the file."""
    file = base.file
    touched = (
        file.locate(base.touched[KEY].combine_chunks()) if base.touched.num_rows else file.gone
    )
    if not len(file.gone) and not len(touched):
        return None
    flags = np.zeros(file.count, bool)
    flags[file.gone] = True
    flags[touched[touched >= 0]] = True
    return flags


class LoadedEnds:
    """The numbers at both ends of one load's edges of one type, in the order of its rows."""

    def __init__(self, source: NodeNumbers, target: NodeNumbers) -> None:
        self.nodes = (source, target)
        self.fragments: Fragments = ()  # what the load wrote
        self._used = tuple(np.zeros(each.base.file.count, bool) for each in self.nodes)
        self._parts: list[Ends] | None = []
        self._count = 0

    def of(self, source: pa.ChunkedArray, target: pa.ChunkedArray) -> Ends:
        """The numbers at both ends of some edges. Safe to call from several threads."""
        return self.nodes[0].of(source), self.nodes[1].of(target)

    def add(self, ends: Ends) -> None:
        """Keep the numbers of the next edges."""
        for used, numbers in zip(self._used, ends, strict=True):
            used[numbers[numbers >= 0] if len(numbers) and numbers.min() < 0 else numbers] = True
        self._count += len(ends[0])
        if self._parts is not None:
            self._parts.append(ends)
            if self._count > COSTS.end_edges_kept_max:
                self._parts = None

    def nodes_at(self, end: int) -> pa.Array:
        """The ids of the nodes at an end, each once."""
        return self.nodes[end].base.file.ids_of(np.flatnonzero(self._used[end]))

    def whole(self) -> Ends | None:
        """The numbers of all edges; None when they are not known."""
        if not self._parts or any(each.min(initial=0) < 0 for part in self._parts for each in part):
            return None
        near, far = zip(*self._parts, strict=True)
        return np.concatenate(near), np.concatenate(far)


class EndNumbers:
    """The node numbers that one load gives to the ends of its edges. Safe to share between
    threads."""

    def __init__(self, store: Store, pin_of: Callable[[TableKey], TablePin]) -> None:
        self._store = store
        self._pin_of = pin_of
        self._turn = Lock()
        self._nodes: dict[TableKey, NodeNumbers | None] = {}
        self.loaded: dict[TableKey, LoadedEnds] = {}
        self._left: set[TableKey] = set()

    def of(self, table: TableKey, ends: tuple[TableKey, TableKey], edges: int) -> LoadedEnds | None:
        """The numbers of an edge table, decided by the size of its first batch."""
        with self._turn:
            if table in self.loaded or table in self._left:
                return self.loaded.get(table)
            near, far = (self._numbers(each, edges) for each in ends)
            if near is None or far is None:
                self._left.add(table)
                return None
            return self.loaded.setdefault(table, LoadedEnds(near, far))

    def _numbers(self, table: TableKey, edges: int) -> NodeNumbers | None:
        if table not in self._nodes:
            self._nodes[table] = self._made(table, edges)
        return self._nodes[table]

    def _made(self, table: TableKey, edges: int) -> NodeNumbers | None:
        derived, pin = self._store.derived, self._pin_of(table)
        if edges * COSTS.end_nodes_per_edge < pin.row_count:
            return None
        try:
            base = derived.nodes(pin)
            ids = None if base is None else short_ids(base.file.strings)
            return None if base is None or ids is None else NodeNumbers(base, pin, ids)
        except DamagedFile as damaged:
            derived.reject(damaged)
            return None
