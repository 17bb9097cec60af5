"""Owned branches: branches that live as long as the process that made them, as transactions do.

A process holds a lock of its own for each while the transaction lasts. The lock dies with the
process, so whoever can take it knows that the owner is dead, and removes the branch.

Invariant: a branch is removed only under its owner's lock, and only one that was made here: without
such a lock a branch belongs to a person, whatever its name. A name is owned once and never again.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph.errors import NotFound, OmnigraphError
from omnigraph.storage.locks.locks import Locks, hold, hold_if_idle
from omnigraph.storage.manifest.branches import Branches
from omnigraph.storage.names import decode, lock_name
from omnigraph.storage.stats import Stats

_OWNER = "transaction"


class OwnedBranches:
    """The branches of one graph that belong to processes."""

    def __init__(self, branches: Branches, locks: Locks, stats: Stats) -> None:
        self._branches = branches
        self._locks = locks
        self._stats = stats

    @contextmanager
    def owned(self, name: str) -> Iterator[None]:
        """A block in which this process owns the branch of this name, made and removed inside. What
        dead processes left is removed first."""
        self.remove_ownerless()
        lock = lock_name(_OWNER, name)
        with hold(self._locks, [lock]):
            yield
            if not self._exists(name):
                self._locks.discard([lock], for_good=True)

    def is_owned(self, name: str) -> bool:
        """Whether a process owns, or owned until it died, the branch of this name."""
        return lock_name(_OWNER, name) in self._locks.known(lock_name(_OWNER, ""))

    def remove_ownerless(self) -> tuple[str, ...]:
        """Remove the branches whose owners are known to be dead; their names. Best effort: one that
        cannot be removed now is left for the next time."""
        gone = []
        for lock in self._locks.known(lock_name(_OWNER, "")):
            name = decode(lock).partition("@")[2]
            with hold_if_idle(self._locks, [lock], patient=False) as guard:
                if guard is None:
                    continue
                try:
                    if self._exists(name):
                        self._branches.delete(name)
                        gone.append(name)
                except OmnigraphError as cause:
                    self._stats.event(
                        "branch.owner_left", level=logging.WARNING, branch=name, cause=cause
                    )
                    continue
                self._locks.discard([lock], for_good=True)
        return tuple(gone)

    def _exists(self, name: str) -> bool:
        try:
            self._branches.identity(name)
        except NotFound:
            return False
        return True
