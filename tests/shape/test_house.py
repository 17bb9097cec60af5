"""The shape of the package: sizes, names, docstrings, rooms and their tests."""

import re
from pathlib import Path

import pytest

from tests.shape.modules import (
    CONTEXT_VARIABLES,
    PACKAGE,
    ROOT,
    modules,
    offences,
    two_ways,
)

TODO = {
    "nameless-docstring": "begin the docstring with the noun that a stranger would search for",
    "fast-path": "name the path in docs/invariants.md and begin its docstring with `Fast path of:`",
    "missing-module": "a page names a module that is not there",
    "context-variable": "pass it as an argument, or give the reason in CONTEXT_VARIABLES",
}
TESTS = ROOT / "tests"
NOT_ROOMS = {
    "contract": "one suite over local disk and S3",
    "fixtures": "data, golden pairs, graphs of earlier programs",
    "model": "random histories of a whole graph beside a model",
    "shape": "the project as a whole",
    "substrate": "what Lance must do",
}
UNTESTED_ROOMS: dict[str, str] = {}


@pytest.mark.parametrize("rule", TODO)
def test_no_module_breaks_a_rule_of_the_house(rule: str) -> None:
    assert offences(rule) == [], TODO[rule]


def test_what_is_excepted_is_there() -> None:
    names = {module.name for module in modules()}
    assert {name.partition(":")[0] for name in CONTEXT_VARIABLES} <= names


def test_every_fast_path_has_a_reference_a_fallback_and_a_test() -> None:
    entries = two_ways()
    assert len(entries) >= 5
    for entry in entries:
        assert entry.paths, entry.title
        assert entry.references, entry.title
        assert entry.falls_back, entry.title
        assert entry.tests, entry.title


def test_every_test_that_a_docstring_names_is_there() -> None:
    said = {name for module in modules() for name in re.findall(r"\btest_\w+", module.docstring)}
    texts = [path.read_text(encoding="utf-8") for path in TESTS.rglob("*.py")]
    files = {path.stem for path in TESTS.rglob("test_*.py")}
    defined = {name for text in texts for name in re.findall(r"^def (test_\w+)\(", text, re.M)}
    assert said - defined - files == set()


def rooms(folder: Path) -> set[str]:
    """The rooms of a folder: folders with a docstring, down to the rooms inside rooms."""
    found = (path.parent.relative_to(folder).as_posix() for path in folder.rglob("__init__.py"))
    return {name for name in found if name != "."}


def test_every_room_has_a_folder_of_tests_and_every_folder_of_tests_a_room() -> None:
    house = {room for room in rooms(PACKAGE) if not room.startswith("language/")}
    tested = {room for room in rooms(TESTS) if room.partition("/")[0] not in NOT_ROOMS}
    assert tested - house == set(), "a folder of tests that no room has"
    assert house - tested - UNTESTED_ROOMS.keys() == set(), "a room without a folder of tests"


def test_every_folder_of_tests_holds_a_test() -> None:
    folders = {room for room in rooms(TESTS) if room != "fixtures/earlier"} - {"fixtures"}
    assert [name for name in folders if not list((TESTS / name).glob("test_*.py"))] == []
