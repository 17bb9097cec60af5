"""Unknown query parameters on the routes of 0.10: a warning in the answer instead of an error.

Invariant: a request that prefers strict handling (RFC 7240, `Prefer: handling=strict`), as our own
clients and agents do, is refused before anything is read or written.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import UNSET, UnsetType

from omnigraph.errors import BadRequest
from omnigraph.server.call import RouteCall

PREFER, STRICT = "Prefer", "handling=strict"

Result = TypeVar("Result")
Warnings = list[str] | UnsetType


def with_known_parameters(
    call: RouteCall, params: Any, run: Callable[[Any], Result]
) -> tuple[Result, Warnings]:
    """Run a query with its parameters, or with those it declares and a warning about the others."""
    try:
        return run(params), UNSET
    except BadRequest as cause:
        if not cause.unknown or _is_strict(call):
            raise
        unknown = cause
    known = {name: value for name, value in params.items() if name not in unknown.unknown}
    try:
        return run(known), [f"ignored {unknown}"]
    except BadRequest as cause:
        # The misspelled name is why another one is missing.
        raise (unknown if cause.text.endswith("not provided") else cause) from None


def _is_strict(call: RouteCall) -> bool:
    preferences = ",".join(call.headers.getlist(PREFER)).lower().split(",")
    return STRICT in (each.partition(";")[0].replace(" ", "") for each in preferences)
