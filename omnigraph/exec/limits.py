"""Query limits: the memory budget and the deadline of one query, and the watch that enforces them.

Invariant: an operator announces the bytes it is about to hold before it holds them, and bytes read
are counted while they arrive, so a query that would exceed its budget stops with `LimitExceeded`,
naming the operator, while the process is still well. Bytes that a query reads count as long as it
runs, also where they are kept for later queries.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter
from typing import TYPE_CHECKING, Self, cast

from omnigraph import environment
from omnigraph.costs import COSTS
from omnigraph.deferred import deferred
from omnigraph.errors import QUERY_TIME, LimitExceeded
from omnigraph.light_dataclass import dataclass
from omnigraph.query_limits import REQUEST

if TYPE_CHECKING:
    from omnigraph.exec.profile import line_of
    from omnigraph.plan import ir
else:
    line_of = deferred("omnigraph.exec.profile", "line_of")

_WHERE_MAX = 200  # characters of an operator in an error
_BYTES_A_ROW = 1024
"""What a row may take: several operators hold a batch at once, with what they make of it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one query, and of the cache that is kept in memory between queries. `rows_max` sets
    the size of its batches, which otherwise follows from its memory."""

    memory_bytes_max: int = environment.QUERY_MEMORY.default
    time_ms_max: int = environment.QUERY_TIME.default
    cache_bytes_max: int = environment.CACHE.default

    rows_max: int = 0

    @property
    def batch_rows_max(self) -> int:
        """How many rows an operator passes on at a time: few of a small budget."""
        return self.rows_max or max(
            1, min(COSTS.batch_rows_max, self.memory_bytes_max // _BYTES_A_ROW)
        )

    @classmethod
    def from_environment(cls) -> Self:
        """The defaults, or the values that the environment sets instead."""
        return cls(
            memory_bytes_max=environment.QUERY_MEMORY.read(),
            time_ms_max=environment.QUERY_TIME.read(),
            cache_bytes_max=environment.CACHE.read(),
        )


class Stop:
    """Deadline and cancellation of one query, for a caller that may leave while it runs.

    `time_ms_max` lowers the limit of the graph, never raises it. `asked_at` is the moment at which
    the query was asked for (`time.monotonic`), if that was before the call: it sees what was
    published until then, and shares the look for a newer head with others that waited meanwhile.
    """

    __slots__ = ("_watch", "asked_at", "is_cancelled", "time_ms_max")

    def __init__(self, time_ms_max: int | None = None, asked_at: float | None = None) -> None:
        self.time_ms_max = time_ms_max
        self.asked_at = asked_at
        self.is_cancelled = False
        self._watch: Watch | None = None

    def cancel(self) -> None:
        """End the query where it next looks at its watch; one that has not begun ends at once."""
        self.is_cancelled = True
        if self._watch is not None:
            self._watch.cancel()

    def watches(self, watch: "Watch") -> None:
        """Bind the running query."""
        self._watch = watch
        if self.is_cancelled:
            watch.cancel()


class Watch:
    """Enforces the limits of one running query. `operator` is the one that runs now.

    The deadline counts from `started` (`time.perf_counter`), by default from now: planning and
    running share one.
    """

    __slots__ = ("_limits", "_read", "_time_ms_max", "deadline", "operator", "started")

    def __init__(
        self, limits: Limits, stop: Stop | None = None, started: float | None = None
    ) -> None:
        self._limits = limits
        self._read = 0
        self.started = perf_counter() if started is None else started
        lower = None if stop is None else stop.time_ms_max
        self._time_ms_max = limits.time_ms_max if lower is None else min(lower, limits.time_ms_max)
        self.deadline = self.started + self._time_ms_max / 1000
        self.operator: str | ir.PatternOp = "the query"
        if stop is not None:
            stop.watches(self)

    @property
    def where(self) -> str:
        """The operator that runs, in at most 200 characters."""
        line = self.operator if isinstance(self.operator, str) else line_of(self.operator)
        return line if len(line) <= _WHERE_MAX else f"{line[: _WHERE_MAX - 1]}…"

    def hold(self, bytes_held: int) -> None:
        """Pass if the operator may hold this much beside what was read, and time is left."""
        total = self._read + bytes_held
        if total > self._limits.memory_bytes_max:
            raise LimitExceeded(
                f"query memory in bytes at `{self.where}`",
                total,
                self._limits.memory_bytes_max,
                "narrow the pattern before this operator, or raise "
                f"{environment.QUERY_MEMORY.name}",
            )
        self.tick()

    def read(self, bytes_read: int) -> None:
        """Count bytes that arrived."""
        self._read += bytes_read
        self.hold(0)

    def tick(self) -> None:
        """Pass while time is left."""
        now = perf_counter()
        if now > self.deadline:
            raise LimitExceeded(
                f"{QUERY_TIME} at `{self.where}`",
                int((now - self.started) * 1000),
                self._time_ms_max,
                f"narrow the pattern before this operator, or raise {environment.QUERY_TIME.name}",
            )

    def cancel(self) -> None:
        """Set the deadline to the past: the query's caller has left."""
        self.deadline = self.started


_WATCH = cast("ContextVar[Watch | None]", REQUEST)
"""The watch of the query that this thread works for.

Ambient, not an argument: nodes, columns and adjacency are shared by all queries of a graph and read
by whichever query needs them first, deep inside `Domain.values_at` or a recipe's `build`, so an
argument would run through every method of the evaluator, the domains, the cache and the
searches."""


@contextmanager
def watched_by(watch: Watch) -> Iterator[None]:
    """Count everything this thread reads and announces for a query."""
    before = _WATCH.set(watch)
    try:
        yield
    finally:
        _WATCH.reset(before)


@contextmanager
def watched(limits: Limits, stop: Stop | None = None) -> Iterator[None]:
    """Enforce limits on the work of this thread, unless it works for a request that has its own."""
    if _WATCH.get() is not None:
        yield
        return
    with watched_by(Watch(limits, stop)):
        yield


def announce(bytes_held: int) -> None:
    """Pass if the query that this thread works for, if any, may hold this much now."""
    watch = _WATCH.get()
    if watch is not None:
        watch.hold(bytes_held)


def arrived(bytes_read: int) -> None:
    """Count bytes read for the query that this thread works for, if any."""
    watch = _WATCH.get()
    if watch is not None:
        watch.read(bytes_read)
