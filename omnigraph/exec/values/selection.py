"""Row selection by condition or key: committed rows through Lance, pending rows in Arrow.

Invariant: both ways select the same rows for the same condition, because the filter and the
evaluation come from the same translation. Rows leave with the columns of the type's schema, blobs
as their bytes, so that they can be written back.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.arrow import scalar_of
from omnigraph.catalog.model import Type
from omnigraph.costs import COSTS
from omnigraph.exec.limits import Limits, watched
from omnigraph.exec.values.columns import ColumnNames, absent, in_one
from omnigraph.exec.values.constants import CONSTANTS, Given
from omnigraph.exec.values.evaluate import Evaluator
from omnigraph.exec.values.file_scan import row_id_candidates
from omnigraph.exec.values.pushdown import ids_filter, push_down
from omnigraph.exec.values.rows import BoundEntities, Positions, Rows, gather
from omnigraph.exec.values.scalars import SCALARS, JsonForm
from omnigraph.plan import ir
from omnigraph.storage.derived.node_file import NO_ROW
from omnigraph.storage.lance.columns import ADDRESS, BLOB_BYTES, KEY, among_row_ids
from omnigraph.storage.lance.reader import TableReader, present_rows
from omnigraph.types import BLOB_EXTENSION, FLOATS, TableKey, ValueType

_NOTHING = Given({}, 0)
_ADDRESS_FIELD = pa.field(ADDRESS, pa.uint64())


def select_committed(
    reader: TableReader, schema: pa.Schema, where: ir.Expr, given: Given, columns: Sequence[str]
) -> pa.Table:
    """The committed rows of a type for which the condition is true. `ADDRESS` is a column too."""
    requested = set(columns)
    names = [f.name for f in schema if f.name in requested or not _is_blob(f)]
    row_ids = _named_row_ids(reader, where, given)
    if row_ids is not None:
        rows = _read(reader, schema, [*names, ADDRESS], among_row_ids(row_ids.tolist()))
        return select_among(rows, where, given).select(list(columns))
    candidates = row_id_candidates(reader, where, given)
    if candidates is not None:
        asked = list(dict.fromkeys((*columns, *candidates.columns)))
        rows = _read(reader, schema, asked, among_row_ids(candidates.row_ids.tolist()))
        return select_among(rows, where, given).select(list(columns))
    pushed = push_down(where, given, ColumnNames(reader.schema).name_of)
    if pushed.rest is None:
        return _read(reader, schema, columns, pushed.filter)
    rows = _read(reader, schema, [*names, ADDRESS], pushed.filter)
    return select_among(rows, pushed.rest, given).select(list(columns))


def by_id(owner: Type, where: ir.Expr) -> ir.Expr:
    """The same condition, on the id where it is on a key that is the id: ids have an index."""
    key = owner.property(owner.key[0]) if owner.key_is_id else None
    if key is None:
        return where
    match where:
        case ir.Compare(op=op, left=ir.Column(property_id=property_id) as left, right=right):
            if property_id == key.id:
                return ir.Compare(op, ir.EntityId(left.var, left.type), right)
        case ir.ListContains(items=items, value=ir.Column(property_id=property_id) as value):
            if property_id == key.id:
                return ir.ListContains(items, ir.EntityId(value.var, value.type))
        case ir.And(parts=parts):
            return ir.And(tuple(by_id(owner, part) for part in parts))
        case _:
            pass
    return where


def select_among(rows: pa.Table, where: ir.Expr, given: Given) -> pa.Table:
    """The rows of a table for which the condition is true."""
    with watched(Limits.from_environment()):
        return _selected(rows, where, given)


def _selected(rows: pa.Table, where: ir.Expr, given: Given) -> pa.Table:
    return rows.filter(pa.array(Evaluator(given, _no_text_search).keep(where, _bound(rows))))


def evaluated_over(rows: pa.Table, value: ir.Expr, given: Given) -> pa.Array:
    """The values of an expression over the rows of a table."""
    with watched(Limits.from_environment()):
        return _evaluated(rows, value, given)


def _evaluated(rows: pa.Table, value: ir.Expr, given: Given) -> pa.Array:
    return Evaluator(given, _no_text_search).values(value, _bound(rows))


def _bound(rows: pa.Table) -> Rows:
    positions = np.arange(rows.num_rows)
    return Rows(rows.num_rows, {ir.SELF: BoundEntities(_RowsOf(rows), positions)}, {})


def is_few(count: int, reader: TableReader) -> bool:
    """Whether a filter on that many keys costs less than reading the key column once."""
    few = min(COSTS.filter_keys_max, reader.pin.row_count // COSTS.filter_rows_per_key)
    return count <= max(COSTS.filter_keys_few, few)


def rows_by_key(
    reader: TableReader, column: str, keys: pa.Array, columns: Sequence[str]
) -> pa.Table:
    """The committed rows whose id, or end, is one of the keys."""
    rows = _rows_by_file(reader, column, keys, columns)
    if rows is not None:
        return rows
    if is_few(len(keys), reader):
        return reader.rows(columns, filter=ids_filter(keys.to_pylist(), column))
    names = list(dict.fromkeys((*columns, column)))
    matches = [
        pa.Table.from_batches([batch]).filter(pc.is_in(batch.column(column), value_set=keys))
        for batch in reader.batches(names)
    ]
    return (pa.concat_tables(matches) if matches else reader.rows(names, limit=0)).select(
        list(columns)
    )


def _rows_by_file(
    reader: TableReader, column: str, keys: pa.Array, columns: Sequence[str]
) -> pa.Table | None:
    """The same by the row ids that a derived file has; None when there is none that tells."""
    only_ids = list(columns) == [KEY] and column == KEY
    finder = reader.finder
    if finder is None or (not only_ids and len(keys) > COSTS.filter_keys_max):
        return None
    ids = pc.unique(keys).drop_null()
    if column != KEY:
        edges = finder.edge_row_ids(reader.pin, column, ids)
        if edges is None or len(edges) > COSTS.filter_keys_max:
            return None
        return present_rows(reader, pa.array(edges, pa.uint64()), columns)
    row_ids = finder.row_ids(reader.pin, ids)
    if row_ids is None:
        return None
    present = row_ids != NO_ROW
    if only_ids:
        return pa.table({KEY: ids.filter(pa.array(present))})
    return reader.by_row_id(pa.array(row_ids[present]), columns)


def _named_row_ids(reader: TableReader, where: ir.Expr, given: Given) -> np.ndarray | None:
    """The row ids of the nodes that a condition names by their ids, or of the edges by a node at
    one of their ends; None when it names none, they are many, or no derived file tells."""
    finder = reader.finder
    if finder is None:
        return None
    for part in where.parts if isinstance(where, ir.And) else (where,):
        for subject, ids in _named_ids(part, given):
            if isinstance(subject, ir.EntityId):
                row_ids = finder.row_ids(reader.pin, ids)
                if row_ids is not None:
                    present: np.ndarray = row_ids[row_ids != NO_ROW]
                    return present
            elif isinstance(subject, ir.EndpointId):
                row_ids = finder.edge_row_ids(reader.pin, str(subject.end), ids)
                if row_ids is not None and len(row_ids) <= COSTS.filter_keys_max:
                    return row_ids
    return None


def _named_ids(part: ir.Expr, given: Given) -> Iterator[tuple[ir.Expr, pa.Array]]:
    """Expressions that a condition says to be one of some texts."""
    sides: tuple[tuple[ir.Expr, ir.Expr], ...] = ()
    if isinstance(part, ir.Compare) and part.op is ir.CompareOp.EQ:
        sides = (part.left, part.right), (part.right, part.left)
    elif isinstance(part, ir.ListContains):
        sides = ((part.value, part.items),)
    for subject, constant in sides:
        if isinstance(constant, CONSTANTS):
            named = given.of(constant)
            ids = named if isinstance(named, tuple | list) else [named]
            if len(ids) <= COSTS.filter_keys_max and all(isinstance(each, str) for each in ids):
                yield subject, pa.array(ids, pa.string())


def rows_by_values(
    reader: TableReader,
    owner: Type,
    tuples: pa.Table,
    columns: Sequence[str],
) -> pa.Table:
    """Committed rows that may share a tuple of values with `tuples`.

    Every row that shares a tuple is returned, and others whose values all occur in `tuples`.
    """
    parts = [_among(owner, name, tuples.column(name)) for name in tuples.column_names]
    filters = [f"({part})" for part in parts if part is not None]
    return reader.rows(columns, filter=" AND ".join(filters) or None)


def _among(owner: Type, name: str, values: pa.ChunkedArray) -> str | None:
    """The filter for one column of a tuple, or None when reading the column is the better way."""
    distinct = pc.unique(values)
    if len(distinct) > COSTS.filter_keys_max:
        return None
    prop = owner.property(name)
    if prop is None:  # an end of an edge
        return ids_filter(distinct.to_pylist(), name)
    column = ir.Column(ir.SELF, prop.name, prop.id, prop.type)
    items = constants(distinct)
    if prop.type.scalar in FLOATS:
        each = (ir.Compare(ir.CompareOp.EQ, column, ir.Const(i, prop.type)) for i in items)
        return push_down(ir.Or(tuple(each)), _NOTHING, _same_name).filter
    listed = ir.Const(items, ValueType(prop.type.scalar, is_list=True))
    return push_down(ir.ListContains(listed, column), _NOTHING, _same_name).filter


def constants(values: pa.Array) -> tuple[ir.Constant, ...]:
    """Arrow values as a plan writes them: days, milliseconds."""
    scalar = scalar_of(values.type)
    assert scalar is not None
    return tuple(SCALARS[scalar].to_json(values, JsonForm.RECORD))


def _same_name(column: ir.Column) -> str:
    return column.name


def without_ids(rows: pa.Table, ids: pa.Array) -> pa.Table:
    """The rows whose id is not among these."""
    if not len(ids) or not rows.num_rows:
        return rows
    return rows.filter(pc.invert(pc.is_in(rows.column("id"), value_set=ids)))


def distinct_of(rows: pa.Table, column: str) -> pa.Array:
    """The values of a column, each once, without null."""
    return pc.unique(rows.column(column)).drop_null()


# ---- reading


def _read(
    reader: TableReader, schema: pa.Schema, columns: Sequence[str], filter: str | None
) -> pa.Table:
    options: dict[str, Any] = {}
    fields = [_ADDRESS_FIELD if name == ADDRESS else schema.field(name) for name in columns]
    if any(_is_blob(field) for field in fields):
        options["blob_handling"] = BLOB_BYTES
    rows = reader.rows(columns, filter=filter, **options)
    arrays = [
        _blobs(rows.column(field.name), field) if _is_blob(field) else rows.column(field.name)
        for field in fields
    ]
    return pa.table(arrays, schema=pa.schema(fields))


def _is_blob(field: pa.Field) -> bool:
    return (field.metadata or {}).get(b"ARROW:extension:name") == BLOB_EXTENSION.encode()


def _blobs(values: pa.ChunkedArray, field: pa.Field) -> pa.Array:
    """Bytes in the shape in which a table takes them."""
    data = in_one(values)
    empty = [pa.nulls(len(data), inner.type) for inner in list(field.type)[1:]]
    return pa.StructArray.from_arrays([data, *empty], fields=list(field.type), mask=data.is_null())


@dataclass(frozen=True, slots=True)
class _RowsOf:
    """A table as the one thing a condition is about."""

    rows: pa.Table

    @property
    def table(self) -> TableKey:
        return TableKey("")

    def ids_at(self, positions: Positions) -> pa.Array:
        return gather(in_one(self.rows.column("id")), positions)

    def ranks_at(self, positions: Positions) -> np.ndarray:
        raise AssertionError("a condition orders nothing")

    def values_at(self, column: ir.Column, positions: Positions) -> pa.Array:
        name = ColumnNames(self.rows.schema).name_of(column)
        if name is None:
            return absent(column, len(positions))
        return gather(in_one(self.rows.column(name)), positions)

    def ends_at(self, end: ir.End, positions: Positions) -> pa.Array:
        return gather(in_one(self.rows.column(str(end))), positions)


def _no_text_search(_match: ir.TextMatch, _rows: Rows) -> np.ndarray:
    raise AssertionError("the grammar has text conditions in match only")
