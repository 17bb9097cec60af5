"""Every public error and result survives pickling, and equals what it was made of.

Errors are the subclasses of `OmnigraphError` in all modules. Results are the classes that public
methods of a graph, of its views and of results return, found by their annotations.
"""

import copy
import dataclasses
import inspect
import pickle
import pkgutil
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import pytest

import omnigraph as og
from omnigraph.deferred import Deferred
from omnigraph.exec.changes.diff import ListedChanges
from omnigraph.exec.merge.planned_changes import PlannedChange, PlannedChanges
from omnigraph.graph.handles import BranchHandle, Transaction
from omnigraph.storage.locks.locks import LockTaken
from omnigraph.storage.names import MAIN
from omnigraph.types import TableKey
from tests.server.world import served

SCHEMA = """
node Person {
  name: String @key  age: I32?  born: Date?  seen: DateTime?  score: F64?  photo: Blob?
}
edge Knows: Person -> Person { since: I32? }
"""
SAMPLES: dict[Any, Any] = {
    str: "text", int: 7, float: 1.5, bool: True, bytes: b"b", type(None): None, object: "any",
    TableKey: TableKey("node:Person"), date: date(2026, 1, 2), Path: Path("a"),
    datetime: datetime(2026, 1, 2, 3),
}  # fmt: skip
NO_VALUES = {"Graph", "BranchHandle", "Transaction", "Frames", "ChangedRows"}
"""Handles, which hold a graph or a Spark session open, and chunks of Arrow arrays."""


def modules() -> Iterator[types.ModuleType]:
    for found in pkgutil.walk_packages(og.__path__, "omnigraph."):
        if found.name.rpartition(".")[2] != "__main__":
            yield import_module(found.name)


def errors() -> list[type[og.OmnigraphError]]:
    every = {
        value
        for module in modules()
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, og.OmnigraphError)
    }
    return sorted(every, key=lambda kind: kind.__name__)


def sample(hint: Any, depth: int = 0) -> Any:
    """A value of a type, with something in every field and container."""
    if isinstance(hint, Deferred):
        hint = hint.resolved
    if hint is Any or isinstance(hint, typing.TypeVar):
        return "any"
    if hint in SAMPLES:
        return SAMPLES[hint]
    if isinstance(hint, typing.NewType):
        return sample(hint.__supertype__, depth)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return arguments[0]
    if origin in (Union, types.UnionType):
        return sample(next(each for each in arguments if each is not type(None)), depth)
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return (sample(arguments[0], depth + 1),)
        return tuple(sample(each, depth + 1) for each in arguments)
    if origin in (list, set, frozenset):
        return origin([sample(arguments[0], depth + 1)])
    if origin is not None and issubclass(origin, Mapping):
        return {sample(arguments[0], depth + 1): sample(arguments[1], depth + 1)}
    if origin is not None:  # Sequence, Collection, Iterable
        return (sample(arguments[0], depth + 1),)
    if hint is PlannedChanges:
        return PlannedChanges(None, [PlannedChange("node", "Person", "Ada", "insert")])
    if isinstance(hint, type) and issubclass(hint, Enum):
        return next(iter(hint))
    return made(hint, depth + 1)


def made(kind: Any, depth: int = 0) -> Any:
    """A value of a record class, from the types of its fields."""
    assert depth < 12, kind
    if dataclasses.is_dataclass(kind):
        names = [each.name for each in dataclasses.fields(kind) if each.init]
    else:
        names = list(kind._fields)  # a named tuple
    hints = typing.get_type_hints(kind)
    return kind(**{name: sample(hints[name], depth) for name in names})


def require_copies(value: Any) -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(value, protocol))
        assert again == value
        assert value == again
        if isinstance(value, Exception):
            assert str(again) == str(value)
    assert copy.copy(value) == value


