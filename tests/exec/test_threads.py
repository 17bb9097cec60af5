"""The pool of exec: order, look-ahead, errors."""

import threading
import time
from collections.abc import Iterator

import pytest

from omnigraph.exec.threads import in_order


def test_results_come_in_the_order_of_the_items() -> None:
    def work(number: int) -> int:
        time.sleep(0.01 if number % 2 else 0)
        return number * number

    assert list(in_order(work, range(9), threads=3)) == [n * n for n in range(9)]
    assert list(in_order(work, range(9), threads=3, ahead=2)) == [n * n for n in range(9)]
    assert list(in_order(work, [], threads=3)) == []


def test_items_are_read_no_further_ahead_than_asked() -> None:
    read: list[int] = []

    def items() -> Iterator[int]:
        for number in range(10):
            read.append(number)
            yield number

    results = in_order(lambda number: number, items(), threads=2, ahead=2)
    for taken in results:
        assert len(read) <= taken + 3


def test_a_single_item_is_worked_out_in_the_callers_thread() -> None:
    (name,) = in_order(lambda _: threading.current_thread().name, [1], threads=2)
    assert name == threading.current_thread().name


def test_the_first_error_wins_and_cancels_what_has_not_begun() -> None:
    begun: list[int] = []

    def work(number: int) -> int:
        begun.append(number)
        time.sleep(0.02)
        if number in (1, 2):
            raise ValueError(number)
        return number

    with pytest.raises(ValueError, match="1"):
        list(in_order(work, range(50), threads=2))
    assert len(begun) < 10
