"""Resident tables: whole table versions in memory, with a position an entity and lazy columns.

Invariant: a resident version holds what reading that version gives. A version that follows a
resident one is made of it and the rows written between them; when those are many, or rows are gone
in a way the rows themselves do not show, it is read anew.

A node's position is its number in the type's dictionary (`numbering`), the same in every version,
so adjacency survives changes of nodes. An edge's position is the order in which its row was first
read; Lance's stable row ids find it again.
"""

from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph import number_arrays
from omnigraph.costs import COSTS
from omnigraph.exec.memory.cache import Cache
from omnigraph.exec.memory.numbering import Ids
from omnigraph.exec.memory.version import Source, VersionKey
from omnigraph.exec.values.columns import absent, blob_presence, in_one, read_column
from omnigraph.exec.values.rows import Positions, gather, numbers_at
from omnigraph.light_dataclass import dataclass
from omnigraph.plan import ir
from omnigraph.storage.lance.columns import ROW_ID
from omnigraph.types import TableKey

_CELL_BYTES = 64
_TABLE_ORDER = "table order"

PositionsKey = tuple[VersionKey, Hashable]
"""A version, and the numbering that gave its entities their positions. Columns, adjacency and all
that is kept by position is kept under it."""


@dataclass(frozen=True, slots=True)
class VersionPatch:
    """How a version differs from an earlier resident one: the positions written since."""

    base: PositionsKey
    written: Positions


class ResidentTable:
    """A table version in memory: a position a row, and columns in that order."""

    def __init__(
        self,
        source: Source,
        cache: Cache,
        size: int,
        change: VersionPatch | None,
        layout: Hashable,
    ) -> None:
        self.source = source
        self.key: PositionsKey = (source.key, layout)
        self.size = size
        self._cache = cache
        self.change = change

    @property
    def table(self) -> TableKey:
        return self.source.table

    @cached_property
    def everything(self) -> Positions:
        """Every position."""
        return np.arange(self.size)

    def position_of_rows(self) -> Positions | None:
        """The position of each row in the order of the table; None when they are the same."""
        raise NotImplementedError

    def fetched(self, names: Sequence[str], positions: Positions) -> list[pa.Array]:
        """Columns of a few entities, read for them alone."""
        raise NotImplementedError

    def values_at(self, column: ir.Column, positions: Positions) -> pa.Array:
        name = self.source.columns.name_of(column)
        if name is None:
            return absent(column, len(positions))
        if (
            column.type.is_vector
            and len(positions) <= COSTS.vector_fetch_rows_max
            and not self.holds(name)
        ):
            return self.fetched([name], positions)[0]
        values = self.column(name, blob=column.type.is_blob)
        return values if positions is self.everything else gather(values, positions)

    def holds(self, name: str) -> bool:
        """Whether a column is in memory."""
        return self._cache.get((self.key, "column", name)) is not None

    def column(self, name: str, *, blob: bool = False) -> pa.Array:
        """A column by position. Of a blob only whether it has a value."""

        def make() -> tuple[pa.Array, int]:
            values = self._loaded(name, blob=blob)
            return values, int(values.nbytes)

        return self._cache.made((self.key, "column", name), make)

    def load(self, columns: Iterable[ir.Column]) -> None:
        """Bring columns into memory, many with one scan: planning a scan takes a pass over all
        columns of the table. Large ones are left to `column`, which reads one at a time."""
        names = (self.source.columns.name_of(column) for column in columns)
        missing = [name for name in names if name is not None and not self.holds(name)]
        together = COSTS.columns_together_bytes // (_CELL_BYTES * max(self.size, 1))
        for start in range(0, len(missing) if together > 1 else 0, max(together, 1)):
            several = missing[start : start + together]
            for name, values in zip(several, self._read(several), strict=True):
                self._cache.put((self.key, "column", name), values, int(values.nbytes))

    def _loaded(self, name: str, *, blob: bool) -> pa.Array:
        if blob:
            return self._by_position([blob_presence(self.source.reader, name)])[0]
        return self._read([name])[0]

    def _read(self, names: Sequence[str]) -> list[pa.Array]:
        """Columns by position: patched where the version before has them, or read whole."""
        patched = self._patched(names)
        whole = [name for name in names if name not in patched]
        if whole:
            rows = self.source.reader.rows(whole)
            values = self._by_position([in_one(rows[name]) for name in whole])
            patched |= zip(whole, values, strict=True)
        return [patched[name] for name in names]

    def keep(self, names: Sequence[str], rows: pa.Table) -> None:
        """Keep columns that were read together with the ids or the ends of all rows."""
        columns = self._by_position([in_one(rows[name]) for name in names]) if names else []
        for name, values in zip(names, columns, strict=True):
            self._cache.put((self.key, "column", name), values, int(values.nbytes))

    def _by_position(self, columns: list[pa.Array]) -> list[pa.Array]:
        positions = self.position_of_rows()
        if positions is None:
            return columns
        rows = np.full(self.size, -1)
        rows[positions] = np.arange(len(positions))
        return [gather(values, rows) for values in columns]

    def _patched(self, names: Iterable[str]) -> dict[str, pa.Array]:
        """The columns that the version before has in memory, with the values written since."""
        change = self.change
        if change is None:
            return {}
        cached = ((name, self._cache.get((change.base, "column", name))) for name in names)
        before = {name: values for name, values in cached if values is not None}
        if not before:
            return {}
        patched = {}
        fetched = self.fetched(list(before), change.written)
        for (name, values), written in zip(before.items(), fetched, strict=True):
            rows = np.full(self.size, -1)
            rows[: len(values)] = np.arange(len(values))
            rows[change.written] = len(values) + np.arange(len(change.written))
            patched[name] = gather(pa.concat_arrays([values, written]), rows)
        return patched


