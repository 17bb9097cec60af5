"""Hints for syntax errors take time by the length of a text, and not by its square."""

import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.language.nearby_text import NEARBY_CHARS_MAX, nearby
from omnigraph.language.query import teaching
from omnigraph.language.schema import slips

_UNITS = (
    *("a", "A", "1", " ", "\n", "(", "{", "[", "{}", "$", "$a ", "$a b|", "$a b{", "-", "- ", "-["),
    *("/", "/*", '"', ":", "a:[", "|", "=", "a ", "a{1", "limit ", "query a(:", "update A set {"),
    *("enum(", "edge ", "edge A", "is ", "not "),
)
_TOKENS = (":", ".", "{", "+", "*", "order", "}", "match", "x", "!", "string", "-", ",")
_SHORT, _LONG = 2_000, 20_000
_SLOWER_MAX = 60
"""Ten times the text takes about ten times the time, and a hundred times where it is squared."""


def _seconds(hint: Callable[[str, int], str], text: str) -> float:
    begun = time.process_time()
    for token in _TOKENS:
        hint(text + token, len(text))
    return time.process_time() - begun


@pytest.mark.parametrize("hint", [teaching.syntax_hint, slips.syntax_hint])
@pytest.mark.parametrize("before", ["", "$a b", "query q() { match { "])
@pytest.mark.parametrize("unit", _UNITS)
def test_a_hint_costs_by_the_length_of_its_text(
    hint: Callable[[str, int], str], before: str, unit: str
) -> None:
    short, long = (before + unit * (chars // len(unit)) for chars in (_SHORT, _LONG))
    least = min(_seconds(hint, short) for _ in range(3))
    assert _seconds(hint, long) < _SLOWER_MAX * max(least, 0.002)


@given(
    text=st.text(alphabet="ab$ \n{(1", max_size=40),
    times=st.sampled_from([1, 10, 20, 100]),
    last=st.sampled_from(["", " order", " $p.", "\n{"]),
)
def test_the_text_that_patterns_look_at_is_bounded(text: str, times: int, last: str) -> None:
    whole = text * times + last
    near = nearby(whole)
    assert len(near) <= NEARBY_CHARS_MAX
    assert "  " not in near.lstrip()
    assert near.split()[1:] == whole.split()[len(whole.split()) - len(near.split()) :][1:]
    assert bool(near) == bool(whole)


def test_a_word_that_is_cut_is_no_word_of_a_hint() -> None:
    assert nearby("a" * 1_000).split() == []
    assert nearby("a" * 1_000 + " order").split() == ["order"]
    assert teaching.syntax_hint("x" * 1_000 + ".", 1_000) == ""
