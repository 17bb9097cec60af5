"""Dates of tool results as ISO text, as `query` gives them, where the HTTP API answers numbers.

Invariant: only values that an answer names in its member `moments` are rewritten, and the member
itself is left out; a server that names none (0.10) keeps its numbers.
"""

from collections.abc import Mapping
from typing import Any

from omnigraph.exec.changes.images import shown_moment
from omnigraph.types import Scalar

_Named = Mapping[str, str]
"""Date properties of one type, with their scalar."""

_NONE: Mapping[str, Any] = {}


def with_iso_dates(
    value: Any, moments: Mapping[str, _Named] = _NONE, of_type: _Named = _NONE
) -> Any:
    """A document whose entities and changes have ISO dates."""
    if isinstance(value, list):
        return [with_iso_dates(each, moments, of_type) for each in value]
    if not isinstance(value, dict):
        return value
    moments = value.get("moments", moments)
    if isinstance(value.get("type"), dict):
        of_type = moments.get(value["type"]["id"], _NONE)
    return {
        name: _dated(each, of_type)
        if name == "properties"
        else with_iso_dates(each, moments, of_type)
        for name, each in value.items()
        if name != "moments"
    }


def _dated(properties: Any, of_type: _Named) -> Any:
    if not isinstance(properties, dict):
        return properties
    return {
        name: shown_moment(value, Scalar(of_type[name])) if name in of_type else value
        for name, value in properties.items()
    }
