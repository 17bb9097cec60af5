"""Objects of a result: columns that stand side by side folded into struct columns and JSON objects.

Invariant: a column that belongs to no object stays as it is, and a null object has no field.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.plan.ir import ObjectColumn

Values = TypeVar("Values")


def folded(
    columns: Sequence[Values],
    objects: Sequence[ObjectColumn],
    fold: Callable[[ObjectColumn, Sequence[Values]], Values],
) -> list[Values]:
    """The columns that leave."""
    made = list(columns)
    for each in reversed(objects):
        made[each.start : each.end] = [fold(each, made[each.start : each.end])]
    return made


def json_objects(shape: ObjectColumn, columns: Sequence[list[Any]]) -> list[Any]:
    """A column of dictionaries."""
    fields = columns[1:] if shape.may_be_null else columns
    made = [dict(zip(shape.fields, row, strict=True)) for row in zip(*fields, strict=True)]
    if not shape.may_be_null:
        return made
    return [each if known else None for each, known in zip(made, columns[0], strict=True)]


def struct_column(shape: ObjectColumn, columns: Sequence[pa.Array]) -> pa.Array:
    """A column of structs."""
    if not shape.may_be_null:
        return pa.StructArray.from_arrays(list(columns), names=list(shape.fields))
    absent = pc.invert(columns[0])
    return pa.StructArray.from_arrays(list(columns[1:]), names=list(shape.fields), mask=absent)


def unfolded(name: str, start: int, column: pa.Array) -> tuple[ObjectColumn, list[pa.Array]]:
    """The columns of a struct column that stands at a place, as `struct_column` takes them."""
    names = tuple(field.name for field in column.type)
    return ObjectColumn(name, start, names, True), [column.is_valid(), *column.flatten()]
