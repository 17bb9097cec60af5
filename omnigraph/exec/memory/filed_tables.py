"""Fast path of: resident tables (`resident`) — table versions over derived files and a delta.

Reference: `exec/memory/resident.py`, table versions read whole.
Held equal by: `test_TP_reading_with_files_gives_the_rows_of_the_naive_evaluator` and
`test_TP1_after_any_writes_files_and_deltas_read_what_was_written`.
Falls back: when a table has no file, when its file is too far behind, and when a block of it is
damaged.

Invariant: a version is its file and the rows touched since. Columns of few entities are read by
their row ids; a column that is read again and again is loaded whole.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph import number_arrays
from omnigraph.costs import COSTS
from omnigraph.exec.memory.adjacency import AdjacencyView, Topology
from omnigraph.exec.memory.cache import Cache
from omnigraph.exec.memory.filed_columns import ColumnFiles, NamedColumns
from omnigraph.exec.memory.filed_ids import FiledIds
from omnigraph.exec.memory.filed_lists import (
    FiledAdjacency,
    OneWay,
    either_way,
    filed_adjacency,
    followed_adjacency,
    grown,
)
from omnigraph.exec.memory.resident import Edges, Nodes, ResidentTable, VersionPatch
from omnigraph.exec.memory.version import Source
from omnigraph.exec.topology.edge_delta import EdgeDelta, followed, positions_of, stored_delta
from omnigraph.exec.topology.node_delta import NodeDelta, id_columns_of, node_delta
from omnigraph.exec.values.columns import absent, in_one
from omnigraph.exec.values.rows import Positions, gather
from omnigraph.light_dataclass import dataclass
from omnigraph.plan import ir
from omnigraph.storage.derived.edge_file import EdgeFile, Way
from omnigraph.storage.derived.node_file import NO_ROW, NodeFile
from omnigraph.storage.lance.derived_bases import EdgeBase, NodeBase
from omnigraph.storage.lance.reader import TableReader

_CELL_BYTES = 64
_MAPPED_BYTES = 4096


@dataclass(frozen=True, slots=True)
class _NodePatch:
    """Numbers whose rows differ from the file's: their row ids now, ascending by number."""

    numbers: np.ndarray
    row_ids: np.ndarray


class FewCells(ResidentTable):
    """Single values of columns that are not in memory, fetched by row id and kept for the next
    query: a column's values by position."""

    def few_values(
        self, name: str, positions: list[int], together: Sequence[str]
    ) -> list[Any] | None:
        """The values of a column at a few positions, dates and moments as numbers; None when the
        column is to be loaded whole. What is missing of the columns `together` comes with them, in
        one read."""
        if self.holds(name):
            return None
        known = self._cells(name)
        missing = sorted({position for position in positions if position not in known})
        if missing:
            if not _is_fetched(self._cache, self, name, len(missing)):
                return None
            names = [each for each in dict.fromkeys((name, *together)) if not self.holds(each)]
            for each in names[1:]:
                _use(self._cache, self, each, len(missing))
            columns = self.fetched(names, np.array(missing, np.int64))
            for each, values in zip(names, columns, strict=True):
                own = known if each == name else self._cells(each)
                own.update(zip(missing, _plain(values).to_pylist(), strict=True))
        return [known[position] for position in positions]

    def _cells(self, name: str) -> dict[int, Any]:
        key = (self.key, "cells", name)
        cells: dict[int, Any] | None = self._cache.get(key)
        if cells is None or len(cells) > COSTS.column_cells_max:
            cells = {}
            self._cache.put(key, cells, COSTS.column_cells_max * _CELL_BYTES)
        return cells


def _plain(values: pa.Array) -> pa.Array:
    """Dates and moments as the numbers they are stored as."""
    if pa.types.is_date32(values.type):
        return values.view(pa.int32())
    return values.view(pa.int64()) if pa.types.is_timestamp(values.type) else values