class Nodes(ResidentTable):
    """A node table version. `present` are the positions that exist in it, ascending."""

    def __init__(
        self,
        source: Source,
        cache: Cache,
        ids: Ids,
        rows: Positions | None,
        change: VersionPatch | None,
    ) -> None:
        super().__init__(source, cache, len(ids), change, (ids.family, len(ids)))
        self.ids = ids
        self._rows = rows
        self._rows_known = change is None
        self._present: Positions | None = None

    @property
    def present(self) -> Positions:
        """The positions that exist, ascending."""
        if self._present is None:
            return self._without_absent()
        return self._present

    @present.setter
    def present(self, positions: Positions) -> None:
        self._present = positions

    def _without_absent(self) -> Positions:
        return self.everything

    def existing(self, positions: Positions) -> Positions:
        """Those of the positions that exist."""
        present = self._present
        if present is None or not len(positions):
            return positions
        nearest = np.minimum(np.searchsorted(present, positions), len(present) - 1)
        return positions[present[nearest] == positions] if len(present) else positions[:0]

    def is_id(self, column: ir.Column) -> bool:
        """Whether a column is known to equal the id in every row."""
        return False

    @property
    def bytes_held(self) -> int:
        rows = 0 if self._rows is None else self._rows.nbytes
        return int(self.ids.bytes_held + 8 * self.size + rows)

    @property
    def is_in_table_order(self) -> bool:
        """Whether it is known that the n-th row has the number n."""
        return self._rows_known and self._rows is None

    def position_of_rows(self) -> Positions | None:
        if not self._rows_known:
            self._rows = self.ids.locate(read_column(self.source.reader, "id"))
            self._rows_known = True
        return self._rows

    def fetched(self, names: Sequence[str], positions: Positions) -> list[pa.Array]:
        distinct = number_arrays.distinct(positions[positions >= 0])
        columns = self.source.aligned(self.ids.ids_of(distinct), names)
        indexes = _among(distinct, positions)
        return [gather(values, indexes) for values in columns]

    def ids_at(self, positions: Positions) -> pa.Array:
        return self.ids.ids_of(positions)

    def ranks_at(self, positions: Positions) -> np.ndarray:
        return numbers_at(self.ids.rank, positions)

    def ends_at(self, end: ir.End, positions: Positions) -> pa.Array:
        raise AssertionError(f"{self.table} is no edge table and has no {end}")


