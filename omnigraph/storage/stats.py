"""Counters and log events of the storage room.

Invariant: every call to Lance or to the object store passes `Stats.call` exactly once, and every
phase of the protocol passes `Stats.event`, so a test can assert a cost and an operator can see one.
So this is also where the calls of a closed store end.
"""

import logging
import threading
from collections import Counter
from typing import Any

from omnigraph.light_dataclass import dataclass
from omnigraph.storage.lifetime import Lifetime

log = logging.getLogger("omnigraph.storage")


@dataclass(frozen=True, slots=True)
class StatsView:
    """The counters at one moment: protocol events by name, storage calls by name."""

    events: dict[str, int]
    calls: dict[str, int]

    @property
    def calls_total(self) -> int:
        return sum(self.calls.values())

    def since(self, earlier: "StatsView") -> "StatsView":
        """What happened between two looks."""
        return StatsView(
            dict(Counter(self.events) - Counter(earlier.events)),
            dict(Counter(self.calls) - Counter(earlier.calls)),
        )


class Stats:
    """Counters of one open graph, safe to share between threads."""

    def __init__(self, lifetime: Lifetime | None = None) -> None:
        self._lifetime = lifetime
        self._events: Counter[str] = Counter()
        self._calls: Counter[str] = Counter()
        self._lock = threading.Lock()

    def call(self, name: str) -> None:
        """Count one storage call, or `GraphClosed`."""
        if self._lifetime is not None:
            self._lifetime.require_open()
        with self._lock:
            self._calls[name] += 1

    def event(self, name: str, *, level: int = logging.DEBUG, **facts: Any) -> None:
        """Count one protocol event and log it with its facts."""
        with self._lock:
            self._events[name] += 1
        if log.isEnabledFor(level):
            text = " ".join(f"{key}={value}" for key, value in facts.items())
            log.log(level, "%s %s", name, text, extra={"event": name, "facts": facts})

    def view(self) -> StatsView:
        """The counters now."""
        with self._lock:
            return StatsView(dict(self._events), dict(self._calls))