class FiledNodes(FewCells, Nodes):
    """A node table version over a node file."""

    ids: FiledIds

    def __init__(
        self,
        source: Source,
        cache: Cache,
        ids: FiledIds,
        patch: _NodePatch,
        id_columns: frozenset[int],
        change: VersionPatch | None,
        columns: ColumnFiles,
        *,
        is_exact: bool,
    ) -> None:
        super().__init__(source, cache, ids, None, change)
        self.file: NodeFile = ids.file
        self.columns = NamedColumns(source, columns)
        self._written = frozenset(patch.numbers.tolist())
        self.patch = patch
        self.id_columns = id_columns
        self._absent = _absent_numbers(ids, patch)
        in_order = self.file.in_order and not len(patch.numbers) and not len(self._absent)
        self._rows_known = is_exact and in_order and len(ids) == self.file.count

    def _without_absent(self) -> Positions:
        if not len(self._absent):
            return self.everything
        self._present = np.delete(self.everything, self._absent)
        return self._present

    def existing(self, positions: Positions) -> Positions:
        return positions[~np.isin(positions, self._absent)] if len(self._absent) else positions

    def is_id(self, column: ir.Column) -> bool:
        return int(column.property_id) in self.id_columns

    def is_as_filed(self, number: int) -> bool:
        """Whether a node is as the files have it: there, and not written since."""
        if number >= self.file.count or number in self._written:
            return False
        index = bisect_left(self._absent, number) if len(self._absent) else 0
        return index == len(self._absent) or int(self._absent[index]) != number

    def ids_listed(self, positions: list[int]) -> list[Any]:
        """The ids at a few positions."""
        count, id_of = self.file.count, self.file.id_of
        if positions and min(positions) >= 0 and max(positions) < count:
            return [id_of(position) for position in positions]
        ids: list[Any] = self.ids_at(np.array(positions, np.int64)).to_pylist()
        return ids

    @property
    def bytes_held(self) -> int:
        return int(self.ids.bytes_held + self.patch.numbers.nbytes * 3 + 4096)

    def row_ids_of(self, numbers: np.ndarray) -> np.ndarray:
        """The row ids of some numbers, all of which exist."""
        old = numbers < self.file.count
        row_ids = np.full(len(numbers), NO_ROW)
        row_ids[old] = self.file.row_ids.take(numbers[old])
        if len(self.patch.numbers):
            nearest = np.searchsorted(self.patch.numbers, numbers)
            nearest = np.minimum(nearest, len(self.patch.numbers) - 1)
            own = self.patch.numbers[nearest] == numbers
            row_ids[own] = self.patch.row_ids[nearest[own]]
        return row_ids

    def fetched(self, names: Sequence[str], positions: Positions) -> list[pa.Array]:
        distinct = number_arrays.distinct(positions[positions >= 0])
        row_ids = self.row_ids_of(distinct)
        return _fetched(self.source.reader, names, distinct, row_ids, positions)

    def few_values(
        self, name: str, positions: list[int], together: Sequence[str]
    ) -> list[Any] | None:
        column = self.columns.get(name)
        if column is None:
            values = super().few_values(name, positions, together)
            if values is not None or self.holds(name):
                return values
            column = self.columns.get(name, build=True)
            if column is None:
                return None
        written = self._written
        if not written or written.isdisjoint(positions):
            value = column.value
            return [value(position) if position >= 0 else None for position in positions]
        return super().few_values(name, positions, together)

    def column(self, name: str, *, blob: bool = False) -> pa.Array:
        def make() -> tuple[pa.Array, int]:
            column = None if blob else self.columns.get(name, build=True)
            if column is None:
                values = self._loaded(name, blob=blob)
                return values, int(values.nbytes)
            values = self.columns.whole(name, column)
            if not self._written:
                return values, _MAPPED_BYTES
            values = self._with_written(name, values)
            return values, int(values.nbytes)

        return self._cache.made((self.key, "column", name), make)

    def _with_written(self, name: str, values: pa.Array) -> pa.Array:
        """A column of the file with the values of the rows written since."""
        numbers = self.existing(self.patch.numbers)
        rows = np.full(self.size, -1)
        rows[: len(values)] = np.arange(len(values))
        rows[numbers] = len(values) + np.arange(len(numbers))
        [written] = self.fetched([name], numbers)
        return gather(pa.concat_arrays([values, written]), rows)

    def values_at(self, column: ir.Column, positions: Positions) -> pa.Array:
        name = self.source.columns.name_of(column)
        if name is None:
            return absent(column, len(positions))
        if self.is_id(column):
            return self.ids.ids_of(positions)
        is_plain = not column.type.is_blob and self.columns.get(name) is None
        if is_plain and _is_fetched(self._cache, self, name, len(positions)):
            return self.fetched([name], positions)[0]
        return super().values_at(column, positions)

    def ranks_at(self, positions: Positions) -> np.ndarray:
        if self.ids.is_sorted or len(positions) * 4 > self.size:
            return super().ranks_at(positions)
        return _ranks(self.ids_at, positions)


def _absent_numbers(ids: FiledIds, patch: _NodePatch) -> np.ndarray:
    """The numbers that have no row in a version, ascending."""
    numbers = number_arrays.union(ids.file.gone, np.arange(ids.file.count, len(ids)))
    numbers = number_arrays.difference(numbers, patch.numbers[patch.row_ids != NO_ROW])
    return number_arrays.union(numbers, patch.numbers[patch.row_ids == NO_ROW]).astype(np.int64)


