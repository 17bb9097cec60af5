"""Fast path of: load/ndjson.py. NDJSON lines of one type, read by Arrow column by column.

Reference: `Records` of load/ndjson.py, which reads a line at a time.
Held equal by: tests/exec/load/test_decode.py, test_reading_many_lines_at_once_means_the_same.
Falls back: `NotSure`; `decode` then reads these lines one by one with the reference.

Invariant: `read_lines` gives the rows that the reference gives, or raises `NotSure`. Arrow's reader
refuses unknown members, duplicate members and values of another JSON type; values that it would
read differently are detected here.
"""

import base64
import binascii
from collections.abc import Sequence
from typing import Any, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from omnigraph.catalog.arrow import arrow_type
from omnigraph.catalog.model import EdgeType, Property
from omnigraph.exec.load.ndjson import Owner
from omnigraph.exec.values.default_cells import default_cells
from omnigraph.exec.values.derived_ids import derived_ids
from omnigraph.exec.values.from_columns import NotSure, floats
from omnigraph.exec.values.mint import ulids
from omnigraph.exec.values.scalars import BLOB_PREFIX
from omnigraph.language.moments import DAYS, MILLISECONDS
from omnigraph.types import FLOATS, Scalar, ValueType

_BLOCK_BYTES = 1 << 20
_DATE_TEXT = r"^\d{4}-\d{2}-\d{2}$"
_MOMENT_TEXT = r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,3})?Z$"


def read_lines(owner: Owner, data: bytes, sample: Sequence[Any]) -> tuple[pa.Table, pa.Array]:
    """The rows of lines that should all be of one type, and a mask of those that state their id."""
    parsed = _parse(_line_schema(owner, sample), data)
    word, is_edge = ("edge", True) if isinstance(owner, EdgeType) else ("type", False)
    named = parsed.column(word)
    if named.null_count or not _all_are(named, owner, is_edge):
        raise NotSure
    inner = _members(parsed)
    columns = {"id": None}
    if is_edge:
        columns |= {"src": _end(parsed, "from"), "dst": _end(parsed, "to")}
    for prop in owner.properties:
        columns[prop.name] = _filled(prop, _typed(inner[prop.name], prop.type), data)
    stated = inner["id"]
    columns["id"], given = _ids(owner, columns, stated, parsed.num_rows)
    schema = owner.schema
    return pa.Table.from_arrays([columns[n] for n in schema.names], schema=schema), given


def _line_schema(owner: Owner, sample: Sequence[Any]) -> pa.Schema:
    inner = [pa.field("id", pa.utf8())]
    for prop in owner.properties:
        seen = (r["data"].get(prop.name) for r in sample if isinstance(r.get("data"), dict))
        first = next((value for value in seen if value is not None), None)
        inner.append(pa.field(prop.name, _json_type(prop.type, first)))
    outer = [pa.field("data", pa.struct(inner))]
    if isinstance(owner, EdgeType):
        return pa.schema([("edge", pa.utf8()), ("from", pa.utf8()), ("to", pa.utf8()), *outer])
    return pa.schema([("type", pa.utf8()), *outer])


def _filled(prop: Property, cells: pa.Array, data: bytes) -> pa.Array:
    """Cells with the property's default where it is left out. Arrow reads a missing member and an
    explicit null alike, so a column with nulls is left out of every line or `NotSure`."""
    if prop.default is None or not cells.null_count:
        return cells
    # A name with an escape in it is spelled otherwise than it is.
    if cells.null_count < len(cells) or prop.name.encode() in data or b"\\" in data:
        raise NotSure
    return default_cells(prop, len(cells))


def _json_type(value_type: ValueType, seen: Any) -> pa.DataType:
    """The Arrow type that Arrow's JSON reader reads a property as, before the cast."""
    match value_type.scalar:
        case Scalar.DATE | Scalar.DATETIME:
            if value_type.is_list:
                raise NotSure
            return pa.utf8() if seen is None or isinstance(seen, str) else pa.int64()
        case Scalar.BLOB:
            return pa.utf8()
        case Scalar.F32 | Scalar.F64 | Scalar.VECTOR:
            # Rounding a decimal to float32 at once, or by way of float64, can differ.
            plain = pa.float64()
        case Scalar.STRING | Scalar.BOOL:
            plain = arrow_type(ValueType(value_type.scalar))
        case Scalar.I32 | Scalar.I64 | Scalar.U32 | Scalar.U64:
            plain = arrow_type(ValueType(value_type.scalar))
        case _:
            assert_never(value_type.scalar)
    return pa.list_(plain) if value_type.is_list or value_type.is_vector else plain


