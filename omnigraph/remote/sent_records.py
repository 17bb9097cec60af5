"""Records of Python as NDJSON: a value that JSON has no form for is sent as its property reads it.

Invariant: a record that is sent is stored as a local load stores it. A value that a local load
refuses is never sent as another one: NaN in a list or an infinity as null, bytes as a text.
"""

from collections.abc import Callable, Mapping
from datetime import date
from typing import Any

import orjson

from omnigraph.catalog.model import Type
from omnigraph.errors import BadRequest
from omnigraph.exec.load.ndjson import BadRecord
from omnigraph.exec.load.python_records import plain_record
from omnigraph.exec.values.from_input import Unfit, stored
from omnigraph.remote.json_values import is_json, json_text
from omnigraph.types import ValueType

OwnerOf = Callable[[Mapping[str, Any]], Type | None]
"""The type of a record, if it is known."""


class Unsendable(Exception):
    """A record with a value that neither JSON nor its property has a form for."""


def sent_line(record: Any, owner: OwnerOf) -> bytes:
    """A record as a line of JSON. `owner` is asked for its type only where that matters."""
    try:
        return orjson.dumps(_sent(plain_record(record, owner), owner)) + b"\n"
    except BadRecord as cause:
        raise Unsendable(str(cause)) from None
    except TypeError as cause:
        raise BadRequest(f"a record cannot be sent as JSON: {cause}", "give plain values") from None


def _sent(record: Any, owner: OwnerOf) -> Any:
    if not isinstance(record, Mapping):
        if not is_json(record):
            raise Unsendable(f"a {type(record).__name__} is no record")
        return record
    data = record.get("data")
    if not isinstance(data, Mapping):
        return _values(record, lambda: owner(record))
    members = {name: value for name, value in record.items() if name != "data"}
    return {**_values(members, lambda: None), "data": _values(data, lambda: owner(record))}


def _values(values: Mapping[Any, Any], owner: Callable[[], Type | None]) -> dict[str, Any]:
    odd = {name: value for name, value in values.items() if not is_json(value)}
    known = owner() if odd else None
    props = {} if known is None else {prop.name: prop.type for prop in known.properties}
    return {**values, **{name: _form(value, props.get(name)) for name, value in odd.items()}}


def _form(value: Any, value_type: ValueType | None) -> Any:
    """The JSON of a value of a property; of no property are the ends of an edge and its id."""
    if value_type is None:
        return _named_by(value)
    try:
        return _spelled(value, stored(value, value_type))
    except Unfit as unfit:
        raise Unsendable(unfit.text) from None


def _spelled(value: Any, kept: Any) -> Any:
    """The text of a value, which a load reads as finely as the value itself, or what is stored."""
    if isinstance(kept, list):
        return [_spelled(each, as_stored) for each, as_stored in zip(value, kept, strict=True)]
    text = json_text(value)
    return kept if text is None else text


def _named_by(value: Any) -> Any:
    """A value, or a list of values, that names a node by its key."""
    if isinstance(value, list):
        return [_named_by(item) for item in value]
    if isinstance(value, date):
        return json_text(value)
    if not is_json(value):
        raise Unsendable(f"a {type(value).__name__} has no JSON form")
    return value
