"""Entity images: the JSON of an entity at one point of history.

Invariant: an image is complete: every property of the type is in it, null ones too. In Python its
dates and moments are ISO text, as in the rows of a query; `to_json` writes them as days and
milliseconds since the epoch, as an export does. A blob is described by its size.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.model import EdgeType, Type
from omnigraph.exec.values.scalars import JsonForm
from omnigraph.exec.values.to_json import json_column
from omnigraph.language.moments import format_date, format_datetime
from omnigraph.types import Scalar

Values = tuple[Any, ...]
"""The properties of an entity in the order of their names, and then the two ends of an edge."""


Moments = Mapping[str, Scalar]
"""The properties of a type that are dates or moments, or lists of them, by name."""

NO_MOMENTS: Moments = {}
_ISO: dict[Scalar, Callable[[int], str]] = {
    Scalar.DATE: format_date,
    Scalar.DATETIME: format_datetime,
}


def moments_of(owner: Type) -> Moments:
    """The properties of a type that are dates or moments."""
    return {p.name: p.type.scalar for p in owner.properties if p.type.scalar in _ISO}


def shown_moment(value: Any, scalar: Scalar) -> Any:
    """A stored date or moment, or a list of them, as ISO text."""
    if isinstance(value, list):
        return [shown_moment(each, scalar) for each in value]
    return _ISO[scalar](value) if isinstance(value, int) else value


class Image(NamedTuple):
    """An entity's properties, and for an edge the ids of its two ends.

    >>> change, *_ = graph.diff("main~1", "main")
    >>> change.after.properties["name"]
    'Ada'
    """

    properties: dict[str, Any]
    endpoints: tuple[str, str] | None = None
    stored: dict[str, Any] | None = None
    """The properties with dates as numbers, where there are dates."""

    def __repr__(self) -> str:
        ends = "" if self.endpoints is None else f", endpoints={self.endpoints!r}"
        return f"Image({self.properties!r}{ends})"

    def to_json(self, dates: str = "numbers") -> dict[str, Any]:
        """The image as the change feed writes it, or with `dates="iso"` as Python shows it."""
        is_stored = dates == "numbers" and self.stored is not None
        properties = self.stored if is_stored else self.properties
        if self.endpoints is None:
            return {"properties": properties}
        source, target = self.endpoints
        return {"properties": properties, "endpoints": {"from": source, "to": target}}


def image(names: Sequence[str], values: Values, moments: Moments = NO_MOMENTS) -> Image:
    """The image of an entity with these values."""
    ends = values[len(names) :]
    stored = dict(zip(names, values, strict=False))
    endpoints = (ends[0], ends[1]) if ends else None
    if not moments:
        return Image(stored, endpoints)
    shown = {name: shown_moment(stored[name], kind) for name, kind in moments.items()}
    return Image({**stored, **shown}, endpoints, stored)


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
    names, moments = [prop.name for prop in owner.properties], moments_of(owner)
    return [
        None if values is None else image(names, values, moments)
        for values in image_values(owner, rows)
    ]
