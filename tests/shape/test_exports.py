"""What is public is what the documents list, and every error keeps its promises."""

import inspect
import pickle
import re
import tomllib
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph import FailedCheck, MergeConflict, OmnigraphError, Violation, errors
from omnigraph.types import TableKey

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")

ROW = re.compile(r"^\| `(?P<name>\w+)` \|(?P<fields>[^|]*)\| [^|]+ \| [^|]+ \|$")

VALUES: dict[Any, Any] = {
    str: "text",
    str | None: "text",
    int: 7,
    bool: True,
    TableKey: TableKey("node:Person"),
    tuple[int, int]: (3, 5),
    tuple[str, ...]: ("review", "tx/1"),
    tuple[tuple[str, int], ...]: (("unique", 7),),
    tuple[tuple[Violation, int], ...]: (
        (Violation("unique", "Person", "email", "Ada", "a@b", "taken"), 7),
    ),
    tuple[Violation, ...]: (Violation("unique", "Person", "email", "Ada", "a@b", "taken"),),
    tuple[FailedCheck, ...]: (FailedCheck("no_orphans", 1, ({"name": "Ada"},)),),
    tuple[MergeConflict, ...]: (MergeConflict("node", "Person", "Ada", "both_changed"),),
}
"""A value for each type of fact that an error carries."""


def tree(root: type[OmnigraphError]) -> list[type[OmnigraphError]]:
    return [root, *(below for child in root.__subclasses__() for below in tree(child))]


ERRORS = [kind for kind in tree(OmnigraphError) if kind.__module__ == errors.__name__]
FAMILIES = [kind for kind in ERRORS if kind.__subclasses__()]
LEAVES = [kind for kind in ERRORS if kind not in FAMILIES]


def example(kind: type[OmnigraphError]) -> OmnigraphError:
    return kind(**{field.name: VALUES[field.type] for field in fields(kind)})


def documented() -> dict[str, re.Match[str]]:
    found = (ROW.match(line) for line in PAGE.splitlines())
    return {row["name"]: row for row in found if row}


def test_every_public_name_exists() -> None:
    assert [name for name in omnigraph.__all__ if not hasattr(omnigraph, name)] == []
    assert len(set(omnigraph.__all__)) == len(omnigraph.__all__)


def undocumented(owner: type) -> list[str]:
    """Public methods and properties without a word about them."""
    found = []
    for name, member in vars(owner).items():
        inner = getattr(
            member, "fget", getattr(member, "func", getattr(member, "__func__", member))
        )
        if not name.startswith("_") and inspect.isfunction(inner) and not inner.__doc__:
            found.append(f"{owner.__name__}.{name}")
    return found


def test_every_public_name_says_what_it_is() -> None:
    public = [getattr(omnigraph, name) for name in omnigraph.__all__ if name != "__version__"]
    assert [thing.__name__ for thing in public if not inspect.getdoc(thing)] == []
    classes = [thing for thing in public if inspect.isclass(thing)]
    assert [name for owner in classes for name in undocumented(owner)] == []


def test_the_page_of_the_library_names_every_public_name_but_errors() -> None:
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    errors_ = {kind.__name__ for kind in ERRORS}
    errors_ |= {"Violation", "MergeConflict", "FailedCheck", "__version__"}
    assert [n for n in omnigraph.__all__ if n not in errors_ and f"`{n}`" not in page] == []


def test_every_error_is_public() -> None:
    public = {name for name in omnigraph.__all__ if inspect.isclass(getattr(omnigraph, name))}
    assert {kind.__name__ for kind in ERRORS} <= public


def test_the_page_lists_the_public_errors_with_their_facts_and_no_other() -> None:
    public = {name for name in omnigraph.__all__ if inspect.isclass(getattr(omnigraph, name))}
    facts = {n for n in public if getattr(omnigraph, n).__module__ == errors.__name__}
    assert set(documented()) == facts


def test_the_version_is_that_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert omnigraph.__version__ == project["version"]


@pytest.mark.parametrize("kind", [*ERRORS, Violation, MergeConflict, FailedCheck])
def test_the_page_lists_every_field_of_a_class(kind: type) -> None:
    row = documented()[kind.__name__]
    listed = re.findall(r"`(\w+)`", row["fields"])
    inherited = {
        field.name for base in kind.__mro__[1:] if base in ERRORS for field in fields(base)
    }
    own = [field.name for field in fields(kind) if field.name not in inherited]
    assert listed == own


@pytest.mark.parametrize("kind", LEAVES)
def test_an_error_survives_pickling_with_its_facts(kind: type[OmnigraphError]) -> None:
    error = example(kind)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    facts = [field.name for field in fields(kind)]
    assert facts, "an error carries facts"
    assert [getattr(again, name) for name in facts] == [getattr(error, name) for name in facts]
    assert str(again) == str(error)


@pytest.mark.parametrize("kind", LEAVES)
def test_an_error_says_something(kind: type[OmnigraphError]) -> None:
    error = example(kind)
    assert len(str(error)) > len("text")
    assert "None" not in str(error)


@pytest.mark.parametrize("kind", LEAVES)
def test_an_error_needs_a_fact(kind: type[OmnigraphError]) -> None:
    required = [f for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]
    assert required