@pytest.mark.parametrize("kind", errors(), ids=lambda kind: kind.__name__)
def test_an_error_is_its_class_and_facts(kind: type[og.OmnigraphError]) -> None:
    if kind is LockTaken:  # not public, and made of the name of its lock
        require_copies(LockTaken("a"))
        return
    error = made(kind)
    require_copies(error)
    assert error == made(kind)
    assert hash(error) == hash(made(kind))
    assert error != og.BadRequest("another")
    for each in dataclasses.fields(kind):
        if isinstance(getattr(error, each.name), str):
            assert dataclasses.replace(error, **{each.name: "other"}) != error


# ---- results


def returned(owner: type) -> Iterator[type]:
    """The classes of this package in what public methods and properties of a class return."""
    for name, member in inspect.getmembers(owner):
        if name.startswith("_"):
            continue
        call = member.fget if isinstance(member, property) else member
        call = inspect.unwrap(call) if callable(call) else getattr(call, "func", None)
        hint = getattr(call, "__annotations__", {}).get("return")
        if isinstance(hint, str):
            hint = getattr(import_module(call.__module__), hint.split("[")[0], None)
        yield from classes(hint)


def classes(hint: Any) -> Iterator[type]:
    if isinstance(hint, Deferred):
        hint = hint.resolved
    for each in get_args(hint):
        yield from classes(each)
    if isinstance(hint, type) and hint.__module__.startswith("omnigraph"):
        yield hint


def is_record(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) or hasattr(kind, "_fields")


def results() -> list[type]:
    """Classes of results, reached from a graph through its views and through results."""
    exported = {getattr(og, name) for name in og.__all__}
    found: dict[type, None] = dict.fromkeys(
        each for each in exported if isinstance(each, type) and not issubclass(each, Exception)
    )
    todo = [og.Graph, BranchHandle, Transaction, *found]
    seen: set[type] = set()
    while todo:
        kind = todo.pop()
        if kind in seen:
            continue
        seen.add(kind)
        for each in returned(kind):
            found[each] = None
            todo.append(each)
    kept = (each for each in found if each.__name__ not in NO_VALUES and not is_handle(each))
    return sorted(kept, key=lambda kind: kind.__name__)


def is_handle(kind: type) -> bool:
    """Whether a class is a view of an open graph or part of its engine, and no value."""
    if kind.__name__.endswith(("View", "Guard", "Catalog")) or kind is og.Policy:
        return True
    return kind.__module__.startswith(("omnigraph.policy", "omnigraph.exec.search"))


RECORDS = [each for each in results() if is_record(each)]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[og.Graph]:
    with og.init(tmp_path_factory.mktemp("values") / "g.omni", schema=SCHEMA) as made_graph:
        made_graph.load(
            [
                {
                    "type": "Person",
                    "data": {"name": "Ada", "born": "2001-02-03", "photo": "base64:aGk="},
                },
                {"type": "Person", "data": {"name": "Bob", "seen": "2001-02-03T04:05:06Z"}},
                {"edge": "Knows", "from": "Ada", "to": "Bob", "data": {"since": 1}},
            ],
            "append",
        )
        made_graph.branches.create("work")
        for branch, age in (("work", 1), (MAIN, 2)):
            text = f'query u() {{ update Person set {{ age: {age} }} where name = "Ada" }}'
            made_graph.mutate(text, branch=branch)
        yield made_graph


QUERY = "query q() { match { $p: Person } return { $p, $p.age, $p.born, $p.score } order { $p } }"
UNION = QUERY.replace("$p, ", "").replace("order { $p } ", "")
READ: dict[type, Callable[[og.Graph], Any]] = {
    og.QueryResult: lambda g: g.query(QUERY),
    og.Baseline: lambda g: g.changes.baseline(),
    og.BlobCell: lambda g: g.blob("node", "Person", "Ada", "photo"),
}
"""Records that read more of the graph when they are asked."""

