"""Interrupts (Ctrl-C, SIGINT) while the JVM of a Spark session starts: they wait until it has.

An interrupted PySpark removes the folder that the JVM writes its address to. The JVM fails at that
before it listens for the end of this process, and stays for ever.

Invariant: an interrupt is raised when the block has ended, unless many come.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_IMPATIENT = 5


@contextmanager
def later_interrupts() -> Iterator[None]:
    """A block of the main thread that interrupts do not end; elsewhere there are none."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    answer, count = before, 0

    def wait(number: int, frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        if count >= _IMPATIENT:
            answer(number, frame)

    signal.signal(signal.SIGINT, wait)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if count:
        answer(signal.SIGINT, None)