def filed_nodes(
    source: Source, cache: Cache, base: NodeBase, ids: FiledIds, columns: ColumnFiles
) -> FiledNodes:
    """A node table version, of its base file and the ids touched since."""
    delta = node_delta(base.touched)
    ids, patch, _ = _with_delta(
        ids, _NodePatch(np.empty(0, np.int64), np.empty(0, np.uint64)), delta
    )
    same = id_columns_of(base.file, delta, source.reader)
    return FiledNodes(source, cache, ids, patch, same, None, columns, is_exact=base.is_exact)


def follow_filed_nodes(
    source: Source, cache: Cache, before: FiledNodes, known: FiledIds, touched: pa.Table
) -> FiledNodes:
    """A version of an earlier one that is in memory, and the ids touched since."""
    delta = node_delta(touched)
    ids, patch, numbers = _with_delta(known, before.patch, delta)
    columns = id_columns_of(before.file, delta, source.reader) & before.id_columns
    change = VersionPatch(before.key, numbers[~delta.is_gone])
    files = before.columns.files
    # Compaction moves rows without touching any.
    return FiledNodes(source, cache, ids, patch, columns, change, files, is_exact=False)


def _with_delta(
    ids: FiledIds, patch: _NodePatch, delta: NodeDelta
) -> tuple[FiledIds, _NodePatch, np.ndarray]:
    numbers = ids.locate(delta.ids)
    new = np.flatnonzero((numbers < 0) & ~delta.is_gone)
    if len(new):
        numbers[new] = len(ids) + np.arange(len(new))
        ids = ids.extended(delta.ids.take(pa.array(new)))
    known = numbers >= 0
    keep = ~np.isin(patch.numbers, numbers)
    together = np.concatenate((patch.numbers[keep], numbers[known]))
    row_ids = np.concatenate((patch.row_ids[keep], delta.row_ids[known]))
    order = np.argsort(together, kind="stable")
    return ids, _NodePatch(together[order], row_ids[order]), numbers


class FiledEdges(FewCells, Edges):
    """An edge table version over an edge file."""

    def __init__(
        self,
        source: Source,
        cache: Cache,
        file: EdgeFile,
        delta: EdgeDelta,
        dictionaries: tuple[FiledIds, FiledIds],
        change: VersionPatch | None,
        *,
        in_order: bool,
        followed: EdgeDelta | None = None,
    ) -> None:
        ends, row_ids = (np.empty(0, np.int32), np.empty(0, np.int32)), np.empty(0, np.uint64)
        layout = file.digest if delta.is_empty else object()
        super().__init__(source, cache, ends, row_ids, None, dictionaries, change, layout)
        self.file = file
        self.delta = delta
        self.followed = followed  # the delta of the version before, the first part of this one
        self.size = file.count + len(delta.row_ids)
        self._in_order = in_order

    @property
    def bytes_held(self) -> int:
        return self.delta.bytes_held + 4096

    def position_of_rows(self) -> Positions | None:
        if self._in_order:
            return None
        return positions_of(self.file, self.delta, self.source.reader.row_ids().to_numpy())

    def fetched(self, names: Sequence[str], positions: Positions) -> list[pa.Array]:
        distinct = number_arrays.distinct(positions[positions >= 0])
        old = distinct < self.file.count
        row_ids = np.empty(len(distinct), np.uint64)
        row_ids[old] = self.file.row_ids.take(distinct[old])
        row_ids[~old] = self.delta.row_ids[distinct[~old] - self.file.count]
        return _fetched(self.source.reader, names, distinct, row_ids, positions)

    def values_at(self, column: ir.Column, positions: Positions) -> pa.Array:
        name = self.source.columns.name_of(column)
        if name is None:
            return absent(column, len(positions))
        if not column.type.is_blob and _is_fetched(self._cache, self, name, len(positions)):
            return self.fetched([name], positions)[0]
        return super().values_at(column, positions)

    def _named(self, name: str, positions: Positions) -> pa.Array:
        if _is_fetched(self._cache, self, name, len(positions)):
            return self.fetched([name], positions)[0]
        values = self.column(name)
        return values if positions is self.everything else gather(values, positions)

    def ids_at(self, positions: Positions) -> pa.Array:
        return self._named("id", positions)

    def ends_at(self, end: ir.End, positions: Positions) -> pa.Array:
        return self._named(end.value, positions)


