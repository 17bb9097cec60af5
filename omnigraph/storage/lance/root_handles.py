"""Handles of datasets for listing, making and deleting their Lance branches.

Invariant: one thread has a handle at a time. Of which version it is does not matter, so it is kept:
to open one lists every version. One that failed is not used again.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import lance

from omnigraph.costs import COSTS
from omnigraph.lru import Lru


class RootHandles:
    """Handles by the folder of their dataset. Safe to share between threads."""

    def __init__(self, open_root: Callable[[str], lance.LanceDataset]) -> None:
        self._open_root = open_root
        self._kept: Lru[str, lance.LanceDataset] = Lru(COSTS.roots_max)

    @contextmanager
    def taken(self, location: str) -> Iterator[lance.LanceDataset]:
        """A handle that no other thread has meanwhile."""
        root = self._kept.pop(location) or self._open_root(location)
        yield root
        self._kept.put(location, root)

    def forget(self, location: str) -> None:
        """Drop the handle of one dataset."""
        self._kept.pop(location)

    def clear(self) -> None:
        """Drop every handle."""
        self._kept.clear()
