"""Query parameters as JSON: one that JSON has no form for is bound here as a local query binds it.

Invariant: a parameter means over HTTP what it means locally, and is refused in the same words. Only
where the types are not known here, of a stored query, is a date or bytes a text of any parameter.
"""

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

from omnigraph.errors import BadRequest, SourceError
from omnigraph.language.moments import format_date, format_datetime
from omnigraph.language.query.parser import parse_queries
from omnigraph.plan.compile import select_query
from omnigraph.plan.ir import Constant, Parameter
from omnigraph.plan.params import bind_parameters
from omnigraph.remote.json_values import is_json, json_text, plain_items
from omnigraph.types import Scalar

_TEXTS_KEPT = 256


def sent_params(
    params: Mapping[str, Any] | None, text: str | None = None, name: str | None = None
) -> dict[str, Any] | None:
    """Parameters as JSON has them. `text` is that of the query called `name`, or of the only one;
    without it the types of the parameters are not known."""
    if params is None:
        return None
    if not isinstance(params, Mapping):
        bind_parameters((), params)  # which refuses it
    values = {str(key): plain_items(value) for key, value in params.items()}
    if all(map(is_json, values.values())):
        return values
    declared = None if text is None else _declared(text, name)
    return {
        key: value if is_json(value) else _sent(key, value, declared)
        for key, value in values.items()
    }


@lru_cache(maxsize=_TEXTS_KEPT)
def _declared(text: str, name: str | None) -> dict[str, Parameter] | None:
    """The parameters of a query; None where the server will say what is wrong with the text."""
    try:
        query = select_query(parse_queries(text), name)
    except (SourceError, BadRequest):
        return None
    return {each.name: Parameter(each.name, each.type) for each in query.parameters}


def _sent(name: str, value: Any, declared: Mapping[str, Parameter] | None) -> Any:
    if declared is None:
        return _untyped(name, value)
    parameter = declared.get(name)
    if parameter is None:
        return None  # nobody reads it
    return _constant(bind_parameters((parameter,), {name: value})[name], parameter.type.scalar)


def _constant(value: Constant, scalar: Scalar) -> Any:
    """The JSON that is bound to this constant again."""
    if isinstance(value, tuple):
        return [_constant(item, scalar) for item in value]
    if isinstance(value, int) and scalar is Scalar.DATE:
        return format_date(value)
    if isinstance(value, int) and scalar is Scalar.DATETIME:
        return format_datetime(value)
    return value


def _untyped(name: str, value: Any) -> Any:
    """The JSON of a value whatever the type of its parameter is, or a refusal."""
    if hasattr(value, "tolist") and not isinstance(value, memoryview):
        value = plain_items(value.tolist())  # a Series of pandas
    if isinstance(value, list):
        return [item if is_json(item) else _untyped(name, item) for item in value]
    if isinstance(value, Decimal | Fraction):
        value = float(value)
    sent = value if is_json(value) else json_text(value)
    if sent is None and value is not None:
        raise BadRequest(f"param '{name}': {_why(value)}", "give a value that JSON can write")
    return sent


def _why(value: Any) -> str:
    if isinstance(value, float):
        return "expected a finite float"
    if isinstance(value, int):
        return "no type holds an integer beyond 64 bits"
    return f"a {type(value).__name__} has no JSON form"
