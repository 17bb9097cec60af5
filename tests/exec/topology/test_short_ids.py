"""Numbers of short ids, as machine words and as Arrow gives them."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.costs import COSTS
from omnigraph.exec.topology import short_ids as module
from omnigraph.exec.topology.short_ids import short_ids


@settings(max_examples=80, deadline=None)
@given(
    shortest=st.integers(0, 30),
    longer=st.integers(0, 12),
    seed=st.integers(0, 2**32 - 1),
    known=st.integers(1, 60),
    asked=st.integers(0, 80),
    wide=st.booleans(),
)
def test_TP1_short_ids_are_numbered_as_arrow_numbers_them(
    shortest: int, longer: int, seed: int, known: int, asked: int, wide: bool
) -> None:
    chance = np.random.default_rng(seed)
    kind = pa.large_string() if wide else pa.string()

    def text(letters: str, more: int = 0) -> str:
        return "".join(chance.choice(list(letters), chance.integers(shortest, shortest + more + 1)))

    # Zero bytes at the end of an id are the padding of a shorter one.
    texts = {text("a\0é", longer) for _ in range(known)}
    strings = pa.array(sorted(texts, key=hash), kind)
    others = [text("a\0éc", longer + 3) for _ in range(asked)]
    ids = pa.chunked_array([[*texts, *others, None], [], others[:3]], pa.string())
    table = short_ids(strings)
    assert table is not None
    for each in (ids, ids.slice(asked // 3)):
        expected = pc.index_in(each.cast(kind), value_set=strings).fill_null(-1)
        assert table.numbers(each).tolist() == expected.to_pylist()


def test_ids_are_laid_out_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(COSTS, "short_ids_together", 7)
    strings = pa.array([f"p{n}" for n in range(100)])
    table = short_ids(strings)
    assert table is not None
    assert table.numbers(pa.chunked_array([strings])).tolist() == list(range(100))


def test_long_ids_and_collisions_are_left_to_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    assert short_ids(pa.array([], pa.string())) is None
    assert short_ids(pa.array(["a", "x" * 65])) is None
    assert short_ids(pa.array(["a", "x" * 64])) is not None
    monkeypatch.setattr(module, "_hashed", lambda words: np.zeros(len(words[0]), np.uint64))
    assert short_ids(pa.array([f"{n:02}" for n in range(40)])) is None
