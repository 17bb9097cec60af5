"""Test support: lowered thresholds, and a check that all ways to read a graph agree.

from omnigraph.testing import assert_consistent, lower_thresholds

with lower_thresholds(seed=7):      # a dozen rows cross thresholds of ten thousand
    graph = og.init(...)
    ...
    assert_consistent(graph)
"""

from omnigraph.testing.consistency import Inconsistent, assert_consistent
from omnigraph.testing.thresholds import LoweredThresholds, lower_thresholds

__all__ = ["Inconsistent", "LoweredThresholds", "assert_consistent", "lower_thresholds"]
