"""What one query may use, and the watch that holds it to that.

Invariant: an operator announces what it is about to hold before it holds it, and what is read is
counted while it arrives, so a query that would exceed its budget stops with `LimitExceeded`, naming
the operator, while the process is still well. What a query reads counts as long as it runs, also
where it is kept for later ones.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from time import perf_counter
from typing import Self

from omnigraph.errors import BadRequest, LimitExceeded
from omnigraph.exec.profile import line_of
from omnigraph.plan import ir
from omnigraph.storage.lance.tables import ARRIVING

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

    __slots__ = ("_limits", "_read", "_started", "deadline", "operator")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._read = 0
        self._started = perf_counter()
        self.deadline = self._started + limits.time_ms_max / 1000
        self.operator: str | ir.PatternOp = "the query"

    @property
    def _where(self) -> str:
        return self.operator if isinstance(self.operator, str) else line_of(self.operator)

    def hold(self, bytes_held: int) -> None:
        """Pass if the operator may hold this much beside what was read, and time is left."""
        total = self._read + bytes_held
        if total > self._limits.memory_bytes_max:
            raise LimitExceeded(
                f"query memory in bytes at `{self._where}`",
                total,
                self._limits.memory_bytes_max,
                "narrow the pattern before this operator, or raise "
                "OMNIGRAPH_QUERY_MEMORY_BYTES_MAX",
            )
        self.tick()

    def read(self, bytes_read: int) -> None:
        """Count what arrived."""
        self._read += bytes_read
        self.hold(0)

    def tick(self) -> None:
        """Pass while time is left."""
        now = perf_counter()
        if now > self.deadline:
            raise LimitExceeded(
                f"query time in ms at `{self._where}`",
                int((now - self._started) * 1000),
                self._limits.time_ms_max,
                "narrow the pattern before this operator, or raise OMNIGRAPH_QUERY_TIME_MS_MAX",
            )

    def cancel(self) -> None:
        """Let no time be left: nobody waits for the query any more."""
        self.deadline = self._started


_WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextmanager
def watched_by(watch: Watch) -> Iterator[None]:
    """Count everything this thread reads and announces for a query."""
    mine, arriving = _WATCH.set(watch), ARRIVING.set(watch.read)
    try:
        yield
    finally:
        ARRIVING.reset(arriving)
        _WATCH.reset(mine)


def announce(bytes_held: int) -> None:
    """Pass if the query that runs here, if any, may hold this much now."""
    watch = _WATCH.get()
    if watch is not None:
        watch.hold(bytes_held)
