"""Large arrays of a batch lie where those of the batch before lay; what a stage freed goes back."""

import os
import subprocess
import sys

import pytest

from omnigraph.exec import allocator

FAULTS = """
import resource
import numpy as np
from omnigraph.exec.allocator import keep_large_blocks
told = keep_large_blocks()
def batch():
    one = np.ones(500_000)
    np.add(one, one[::-1]).astype(np.int64).sum()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    batch()
before = faults()
for _ in range(50):
    batch()
print(told, faults() - before)
"""


def faults(**environment: str) -> tuple[bool, int]:
    given = {k: v for k, v in os.environ.items() if "MALLOC" not in k and k != "GLIBC_TUNABLES"}
    done = subprocess.run(
        [sys.executable, "-c", FAULTS],
        capture_output=True,
        text=True,
        check=True,
        env={**given, **environment},
    )
    told, count = done.stdout.split()
    return told == "True", int(count)


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is of the GNU C library")
def test_batches_take_no_new_pages_once_the_first_was_made() -> None:
    told, count = faults()
    assert told
    assert count < 1_000  # 50 batches of 12 MB, of which each has 3,000 pages


def test_thresholds_of_the_environment_stay() -> None:
    told, _ = faults(MALLOC_TRIM_THRESHOLD_="65536")
    assert not told


LEFT = """
import threading
import numpy as np
from omnigraph.exec import allocator
def anonymous():
    pages = open("/proc/self/statm").read().split()
    return int(pages[1]) - int(pages[2])
kept = []
def stage():
    arrays = [np.ones(1_000) for _ in range(10_000)]
    kept.append(arrays[-1])  # the last of the heap, so nothing is given back by itself
stages = [threading.Thread(target=stage) for _ in range(2)]
for each in stages: each.start()
for each in stages: each.join()
before = anonymous()
allocator.give_back()
print((before - anonymous()) * 4096)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="malloc_trim is of the GNU C library")
def test_what_threads_have_freed_goes_back_to_the_system() -> None:
    command = [sys.executable, "-c", LEFT]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) > 20 << 20  # of 160 MB that they had


def test_a_system_without_such_a_function_keeps_what_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(allocator, "_of_c", lambda _: None)
    allocator.give_back()
    assert not allocator.keep_large_blocks.__wrapped__()
