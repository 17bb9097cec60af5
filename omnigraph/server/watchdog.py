"""Watchdog timer: deadlines of many requests, looked at by one timer of the event loop.

Invariant: a request that ends in time costs two dictionary accesses and no timer of its own. An
action runs at its deadline or up to a tick later, in the event loop, and at most once.
"""

import asyncio
from collections.abc import Callable
from functools import cached_property
from itertools import count
from types import TracebackType
from typing import Self

TICK_S = 0.05


class Watchdog:
    """The deadlines of one event loop."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[float, Callable[[], None]]] = {}
        self._numbers = count()
        self._is_ticking = False

    @cached_property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop, asked for once: each time costs a call of the system."""
        return asyncio.get_running_loop()

    def add(self, seconds: float, action: Callable[[], None]) -> int:
        """Run an action after some seconds, unless its number is removed before."""
        loop = self.loop
        number = next(self._numbers)
        self._entries[number] = loop.time() + seconds, action
        if not self._is_ticking:
            self._is_ticking = True
            loop.call_later(TICK_S, self._tick, loop)
        return number

    def remove(self, number: int) -> None:
        """Forget an action; one that has run is no failure."""
        self._entries.pop(number, None)

    def within(self, seconds: float) -> "TimeLimit":
        """A block that must end in time, or raises `TimeoutError`."""
        return TimeLimit(self, seconds)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for number, (due, action) in list(self._entries.items()):
            if due <= now:
                self._entries.pop(number, None)
                action()
        self._is_ticking = bool(self._entries)
        if self._is_ticking:
            loop.call_later(TICK_S, self._tick, loop)


class TimeLimit:
    """A block of one task that is cancelled at its deadline."""

    __slots__ = ("_expired", "_number", "_seconds", "_task", "_watchdog")

    def __init__(self, watchdog: Watchdog, seconds: float) -> None:
        self._watchdog = watchdog
        self._seconds = seconds
        self._expired = False
        self._task: asyncio.Task[object] | None = None

    def __enter__(self) -> Self:
        self._task = asyncio.current_task(self._watchdog.loop)
        self._number = self._watchdog.add(self._seconds, self._expire)
        return self

    def _expire(self) -> None:
        self._expired = True
        if self._task is not None:
            self._task.cancel()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._watchdog.remove(self._number)
        if not self._expired or self._task is None:
            return
        left = self._task.uncancel()
        if kind is asyncio.CancelledError and not left:
            raise TimeoutError from error
