"""Lifetime of an open store: closing waits for commits under way and ends every later storage call.

Invariant: once `end` has returned, `require_open` raises `GraphClosed`, and no commit was cut short
by it. Ending twice is ending once.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition

from omnigraph.errors import GraphClosed


class Lifetime:
    """Whether one store is open. Safe to share between threads."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._changed = Condition()
        self._commits = 0
        self._is_ending = False
        self._is_over = False

    def require_open(self) -> None:
        """Pass while the store is open."""
        if self._is_over:
            raise GraphClosed(self._uri)

    @contextmanager
    def committing(self) -> Iterator[None]:
        """A commit, which begins only in an open store and for whose end `end` waits."""
        with self._changed:
            if self._is_ending:
                raise GraphClosed(self._uri)
            self._commits += 1
        try:
            yield
        finally:
            with self._changed:
                self._commits -= 1
                self._changed.notify_all()

    def end(self) -> None:
        """Let commits end, and nothing else begin."""
        with self._changed:
            self._is_ending = True
            self._changed.wait_for(lambda: self._commits == 0)
            self._is_over = True
