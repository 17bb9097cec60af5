"""Records given as Python objects (`df.to_dict("records")`): values of numpy and pandas made plain.

Invariant: a value of a record means what it means in a column of a pandas table: NaN, NA and NaT
are null, and a whole float is an integer where the property holds integers. Lines of JSON never
come here, and a record that is no mapping is left to the reader of records.
"""

from collections.abc import Callable, Mapping
from typing import Any

from omnigraph.catalog.model import Catalog
from omnigraph.catalog.plain_values import plain
from omnigraph.exec.load.ndjson import Owner
from omnigraph.exec.values.from_columns import whole_numbers


def plain_record(record: Any, owner: Callable[[Mapping[str, Any]], Owner | None]) -> Any:
    """A record of the graph format or a flat one, its values plain. `owner` is asked for its type
    only where that matters."""
    if not isinstance(record, Mapping):
        return record
    values = {name: plain(value) for name, value in record.items()}
    data = values.get("data")
    if isinstance(data, Mapping):
        inner = {name: plain(value) for name, value in data.items()}
        return {**values, "data": _whole(inner, lambda: owner(values))}
    return _whole(values, lambda: owner(values))


def _whole(values: dict[str, Any], owner: Callable[[], Owner | None]) -> dict[str, Any]:
    fractions = [name for name, value in values.items() if _has_floats(value)]
    known = owner() if fractions else None
    props = {} if known is None else {prop.name: prop for prop in known.properties}
    for name in fractions:
        if name in props:
            values[name] = whole_numbers(values[name], props[name].type)
    return values


def _has_floats(value: Any) -> bool:
    return any(isinstance(item, float) for item in (value if isinstance(value, list) else (value,)))


def owner_of(catalog: Catalog, record: Any) -> Owner | None:
    """The type that a record of the graph format names, if it names one."""
    if not isinstance(record, Mapping) or ("type" in record) == ("edge" in record):
        return None
    name = record.get("type", record.get("edge"))
    if not isinstance(name, str):
        return None
    return catalog.node(name) if "type" in record else catalog.edge(name)
