"""Records given as Python objects (`df.to_dict("records")`): values of numpy and pandas made plain.

Invariant: a value of a record means what it means in a column of a pandas table: NaN, NA and NaT
are null, a whole float is an integer where the property holds integers, and midnight without a
zone a date where it holds dates. Lines of JSON never
come here, and a record that is no mapping is left to the reader of records.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from omnigraph.catalog.model import Catalog
from omnigraph.catalog.plain_values import plain
from omnigraph.exec.load.ndjson import Owner, bad
from omnigraph.exec.values.from_columns import whole_day, whole_numbers
from omnigraph.exec.values.from_input import json_type_name
from omnigraph.types import Scalar


def plain_record(record: Any, owner: Callable[[Mapping[str, Any]], Owner | None]) -> Any:
    """A record of the graph format or a flat one, its values plain. `owner` is asked for its type
    only where that matters. Raises `BadRecord` where a key is no text."""
    if not isinstance(record, Mapping):
        return record
    values = _members(record)
    data = values.get("data")
    if isinstance(data, Mapping):
        inner = _members(data)
        return {**values, "data": _whole(inner, lambda: owner(values))}
    return _whole(values, lambda: owner(values))


def _members(record: Mapping[Any, Any]) -> dict[str, Any]:
    for name in record:
        if not isinstance(name, str):
            # A reader of CSV puts the cells that have no column under None.
            text = f"a key of a record must be a string, not {json_type_name(name)} ({name!r})"
            raise bad("property", f"{text}; name the property, or leave it out", value=name)
    return {name: plain(value) for name, value in record.items()}


def _whole(values: dict[str, Any], owner: Callable[[], Owner | None]) -> dict[str, Any]:
    named = [name for name, value in values.items() if _may_be_whole(value)]
    known = owner() if named else None
    for name in named:
        prop = None if known is None else known.property(name)
        if prop is not None and prop.type.scalar is Scalar.DATE:
            values[name] = whole_day(values[name])
        elif prop is not None:
            values[name] = whole_numbers(values[name], prop.type)
    return values


def _may_be_whole(value: Any) -> bool:
    """Whether a value may be a whole number or a whole day in another type."""
    items = value if isinstance(value, list) else (value,)
    return any(isinstance(item, float | datetime) for item in items)


def owner_of(catalog: Catalog, record: Any) -> Owner | None:
    """The type that a record of the graph format names, if it names one."""
    if not isinstance(record, Mapping) or ("type" in record) == ("edge" in record):
        return None
    name = record.get("type", record.get("edge"))
    if not isinstance(name, str):
        return None
    return catalog.node(name) if "type" in record else catalog.edge(name)