def _parse(schema: pa.Schema, data: bytes) -> pa.Table:
    try:
        return pj.read_json(
            pa.BufferReader(data),
            read_options=pj.ReadOptions(block_size=_BLOCK_BYTES),
            parse_options=pj.ParseOptions(
                explicit_schema=schema,
                newlines_in_values=False,
                unexpected_field_behavior="error",
            ),
        ).combine_chunks()
    except pa.ArrowException as cause:
        raise NotSure from cause


def _all_are(named: pa.ChunkedArray, owner: Owner, is_edge: bool) -> bool:
    if pc.all(pc.equal(named, owner.name)).as_py():
        return True
    return is_edge and bool(pc.all(pc.equal(pc.utf8_lower(named), owner.name.lower())).as_py())


def _members(parsed: pa.Table) -> dict[str, pa.Array]:
    """The members of `data`, null where there is no `data`."""
    data = _one(parsed.column("data"))
    members = data.flatten()
    return {data.type.field(i).name: members[i] for i in range(data.type.num_fields)}


def _one(values: pa.ChunkedArray | pa.Array) -> pa.Array:
    if isinstance(values, pa.Array):
        return values
    return values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()


def _end(parsed: pa.Table, word: str) -> pa.Array:
    ends = _one(parsed.column(word))
    if ends.null_count:
        raise NotSure
    return ends


# Values


def _typed(values: pa.Array, value_type: ValueType) -> pa.Array:
    target = arrow_type(value_type)
    scalar = value_type.scalar
    try:
        if value_type.is_vector or value_type.is_list:
            return _list(values, value_type, target)
        match scalar:
            case Scalar.F32 | Scalar.F64 | Scalar.VECTOR:
                return floats(values, target, are_floats=False)
            case Scalar.DATE | Scalar.DATETIME:
                return _moments(values, scalar, target)
            case Scalar.BLOB:
                return _blobs(values, target)
            case Scalar.STRING | Scalar.BOOL:
                return values
            case Scalar.I32 | Scalar.I64 | Scalar.U32 | Scalar.U64:
                return values
            case _:
                assert_never(scalar)
    except (pa.ArrowException, binascii.Error) as cause:
        raise NotSure from cause


def _list(values: pa.Array, value_type: ValueType, target: pa.DataType) -> pa.Array:
    items = values.flatten()
    if items.null_count:
        raise NotSure
    if value_type.is_vector:
        items = floats(items, pa.float32(), are_floats=False)
    elif value_type.scalar in FLOATS:
        items = floats(items, target.value_type, are_floats=False)
    lengths = pc.fill_null(pc.list_value_length(values), 0)
    ends = np.concatenate([[0], np.cumsum(lengths.to_numpy(zero_copy_only=False))])
    offsets, mask = pa.array(ends.astype(np.int32)), values.is_null()
    if value_type.is_vector:
        whole = pa.ListArray.from_arrays(offsets, items, mask=mask)
        return whole.cast(target)
    return pa.ListArray.from_arrays(offsets, items, type=target, mask=mask)


def _moments(values: pa.Array, scalar: Scalar, target: pa.DataType) -> pa.Array:
    low, high = DAYS if scalar is Scalar.DATE else MILLISECONDS
    if pa.types.is_string(values.type):
        pattern = _DATE_TEXT if scalar is Scalar.DATE else _MOMENT_TEXT
        sound = pc.and_(
            pc.match_substring_regex(values, pattern=pattern),
            pc.invert(pc.starts_with(values, pattern="0000")),
        )
        if not _all(sound):
            raise NotSure
        return values.cast(target)
    if not _all(pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high))):
        raise NotSure
    return (values.cast(pa.int32()) if scalar is Scalar.DATE else values).cast(target)


def _all(mask: pa.Array) -> bool:
    """Whether a mask holds wherever it is not null."""
    return pc.all(mask).as_py() in (True, None)


def _blobs(values: pa.Array, target: pa.DataType) -> pa.Array:
    cells: list[dict[str, bytes] | None] = []
    for text in values.to_pylist():
        if text is None:
            cells.append(None)
        elif text.startswith(BLOB_PREFIX):
            cells.append({"data": base64.b64decode(text[len(BLOB_PREFIX) :], validate=True)})
        else:
            raise NotSure
    return pa.array(cells, target)


# Ids


def _ids(
    owner: Owner, columns: dict[str, Any], stated: pa.Array, count: int
) -> tuple[pa.Array, pa.Array]:
    if owner.key:
        derived = derived_ids(owner, columns)
        if stated.null_count < count and not _all(pc.equal(stated, derived)):
            raise NotSure
        return derived, pa.repeat(pa.scalar(True), count)
    if not stated.null_count:
        return stated, pa.repeat(pa.scalar(True), count)
    fresh = ulids(stated.null_count)
    if stated.null_count == count:
        return fresh, pa.repeat(pa.scalar(False), count)
    missing = stated.is_null()
    return pc.replace_with_mask(stated, missing, fresh), stated.is_valid()
