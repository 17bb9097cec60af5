"""Point reads and deletion vectors by row id or address, without a search of the table.

Row ids are stable: as long as a row is not written again, every version has it under the same one.

Invariant: the cost follows the number of rows asked for. A filter on row ids finds them directly;
Lance's `take` would first index every row of the table.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance.fragment import FragmentMetadata, LanceFragment, RowIdSequence

from omnigraph import number_arrays
from omnigraph.costs import COSTS
from omnigraph.errors import StorageFailed
from omnigraph.storage.lance.columns import (
    ADDRESS,
    ROW_ID,
    among_row_ids,
    fragment_ids,
    offsets,
)
from omnigraph.storage.lance.datasets import Handle


def rows_by_id(
    handle: Handle,
    row_ids: pa.Array,
    columns: Sequence[str] | None = None,
    *,
    ordered: bool = True,
    **options: Any,
) -> pa.Table:
    """The rows of these row ids, in their order or in any; `StorageFailed` if one is missing."""
    names = list(handle.schema.names) if columns is None else list(columns)
    if len(row_ids) == 0:
        return handle.scanner(columns=names, **options).projected_schema.empty_table()
    parts = []
    for start in range(0, len(row_ids), COSTS.filter_row_ids_max):
        requested = row_ids.slice(start, COSTS.filter_row_ids_max)
        rows = _read(handle, requested, columns=names, with_row_id=True, **options)
        present = rows[ROW_ID].combine_chunks()
        if not ordered and len(present) == len(requested):
            parts.append(rows.select(names))
            continue
        positions = pc.index_in(requested, present)
        if positions.null_count:
            raise StorageFailed("read rows by row id", "the version does not hold all of them")
        parts.append(rows.select(names).combine_chunks().take(positions))
    return pa.concat_tables(parts)


def _read(handle: Handle, row_ids: pa.Array, **options: Any) -> pa.Table:
    """These rows in any order: by reading the newest fragments whole, or by a filter."""
    newest = _written_lately(handle, row_ids)
    parts = []
    if newest:
        rows = handle.scanner(fragments=newest, **options).to_table()
        parts.append(rows.filter(pc.is_in(rows[ROW_ID], value_set=row_ids)))
        present = parts[0][ROW_ID].combine_chunks()
        row_ids = row_ids.filter(pc.invert(pc.is_in(row_ids, value_set=present)))
    if len(row_ids):
        filter = among_row_ids(row_ids.to_pylist())
        parts.append(handle.scanner(filter=filter, **options).to_table())
    return pa.concat_tables(parts)


def _written_lately(handle: Handle, row_ids: pa.Array) -> list[LanceFragment]:
    """Those of the newest fragments that hold hardly anything but these rows: reading them whole
    takes a fraction of what a filter with every row id takes."""
    if len(row_ids) < COSTS.rows_by_fragment_min:
        return []
    newest, room = {}, COSTS.rows_per_read_row_max * len(row_ids)
    for fragment in reversed(handle.get_fragments()):
        room -= fragment.physical_rows
        if room < 0:
            break
        newest[fragment.fragment_id] = fragment
    if not newest:
        return []
    rows = handle.scanner(columns=[ROW_ID, ADDRESS], fragments=[*newest.values()]).to_table()
    owners = pc.shift_right(rows[ADDRESS], pa.scalar(32, pa.uint64()))
    requested = owners.filter(pc.is_in(rows[ROW_ID], value_set=row_ids))
    sizes, hits = _counts(owners), _counts(requested)
    return [
        newest[n] for n, count in hits.items() if count * COSTS.rows_per_read_row_max >= sizes[n]
    ]


def _counts(values: pa.ChunkedArray) -> dict[int, int]:
    return {count["values"]: count["counts"] for count in pc.value_counts(values).to_pylist()}


def fragments_without(
    handle: Handle, row_ids: pa.Array, addresses: pa.Array | None = None
) -> tuple[list[FragmentMetadata], list[int]]:
    """The fragments that lose these rows, and those that lose all of theirs. A caller that knows
    the addresses of the rows in this version gives them and saves the lookup."""
    if len(row_ids) == 0:
        return [], []
    if addresses is None:
        addresses = rows_by_id(handle, row_ids, [ADDRESS])[ADDRESS].combine_chunks()
    return fragments_without_addresses(handle, addresses)


def fragments_without_addresses(
    handle: Handle, addresses: pa.Array
) -> tuple[list[FragmentMetadata], list[int]]:
    """The fragments that lose the rows at these addresses, and those that lose all of theirs.
    Idempotent: a row that is gone already loses nothing."""
    distinct = number_arrays.distinct(addresses.to_numpy(zero_copy_only=False).astype(np.uint64))
    owners = fragment_ids(distinct)
    changed, gone = [], []
    for number in number_arrays.distinct(owners).tolist():
        fragment = handle.get_fragment(number)
        if fragment is None:
            continue
        left = fragment.delete_rows(offsets(distinct[owners == number]).tolist())
        if left is None:
            gone.append(number)
        else:
            changed.append(left)
    return changed, gone


def give_row_ids(fragments: Sequence[FragmentMetadata], row_ids: pa.Array) -> None:
    """Assign row ids to rows just written, in the order they were written."""
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
