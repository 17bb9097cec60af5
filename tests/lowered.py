"""Random tests with lowered thresholds: a seed that hypothesis draws, or none."""

from hypothesis import note
from hypothesis import strategies as st

from omnigraph.testing import LoweredThresholds, lower_thresholds

SEEDS = st.one_of(st.none(), st.integers(0, 9_999))
"""Seeds of `lowered_by`; a test shrinks towards thresholds as they are."""


def lowered_by(seed: int | None) -> LoweredThresholds:
    """Lower the thresholds in a block; a failing example prints how to repeat it."""
    lowered = lower_thresholds(seed)
    if seed is not None:
        note(repr(lowered))
    return lowered
