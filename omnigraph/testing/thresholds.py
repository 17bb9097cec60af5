"""Test support: lower every threshold of the engine, so that small graphs take all code paths.

    with lower_thresholds(seed=7) as lowered:
        graph = og.init(path, schema)    # a dozen rows cross thresholds of ten thousand
        ...
    print(lowered)                      # repeats the same values

Invariant: a value depends on the seed and the name of its threshold alone, so a threshold that is
added later changes no other value of a seed.
"""

import math
import random
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from types import TracebackType

from omnigraph.costs import THRESHOLDS, Number, Threshold, overridden
from omnigraph.pipeline.session import carry_thresholds

__all__ = ["LoweredThresholds", "lower_thresholds"]

_DEFAULTS_SHARE = 0.2
"""Thresholds that a draw leaves at their defaults, so that low and usual ones meet."""


class LoweredThresholds:
    """Context manager of thresholds that are lowered in this process, in processes that it starts
    meanwhile, and in Python workers of a running Spark session."""

    def __init__(self, seed: int | None, values: Mapping[str, Number]) -> None:
        self.seed = seed
        self._values = dict(values)
        self._stack = ExitStack()

    def as_dict(self) -> dict[str, Number]:
        """Return the values by threshold; those that are not named keep their defaults."""
        return dict(self._values)

    def __enter__(self) -> "LoweredThresholds":
        self._stack.callback(carry_thresholds)  # once the others are restored
        self._stack.enter_context(overridden(self._values))
        carry_thresholds()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def __repr__(self) -> str:
        return f"lower_thresholds({self.seed}, only=(), values={self._values})"


def lower_thresholds(
    seed: int | None,
    *,
    only: Collection[str] | None = None,
    values: Mapping[str, Number] | None = None,
) -> LoweredThresholds:
    """Lower the engine's thresholds to small values, within a `with` block.

    Open or create graphs inside the block: caches take their bounds when a graph is opened. Do not
    use a graph that was written inside after the block.

    Parameters
    ----------
    seed
        Chooses the values. With None none is drawn.
    only
        Names of the thresholds to draw; each gets the value that it has without `only`. Default is
        all.
    values
        Values of single thresholds, instead of drawn ones.

    Returns
    -------
    LoweredThresholds
        A context manager. Its `repr` is a call that repeats the values, whatever thresholds and
        ranges are declared later.

    Raises
    ------
    ValueError
        If a name is unknown, or a value is negative or of another type than the default.
    """
    names = THRESHOLDS if only is None else only
    drawn: dict[str, Number] = {}
    for name in names if seed is not None else ():
        if name not in THRESHOLDS:
            raise ValueError(f"unknown threshold '{name}': see omnigraph/costs.py for their names")
        value = _drawn(THRESHOLDS[name], random.Random(f"{seed} {name}"))
        if value is not None:
            drawn[name] = value
    return LoweredThresholds(seed, {**drawn, **(values or {})})


def _drawn(threshold: "Threshold[int] | Threshold[float]", source: random.Random) -> Number | None:
    """Return a low value, small ones more often than large ones; None for the default."""
    if source.random() < _DEFAULTS_SHARE:
        return None
    least, most = threshold.low
    if isinstance(threshold.value, float):
        return source.uniform(least, most)
    exponent = source.uniform(math.log(least + 1), math.log(most + 2))
    return min(int(math.exp(exponent)) - 1, int(most))
