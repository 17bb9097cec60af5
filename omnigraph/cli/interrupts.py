"""Interrupts (Ctrl-C, SIGINT) of long work, raised again where a first one went unheard.

Python drops an exception that is raised in a finaliser or in a hook of `fork`, and Spark forks: the
interrupt that lands there is lost.

Invariant: work inside `heard_interrupts` ends: by the first interrupt as a rule, by a later one
that is raised for it if the first was not answered in time, and at last without being asked. The
write protocol makes each of these ends a safe one.
"""

from __future__ import annotations

import _thread
import os
import select
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from omnigraph.cli.start import INTERRUPTED, INTERRUPTED_WORD

if TYPE_CHECKING:
    from collections.abc import Iterator

_PATIENCE_S = 10.0  # what an answered interrupt may take to clean up
_REPEATS = 3


@contextmanager
def heard_interrupts(patience_s: float = _PATIENCE_S) -> Iterator[None]:
    """Watch over the interrupts of a block, in the main thread; elsewhere there are none."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours, signals = os.pipe()
    os.set_blocking(signals, False)
    before = signal.set_wakeup_fd(signals, warn_on_full_buffer=False)
    watcher = threading.Thread(target=_watch, args=(ours, patience_s), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(signals)  # the watcher reads the end of its pipe
        watcher.join()


def _watch(signals: int, patience_s: float) -> None:
    repeats: int | None = None
    try:
        while True:
            timeout = None if repeats is None else patience_s
            if select.select([signals], [], [], timeout)[0]:
                numbers = os.read(signals, 64)
                if not numbers:
                    return
                if signal.SIGINT in numbers and repeats is None:
                    repeats = 0
            elif repeats == _REPEATS:
                _end()
            else:
                repeats = (repeats or 0) + 1
                _thread.interrupt_main()
    finally:
        os.close(signals)


def _end() -> NoReturn:
    os.write(2, INTERRUPTED_WORD)
    os._exit(INTERRUPTED)
