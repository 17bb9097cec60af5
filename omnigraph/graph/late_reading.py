"""The read side of an open graph, made by the first call that reads.

Invariant: the handles of one open graph share one read side, however many threads ask first. Its
limits are those of the environment at the open, so an open refuses limits that are none.
"""

from threading import Lock
from typing import TYPE_CHECKING

from omnigraph.deferred import deferred
from omnigraph.exec.limits import Limits
from omnigraph.storage.store import Store

if TYPE_CHECKING:
    from omnigraph.exec.read.reading import Reading
else:
    Reading = deferred("omnigraph.exec.read.reading", "Reading")


class LateReading:
    """The one `Reading` of an open graph; calling it makes it."""

    def __init__(self, store: Store, made: "Reading | None" = None) -> None:
        self._store = store
        self._limits = Limits.from_environment()
        self._lock = Lock()
        self._made = made

    def __call__(self) -> Reading:
        """The read side."""
        if self._made is None:
            with self._lock:
                if self._made is None:
                    self._made = Reading(self._store, self._limits)
        return self._made

    @property
    def bytes_kept(self) -> int:
        """The bytes in memory for later reads."""
        return 0 if self._made is None else self._made.holdings.cache.bytes_kept

    def forget(self) -> None:
        """Empty the cache; views that are in use stay as they are."""
        if self._made is not None:
            self._made.holdings.clear()

    def close(self) -> None:
        """Let go of everything in memory."""
        if self._made is not None:
            self._made.close()


class ReadSide:
    """What has a read side: the verbs of a graph that read."""

    _store: Store
    _late_reading: LateReading

    @property
    def _reading(self) -> Reading:
        return self._late_reading()

    @_reading.setter
    def _reading(self, reading: Reading) -> None:
        self._late_reading = LateReading(self._store, reading)
