"""Large matrices of cases: some run always, all of them in the slow suite."""

from collections.abc import Iterable
from typing import Any

import pytest


def thinned(cases: Iterable[Any], every: int = 3) -> list[Any]:
    """The cases; all but every so many are marked slow."""
    return [
        case if number % every == 0 else _slow(case if isinstance(case, tuple) else (case,))
        for number, case in enumerate(cases)
    ]


def _slow(values: tuple[Any, ...]) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)
