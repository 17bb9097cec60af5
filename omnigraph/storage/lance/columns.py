"""Names of Lance's own columns (row id, row address, row versions) and the layout of its blobs.

    row id    stable: a row keeps it in every version until it is written again
    address   fragment id << 32 | offset in the fragment; good in one version only
    created   the table version that first had the row
    updated   the table version that last wrote it

Invariant: no other module spells these names, so a change in Lance is a change here. The one
exception is `types.RESERVED_COLUMNS`, which the language must know and storage may not give it; a
test holds the two equal.
"""

from collections.abc import Callable, Iterable
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.types import BLOB_EXTENSION

KEY = "id"
"""The key column of every table. It is ours, not Lance's."""

ROW_ID = "_rowid"
ADDRESS = "_rowaddr"
OFFSET = "_rowoffset"
CREATED = "_row_created_at_version"
UPDATED = "_row_last_updated_at_version"

BLOB_URI = "blob_uri"
"""Of a blob that is read without its bytes: where it is kept, empty if in the table itself."""

BLOB_SIZE = "size"
"""Of a blob that is read without its bytes: how many they are."""

BLOB_BYTES: Literal["all_binary"] = "all_binary"
"""How a scan is asked for the bytes of blobs, not for what describes them."""

BLOB_DESCRIPTIONS: Literal["blobs_descriptions"] = "blobs_descriptions"
"""How a scan is asked for what describes blobs."""


def updated_after(version: int) -> str:
    """The filter for rows that were written after a version."""
    return f"{UPDATED} > {version}"


def among_row_ids(row_ids: Iterable[int]) -> str:
    """The filter for rows with one of these row ids."""
    listed = ", ".join(map(str, row_ids))
    return f"{ROW_ID} IN ({listed})" if listed else "false"


def fragment_ids(addresses: np.ndarray) -> np.ndarray:
    """The fragment of each address."""
    fragments: np.ndarray = addresses >> np.uint64(32)
    return fragments


def offsets(addresses: np.ndarray) -> np.ndarray:
    """The offset of each address in its fragment."""
    within: np.ndarray = addresses & np.uint64(0xFFFFFFFF)
    return within


def addresses_in(fragment_id: int, rows: np.ndarray) -> np.ndarray:
    """The addresses of rows at these offsets in a fragment."""
    return np.uint64(fragment_id << 32) | rows.astype(np.uint64, copy=False)


# Blobs


def is_blob(field: pa.Field) -> bool:
    """Whether a column of an open table holds blobs."""
    return getattr(field.type, "extension_name", "") == BLOB_EXTENSION


def blob_cells(
    field: pa.Field, described: pa.Array, payloads: Callable[[pa.Array], pa.Array]
) -> pa.Array:
    """Blobs as a write takes them, made of blobs that were read without their bytes. `payloads`
    gives the bytes where its mask is true; a blob that is kept elsewhere keeps its URI, and its
    bytes are not read."""
    storage = field.type.storage_type
    uris = pc.coalesce(pc.struct_field(described, BLOB_URI), pa.scalar(""))
    outside = pc.not_equal(uris, "")
    inside = pc.invert(outside)
    nth = pc.subtract(pc.cumulative_sum(inside.cast(pa.int64())), 1)
    data = payloads(inside).take(pc.if_else(inside, nth, pa.scalar(None, pa.int64())))
    known = {"data": data, "uri": pc.if_else(outside, uris, pa.scalar(None, pa.string()))}
    parts = [known.get(part.name, pa.nulls(len(data), part.type)) for part in storage]
    cells = pa.StructArray.from_arrays(
        [array.cast(part.type) for array, part in zip(parts, storage, strict=True)],
        fields=list(storage),
        mask=described.is_null(),
    )
    return pa.ExtensionArray.from_storage(field.type, cells)
