"""A write that lost to another one is prepared again, and gets its turn.

A winner goes on from what it knows of its own commit, a loser must read it first. So among writers
that never pause the same one would lose again and again. A write that lost a few times therefore
takes the locks of its commit before it prepares: what it reads then cannot move. The next of its
kind begins that way, as long as it has to wait for others.

Invariant: a turn is as short as the attempt that was lost, and nobody waits for it in vain: what
took long to prepare goes on without one.
"""

import random
import time
from collections.abc import Callable, Hashable, Iterable
from contextlib import nullcontext
from contextvars import ContextVar
from typing import TypeVar

from omnigraph.errors import Conflict, VersionMismatch
from omnigraph.storage.locks.locks import Guard, Locks, OutOfOrder, keep

WRITE_ATTEMPTS = 32
FREE_ATTEMPTS = 1
LONGEST_TURN_S = 5.0
_PAUSE_FIRST_S, _PAUSE_MAX_S = 0.002, 0.25
_CROWD_S = 1.0
_CROWDS_MAX = 1_000
Result = TypeVar("Result")

_WANTED: ContextVar[set[str] | None] = ContextVar("omnigraph_wanted_locks", default=None)


def wants(names: Iterable[str]) -> None:
    """Told by each commit: the locks it is about to take."""
    wanted = _WANTED.get()
    if wanted is not None:
        wanted.update(names)


class Turns:
    """Prepares writes again, and remembers which kinds of them meet others. Safe to share between
    threads."""

    def __init__(self, locks: Locks) -> None:
        self._locks = locks
        self._crowds: dict[Hashable, tuple[frozenset[str], float]] = {}

    def is_crowded(self, kind: Hashable) -> bool:
        """Whether a write of this kind had to wait for others a moment ago."""
        known = self._crowds.get(kind)
        return known is not None and time.monotonic() - known[1] <= _CROWD_S

    def prepared_again(
        self,
        attempt: Callable[[], Result],
        *,
        attempts: int = WRITE_ATTEMPTS,
        lost: tuple[type[Conflict], ...] = (VersionMismatch,),
        kind: Hashable = None,
    ) -> Result:
        """Run an insert or a merge by key, again from a new base when another writer came first.

        The first losers wait a little, each for its own random time: writers that start again at
        once would keep meeting. Writes of one `kind` take the same locks; where the last one had
        to wait, this one begins with its turn. Strict updates and deletes do not use this: for
        them the conflict is the answer.
        """
        crowd = self._crowds.get(kind, (frozenset(), 0.0))[0] if self.is_crowded(kind) else None
        wanted = set(crowd or ())
        free = FREE_ATTEMPTS if crowd is None else 0
        outer = _WANTED.set(wanted)
        try:
            return self._run(attempt, attempts, (*lost, OutOfOrder), wanted, free, kind)
        finally:
            _WANTED.reset(outer)

    def _run(
        self,
        attempt: Callable[[], Result],
        attempts: int,
        lost: tuple[type[Exception], ...],
        wanted: set[str],
        free: int,
        kind: Hashable,
    ) -> Result:
        longest, took_s = _PAUSE_FIRST_S, 0.0
        for losses in range(attempts):
            has_turn = losses >= free and bool(wanted) and took_s <= LONGEST_TURN_S
            if losses and not has_turn:
                time.sleep(random.uniform(0, longest))
                longest = min(2 * longest, _PAUSE_MAX_S)
            with keep(self._locks, wanted) if has_turn else nullcontext(Guard()) as guard:
                began = time.monotonic()
                if has_turn and kind is not None:
                    self._note(kind, wanted, met=losses > 0 or guard.waited)
                try:
                    return attempt()
                except lost:
                    if losses == attempts - 1:
                        raise
                took_s = time.monotonic() - began
        raise AssertionError("attempts is at least one")

    def _note(self, kind: Hashable, wanted: set[str], *, met: bool) -> None:
        if not met:
            self._crowds.pop(kind, None)
            return
        if len(self._crowds) >= _CROWDS_MAX:
            self._crowds.clear()
        self._crowds[kind] = frozenset(wanted), time.monotonic()
