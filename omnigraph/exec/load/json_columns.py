"""Fast path of: load/ndjson.py. NDJSON lines of one type, read by Arrow column by column.

Reference: `Records` of load/ndjson.py, which reads a line at a time.
Held equal by: tests/exec/load/test_decode.py, test_reading_many_lines_at_once_means_the_same, and
tests/exec/load/test_flat_lines.py, test_flat_lines_are_read_by_columns_as_by_line.
Falls back: `NotSure`; `decode` then reads these lines one by one with the reference.

Invariant: `read_lines` and `read_flat` give the rows that the reference gives, or raise `NotSure`.
Arrow's reader refuses unknown members, duplicate members and values of another JSON type; values
that it would read differently are detected here or by `column_casts`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.model import Catalog, EdgeType, NodeType, Property
from omnigraph.exec.load.column_names import ColumnNames
from omnigraph.exec.load.lines import Lines
from omnigraph.exec.load.ndjson import Owner
from omnigraph.exec.load.uniform_lines import uniform_table
from omnigraph.exec.values.arrow_json import NotSure, json_type, parse_lines
from omnigraph.exec.values.column_casts import Spelling, cast_column
from omnigraph.exec.values.default_cells import default_cells
from omnigraph.exec.values.derived_ids import canonical_texts, derived_ids
from omnigraph.exec.values.from_columns import converted
from omnigraph.exec.values.mint import ulids
from omnigraph.exec.values.named_ids import named_ids
from omnigraph.types import INTEGERS, Scalar, ValueType

_ENDS = (("from", "src"), ("to", "dst"))


@dataclass(frozen=True, slots=True)
class LineColumns:
    """The rows of many lines, and a mask of those that state their id. `absent` are marks of rows
    that leave a property out, by property, where some do; `rounded` counts moments cut."""

    table: pa.Table
    given: pa.Array
    absent: dict[str, pa.Array] = field(default_factory=dict)
    rounded: dict[str, int] = field(default_factory=dict)


def read_lines(
    catalog: Catalog,
    owner: Owner,
    lines: Lines,
    sample: Sequence[Any],
    never_null: Iterable[str],
) -> LineColumns:
    """The rows of graph lines that should all be of one type. Of members that are `never_null` an
    explicit null is not the same as their absence."""
    parsed = _parsed(_line_schema(owner, sample), lines, never_null)
    word, is_edge = ("edge", True) if isinstance(owner, EdgeType) else ("type", False)
    named = parsed.column(word)
    if named.null_count or not _all_are(named, owner, is_edge):
        raise NotSure
    ends: dict[str, pa.Array] = {}
    if isinstance(owner, EdgeType):
        for (word, end), node in zip(_ENDS, (owner.source, owner.target), strict=True):
            ends[end] = _end(_one(parsed.column(word)), catalog.nodes[node])
    return _rows(owner, _members(parsed), ends, lines.data)


def read_flat(
    catalog: Catalog,
    owner: Owner,
    lines: Lines,
    sample: Sequence[Any],
    rename: ColumnNames,
    never_null: Iterable[str],
) -> LineColumns:
    """The rows of lines that are flat records of a type; `rename` gives members other names."""
    names = _sources(owner, sample, rename)
    parsed = _parsed(_flat_schema(owner, sample, names), lines, never_null)
    members = {target: _one(parsed.column(source)) for target, source in names.items()}
    count = parsed.num_rows
    for name in ("id", "src", "dst", *(prop.name for prop in owner.properties)):
        members.setdefault(name, pa.nulls(count))
    ends: dict[str, pa.Array] = {}
    if isinstance(owner, EdgeType):
        for (_, end), node in zip(_ENDS, (owner.source, owner.target), strict=True):
            ends[end] = _end(members[end], catalog.nodes[node])
    return _rows(owner, members, ends, lines.data)


def _parsed(schema: pa.Schema, lines: Lines, never_null: Iterable[str]) -> pa.Table:
    parsed = uniform_table(schema, lines)
    if parsed is not None:
        return parsed
    if lines.has_null_member(never_null):
        raise NotSure
    return parse_lines(schema, lines.data)


def _rows(
    owner: Owner, members: Mapping[str, pa.Array], ends: Mapping[str, pa.Array], data: bytes
) -> LineColumns:
    columns: dict[str, pa.Array] = dict(ends)
    absent: dict[str, pa.Array] = {}
    rounded: dict[str, int] = {}
    for prop in owner.properties:
        cells, cut = _cells(members[prop.name], prop.type)
        if cut:
            rounded[prop.name] = cut
        if cells.null_count:
            absent[prop.name] = cells.is_null()
        columns[prop.name] = _filled(prop, cells, data)
    columns["id"], given = _ids(owner, columns, members["id"].cast(pa.utf8()))
    schema = owner.schema
    table = pa.Table.from_arrays([columns[n] for n in schema.names], schema=schema)
    return LineColumns(table, given, absent, rounded)


def _cells(values: pa.Array, value_type: ValueType) -> tuple[pa.Array, int]:
    """A column as the property stores it, and how many moments were cut."""
    try:
        return cast_column(values, value_type, Spelling.JSON), 0
    except (NotSure, pa.ArrowException) as cause:
        # Texts and whole numbers are as the lines have them, so they can be read one by one here.
        if value_type.scalar not in (Scalar.DATE, Scalar.DATETIME):
            raise NotSure from cause
        done = converted(values, value_type)
        if done.bad:
            raise NotSure from cause
        return done.cells, done.rounded


def _filled(prop: Property, cells: pa.Array, data: bytes) -> pa.Array:
    """Cells with the property's default where it is left out. Arrow reads a missing member and an
    explicit null alike, so where there may be a null the lines are for the reference."""
    if prop.default is None or not cells.null_count:
        return cells
    if b"null" in data:
        raise NotSure
    default = default_cells(prop, len(cells))
    if cells.null_count == len(cells):
        return default
    positions = pc.if_else(cells.is_valid(), pa.array(range(len(cells))), len(cells))
    return pa.concat_arrays([cells, default[:1]]).take(positions)


# Schemas of lines


def _line_schema(owner: Owner, sample: Sequence[Any]) -> pa.Schema:
    inside = [r["data"] for r in sample if isinstance(r.get("data"), dict)]
    inner = [pa.field("id", pa.utf8())]
    for prop in owner.properties:
        inner.append(pa.field(prop.name, json_type(prop.type, _seen(inside, prop.name))))
    outer = [pa.field("data", pa.struct(inner))]
    if isinstance(owner, EdgeType):
        ends = [(word, _end_type(_seen(sample, word))) for word, _ in _ENDS]
        return pa.schema([("edge", pa.utf8()), *ends, *outer])
    return pa.schema([("type", pa.utf8()), *outer])


def _flat_schema(owner: Owner, sample: Sequence[Any], names: Mapping[str, str]) -> pa.Schema:
    fields: list[pa.Field] = []
    for target, source in names.items():
        prop = owner.property(target)
        seen = _seen(sample, source)
        if prop is not None:
            kind = json_type(prop.type, seen)
        else:
            kind = _end_type(seen) if target in ("src", "dst") else pa.utf8()
        fields.append(pa.field(source, kind))
    return pa.schema(fields)


def _end_type(seen: Any) -> pa.DataType:
    """The type of the ends of edges: texts, or whole numbers that are keys."""
    is_number = isinstance(seen, int) and not isinstance(seen, bool)
    return pa.int64() if is_number else pa.utf8()


def _seen(records: Sequence[Mapping[str, Any]], name: str) -> Any:
    """A value of a member; of a list, one that has items."""
    values = [record[name] for record in records if record.get(name) is not None]
    return next((value for value in values if value != []), None)


def _sources(owner: Owner, sample: Sequence[Any], rename: ColumnNames) -> dict[str, str]:
    """The member that fills each property, end or id, as the sample has them."""
    seen = {name for record in sample for name in record}
    chosen: dict[str, str] = {}
    for target, spellings in _spellings(owner, rename):
        used = [name for name in spellings if name in seen]
        if len(used) > 1:
            raise NotSure
        if used or len(spellings) == 1:
            chosen[target] = (used or spellings)[0]
    if len(set(chosen.values())) < len(chosen):
        raise NotSure
    return chosen


def _spellings(owner: Owner, rename: ColumnNames) -> Iterator[tuple[str, list[str]]]:
    def spelled(*targets: str) -> list[str]:
        plain = [target for target in targets if target not in rename]
        return [*(source for source, target in rename.items() if target in targets), *plain]

    yield "id", spelled("id")
    if isinstance(owner, EdgeType):
        for word, end in _ENDS:
            yield end, spelled(word, end)
    for prop in owner.properties:
        yield prop.name, spelled(prop.name)


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


# Ends and ids


def _end(ends: pa.Array, node: NodeType) -> pa.Array:
    """Ids at one end. A record may name a node by its key, if that is one whole number."""
    if ends.null_count:
        raise NotSure
    if pa.types.is_string(ends.type):
        return named_ids(node, ends)
    prop = node.property(node.key[0]) if len(node.key) == 1 else None
    if prop is None or prop.type.scalar not in INTEGERS:
        raise NotSure
    try:
        texts = canonical_texts(prop.type, cast_column(ends, prop.type, Spelling.JSON))
    except pa.ArrowException as cause:
        raise NotSure from cause
    assert texts is not None
    return texts


def _ids(
    owner: Owner, columns: Mapping[str, pa.Array], stated: pa.Array
) -> tuple[pa.Array, pa.Array]:
    count = len(stated)
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


def _all(mask: pa.Array) -> bool:
    """Whether a mask holds wherever it is not null."""
    return pc.all(mask).as_py() in (True, None)
