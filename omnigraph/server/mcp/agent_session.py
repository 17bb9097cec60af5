"""Agent session: the branch an agent works on, what it may do and how much it is shown.

Invariant: plain values, from the command line or from the query parameters of `/mcp`, so that
nothing has to be remembered between two requests.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from omnigraph.errors import BadRequest

ROWS_MAX, BYTES_MAX = 200, 40_000
_BYTES_MIN = 1_000
_NAMES = ("graph", "branch", "from", "read_only", "stored_only", "rows_max", "bytes_max", "text")
_SWITCHES = {"true": True, "1": True, "": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class AgentSession:
    """How one agent works. With `branch`, tools that name none read and write there, and it is
    made from `base` when it is missing. With `as_text`, answers are JSON texts without a schema."""

    graph: str | None = None
    branch: str | None = None
    base: str | None = None
    read_only: bool = False
    stored_only: bool = False
    rows_max: int = ROWS_MAX
    bytes_max: int = BYTES_MAX
    as_text: bool = False

    def __post_init__(self) -> None:
        if self.rows_max < 1 or self.bytes_max < _BYTES_MIN:
            raise BadRequest(
                f"rows_max is {self.rows_max} and bytes_max {self.bytes_max}",
                f"give at least 1 row and {_BYTES_MIN} bytes",
            )
        if self.base is not None and self.branch is None:
            raise BadRequest("from names what a branch is made from", "name the branch too")


def session_of(query: Mapping[str, str]) -> AgentSession:
    """The session that the query parameters of `/mcp` describe."""
    for name in query:
        if name not in _NAMES:
            raise BadRequest(f"unknown query parameter '{name}'", f"use {', '.join(_NAMES)}")
    return AgentSession(
        graph=query.get("graph") or None,
        branch=query.get("branch") or None,
        base=query.get("from") or None,
        read_only=_switch(query, "read_only"),
        stored_only=_switch(query, "stored_only"),
        rows_max=_number(query, "rows_max", ROWS_MAX),
        bytes_max=_number(query, "bytes_max", BYTES_MAX),
        as_text=_switch(query, "text"),
    )


def _switch(query: Mapping[str, str], name: str) -> bool:
    text = query.get(name, "false").lower()
    if text not in _SWITCHES:
        raise BadRequest(f"query parameter '{name}' is true or false")
    return _SWITCHES[text]


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise BadRequest(f"query parameter '{name}' is no whole number")
    return int(text)