def read_nodes(
    source: Source, cache: Cache, known: Ids | None, columns: Sequence[str] = ()
) -> Nodes:
    """A node table version read anew, with some of its columns."""
    rows = source.reader.rows(["id", *columns])
    nodes = _numbered_nodes(source, cache, in_one(rows["id"]), known)
    nodes.keep(columns, rows)
    return nodes


def _numbered_nodes(source: Source, cache: Cache, strings: pa.Array, known: Ids | None) -> Nodes:
    """A node table version by its ids, numbered as far as they are known."""
    if known is None:
        return Nodes(source, cache, Ids(strings), None, None)
    rows = known.locate(strings)
    new = np.flatnonzero(rows < 0)
    if len(new):
        rows[new] = len(known) + np.arange(len(new))
        known = known.extended(strings.take(pa.array(new)))
    nodes = Nodes(source, cache, known, rows, None)
    if len(rows) < len(known):
        nodes.present = np.sort(rows)
    return nodes


def follow_nodes(source: Source, cache: Cache, base: Nodes, known: Ids) -> Nodes | None:
    """A version made of an earlier one and the nodes written since; None to read it anew."""
    if not has_columns_of(source, base):
        return None
    written = _written_since(source, base.source.key[1], ["id"])
    if written is None:
        return None
    ids = in_one(written["id"])
    positions = known.locate(ids)
    new = np.flatnonzero(positions < 0)
    if len(new):
        positions[new] = len(known) + np.arange(len(new))
        known = known.extended(ids.take(pa.array(new)))
    present = base.present
    created = number_arrays.difference(positions, present)
    if len(present) + len(created) != source.pin.row_count:
        return None  # rows were deleted, and a version does not list its deleted ids
    nodes = Nodes(source, cache, known, None, VersionPatch(base.key, positions))
    if source.pin.row_count < len(known):
        nodes.present = number_arrays.union(present, created)
    return nodes


def has_columns_of(source: Source, base: ResidentTable) -> bool:
    """Check that a name means the same property in both versions: names may have been swapped."""
    return bool(source.reader.schema.equals(base.source.reader.schema, check_metadata=True))


def _written_since(source: Source, version: int, names: list[str]) -> pa.Table | None:
    """Rows written after a version, if they are few."""
    written = source.reader.written_since(version, names)
    if written.num_rows > COSTS.resident_follow_share_max * max(
        source.pin.row_count, COSTS.follow_base_rows
    ):
        return None
    return written


class Edges(ResidentTable):
    """An edge table version: the node numbers at both ends of each edge, by position."""

    def __init__(
        self,
        source: Source,
        cache: Cache,
        ends: tuple[np.ndarray, np.ndarray],
        row_ids: np.ndarray,
        alive: np.ndarray | None,
        dictionaries: tuple[Ids, Ids],
        change: VersionPatch | None,
        layout: Hashable,
    ) -> None:
        super().__init__(source, cache, len(row_ids), change, layout)
        self.ends = ends
        self.row_ids = row_ids
        self.alive = alive  # flags by position; None when every edge exists
        self.dictionaries = dictionaries

    @property
    def bytes_held(self) -> int:
        alive = 0 if self.alive is None else self.alive.nbytes
        ends = self.ends[0].nbytes + self.ends[1].nbytes
        return int(ends + self.row_ids.nbytes + 8 * self.size + alive)

    def position_of_rows(self) -> Positions | None:
        if self.change is None:
            return None
        row_ids = self.source.reader.row_ids().to_numpy()
        return _indexes(self.row_ids, row_ids)

    def fetched(self, names: Sequence[str], positions: Positions) -> list[pa.Array]:
        # Ids of edges are long and many, so few edges are looked up by their row ids.
        distinct = number_arrays.distinct(positions[positions >= 0])
        row_ids = self.row_ids[distinct]
        rows = self.source.reader.among_row_ids(pa.array(np.sort(row_ids)), names)
        indexes = _indexes(rows[ROW_ID].to_numpy(), row_ids)
        chosen = numbers_at(indexes, _among(distinct, positions))
        return [gather(in_one(rows[name]), chosen) for name in names]

    def ids_at(self, positions: Positions) -> pa.Array:
        ids = self.column("id")
        return ids if positions is self.everything else gather(ids, positions)

    def ranks_at(self, positions: Positions) -> np.ndarray:
        """Ranks among these edges alone: sorting the ids of all would cost more than it saves."""
        distinct, inverse = np.unique(positions, return_inverse=True)
        order = pc.array_sort_indices(self.ids_at(distinct[distinct >= 0])).to_numpy()
        nulls = len(distinct) - len(order)
        ranks = np.full(len(distinct), -1)
        ranks[order + nulls] = np.arange(len(order))
        return ranks[inverse]

    def ends_at(self, end: ir.End, positions: Positions) -> pa.Array:
        side = 0 if end is ir.End.SRC else 1
        return gather(self.dictionaries[side].strings, numbers_at(self.ends[side], positions))


