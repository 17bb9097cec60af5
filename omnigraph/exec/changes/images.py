"""What an entity looks like at one point of history, as JSON has it.

Invariant: an image is complete: every property of the type is in it, null ones too. Dates are
days and moments milliseconds since the epoch, as in an export; a blob is a short text about it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.model import EdgeType
from omnigraph.exec.changes.entities import TypeOf
from omnigraph.storage.lance.columns import BLOB_SIZE, BLOB_URI
from omnigraph.types import Scalar, ValueType

Values = tuple[Any, ...]
"""The properties of an entity in the order of their names, and then the two ends of an edge."""


class Image(NamedTuple):
    """An entity's properties, and for an edge the ids of its two ends."""

    properties: dict[str, Any]
    endpoints: tuple[str, str] | None = None

    def to_json(self) -> dict[str, Any]:
        """The image as the change feed writes it."""
        if self.endpoints is None:
            return {"properties": self.properties}
        source, target = self.endpoints
        return {"properties": self.properties, "endpoints": {"from": source, "to": target}}


def image(names: Sequence[str], values: Values) -> Image:
    """What values say of an entity."""
    ends = values[len(names) :]
    return Image(dict(zip(names, values, strict=False)), (ends[0], ends[1]) if ends else None)


def image_values(owner: TypeOf, rows: pa.Table) -> list[Values | None]:
    """The values of each row; None where there is no entity."""
    columns = [json_values(rows[prop.name], prop.type) for prop in owner.properties]
    if isinstance(owner, EdgeType):
        columns += [rows["src"].to_pylist(), rows["dst"].to_pylist()]
    values: list[Values | None] = list(zip(*columns, strict=True)) or [()] * rows.num_rows
    for place in pc.indices_nonzero(rows["id"].is_null()).to_pylist():
        values[place] = None
    return values


def images(owner: TypeOf, rows: pa.Table) -> list[Image | None]:
    """The image of each row; None where there is no entity."""
    names = [prop.name for prop in owner.properties]
    return [
        None if values is None else image(names, values) for values in image_values(owner, rows)
    ]


def json_values(values: pa.ChunkedArray, value_type: ValueType) -> list[Any]:
    """A column as JSON values."""
    if value_type.is_blob:
        return [_blob_text(cell) for cell in values.to_pylist()]
    if value_type.is_vector:
        return _vectors(values)
    number = {Scalar.DATE: pa.int32(), Scalar.DATETIME: pa.int64()}.get(value_type.scalar)
    if number is not None:
        values = values.cast(pa.list_(number) if value_type.is_list else number)
    return list(values.to_pylist())


def _vectors(values: pa.ChunkedArray) -> list[list[float] | None]:
    """Vectors as lists of doubles, many times faster than one number at a time."""
    column = values.combine_chunks()
    numbers = iter(
        column.flatten()
        .to_numpy(zero_copy_only=False)
        .astype(np.float64)
        .reshape(-1, column.type.list_size)
        .tolist()
    )
    return [next(numbers) if there else None for there in column.is_valid().to_pylist()]


def _blob_text(cell: dict[str, Any] | None) -> str | None:
    if cell is None:
        return None
    return cell.get(BLOB_URI) or f"blob:{cell.get(BLOB_SIZE) or 0}"
