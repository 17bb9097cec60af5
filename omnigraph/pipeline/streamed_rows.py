"""Rows of a stream of changes: Arrow batches of a commit or of a baseline, as JSON or typed.

Invariant: every row has the columns of `CHANGES`, in order by `number` and `position`, and a commit
that is read again gives the same rows. With a type, `before` and `after` are structs with the
columns that `spark.read` gives for it; the type and its properties are found by identity, and a
property that a version lacks is null.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.model import Catalog, Type
from omnigraph.costs import COSTS
from omnigraph.exec.changes.diff import DELETE, INSERT, UPDATE, Change, ChangedRows, Changes, owners
from omnigraph.exec.changes.entities import Picked
from omnigraph.exec.changes.export import rows_as_now
from omnigraph.exec.changes.images import Image, images
from omnigraph.pipeline.spark_columns import shown
from omnigraph.storage.lance.reader import TableReader

CHANGES = pa.schema(
    [
        pa.field("commit", pa.string(), nullable=False),
        pa.field("number", pa.int64(), nullable=False),  # of the commit on its branch
        pa.field("position", pa.int64(), nullable=False),  # within the commit
        pa.field("actor", pa.string()),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("type", pa.string(), nullable=False),
        pa.field("id", pa.string(), nullable=False),
        pa.field("op", pa.string(), nullable=False),
        pa.field("before", pa.string()),  # images as JSON, as the change feed writes them
        pa.field("after", pa.string()),
    ]
)


def change_schema(owner: Type | None) -> pa.Schema:
    """The columns of a stream: of all types, or typed by one."""
    if owner is None:
        return CHANGES
    # A row that is missing has no values, whatever its columns demand.
    image = pa.struct([field.with_nullable(True) for field in shown(owner)])
    return pa.schema(
        [pa.field(f.name, image) if f.name in ("before", "after") else f for f in CHANGES]
    )


@dataclass(frozen=True, slots=True)
class Cause:
    """The commit that rows belong to: its id, its number on the branch, and its actor."""

    commit: str
    number: int
    actor: str | None


def json_rows(cause: Cause, changes: Changes) -> Iterator[pa.RecordBatch]:
    """The changes of a commit with images as JSON."""
    rest = iter(changes)
    position = 0
    while taken := list(islice(rest, COSTS.spark_batch_rows)):
        yield _json_batch(cause, position, taken)
        position += len(taken)


def _json_batch(cause: Cause, position: int, taken: list[Change]) -> pa.RecordBatch:
    return _batch(
        cause,
        position,
        CHANGES,
        kind=pa.array([each.kind for each in taken]),
        type=pa.array([each.type for each in taken]),
        id=pa.array([each.id for each in taken]),
        op=pa.array([each.op for each in taken]),
        before=_json([each.before for each in taken]),
        after=_json([each.after for each in taken]),
    )


def typed_rows(cause: Cause, changes: Changes, owner: Type) -> Iterator[pa.RecordBatch]:
    """The changes of a commit that are of one type, with images as structs."""
    position = 0
    for taken in changes.columns(owner.id):
        for start in range(0, len(taken.ids), COSTS.spark_batch_rows):
            cut = _slice(taken, start)
            yield _typed_batch(cause, position, owner, cut)
            position += len(cut.ids)


def _slice(taken: ChangedRows, start: int) -> ChangedRows:
    if len(taken.ids) <= COSTS.spark_batch_rows:
        return taken
    chosen = pa.array(range(start, min(start + COSTS.spark_batch_rows, len(taken.ids))))
    return ChangedRows(taken.ids.take(chosen), taken.was.take(chosen), taken.now.take(chosen))


def _typed_batch(cause: Cause, position: int, owner: Type, taken: ChangedRows) -> pa.RecordBatch:
    schema = change_schema(owner)
    kind = schema.field("before").type
    was, now = taken.was.row_ids, taken.now.row_ids
    op = pc.if_else(was.is_null(), INSERT, pc.if_else(now.is_null(), DELETE, UPDATE))
    return _batch(
        cause,
        position,
        schema,
        kind=pa.repeat(str(owner.kind), len(taken.ids)),
        type=pa.repeat(taken.now.entities.owner.name, len(taken.ids)),
        id=taken.ids,
        op=op.cast(pa.string()),
        before=_struct(owner, taken.was, kind),
        after=_struct(owner, taken.now, kind),
    )


def _struct(owner: Type, picked: Picked, kind: pa.StructType) -> pa.StructArray:
    """Entities as a struct column with the columns of `owner`, null where one is missing."""
    stored = picked.entities.owner
    names = {prop.id: prop.name for prop in stored.properties}
    named = {prop.name: names.get(prop.id) for prop in owner.properties}
    blobs = {prop.name for prop in stored.properties if prop.type.is_blob}
    columns = []
    for field in kind:
        name = named.get(field.name, field.name)
        if name is None:
            columns.append(pa.nulls(picked.rows.num_rows, field.type))
        else:
            cells = _payloads(picked, name) if name in blobs else picked.rows[name]
            columns.append(_in_one(cells, field.type))
    missing = _in_one(picked.rows["id"], pa.string()).is_null()
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=missing)


def _payloads(picked: Picked, name: str) -> pa.Array:
    present = picked.row_ids.is_valid()
    payloads = picked.entities.payloads(picked.row_ids.drop_null(), name)
    positions = pc.subtract(pc.cumulative_sum(present.cast(pa.int64())), 1)
    return payloads.take(pc.if_else(present, positions, pa.scalar(None, pa.int64())))


def baseline_rows(
    cause: Cause,
    owner: Type,
    reader: TableReader,
    fragments: tuple[int, ...],
    position: int,
    *,
    is_typed: bool,
) -> Iterator[pa.RecordBatch]:
    """The entities in some fragments of a table as inserts."""
    for batch in rows_as_now(
        reader,
        owner,
        fragments=fragments,
        batch_size=COSTS.spark_batch_rows,
        described=not is_typed,
    ):
        rows = pa.Table.from_batches([batch])
        count = rows.num_rows
        schema = change_schema(owner if is_typed else None)
        kind = schema.field("after").type
        after = _whole(rows, kind) if is_typed else _json(images(owner, rows))
        yield _batch(
            cause,
            position,
            schema,
            kind=pa.repeat(str(owner.kind), count),
            type=pa.repeat(owner.name, count),
            id=_in_one(rows["id"], pa.string()),
            op=pa.repeat(INSERT, count),
            before=pa.nulls(count, kind),
            after=after,
        )
        position += count


def _whole(rows: pa.Table, kind: pa.StructType) -> pa.StructArray:
    columns = [_in_one(rows[field.name], field.type) for field in kind]
    return pa.StructArray.from_arrays(columns, fields=list(kind))


def _batch(cause: Cause, position: int, schema: pa.Schema, **columns: pa.Array) -> pa.RecordBatch:
    count = len(columns["id"])
    columns |= {
        "commit": pa.repeat(cause.commit, count),
        "number": pa.repeat(cause.number, count),
        "position": pa.array(range(position, position + count), pa.int64()),
        "actor": pa.array([cause.actor] * count, pa.string()),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _json(images_: list[Image | None]) -> pa.Array:
    texts = [None if each is None else orjson.dumps(each.to_json()).decode() for each in images_]
    return pa.array(texts, pa.string())


def _in_one(cells: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    whole = cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells
    return whole if whole.type == kind else whole.cast(kind)


def type_in(catalog: Catalog, like: Type) -> Type | None:
    """The type of a catalog with the identity of another one."""
    return next((each for each in owners(catalog) if each.id == like.id), None)
