"""What one query may use, and the watch that holds it to that.

Invariant: an operator announces what it is about to hold before it holds it, so a query that would
exceed its budget stops with `LimitExceeded`, naming the operator, while the process is still well.
"""

import os
from dataclasses import dataclass
from time import perf_counter
from typing import Self

from omnigraph.errors import BadRequest, LimitExceeded
from omnigraph.exec.profile import line_of
from omnigraph.plan import ir

_MEGABYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one query, and of what is kept in memory between queries."""

    memory_bytes_max: int = 4096 * _MEGABYTE
    time_ms_max: int = 60_000
    cache_bytes_max: int = 2048 * _MEGABYTE

    @classmethod
    def from_environment(cls) -> Self:
        """The defaults, or what the environment says instead."""
        return cls(
            memory_bytes_max=_number("OMNIGRAPH_QUERY_MEMORY_BYTES_MAX", cls().memory_bytes_max),
            time_ms_max=_number("OMNIGRAPH_QUERY_TIME_MS_MAX", cls().time_ms_max),
            cache_bytes_max=_number("OMNIGRAPH_CACHE_BYTES_MAX", cls().cache_bytes_max),
        )


def _number(name: str, default: int) -> int:
    text = os.environ.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit():
        raise BadRequest(f"{name} is '{text}'", "set it to a whole number, or unset it")
    return int(text)


class Watch:
    """Holds one running query to its limits. `operator` is what runs now."""

    __slots__ = ("_deadline", "_limits", "_started", "operator")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._started = perf_counter()
        self._deadline = self._started + limits.time_ms_max / 1000
        self.operator: str | ir.PatternOp = "the query"

    @property
    def _where(self) -> str:
        return self.operator if isinstance(self.operator, str) else line_of(self.operator)

    def hold(self, bytes_held: int) -> None:
        """Pass if the operator may hold this much, and time is left."""
        if bytes_held > self._limits.memory_bytes_max:
            raise LimitExceeded(
                f"query memory in bytes at `{self._where}`",
                bytes_held,
                self._limits.memory_bytes_max,
                "narrow the pattern before this operator, or raise "
                "OMNIGRAPH_QUERY_MEMORY_BYTES_MAX",
            )
        self.tick()

    def tick(self) -> None:
        """Pass while time is left."""
        now = perf_counter()
        if now > self._deadline:
            raise LimitExceeded(
                f"query time in ms at `{self._where}`",
                int((now - self._started) * 1000),
                self._limits.time_ms_max,
                "narrow the pattern before this operator, or raise OMNIGRAPH_QUERY_TIME_MS_MAX",
            )
