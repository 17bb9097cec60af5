"""The LRU cache evicts the least recently used, and never keeps more than its bound."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.lru import Lru


def test_the_least_recently_used_entry_is_evicted() -> None:
    cache: Lru[str, int] = Lru(2)
    assert cache.put("a", 1) == []
    assert cache.put("b", 2) == []
    assert cache.get("a") == 1
    assert cache.put("c", 3) == [2], "`a` was used after `b`"
    assert [cache.get(key) for key in "abc"] == [1, None, 3]
    assert len(cache) == 2


def test_a_missing_key_is_told_from_a_kept_none() -> None:
    cache: Lru[str, int | None] = Lru(2)
    missing = object()
    cache.put("a", None)
    assert cache.get("a", missing) is None
    assert cache.get("b", missing) is missing


def test_a_value_beyond_the_bound_is_not_kept_and_evicts_nothing() -> None:
    cache: Lru[str, str] = Lru(3, len)
    cache.put("a", "xx")
    assert cache.put("b", "xxxx") == ["xxxx"]
    assert cache.get("a") == "xx"
    assert cache.put("a", "xxxx") == ["xxxx"], "nor is what the key had before"
    assert cache.get("a") is None
    assert cache.weight == 0


def test_a_value_that_is_put_again_is_weighed_again() -> None:
    cache: Lru[str, list[int]] = Lru(4, len)
    growing = [1]
    cache.put("old", [1, 2])
    cache.put("new", growing)
    growing += [2, 3]
    assert cache.put("new", growing) == [[1, 2]]
    assert cache.weight == 3


def test_entries_are_taken_out_by_key_and_by_condition() -> None:
    cache: Lru[tuple[str, int], int] = Lru(8)
    for number in range(4):
        cache.put(("even" if number % 2 == 0 else "odd", number), number)
    assert cache.pop(("odd", 1)) == 1
    assert cache.pop(("odd", 1)) is None
    cache.discard(lambda key: key[0] == "even")
    assert len(cache) == cache.weight == 1
    cache.clear()
    assert len(cache) == cache.weight == 0


class Model:
    """The same as a list of pairs, the most recently used last."""

    def __init__(self, weight_max: int) -> None:
        self.weight_max = weight_max
        self.pairs: list[tuple[int, int]] = []

    def get(self, key: int) -> int | None:
        for pair in self.pairs:
            if pair[0] == key:
                self.pairs.remove(pair)
                self.pairs.append(pair)
                return pair[1]
        return None

    def put(self, key: int, weight: int) -> None:
        self.pairs = [pair for pair in self.pairs if pair[0] != key]
        if weight <= self.weight_max:
            self.pairs.append((key, weight))
        while sum(weight for _, weight in self.pairs) > self.weight_max:
            self.pairs.pop(0)


CALLS = st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, 6)), max_size=60)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(weight_max=st.integers(1, 10), calls=CALLS)
def test_every_sequence_of_calls_keeps_what_the_model_keeps(
    weight_max: int, calls: list[tuple[bool, int, int]]
) -> None:
    cache: Lru[int, int] = Lru(weight_max, lambda weight: weight)
    model = Model(weight_max)
    for puts, key, weight in calls:
        if puts:
            cache.put(key, weight)
            model.put(key, weight)
        else:
            assert cache.get(key) == model.get(key)
        assert cache.weight == sum(weight for _, weight in model.pairs) <= weight_max
    assert sorted(model.pairs) == [(k, v) for k in range(6) if (v := cache.get(k)) is not None]


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def test_threads_may_share_a_cache(threads: ThreadPoolExecutor) -> None:
    cache: Lru[int, int] = Lru(16)

    def use(seed: int) -> None:
        for number in range(2_000):
            key = (seed * 7 + number) % 40
            assert cache.get(key) in (None, key)
            cache.put(key, key)

    assert list(threads.map(use, range(8))) == [None] * 8
    assert len(cache) == cache.weight == 16
