"""Every public name and every verb of a graph has an example in its docstring, and it runs."""

import doctest
import inspect
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.graph import views
from omnigraph.graph.handles import BranchHandle, Transaction
from omnigraph.graph.reviews import ReviewsView
from omnigraph.graph.schema import SchemaView

SCHEMA = """
node Person { name: String @key, age: I32?, born: Date?, photo: Blob? }
edge Knows: Person -> Person { since: Date? }
"""
ADA = {"name": "Ada", "age": 36, "born": "1815-12-10", "photo": "base64:iVBORw=="}
RECORDS = [
    {"type": "Person", "data": ADA},
    {"type": "Person", "data": {"name": "Bob"}},
    {"edge": "Knows", "from": "Ada", "to": "Bob", "data": {"id": "k1", "since": "1830-01-01"}},
]


def public() -> Iterator[tuple[str, Any]]:
    for name in og.__all__:
        if name != "__version__":
            yield name, getattr(og, name)
    for name in dir(og.Graph):
        if not name.startswith("_"):
            member = inspect.getattr_static(og.Graph, name)
            inner = getattr(member, "fget", None) or getattr(member, "func", None) or member
            if callable(inner):
                yield f"Graph.{name}", inspect.unwrap(inner)


REACHED = (
    *(views.BranchesView, views.TagsView, views.CommitsView, views.ChangesView),
    *(views.RecoveriesView, SchemaView, ReviewsView, BranchHandle, Transaction),
)
"""What a user reaches from a graph."""
OF_THE_LIBRARY = {"BranchesView.owned"}
"""What transactions need, and nobody else."""


def reached() -> Iterator[tuple[str, Any]]:
    for kind in REACHED:
        for name, member in inspect.getmembers_static(kind):
            inner = getattr(member, "fget", None) or member
            path = f"{kind.__name__}.{name}"
            if not name.startswith("_") and callable(inner) and path not in OF_THE_LIBRARY:
                yield path, inspect.unwrap(inner)


PUBLIC = {**dict(public()), **dict(reached())}


def test_every_public_name_has_an_example() -> None:
    assert [name for name, thing in PUBLIC.items() if ">>> " not in (thing.__doc__ or "")] == []


class World:
    """A small graph, made once, and made anew when an example has changed it."""

    def __init__(self, folder: Path) -> None:
        self.kept, self.used = folder / "kept", folder / "used"
        graph = og.init(self.used / "people.omni", schema=SCHEMA)
        graph.load(RECORDS, "append")
        graph.close()
        shutil.copytree(self.used, self.kept)
        self.graph = og.open(self.used / "people.omni")
        self.first = self._state()

    def _state(self) -> object:
        graph = self.graph
        beside = graph.reviews.list(), graph.changes.consumers()
        return graph.snapshot().commit_id, graph.branches.list(), graph.tags.list(), beside

    def fresh(self) -> og.Graph:
        """The graph as it was made."""
        if self._state() != self.first or len(list(self.used.iterdir())) > 1:
            self.graph.close()
            shutil.rmtree(self.used)
            shutil.copytree(self.kept, self.used)
            self.graph = og.open(self.used / "people.omni")
        return self.graph


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("docstrings"))


@pytest.mark.parametrize("name", PUBLIC)
def test_an_example_does_what_it_says(
    name: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = world.fresh()
    monkeypatch.chdir(world.used)
    thing = PUBLIC[name]
    names = {"og": og, "graph": graph}
    test = doctest.DocTestParser().get_doctest(thing.__doc__, names, name, None, None)
    said: list[str] = []
    doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    assert said == []
