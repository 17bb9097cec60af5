"""Numbers of ids that have one width, as machine words and as Arrow gives them."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.exec.topology import fixed_width_ids as module
from omnigraph.exec.topology.fixed_width_ids import fixed_width_ids


@settings(max_examples=60, deadline=None)
@given(
    width=st.integers(1, 30),
    seed=st.integers(0, 2**32 - 1),
    known=st.integers(1, 60),
    asked=st.integers(0, 80),
    wide=st.booleans(),
)
def test_TP1_ids_of_one_width_are_numbered_as_arrow_numbers_them(
    width: int, seed: int, known: int, asked: int, wide: bool
) -> None:
    chance = np.random.default_rng(seed)
    kind = pa.large_string() if wide else pa.string()
    texts = {"".join(chance.choice(list("abé"[:2]), width)) for _ in range(known)}
    strings = pa.array(sorted(texts, key=hash), kind)
    more = ["".join(chance.choice(list("abc"), width)) for _ in range(asked)]
    ids = pa.chunked_array([[*texts, *more], [], more[:3]], pa.string())
    sliced = ids.slice(asked // 3)
    table = fixed_width_ids(strings)
    assert table is not None
    for each in (ids, sliced):
        expected = pc.index_in(each.cast(kind), value_set=strings).fill_null(-1)
        numbers = table.numbers(each)
        assert numbers is not None
        assert numbers.tolist() == expected.to_pylist()


def test_ids_of_other_widths_and_collisions_are_left_to_arrow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert fixed_width_ids(pa.array(["a", "bb"])) is None
    assert fixed_width_ids(pa.array([], pa.string())) is None
    assert fixed_width_ids(pa.array(["x" * 65])) is None
    table = fixed_width_ids(pa.array(["aa", "bb"]))
    assert table is not None
    assert table.numbers(pa.chunked_array([["aa", "b"]])) is None
    assert table.numbers(pa.chunked_array([["aa", None]])) is None
    monkeypatch.setattr(module, "_hashed", lambda words: np.zeros(len(words[0]), np.uint64))
    assert fixed_width_ids(pa.array([f"{n:02}" for n in range(40)])) is None
