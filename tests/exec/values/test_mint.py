"""New ids: each is the text of its number, whatever part of the numbers differs."""

from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.exec.values import mint

LETTERS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def _text(number: int) -> str:
    return "".join(LETTERS[number >> 5 * place & 31] for place in range(25, -1, -1))


@settings(max_examples=20, deadline=None)
@given(
    load=st.integers(0, (1 << 73) - 1),
    part=st.integers(0, (1 << 19) - 1),
    steps=st.lists(st.sampled_from([0, 1, 31, 32, 1023, 1025, 40_000]), min_size=1, max_size=4),
)
def test_ids_of_a_series_are_the_texts_of_their_numbers(
    load: int, part: int, steps: list[int]
) -> None:
    row = 0
    with mint.minted_in_series(load, part):
        for count in steps:
            ids, base = mint.ulids(count), load << 55 | part << 36
            assert len(ids) == count
            for index in {0, 1, 32, 1024, count - 1} & set(range(count)):
                assert ids[index].as_py() == _text(base | row + index)
            row += count


@settings(max_examples=5, deadline=None)
@given(count=st.sampled_from([1, 2, 33, 1025, 33_000]))
def test_ids_of_one_call_ascend(count: int) -> None:
    ids = mint.ulids(count).to_pylist()
    assert ids == sorted(set(ids))
    assert {len(each) for each in ids} == {26}
