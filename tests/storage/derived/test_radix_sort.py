"""Pairs of numbers are sorted both ways as comparing them sorts them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.storage.derived import radix_sort
from omnigraph.storage.derived.radix_sort import sorted_both_ways

_BITS = st.integers(0, 31)


@settings(max_examples=40, deadline=None)
@given(source_bits=_BITS, target_bits=_BITS, count=st.integers(0, 3000), seed=st.integers(0, 99))
def test_TP1_pairs_are_sorted_both_ways_as_by_comparing(
    source_bits: int, target_bits: int, count: int, seed: int
) -> None:
    chance = np.random.default_rng(seed)
    # Of many equal pairs the first comes first, and the largest numbers fill their bits.
    source = (chance.integers(0, 1 << source_bits, count) | 1 << source_bits >> 1).astype(np.int32)
    target = chance.integers(0, 1 << target_bits, count).astype(np.int32)
    source[: count // 3], target[: count // 3] = source[:1], target[:1]
    ways = list(sorted_both_ways(source, target))
    for (order, numbers), (first, second) in zip(
        ways, ((source, target), (target, source)), strict=True
    ):
        expected = sorted(range(count), key=lambda each: (first[each], second[each], each))
        assert order.tolist() == expected
        assert numbers.tolist() == second[expected].tolist()
        assert (order.dtype, numbers.dtype) == (np.int32, np.int32)


@pytest.mark.parametrize("word", [64, 8], ids=["ranks in the words", "ranks apart"])
def test_TP1_ranks_may_lie_apart(monkeypatch: pytest.MonkeyPatch, word: int) -> None:
    monkeypatch.setattr(radix_sort, "_WORD", word)
    chance = np.random.default_rng(5)
    source, target = (chance.integers(0, 900, 5000).astype(np.int32) for _ in range(2))
    (order, neighbours), (back, sources) = sorted_both_ways(source, target)
    assert order.tolist() == np.lexsort((target, source)).tolist()
    assert back.tolist() == np.lexsort((source, target)).tolist()
    assert neighbours.tolist() == target[order].tolist()
    assert sources.tolist() == source[back].tolist()
