"""Refusals of HTTP itself: authentication, admission, content types, body sizes, unknown routes.

Invariant: what the engine refuses is an `OmnigraphError` and never this; what only HTTP knows is
this and never an `OmnigraphError`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

CODES = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    409: "conflict",
    413: "bad_request",
    415: "bad_request",
    416: "bad_request",
    429: "too_many_requests",
    500: "internal",
}
"""The closed set of codes; a status that is not here has none."""


@dataclass
class HttpRefusal(Exception):
    """An answer that is an error, with its status and headers."""

    status: int
    text: str
    headers: Mapping[str, str] = field(default_factory=dict)
    members: Mapping[str, Any] = field(default_factory=dict)
    code: str | None = None

    def __post_init__(self) -> None:
        super().__init__(self.text)
        if self.code is None:
            self.code = CODES.get(self.status)


def overloaded(text: str, *, seconds: int) -> HttpRefusal:
    """Too many requests: come back after some seconds."""
    return HttpRefusal(429, text, {"Retry-After": str(seconds)})


def unread(refusal: HttpRefusal) -> HttpRefusal:
    """A refusal of a body that was not read whole: its connection can carry no other request."""
    return replace(refusal, headers={**refusal.headers, "Connection": "close"})


def too_large(resource: str, actual: int, limit: int) -> HttpRefusal:
    """A body or an answer beyond its cap."""
    text = f"resource limit exceeded for {resource}: actual {actual}, limit {limit}"
    members = {"resource_limit": {"resource": resource, "limit": limit, "actual": actual}}
    return HttpRefusal(413, text, members=members)
