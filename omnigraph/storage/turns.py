"""A write that lost to another one is prepared again, and gets its turn.

A winner goes on from what it knows of its own commit, a loser must read it first. So among writers
that never pause the same one would lose again and again. A write that lost a few times therefore
takes the locks of its commit before it prepares: what it reads then cannot move.

Invariant: a turn is as short as the attempt that was lost, and nobody waits for it in vain: what
took long to prepare goes on without one.
"""

import random
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from contextvars import ContextVar
from typing import TypeVar

from omnigraph.errors import Conflict, VersionMismatch
from omnigraph.storage.locks import Locks, OutOfOrder, keep

WRITE_ATTEMPTS = 32
FREE_ATTEMPTS = 1
LONGEST_TURN_S = 5.0
_PAUSE_FIRST_S, _PAUSE_MAX_S = 0.002, 0.25
Result = TypeVar("Result")

_WANTED: ContextVar[set[str] | None] = ContextVar("omnigraph_wanted_locks", default=None)


def wants(names: Iterable[str]) -> None:
    """Told by each commit: the locks it is about to take."""
    wanted = _WANTED.get()
    if wanted is not None:
        wanted.update(names)


def prepared_again(
    locks: Locks,
    attempt: Callable[[], Result],
    *,
    attempts: int = WRITE_ATTEMPTS,
    lost: tuple[type[Conflict], ...] = (VersionMismatch,),
) -> Result:
    """Run an insert or a merge by key, again from a new base when another writer came first.

    The first losers wait a little, each for its own random time: writers that start again at once
    would keep meeting. Strict updates and deletes do not use this: for them the conflict is the
    answer.
    """
    wanted: set[str] = set()
    outer = _WANTED.set(wanted)
    try:
        return _in_turn(locks, wanted, attempt, attempts, lost)
    finally:
        _WANTED.reset(outer)


def _in_turn(
    locks: Locks,
    wanted: set[str],
    attempt: Callable[[], Result],
    attempts: int,
    lost: tuple[type[Conflict], ...],
) -> Result:
    again: tuple[type[Exception], ...] = (*lost, OutOfOrder)
    longest, took_s = _PAUSE_FIRST_S, 0.0
    for losses in range(attempts):
        has_turn = losses >= FREE_ATTEMPTS and bool(wanted) and took_s <= LONGEST_TURN_S
        if losses and not has_turn:
            time.sleep(random.uniform(0, longest))
            longest = min(2 * longest, _PAUSE_MAX_S)
        with keep(locks, wanted) if has_turn else nullcontext():
            began = time.monotonic()
            try:
                return attempt()
            except again:
                if losses == attempts - 1:
                    raise
            took_s = time.monotonic() - began
    raise AssertionError("attempts is at least one")
