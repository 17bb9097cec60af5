"""How long a campaign of the slow suite runs: as long as it says, or as the environment does.

TEST_SECONDS=120 TEST_COUNT=500 python -m pytest -m slow tests/test_power_cuts.py
"""

import os


def seconds(default: float) -> float:
    """The length of a run that goes on for a while."""
    return float(os.environ.get("TEST_SECONDS") or default)


def count(default: int) -> int:
    """The number of cases of a run that is counted."""
    return int(os.environ.get("TEST_COUNT") or default)
