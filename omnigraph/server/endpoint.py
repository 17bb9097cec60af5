"""Endpoint of the API: method, path, operation id, policy action, bodies, limits and statuses.

Invariant: plain values. Dispatch, authorization, limits and the OpenAPI document all read them.
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from omnigraph.server.legacy import Route
from omnigraph.server.wire import Body


class Lane(StrEnum):
    """Thread pool of a route."""

    READ = "read"
    WRITE = "write"


class BodySize(StrEnum):
    """Cap on a request body."""

    NONE = "none"
    DEFAULT = "default"
    LOAD = "load"
    BLOB = "blob"
    SPOOLED = "spooled"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter or header of an endpoint."""

    name: str
    about: str
    where: str = "query"
    required: bool = False
    repeated: bool = False
    is_number: bool = False


@dataclass(frozen=True)
class ApiEndpoint:
    """One method of one path."""

    method: str
    path: str
    operation: str
    action: str | None
    route: Route
    about: str
    answers: type[Body] | str
    request: type[Body] | str | None = None
    body_required: bool = True
    lane: Lane = Lane.READ
    size: BodySize = BodySize.NONE
    parameters: tuple[Parameter, ...] = ()
    statuses: tuple[int, ...] = (200,)
    refusals: tuple[int, ...] = ()
    successor: str | None = None  # of a deprecated route
    flat: bool = False
    other_answers: tuple[type[Body], ...] = ()  # shapes that the answer may have instead
    other_media: tuple[str, ...] = ()  # that the `Accept` header may ask for
    other_bodies: tuple[str, ...] = ()  # content types of bodies that are spooled
    is_page: bool = False  # HTML for people, no part of the API
    also: tuple[str, ...] = ()  # actions that a request may be about instead

    @cached_property
    def segments(self) -> tuple[str, ...]:
        """The parts of the path; `{name}` for a parameter."""
        return tuple(self.path.removeprefix("/").split("/"))

    @property
    def names(self) -> tuple[str, ...]:
        """Path parameters."""
        return tuple(part[1:-1] for part in self.segments if part.startswith("{"))
