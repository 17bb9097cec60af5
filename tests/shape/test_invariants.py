"""Every invariant names tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "invariants.md").read_text(encoding="utf-8")


def defined() -> set[str]:
    files = (ROOT / "tests").rglob("test_*.py")
    return {
        name
        for file in files
        for name in re.findall(r"^def (test_\w+)\(", file.read_text(encoding="utf-8"), re.M)
    }


def test_every_test_an_invariant_names_is_there() -> None:
    named = re.findall(r"`(test_\w+)`", PAGE)
    assert len(named) > 50
    assert sorted(set(named) - defined()) == []


def test_every_numbered_invariant_names_a_test() -> None:
    items = re.split(r"^\d+\. ", PAGE, flags=re.M)[1:]
    assert items
    assert [item for item in items if "`test_" not in item] == []


def test_invariants_are_numbered_from_one_without_a_gap() -> None:
    numbers = [int(number) for number in re.findall(r"^(\d+)\. ", PAGE, re.M)]
    assert numbers == list(range(1, len(numbers) + 1))
