"""The public door refuses what it cannot use with an error of ours, whatever is passed."""

import inspect
import io
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import arguments
from omnigraph.graph import Graph, check_at

SCHEMA = "node Person { name: String @key  age: I32?  photo: Blob? }\nedge Knows: Person -> Person"
READ = "query q() { match { $p: Person } return { $p.name } }"
WRITE = 'query w() { insert Person { name: "Ada" } }'
ODD: tuple[Any, ...] = (
    None, 5, -1, 2.5, True, b"", b"x", "", "x", "\0", "\ud800", [], [5], [None], (), {}, {5: 5},
    {"x": object()}, object(), str, lambda *_: None, float("nan"), io.StringIO("x"),
    Path("nowhere"), 1 << 70, "x" * 5_000,
)  # fmt: skip
FITTING: dict[str, Any] = {
    "point": "main", "what": "entity", "ids": ["Ada"],
    "query": READ, "before": "main", "after": "main", "source": b"", "mode": "append",
    "kind": "node", "type": "Person", "id": "Ada", "property": "photo", "name": "work",
    "desired": SCHEMA, "schema": SCHEMA, "commit_id": "01X", "commit": "01X", "keep": 1,
    "statement": "select 1", "cursor": "x", "branch": "main", "data": b"x", "metadata": {"a": "b"},
    "review_id": "01X", "title": "t", "text": "t",
}  # fmt: skip
LEFT_OUT = {"close", "sql", "tables", "embed_with"}
"""Calls of Spark start a session, a closed graph answers nothing, and a provider is a program."""


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with og.init(tmp_path / "g.omni", SCHEMA) as made:
        made.branches.create("work")
        made.mutate(WRITE)
        yield made


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"node": "Person"}, "has no argument 'node'; write type= for nodes, edge= for edges"),
        ({"from": "main"}, "write from_branch="),
        ({"into": "work"}, "write branch="),
        ({"nonsense": 1}, "write source=, mode=, type="),
    ],
)
def test_an_argument_under_another_name_is_told_its_own(
    graph: Graph, given: dict[str, Any], hint: str
) -> None:
    with pytest.raises(TypeError, match=hint):
        graph.load([{"name": "Bob"}], "merge", **given)


VARIABLE = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


def methods(owner: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, method in inspect.getmembers(owner, callable):
        if not name.startswith("_") and name not in LEFT_OUT:
            yield name, method


def required(method: Callable[..., Any], folder: Path) -> dict[str, Any]:
    """Arguments with which a call makes sense."""
    chosen = {"target": folder / "out.jsonl", "uri": folder / "new.omni", **FITTING}
    return {
        name: chosen[name]
        for name, parameter in inspect.signature(method).parameters.items()
        if parameter.default is parameter.empty and parameter.kind not in VARIABLE
    }


def raw_failures(method: Callable[..., Any], folder: Path) -> list[str]:
    """The calls with one odd argument that ended with an exception that is not ours."""
    failures = []
    given = required(method, folder)
    for name, parameter in inspect.signature(method).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        for odd in ODD:
            if name == "engine" and odd == "spark":
                continue
            try:
                if parameter.kind is parameter.VAR_POSITIONAL:
                    method(FITTING["what"], odd, odd)
                else:
                    method(**{**given, name: odd})
            except og.OmnigraphError:
                continue
            except Exception as raw:  # noqa: BLE001  # they are what is looked for
                failures.append(f"{name}={odd!r:.40}: {type(raw).__name__}: {raw}"[:200])
    return failures


OWNERS: dict[str, Callable[[Graph], Any]] = {
    "graph": lambda graph: graph,
    "graph.branches": lambda graph: graph.branches,
    "graph.tags": lambda graph: graph.tags,
    "graph.commits": lambda graph: graph.commits,
    "graph.changes": lambda graph: graph.changes,
    "graph.recoveries": lambda graph: graph.recoveries,
    "graph.schema": lambda graph: graph.schema,
    "graph.reviews": lambda graph: graph.reviews,
    "graph.branch": lambda graph: graph.branch("main"),
}


@pytest.mark.parametrize("owner", OWNERS)
def test_no_argument_makes_a_method_raise_a_raw_exception(
    owner: str, graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong = {}
    for name, method in methods(OWNERS[owner](graph)):
        failures = raw_failures(method, tmp_path)
        if failures:
            wrong[name] = failures
    assert wrong == {}
    assert graph.query(READ).rows  # the graph is as well as before


@pytest.mark.parametrize("function", [og.open, og.init, check_at])
def test_no_argument_makes_a_function_raise_a_raw_exception(
    function: Callable[..., Any],
    graph: Graph,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert raw_failures(function, tmp_path) == []


def test_a_look_at_the_class_of_an_argument_lets_in_what_fits(graph: Graph) -> None:
    values = (*ODD, *FITTING.values(), {"a": "b"}, ["x"])
    every = [method for owner in OWNERS.values() for _, method in methods(owner(graph))]
    kinds = [kind for each in every for kind in arguments._kinds(inspect.unwrap(each))[1].values()]
    looked_at = [(kind, value) for kind in kinds for value in values if type(value) in kind.plain]
    assert all(kind.fits(value) for kind, value in looked_at)
    assert len(looked_at) > 100


def test_a_transaction_refuses_what_a_graph_does(graph: Graph, tmp_path: Path) -> None:
    with suppress(og.OmnigraphError), graph.transaction() as transaction:
        for _, method in methods(transaction):
            assert raw_failures(method, tmp_path) == []
    with pytest.raises(og.BadRequest, match="actor is a text or None, not int 5"):
        graph.transaction(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda g: g.query(READ, branch=5), "branch is a text or None, not int 5"),
        (lambda g: g.query(b"query"), "query is a text or a path, not bytes b'query'"),
        (lambda g: g.query(READ, params=[]), "must be a JSON object"),
        (lambda g: g.mutate(WRITE, branch=None), "branch is a text, not None"),
        (lambda g: g.export(5), "target is a text or a path or a stream, not int 5"),
        (lambda g: g.diff("main", "main", types="Person"), "types is a list of texts, not str"),
        (lambda g: g.cleanup(keep="1"), "keep is a whole number or None, not str '1'"),
        (lambda g: g.repair(confirm="no"), "confirm is True or False, not str 'no'"),
        (lambda g: g.query(READ, spark=5), "spark is a Spark session or None, not int 5"),
        (lambda g: g.commits.list(limit=-1), "limit is -1"),
        (lambda g: og.open(None), "uri is a text or a path, not None"),  # type: ignore[arg-type]
        (lambda g: g.query(READ)["name"], r"list of rows.*result\.to_arrow\(\)\['name'\]"),
        (lambda g: og.open(""), "'' is no address of a graph"),
    ],
)
def test_a_wrong_argument_is_named(
    graph: Graph, call: Callable[[Graph], Any], complaint: str
) -> None:
    with pytest.raises(og.BadRequest, match=complaint):
        call(graph)
