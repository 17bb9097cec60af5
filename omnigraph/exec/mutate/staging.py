"""Pending rows of one mutation: an in-memory overlay over the committed tables (read your writes).

Each touched table has pending rows or removed ids. A read is the committed rows that Lance selects
plus the pending rows that satisfy the same condition; a pending row shadows the committed one of
its id. At the end every table is staged once.

Invariant: until `stage` nothing is written at all, and `stage` moves no table head. The first touch
of a table reads it through the write, so its version is a condition of the commit.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.model import Catalog, NodeType, Type
from omnigraph.costs import COSTS
from omnigraph.exec.rules.rules import rules_of
from omnigraph.exec.values.columns import with_columns
from omnigraph.exec.values.constants import Given
from omnigraph.exec.values.own_columns import stored_column
from omnigraph.exec.values.selection import (
    by_id,
    rows_by_key,
    select_among,
    select_committed,
    without_ids,
)
from omnigraph.plan import ir, mutation_ir
from omnigraph.storage.lance.columns import ADDRESS
from omnigraph.storage.lance.reader import TableReader
from omnigraph.storage.protocol.write import Write
from omnigraph.storage.records import Embedded, EmbeddedChange
from omnigraph.types import ID_TYPE, Kind, TableKey, ValueType

Row = Mapping[str, Any]

_ADDRESS_FIELD = pa.field(ADDRESS, pa.uint64())


@dataclass(frozen=True, slots=True)
class TableMark:
    """Savepoint of a pending table."""

    changed: frozenset[str]
    removed: pa.Table
    rows: pa.Table
    maybe_committed: frozenset[str]
    replaced: int
    written: int


class PendingTable:
    """Pending rows and removed ids of one table."""

    def __init__(self, owner: Type, reader: TableReader, given: Given) -> None:
        self.owner = owner
        self.reader = reader
        self.schema = owner.schema
        self.changed: set[str] = set()  # columns that a statement may have changed
        self.removed = (
            self.schema.append(_ADDRESS_FIELD).empty_table().select(self._removed_columns())
        )
        self._given = given
        self._folded = self.schema.empty_table()
        self._inserted: dict[str, Row] = {}  # newer than `_folded`
        self._maybe_committed: set[str] = set()
        self._replaced: list[pa.Array] = []  # addresses of committed rows that pending ones replace
        self._written: list[pa.Array] = []  # ids, in the order of statements

    # Savepoints

    def mark(self) -> TableMark:
        """The state of now, for `reset`."""
        return TableMark(
            frozenset(self.changed),
            self.removed,
            self.rows(),
            frozenset(self._maybe_committed),
            len(self._replaced),
            len(self._written),
        )

    def reset(self, mark: TableMark) -> None:
        """Undo what statements did since a mark."""
        self.changed = set(mark.changed)
        self.removed = mark.removed
        self._folded, self._inserted = mark.rows, {}
        self._maybe_committed = set(mark.maybe_committed)
        del self._replaced[mark.replaced :]
        del self._written[mark.written :]

    def serve(self, given: Given) -> None:
        """Evaluate conditions with the parameters of another mutation from here on."""
        self._given = given

    def affected_since(self, mark: TableMark) -> int:
        """How many rows were written or removed since a mark, without duplicates."""
        written = self._written[mark.written :]
        count = pc.count_distinct(pa.concat_arrays(written)).as_py() if written else 0
        return int(count + self.removed.num_rows - mark.removed.num_rows)

    # Rows

    def insert(self, row: Row, *, strict: bool) -> None:
        """Upsert a row by id. The id of a strict row was never in use."""
        self._inserted.pop(row["id"], None)
        self._inserted[row["id"]] = row
        self._written.append(pa.array([row["id"]], pa.utf8()))
        if not strict:
            self._maybe_committed.add(row["id"])
        self.changed.update(self.schema.names)

    def update(
        self,
        where: ir.Expr,
        sets: Mapping[str, Any],
        read: Sequence[mutation_ir.SetColumn] = (),
    ) -> int:
        """Set columns of the matching rows; returns how many match. Values of `read` come from the
        rows as they were."""
        matches = without_ids(self._committed(where, [*self.schema.names, ADDRESS]), self.ids())
        committed = matches.select(self.schema.names)
        pending = select_among(self.rows(), where, self._given)
        matched = pa.concat_tables([pending, committed])
        if not matched.num_rows:
            return 0
        self._replaced += matches.column(ADDRESS).chunks
        computed = {column.name: stored_column(matched, column, self._given) for column in read}
        self._put(with_columns(_with_columns(matched, sets), computed), {*sets, *computed})
        return int(matched.num_rows)

    def _put(self, after: pa.Table, changed: Iterable[str]) -> None:
        """Rows in the place of those of the same ids."""
        self._folded = pa.concat_tables([without_ids(self.rows(), _ids(after)), after])
        self._written.append(_ids(after))
        self.changed.update(changed)

    def upsert(self, row: Row, *, key: Sequence[str], defaults: Row) -> None:
        """Set the columns of the row of an id, which keeps its others; or insert it."""
        sets = {name: value for name, value in row.items() if name != "id" and name not in key}
        entity = ir.Const(row["id"], ID_TYPE)
        named = ir.Compare(ir.CompareOp.EQ, ir.EntityId(ir.SELF, ID_TYPE), entity)
        if self._is_new(row["id"]) or not self.update(named, sets):
            self.insert({**defaults, **row}, strict=True)

    def _is_new(self, entity: str) -> bool:
        """Whether it is known without a lookup that no row has this id."""
        if entity in self._inserted or pc.index(self.ids(), entity).as_py() >= 0:
            return False
        return not self.reader.pin.row_count or self.reader.lacks(pa.array([entity]))

    def rows(self) -> pa.Table:
        """The pending rows, one an id: the last write wins."""
        if self._inserted:
            newest = pa.Table.from_pylist(list(self._inserted.values()), schema=self.schema)
            self._folded = pa.concat_tables([without_ids(self._folded, _ids(newest)), newest])
            self._inserted = {}
        return self._folded

    def put_columns(self, columns: Mapping[str, pa.Array]) -> None:
        """Give the pending rows other values in these columns."""
        if columns:
            self._folded = with_columns(self.rows(), columns)
            self.changed.update(columns)

    def ids(self) -> pa.Array:
        """The ids of the pending rows."""
        return _ids(self.rows())

    def _committed(self, where: ir.Expr, columns: Sequence[str]) -> pa.Table:
        where = by_id(self.owner, where)
        return select_committed(self.reader, self.schema, where, self._given, columns)

    # Removals

    def remove_where(self, where: ir.Expr) -> pa.Table:
        """Remove the matching rows; returns the rows not removed before."""
        return self._remove(self._committed(where, self._removed_columns()))

    def remove_touching(self, ends: Iterable[ir.End], nodes: pa.Array) -> None:
        """Remove the edges that have one of these nodes at one of the ends."""
        for end in ends:
            self._remove(rows_by_key(self.reader, str(end), nodes, self._removed_columns()))

    def _remove(self, rows: pa.Table) -> pa.Table:
        # Of one version an address is as good as an id, and need not be read.
        known = self.removed.column(ADDRESS).combine_chunks()
        fresh = rows.filter(pc.invert(pc.is_in(rows.column(ADDRESS), value_set=known)))
        if fresh.num_rows:
            self.removed = pa.concat_tables([self.removed, fresh.cast(self.removed.schema)])
        return fresh

    def _removed_columns(self) -> list[str]:
        """Columns kept of a removed row: its address, the id of a node, and what the cardinality of
        an edge is checked by."""
        if isinstance(self.owner, NodeType):
            return ["id", ADDRESS]
        return [ADDRESS] if rules_of(self.owner).cardinality is None else ["id", "src", ADDRESS]

    # Staging

    def stage(self, write: Write) -> None:
        """Stage the one write that this table needs."""
        table = self.owner.table
        rows = self.rows()
        if self.removed.num_rows:
            addresses = self.removed.column(ADDRESS).combine_chunks()
            write.replace(table, addresses=addresses, added=self.schema.empty_table())
        elif rows.num_rows:
            addresses = pa.concat_arrays([*self._replaced, self._addresses_of_inserted()])
            if len(addresses):
                write.replace(table, addresses=addresses, added=rows)
            else:
                write.append(table, rows)

    def _addresses_of_inserted(self) -> pa.Array:
        """Addresses of committed rows that inserted ones replace, looked up by id unless the id
        index shows that no id is in use."""
        ids = pa.array(sorted(self._maybe_committed), pa.utf8())
        if not len(ids) or not self.reader.pin.row_count or self.reader.lacks(ids):
            return pa.array([], _ADDRESS_FIELD.type)
        return rows_by_key(self.reader, "id", ids, ["id", ADDRESS])[ADDRESS].combine_chunks()


def update_each(table: PendingTable, sets: Mapping[str, Row]) -> set[str]:
    """Set columns of rows by id, to values of their own; returns the ids that there are. All
    set the same columns."""
    changed = list(next(iter(sets.values()), {}))
    known = set[str]()
    for where in _by_ids(list(sets)):
        matches = without_ids(table._committed(where, [*table.schema.names, ADDRESS]), table.ids())
        pending = select_among(table.rows(), where, table._given)
        matched = pa.concat_tables([pending, matches.select(table.schema.names)])
        ids = matched.column("id").to_pylist()
        table._replaced += matches.column(ADDRESS).chunks
        after = {
            name: pa.array([sets[id][name] for id in ids], table.schema.field(name).type)
            for name in changed
        }
        if ids:
            table._put(with_columns(matched, after), changed)
        known.update(ids)
    return known


class Staging:
    """The pending tables of one mutation."""

    def __init__(self, write: Write, catalog: Catalog, given: Given) -> None:
        self._write = write
        self.catalog = catalog
        self._given = given
        self._tables: dict[TableKey, PendingTable] = {}

    def table(self, table_key: TableKey) -> PendingTable:
        """The pending state of a table; the first call reads it through the write."""
        if table_key not in self._tables:
            owner = self.catalog.of(table_key)
            reader = self._write.read(table_key)
            self._tables[table_key] = PendingTable(owner, reader, self._given)
        return self._tables[table_key]

    @property
    def recorded(self) -> Embedded:
        """Models that made the vectors of properties on the branch."""
        return self._write.state.embedded

    def embeds(self, models: EmbeddedChange) -> None:
        """Record the models of vectors that the pending rows bring."""
        self._write.embeds(models)

    def delete(
        self, table_key: TableKey, where: ir.Expr, cascades: Iterable[mutation_ir.Cascade]
    ) -> None:
        """Remove the matching rows, and the edges that touch them."""
        self._cascade(self.table(table_key).remove_where(where), cascades)

    def delete_ids(
        self,
        table_key: TableKey,
        ids: Sequence[str],
        cascades: Iterable[mutation_ir.Cascade],
    ) -> None:
        """Remove the rows of these ids, and the edges that touch them."""
        cascades = tuple(cascades)
        for where in _by_ids(ids):
            self._cascade(self.table(table_key).remove_where(where), cascades)

    def _cascade(self, gone: pa.Table, cascades: Iterable[mutation_ir.Cascade]) -> None:
        if not gone.num_rows:
            return
        for cascade in cascades:
            self.table(cascade.edge).remove_touching(cascade.ends, _ids(gone))

    def touched(self) -> tuple[PendingTable, ...]:
        """Every table read or changed so far, in the order of the first touch."""
        return tuple(self._tables.values())

    def affected_count(self, kind: Kind) -> int:
        """How many nodes, or edges, the statements wrote or removed, without duplicates."""
        tables = (t for t in self._tables.values() if t.owner.kind is kind)
        return sum(t.rows().num_rows + t.removed.num_rows for t in tables)

    def mark(self) -> Mapping[TableKey, TableMark]:
        """Savepoint: the state of now."""
        return {key: table.mark() for key, table in self._tables.items()}

    def reset(self, mark: Mapping[TableKey, TableMark]) -> None:
        """Undo what statements did since a mark. What was read stays a condition of the commit."""
        for key, table in self._tables.items():
            table.reset(mark.get(key) or self._untouched(table))

    def serve(self, given: Given) -> None:
        """Run the statements of another mutation from here on."""
        self._given = given
        for table in self._tables.values():
            table.serve(given)

    def affected_since(self, mark: Mapping[TableKey, TableMark], kind: Kind) -> int:
        """As `affected_count`, of the statements since a mark."""
        return sum(
            table.affected_since(mark.get(key) or self._untouched(table))
            for key, table in self._tables.items()
            if table.owner.kind is kind
        )

    def _untouched(self, table: PendingTable) -> TableMark:
        return PendingTable(table.owner, table.reader, self._given).mark()

    def changes_anything(self) -> bool:
        """Whether there is anything to commit."""
        return any(t.removed.num_rows or t.rows().num_rows for t in self._tables.values())

    def stage(self) -> None:
        """Stage one write a changed table."""
        for table in self._tables.values():
            table.stage(self._write)


def _by_ids(ids: Sequence[str]) -> Iterator[ir.Expr]:
    """Conditions that select the rows of these ids, a number of them at a time."""
    entity, listed = ir.EntityId(ir.SELF, ID_TYPE), ValueType(ID_TYPE.scalar, is_list=True)
    for start in range(0, len(ids), COSTS.filter_keys_max):
        batch = tuple(ids[start : start + COSTS.filter_keys_max])
        yield ir.ListContains(ir.Const(batch, listed), entity)


def _ids(rows: pa.Table) -> pa.Array:
    return pa.concat_arrays(rows.column("id").chunks) if rows.num_rows else pa.array([], pa.utf8())


def _with_columns(rows: pa.Table, sets: Mapping[str, Any]) -> pa.Table:
    """The rows with one value in each of these columns."""
    first = pa.array(np.zeros(rows.num_rows, np.int64))
    made = {
        name: pc.take(pa.array([value], rows.schema.field(name).type), first)
        for name, value in sets.items()
    }
    return with_columns(rows, made)
