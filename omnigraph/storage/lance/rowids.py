"""Rows known by row id or address: read in the order asked, and taken out, without a search.

Row ids are stable: as long as a row is not written again, every version has it under the same one.

Invariant: the cost follows the number of rows asked for. A filter on row ids finds them directly;
taking them would first index every row of the table.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance.fragment import FragmentMetadata, LanceFragment, RowIdSequence

from omnigraph.errors import StorageFailed
from omnigraph.storage.lance.datasets import Handle

_ROW_IDS_MAX = 10_000  # in one filter
_SCANNED_PER_ROW = 2
_ROWS_WORTH_A_LOOK = 64


def rows_by_id(
    handle: Handle,
    row_ids: pa.Array,
    columns: Sequence[str] | None = None,
    *,
    ordered: bool = True,
    **options: Any,
) -> pa.Table:
    """The rows of these row ids, in their order or in any."""
    names = list(handle.schema.names) if columns is None else list(columns)
    if len(row_ids) == 0:
        return handle.scanner(columns=names, **options).projected_schema.empty_table()
    parts = []
    for start in range(0, len(row_ids), _ROW_IDS_MAX):
        wanted = row_ids.slice(start, _ROW_IDS_MAX)
        rows = _read(handle, wanted, columns=names, with_row_id=True, **options)
        there = rows["_rowid"].combine_chunks()
        if not ordered and len(there) == len(wanted):
            parts.append(rows.select(names))
            continue
        places = pc.index_in(wanted, there)
        if places.null_count:
            raise StorageFailed("read rows by row id", "the version does not hold all of them")
        parts.append(rows.select(names).combine_chunks().take(places))
    return pa.concat_tables(parts)


def _read(handle: Handle, wanted: pa.Array, **asked: Any) -> pa.Table:
    """These rows in any order: as a stretch of the newest fragments, or by a filter."""
    newest = _written_lately(handle, wanted)
    parts = []
    if newest:
        rows = handle.scanner(fragments=newest, **asked).to_table()
        parts.append(rows.filter(pc.is_in(rows["_rowid"], value_set=wanted)))
        there = parts[0]["_rowid"].combine_chunks()
        wanted = wanted.filter(pc.invert(pc.is_in(wanted, value_set=there)))
    if len(wanted):
        listed = ", ".join(map(str, wanted.to_pylist()))
        parts.append(handle.scanner(filter=f"_rowid IN ({listed})", **asked).to_table())
    return pa.concat_tables(parts)


def _written_lately(handle: Handle, row_ids: pa.Array) -> list[LanceFragment]:
    """Those of the newest fragments that hold hardly anything but these rows: reading them whole
    takes a fraction of what a filter with every row id takes."""
    if len(row_ids) < _ROWS_WORTH_A_LOOK:
        return []
    newest, room = {}, _SCANNED_PER_ROW * len(row_ids)
    for fragment in reversed(handle.get_fragments()):
        room -= fragment.physical_rows
        if room < 0:
            break
        newest[fragment.fragment_id] = fragment
    if not newest:
        return []
    held = handle.scanner(columns=["_rowid", "_rowaddr"], fragments=[*newest.values()]).to_table()
    at = pc.shift_right(held["_rowaddr"], pa.scalar(32, pa.uint64()))
    wanted = at.filter(pc.is_in(held["_rowid"], value_set=row_ids))
    there = {count["values"]: count["counts"] for count in pc.value_counts(at).to_pylist()}
    hits = {count["values"]: count["counts"] for count in pc.value_counts(wanted).to_pylist()}
    return [newest[at] for at, count in hits.items() if count * _SCANNED_PER_ROW >= there[at]]


def is_blob(field: pa.Field) -> bool:
    """Whether a column of an open table holds blobs."""
    return getattr(field.type, "extension_name", "") == "lance.blob.v2"


def blob_cells(
    field: pa.Field, described: pa.Array, payloads: Callable[[pa.Array], pa.Array]
) -> pa.Array:
    """Blobs as a write takes them. `payloads` gives the bytes where its mask is true; a blob that
    lives elsewhere keeps its address, and its bytes are not read."""
    storage = field.type.storage_type
    uris = pc.coalesce(pc.struct_field(described, "blob_uri"), pa.scalar(""))
    outside = pc.not_equal(uris, "")
    inside = pc.invert(outside)
    places = pc.subtract(pc.cumulative_sum(inside.cast(pa.int64())), 1)
    data = payloads(inside).take(pc.if_else(inside, places, pa.scalar(None, pa.int64())))
    known = {"data": data, "uri": pc.if_else(outside, uris, pa.scalar(None, pa.string()))}
    parts = [known.get(part.name, pa.nulls(len(data), part.type)) for part in storage]
    cells = pa.StructArray.from_arrays(
        [array.cast(part.type) for array, part in zip(parts, storage, strict=True)],
        fields=list(storage),
        mask=described.is_null(),
    )
    return pa.ExtensionArray.from_storage(field.type, cells)


def fragments_without(
    handle: Handle, row_ids: pa.Array, addresses: pa.Array | None = None
) -> tuple[list[FragmentMetadata], list[int]]:
    """The fragments that lose these rows, and those that lose all of theirs. Who knows where in
    this version the rows are gives their addresses and saves the look."""
    if len(row_ids) == 0:
        return [], []
    if addresses is None:
        addresses = rows_by_id(handle, row_ids, ["_rowaddr"])["_rowaddr"].combine_chunks()
    return fragments_without_addresses(handle, addresses)


def fragments_without_addresses(
    handle: Handle, addresses: pa.Array
) -> tuple[list[FragmentMetadata], list[int]]:
    """The fragments that lose the rows at these addresses, and those that lose all of theirs. A
    row that is gone already loses nothing."""
    places = np.unique(addresses.to_numpy(zero_copy_only=False).astype(np.uint64))
    changed, gone = [], []
    for number in np.unique(places >> np.uint64(32)).tolist():
        fragment = handle.get_fragment(number)
        if fragment is None:
            continue
        offsets = places[places >> np.uint64(32) == number] & np.uint64(0xFFFFFFFF)
        left = fragment.delete_rows(offsets.tolist())
        if left is None:
            gone.append(number)
        else:
            changed.append(left)
    return changed, gone


def give_row_ids(fragments: Sequence[FragmentMetadata], row_ids: pa.Array) -> None:
    """Say of rows just written which row ids they have, in the order they were written."""
    every = row_ids.to_pylist()
    if sum(fragment.physical_rows for fragment in fragments) != len(every):
        raise StorageFailed("gave rows their row ids", "there are not as many rows as row ids")
    for fragment in fragments:
        own, every = every[: fragment.physical_rows], every[fragment.physical_rows :]
        fragment.row_id_meta = RowIdSequence(own).to_inline_metadata()


def field_ids(handle: Handle) -> list[int]:
    """Every column of a dataset, nested ones included."""
    ids, fields = [], list(handle.lance_schema.fields())
    while fields:
        field = fields.pop()
        ids.append(field.id())
        fields += field.children()
    return sorted(ids)
