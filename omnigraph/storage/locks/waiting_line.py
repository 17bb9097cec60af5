"""First come, first served (FIFO) among the threads of a process that wait for one lock.

Invariant: of the threads that wait for a name only the first one asks for the lock, so no later one
overtakes it however often it asks. Between processes chance decides, each of which asks about
equally often.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

_guard = threading.Lock()
_lines: dict[str, deque[threading.Event]] = {}


def has_line(name: str) -> bool:
    """Whether a thread of this process waits for a name."""
    return name in _lines


@contextmanager
def in_line(name: str, deadline: float) -> Iterator[bool]:
    """Stand in the line of a name until the deadline; whether one came to its front, and stays
    there until the context ends."""
    own = threading.Event()
    try:  # before the thread stands in line: an interrupt must not leave it there for ever
        with _guard:
            line = _lines.setdefault(name, deque())
            line.append(own)
            line[0].set()
        yield own.wait(max(0.0, deadline - time.monotonic()))
    finally:
        _leave(name, own)


def _leave(name: str, own: threading.Event) -> None:
    with _guard:
        line = _lines.get(name)
        if line is None:
            return
        if own in line:
            line.remove(own)
        if line:
            line[0].set()
        else:
            del _lines[name]


def _forget() -> None:
    """A child has none of the threads that its parent has."""
    global _guard
    _guard = threading.Lock()
    _lines.clear()


os.register_at_fork(after_in_child=_forget)
