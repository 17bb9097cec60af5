"""Entity images: the JSON of an entity at one point of history.

Invariant: an image is complete: every property of the type is in it, null ones too. Dates are
days and moments milliseconds since the epoch, as in an export; a blob is described by its size.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.model import EdgeType, Type
from omnigraph.exec.values.scalars import JsonForm
from omnigraph.exec.values.to_json import json_column

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
    """The image of an entity with these values."""
    ends = values[len(names) :]
    return Image(dict(zip(names, values, strict=False)), (ends[0], ends[1]) if ends else None)


def image_values(owner: Type, rows: pa.Table) -> list[Values | None]:
    """The values of each row; None where there is no entity."""
    columns = [json_column(rows[p.name], p.type, JsonForm.RECORD) for p in owner.properties]
    if isinstance(owner, EdgeType):
        columns += [rows["src"].to_pylist(), rows["dst"].to_pylist()]
    values: list[Values | None] = list(zip(*columns, strict=True)) or [()] * rows.num_rows
    for position in pc.indices_nonzero(rows["id"].is_null()).to_pylist():
        values[position] = None
    return values


def images(owner: Type, rows: pa.Table) -> list[Image | None]:
    """The image of each row; None where there is no entity."""
    names = [prop.name for prop in owner.properties]
    return [
        None if values is None else image(names, values) for values in image_values(owner, rows)
    ]
