"""Large arrays of one batch lie where those of the batch before lay: no new pages."""

import os
import subprocess
import sys

import pytest

FAULTS = """
import resource
import numpy as np
from omnigraph.exec.memory.allocator import keep_large_blocks
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
