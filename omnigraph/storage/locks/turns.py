"""Turns: fairness for writers that lose a race again and again.

The process that just committed has the new state in memory; the others must re-read it and so lose
again under constant load. After a loss a write therefore takes the locks of its commit before it
prepares: what it reads then cannot move. The next write of the same kind begins that way for as
long as it has to wait for others. An attempt without a turn does not wait for a lock either: the
holder's commit would make it stale, so it counts as lost and waits once, for its turn.

Invariant: a turn is about as short as the attempt that was lost. The longer that took, the more
losses a write needs for its turn; one longer than writers wait for a lock never gets it. So a turn
keeps nobody waiting for long, and a write that is slow on a busy machine does not lose for ever.
"""

import random
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TypeVar

from omnigraph.errors import unpublished
from omnigraph.storage.locks.locks import (
    LOCK_WAIT_S,
    NONE_KEPT,
    Guard,
    Kept,
    Locks,
    LockTaken,
    hold,
)
from omnigraph.storage.retry import WRITE, Budget, retried

FREE_ATTEMPTS = 1
LONGEST_TURN_S = 5.0
_TURN_MAX_S = LOCK_WAIT_S / 2
_PAUSE_FIRST_S, _PAUSE_MAX_S = 0.002, 0.25
_CROWD_S = 1.0
_CROWDS_MAX = 1_000
Result = TypeVar("Result")

__all__ = ["LockTaken", "Turn", "Turns"]


class Turn:
    """The locks of one attempt: those kept from before it prepares, and the names of those that its
    commit takes, which the next attempt keeps. A write of a single attempt has an empty one.

    With `may_lose` another attempt follows one that is lost, so until `LONGEST_TURN_S` from now its
    commit gives way to the holder of a lock (`LockTaken`). One that keeps locks begins again with
    those that it lacks, whenever it says so in the same way."""

    __slots__ = ("_began", "_gives_way_until", "begins_again", "kept", "names", "prepared_s")

    def __init__(self, kept: Kept = NONE_KEPT, *, may_lose: bool = False) -> None:
        self.kept = kept
        self.names: frozenset[str] = frozenset()
        self.begins_again = may_lose or bool(kept)
        self.prepared_s: float | None = None  # until its commit asked for locks
        self._began = time.monotonic()
        self._gives_way_until = self._began + LONGEST_TURN_S if may_lose else 0.0

    @property
    def gives_way(self) -> bool:
        """Whether its commit is lost to the holder of a lock instead of waiting for it."""
        return time.monotonic() < self._gives_way_until

    def takes(self, names: Iterable[str]) -> None:
        """Noted by each commit before it takes its locks."""
        self.names |= frozenset(names)
        if self.prepared_s is None:
            self.prepared_s = time.monotonic() - self._began


class Turns:
    """Prepares lost writes again, and remembers which kinds of them compete. Safe to share between
    threads."""

    def __init__(self, locks: Locks, wait_s: float = LOCK_WAIT_S) -> None:
        self._locks = locks
        self._wait_s = wait_s
        self._crowds: dict[Hashable, tuple[frozenset[str], float]] = {}

    def is_crowded(self, kind: Hashable) -> bool:
        """Whether a write of this kind had to wait for others a moment ago."""
        return bool(self._crowd(kind))

    def _crowd(self, kind: Hashable) -> frozenset[str]:
        names, since = self._crowds.get(kind, (frozenset[str](), 0.0))
        return names if time.monotonic() - since <= _CROWD_S else frozenset()

    def prepared_again(
        self,
        attempt: Callable[[Turn], Result],
        *,
        budget: Budget = WRITE,
        kind: Hashable = None,
        counts: Callable[[Exception], bool] = lambda loss: True,
        lost: Turn | None = None,
    ) -> Result:
        """Run a write, again from a new base when another writer came first: an insert, a merge by
        key, or a change whose caller asked for it.

        The first losers wait a little, each for its own random time: writers that start again at
        once would keep colliding. Writes of one `kind` take the same locks; where the last one had
        to wait or lost, this one begins with its turn; so does one that has `lost` an attempt
        before. For strict updates and deletes the conflict is the answer: they have one attempt,
        and a caller that asks again comes through. A turn that lacks a lock which another writer
        has is no lost race: it begins anew with that lock, so its locks only grow in number.
        """
        names = self._crowd(kind) | (frozenset() if lost is None else lost.names)
        free = 0 if names else FREE_ATTEMPTS
        longest_pause_s, took_s = _PAUSE_FIRST_S, 0.0

        def once(losses: int) -> Result:
            nonlocal names
            while True:
                longest_s = min(LONGEST_TURN_S * max(1, losses), _TURN_MAX_S)
                has_turn = losses >= free and bool(names) and took_s <= longest_s
                try:
                    return tried(losses, has_turn=has_turn)
                except LockTaken as taken:
                    if not has_turn:
                        raise
                    names |= {taken.lock}

        def tried(losses: int, *, has_turn: bool) -> Result:
            nonlocal names, longest_pause_s, took_s
            if losses and not has_turn:
                time.sleep(random.uniform(0, longest_pause_s))
                longest_pause_s = min(2 * longest_pause_s, _PAUSE_MAX_S)
            with self._locked(names) if has_turn else nullcontext(Guard()) as guard:
                began = time.monotonic()
                if has_turn and kind is not None:
                    self._note(kind, names, waited=losses > 0 or guard.waited)
                turn = Turn(guard.locks, may_lose=not has_turn and losses + 1 < budget.attempts)
                try:
                    return attempt(turn)
                except budget.lost:
                    if kind is not None:
                        self._note(kind, names | turn.names, waited=True)
                    raise
                finally:
                    names |= turn.names
                    prepared_s = turn.prepared_s
                    took_s = time.monotonic() - began if prepared_s is None else prepared_s

        return retried(budget, once, lost=(LockTaken,), counts=counts)

    @contextmanager
    def _locked(self, names: frozenset[str]) -> Iterator[Guard]:
        """The locks of a turn. Nothing was published by the time that they cannot be had."""
        with ExitStack() as stack:
            with unpublished():
                guard = stack.enter_context(hold(self._locks, names, wait_s=self._wait_s))
            yield guard

    def _note(self, kind: Hashable, names: frozenset[str], *, waited: bool) -> None:
        if not waited:
            self._crowds.pop(kind, None)
            return
        names |= self._crowd(kind)
        if len(self._crowds) >= _CROWDS_MAX:
            self._crowds.clear()
        self._crowds[kind] = names, time.monotonic()
