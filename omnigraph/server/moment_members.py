"""Types of date properties in an answer: a member that a client asks for with a request header.

Invariant: without the header an answer is that of 0.10, dates as numbers and nothing beside them.
With it, `moments` names for each type id the properties that are a `Date` or a `DateTime`.
"""

from collections.abc import Iterable
from typing import Any

from omnigraph.exec.changes.diff import Change
from omnigraph.exec.changes.images import Moments
from omnigraph.server.call import RouteCall

HEADER = "Omnigraph-Moments"


def moments_in_changes(call: RouteCall, changes: Iterable[Change]) -> dict[str, Any]:
    """The dates among the properties of changed entities, if they are asked for."""
    return _member(call, {change.of.id: change.of.moments for change in changes})


def moments_of_type(call: RouteCall, type_id: str, moments: Moments) -> dict[str, Any]:
    """The dates among the properties of one type, if they are asked for."""
    return _member(call, {type_id: moments})


def _member(call: RouteCall, by_type: dict[str, Moments]) -> dict[str, Any]:
    if call.headers.get(HEADER.lower()) is None:
        return {}
    named = {
        type_id: {name: str(scalar) for name, scalar in moments.items()}
        for type_id, moments in by_type.items()
        if moments
    }
    return {"moments": named} if named else {}