def read_edges(
    source: Source, cache: Cache, dictionaries: tuple[Ids, Ids], columns: Sequence[str] = ()
) -> Edges:
    """An edge table version read anew, with some of its columns."""
    rows = source.reader.rows(["src", "dst", *columns], with_row_id=True)
    ends = _numbered(rows, dictionaries)
    row_ids = rows[ROW_ID].to_numpy()
    alive = _anchored(ends)
    edges = Edges(source, cache, ends, row_ids, alive, dictionaries, None, _TABLE_ORDER)
    edges.keep(columns, rows)
    return edges


def _anchored(ends: tuple[np.ndarray, np.ndarray]) -> np.ndarray | None:
    """Flags of the edges whose ends exist; None when all do, as in every table that only OmniGraph
    wrote."""
    anchored = (ends[0] >= 0) & (ends[1] >= 0)
    return None if anchored.all() else anchored


def follow_edges(
    source: Source, cache: Cache, base: Edges, dictionaries: tuple[Ids, Ids]
) -> Edges | None:
    """A version made of an earlier one and the edges written since; None to read it anew."""
    if not has_columns_of(source, base):
        return None
    written = _written_since(source, base.source.key[1], ["src", "dst"])
    if written is None:
        return None
    row_ids = written[ROW_ID].to_numpy()
    positions = _indexes(base.row_ids, row_ids)
    new = positions < 0
    size = base.size + int(np.count_nonzero(new))
    positions[new] = np.arange(base.size, size)
    ends = _numbered(written, dictionaries)
    alive = np.ones(size, bool)
    if base.alive is not None:
        alive[: base.size] = base.alive
    alive[positions] = True
    all_ids = np.empty(size, np.uint64)
    all_ids[: base.size] = base.row_ids
    all_ids[positions] = row_ids
    if np.count_nonzero(alive) != source.pin.row_count:
        alive &= np.isin(all_ids, source.reader.row_ids().to_numpy())
    sides = [_with(base.ends[side], size, positions, ends[side]) for side in (0, 1)]
    alive &= (sides[0] >= 0) & (sides[1] >= 0)
    change = VersionPatch(base.key, positions)
    flags = None if alive.all() else alive
    ends = sides[0], sides[1]
    return Edges(source, cache, ends, all_ids, flags, dictionaries, change, object())


def _with(before: np.ndarray, size: int, positions: Positions, values: np.ndarray) -> np.ndarray:
    longer = np.empty(size, before.dtype)
    longer[: len(before)] = before
    longer[positions] = values
    return longer


def _numbered(rows: pa.Table, dictionaries: tuple[Ids, Ids]) -> tuple[np.ndarray, np.ndarray]:
    source, target = dictionaries
    return (
        source.locate(in_one(rows["src"])).astype(np.int32),
        target.locate(in_one(rows["dst"])).astype(np.int32),
    )


def _among(distinct: Positions, positions: Positions) -> np.ndarray:
    """The index of each position among the distinct ones, -1 for null."""
    return np.where(positions < 0, -1, np.searchsorted(distinct, positions))


def _indexes(row_ids: np.ndarray, requested: np.ndarray) -> np.ndarray:
    """The index of each requested row id among `row_ids`, or -1."""
    if not len(row_ids):
        return np.full(len(requested), -1)
    order = np.argsort(row_ids, kind="stable")
    nearest = np.minimum(np.searchsorted(row_ids, requested, sorter=order), len(row_ids) - 1)
    indexes = order[nearest]
    return np.where(row_ids[indexes] == requested, indexes, -1)