VALUES: dict[str, Callable[[og.Graph], Any]] = {
    "query": lambda g: g.query(QUERY),
    "empty query": lambda g: g.query(QUERY.replace("$p: Person", '$p: Person  $p.name = "No"')),
    "changes": lambda g: g.diff("main~1", MAIN),
    "first change": lambda g: next(iter(g.diff("main~1", MAIN))),
    "images": lambda g: next(iter(g.diff("main~1", MAIN))).before,
    "history": lambda g: g.history("node", "Person", "Ada"),
    "entity": lambda g: g.entity("node", "Person", "Ada"),
    "preview": lambda g: g.branches.merge("work", resolve="theirs", dry_run=True),
    "planned": lambda g: g.branches.merge("work", resolve="theirs", dry_run=True).changes,
    "undo": lambda g: g.revert(MAIN, dry_run=True),
    "undone": lambda g: g.revert(MAIN, dry_run=True).changes,
    "snapshot": lambda g: g.snapshot(),
    "commits": lambda g: tuple(g.commits.list()),
    "schema": lambda g: g.schema.on(MAIN),
    "check": lambda g: g.check(),
    "tag": lambda g: g.tags.create("v1") if not g.tags.list() else g.tags.get("v1"),
    "indexes": lambda g: tuple(g.indexes()),
    "poll": lambda g: g.changes.poll(),
}


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_a_result_is_its_facts(kind: type, graph: og.Graph) -> None:
    if kind in READ:
        require_copies(READ[kind](graph))
        return
    value = made(kind)
    require_copies(value)
    assert value == made(kind)


@pytest.mark.parametrize("name", VALUES)
def test_a_value_that_a_graph_gives_survives_pickling(graph: og.Graph, name: str) -> None:
    value = VALUES[name](graph)
    require_copies(value)
    assert value == VALUES[name](graph)


def test_values_of_a_served_graph_survive_pickling(graph: og.Graph) -> None:
    with served(graph.uri) as server, og.connect(server.url) as remote:
        require_copies(VALUES["history"](remote))
        require_copies(VALUES["query"](remote))
        for make in (*READ.values(), VALUES["undone"]):
            require_copies(make(remote))
        for name in ("changes", "first change", "planned"):
            value = VALUES[name](remote)
            require_copies(value)
            assert value == VALUES[name](graph), name


def test_every_result_class_is_a_record_or_has_a_value_here(graph: og.Graph) -> None:
    shown = {type(each) for make in VALUES.values() for each in (make(graph),)}
    without = [each.__name__ for each in results() if not is_record(each) and each not in shown]
    assert without == []


def test_errors_that_a_graph_raises_equal_their_copies(graph: og.Graph) -> None:
    calls: tuple[Callable[[], Any], ...] = (
        lambda: graph.branches.merge("work"),
        lambda: graph.query("query q( {"),
        lambda: graph.query("query q() { match { $p: Persn } return { $p } }"),
        lambda: graph.commits.get("mian"),
        lambda: graph.load([{"type": "Person", "data": {"name": 5}}], "append"),
        lambda: graph.mutate('query i() { insert Person { name: "Ada" } }', if_commit="0" * 26),
    )
    for call in calls:
        with pytest.raises(og.OmnigraphError) as raised:
            call()
        require_copies(raised.value)
        with pytest.raises(type(raised.value)) as again:
            call()
        assert again.value == raised.value


def test_copies_of_baselines_and_blobs_hold_what_was_read(graph: og.Graph, tmp_path: Path) -> None:
    whole, blob = READ[og.Baseline](graph), READ[og.BlobCell](graph)
    copied, bytes_ = pickle.loads(pickle.dumps(whole)), pickle.loads(pickle.dumps(blob))
    assert list(copied) == list(whole)
    assert list(copied.lines()) != []
    assert copied.to_file(tmp_path / "a.jsonl") == whole.to_file(tmp_path / "b.jsonl")
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    assert (bytes_.read(), bytes_.read(1)) == (b"hi", b"i")


def test_a_copy_of_changes_has_no_columns(graph: og.Graph) -> None:
    again = pickle.loads(pickle.dumps(graph.diff("main~1", MAIN)))
    assert isinstance(again, ListedChanges)
    assert again.page(1).changes == graph.diff("main~1", MAIN).page(1).changes
    with pytest.raises(og.BadRequest, match="copy"):
        next(again.columns(1))