def filed_edges(
    source: Source,
    cache: Cache,
    base: EdgeBase,
    before: TableReader,
    dictionaries: tuple[FiledIds, FiledIds],
) -> FiledEdges:
    """An edge table version, of its base file and the edges touched since."""
    locate = dictionaries[0].locate, dictionaries[1].locate
    readers = (before, source.reader)
    delta, _ = followed(base.file, stored_delta(base), base.touched, readers, locate)
    return FiledEdges(source, cache, base.file, delta, dictionaries, None, in_order=base.in_order)


def follow_filed_edges(
    source: Source,
    cache: Cache,
    before: FiledEdges,
    dictionaries: tuple[FiledIds, FiledIds],
    touched: pa.Table,
) -> FiledEdges:
    """A version of an earlier one that is in memory, and the edges touched since."""
    locate = dictionaries[0].locate, dictionaries[1].locate
    readers = (before.source.reader, source.reader)
    delta, written = followed(before.file, before.delta, touched, readers, locate)
    change = VersionPatch(before.key, written)
    known = before.delta
    return FiledEdges(
        source, cache, before.file, delta, dictionaries, change, in_order=False, followed=known
    )


class FiledTopology(Topology):
    """The adjacency of one edge table version over an edge file."""

    edges: FiledEdges

    def adjacency(self, direction: ir.Direction, nodes: int) -> AdjacencyView:
        way = _WAYS.get(direction)
        if way is not None:
            return self._one_way(direction, way, nodes)
        key = self._key(self.edges.key, direction)
        known: FiledAdjacency | None = self._cache.get(key)
        if known is None or known.nodes < nodes:
            size = max(nodes, *(len(each) for each in self.edges.dictionaries))
            out, back = (self._one_way(each, _WAYS[each], size) for each in _WAYS)
            known = either_way(out, back)
            self._cache.put(key, known, 4096)
        return known

    def _one_way(self, direction: ir.Direction, way: Way, nodes: int) -> OneWay:
        edges = self.edges
        key = self._key(edges.key, direction)
        known: OneWay | None = self._cache.get(key)
        if known is None or known.nodes < nodes:
            size = max(nodes, len(edges.dictionaries[0 if way is Way.OUT else 1]))
            known = (
                self._made_one_way(direction, way, size)
                if known is None
                else (grown(known, way, size))
            )
            self._cache.put(key, known, known.bytes_held)
        return known

    def _made_one_way(self, direction: ir.Direction, way: Way, size: int) -> OneWay:
        """The adjacency of an earlier version that is in memory, followed, or that of the file."""
        edges = self.edges
        if edges.change is not None and edges.followed is not None:
            before = self._cache.get(self._key(edges.change.base, direction))
            if isinstance(before, OneWay) and before.delta is edges.followed:
                return followed_adjacency(before, edges.delta, way, size)
        return filed_adjacency(edges.file, edges.delta, way, size)


_WAYS = {ir.Direction.OUT: Way.OUT, ir.Direction.IN: Way.IN}


def _fetched(
    reader: TableReader,
    names: Sequence[str],
    distinct: np.ndarray,
    row_ids: np.ndarray,
    positions: Positions,
) -> list[pa.Array]:
    rows = reader.by_row_id(number_arrays.to_arrow(row_ids), list(names))
    indexes = np.where(positions < 0, -1, np.searchsorted(distinct, positions))
    return [gather(in_one(rows[name]), indexes) for name in names]


def _is_fetched(cache: Cache, table: ResidentTable, name: str, count: int) -> bool:
    """Whether a column is read for these few entities alone: rent, until buying would have paid."""
    if count > COSTS.column_fetch_rows_max or count * 4 > table.size or table.holds(name):
        return False
    if table.change is not None and cache.get((table.change.base, "column", name)) is not None:
        return False  # patching the column of the version before costs less
    return _use(cache, table, name, count) < table.size


def _use(cache: Cache, table: ResidentTable, name: str, count: int) -> int:
    """Count a fetch of a column; what the fetches before it have cost."""
    cost = COSTS.column_fetch_cost_rows + COSTS.column_fetch_row_cost_rows * count
    return cache.use((table.source.key, "fetched", name), cost) - cost


def _ranks(ids_at: object, positions: Positions) -> np.ndarray:
    """Ranks among these entities alone, -1 at -1."""
    assert callable(ids_at)
    distinct, inverse = np.unique(positions, return_inverse=True)
    order = pc.array_sort_indices(ids_at(distinct[distinct >= 0])).to_numpy()
    nulls = len(distinct) - len(order)
    ranks = np.full(len(distinct), -1)
    ranks[order + nulls] = np.arange(len(order))
    return ranks[inverse]
