"""Interrupts while Spark starts: raised when it has started, so that no JVM stays behind."""

import os
import signal
import threading
from collections.abc import Callable

import pytest

from omnigraph.pipeline.launch_interrupts import later_interrupts


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def guarded(work: Callable[[], object]) -> None:
    with later_interrupts():
        work()


def test_an_interrupt_is_raised_when_the_block_has_ended() -> None:
    before = signal.getsignal(signal.SIGINT)
    done = []

    def work() -> None:
        interrupt()
        interrupt()
        done.append("all of it")

    with pytest.raises(KeyboardInterrupt):
        guarded(work)
    assert done == ["all of it"]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_block_that_hangs_ends_when_it_is_interrupted_again_and_again() -> None:
    done = []

    def work() -> None:
        for _ in range(100):
            interrupt()
            done.append("a step")

    with pytest.raises(KeyboardInterrupt):
        guarded(work)
    assert len(done) < 10


def test_a_failure_of_the_block_is_told_before_an_interrupt() -> None:
    def work() -> None:
        interrupt()
        raise ValueError("no Java")

    with pytest.raises(ValueError, match="no Java"):
        guarded(work)


def test_a_block_in_another_thread_is_left_alone() -> None:
    seen = []
    thread = threading.Thread(
        target=guarded, args=(lambda: seen.append(signal.getsignal(signal.SIGINT)),)
    )
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]
