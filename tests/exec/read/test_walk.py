"""The walk over few rows gives the rows of the operators, and is taken where it should be."""

import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

import omnigraph as og
from omnigraph.costs import COSTS
from omnigraph.errors import ExpressionFailed, TypeCheckError
from omnigraph.exec.read import batches, run, walk
from omnigraph.graph import Graph
from tests.exec.random_queries import PROPERTIES, SCHEMA, Scope, Writer, graphs
from tests.exec.read.test_random_queries import answers, overwrite
from tests.exec.world import graph_of, write


class Chain(Writer):
    """Queries that start at a key and go on from there, with conditions that lists can answer."""

    def pattern(self, scope: Scope, *, depth: int, inner: bool) -> list[str]:
        del depth, inner
        name = self.query.new("v")
        type_ = scope[name] = self.pick("PPPC")
        clauses = [f"${name}: {type_} {{ k: {self.key(type_)} }}"]
        for _ in range(self.pick((0, 1, 1, 2, 3))):
            clauses.append(self.traversal(scope))
        people = [name for name, type_ in scope.items() if type_ == "P"]
        if people and self.one_in(2):
            edge = f"${self.query.new('k')}:e" if self.one_in(2) else "e"
            clauses.append(f"${self.pick(people)} {edge} ${self.pick(people)}")
        for _ in range(self.pick((0, 0, 1, 2))):
            clauses.append(self.comparison(scope))
        return clauses

    def comparison(self, scope: Scope) -> str:
        var = self.pick(scope)
        prop = self.pick(PROPERTIES[scope[var]])
        if self.one_in(4):
            return self.two_columns(scope, var, prop)
        sides = [f"${var}.{prop}", self.constant(prop)]
        if self.one_in(3):
            sides.reverse()
        return f" {self.pick(('!=', '>=', '<', '='))} ".join(sides)

    def aggregates(self, scope: Scope) -> tuple[list[str], list[str]]:
        if self.one_in(2):
            return super().aggregates(scope)
        nodes = [name for name, type_ in scope.items() if type_ in "PC"]
        return [f"count(${self.pick(nodes)}) as m0"], ["m0"]


@st.composite
def chains(draw: DrawFn) -> tuple[str, dict[str, Any]]:
    writer = Chain(draw)
    text = writer.text()
    return text, {name: value for name, (_, value) in writer.query.params.items()}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with graph_of(Path(tmp_path_factory.mktemp("few")) / "g", SCHEMA) as made:
        yield made


@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=graphs(), asked=st.lists(chains(), min_size=15, max_size=30))
def test_walking_one_by_one_gives_the_rows_of_the_operators(
    graph: Graph, data: dict[str, list[dict[str, Any]]], asked: list[tuple[str, dict[str, Any]]]
) -> None:
    overwrite(graph, data)
    for text, params in asked:
        try:
            expected = answers(graph, text, params, "csr", 0)
        except (TypeCheckError, ExpressionFailed):
            continue
        for few_rows_max in (128, 3, 1):
            assert answers(graph, text, params, "csr", few_rows_max) == expected, f"{text} {params}"


PEOPLE = """
node Person { name: String @key  age: I32?  born: Date?  score: F64?  vec: Vector(2)? }
node Company { name: String @key }
edge Knows: Person -> Person { since: I32? }
edge WorksAt: Person -> Company
"""
POINT = "query q($n: String) { match { $p: Person { name: $n } } return { $p.age as a } }"
FRIENDS = """query q($n: String, $c: String) { match { $p: Person { name: $n }  $p knows $f
  $f worksAt $c  $c.name = $c0 } return { $f.name as n } }""".replace("$c: String", "$c0: String")
COUNT = """query q($n: String) { match { $p: Person { name: $n }  $p knows $f }
  return { count($f) as n } }"""
NEAR = """query q($n: String, $v: Vector(2)) { match { $p: Person { name: $n }  $p knows $f }
  return { $f.name as n, nearest($f.vec, $v) as d } order { nearest($f.vec, $v) } limit 2 }"""


def people(path: Path) -> Graph:
    names = ("Ada", "Bob", "Cy", "Dee")
    records = [
        {"name": name, "age": 30 + n, "born": n, "score": n / 2, "vec": [n, 1.0] if n else None}
        for n, name in enumerate(names)
    ]
    knows = [("Ada", "Bob"), ("Ada", "Cy"), ("Ada", "Dee"), ("Bob", "Ada")]
    works = [("Bob", "Acme"), ("Cy", "Acme"), ("Dee", "Zeta")]
    return graph_of(
        path,
        PEOPLE,
        {"Person": records, "Company": [{"name": "Acme"}, {"name": "Zeta"}]},
        {
            "Knows": [{"id": f"k{n}", "src": a, "dst": b} for n, (a, b) in enumerate(knows)],
            "WorksAt": [{"id": f"w{n}", "src": a, "dst": b} for n, (a, b) in enumerate(works)],
        },
    )


def hold(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have everything in memory, sorted."""
    monkeypatch.setattr(COSTS, "key_passes_max", 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMNIGRAPH_TRAVERSAL_MODE", "csr")
        given: dict[str, dict[str, Any]] = {POINT: {}, FRIENDS: {"c0": "Acme"}, COUNT: {}}
        for text, more in {**given, NEAR: {"v": [3.0, 1.0]}}.items():
            graph.query(text, {"n": "Ada", **more})


def test_a_small_query_runs_without_an_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = people(tmp_path / "g")
    hold(graph, monkeypatch)

    def refused(*_: object) -> None:
        raise AssertionError("an operator ran")

    for name in ("scan", "expand", "expand_edges"):
        monkeypatch.setattr(batches, name, refused)
    for name in ("aggregate", "Projector"):
        monkeypatch.setattr(run, name, refused)
    assert graph.query(POINT, {"n": "Bob"}).rows == [{"a": 31}]
    assert graph.query(POINT, {"n": "nobody"}).rows == []
    found = graph.query(FRIENDS, {"n": "Ada", "c0": "Acme"})
    assert found.rows == [{"n": "Bob"}, {"n": "Cy"}]
    assert found.to_arrow().to_pylist() == found.rows
    counted = graph.query(COUNT, {"n": "Ada"})
    assert counted.rows == [{"n": 3}]
    near = graph.query(NEAR, {"n": "Ada", "v": [3.0, 1.0]})
    assert near.rows == [{"n": "Dee", "d": 0.0}, {"n": "Cy", "d": 1.0}]
    for result in (found, counted, near):
        lines = result.explain().splitlines()[1:]
        assert all(line.endswith(" ms") for line in lines), result.explain()


def test_many_rows_are_handed_over_on_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = people(tmp_path / "g")
    hold(graph, monkeypatch)
    walked: list[int] = []
    walking = walk.WalkPlan.run

    def watched(self: walk.WalkPlan, *args: Any) -> Any:
        done, frame = walking(self, *args)
        walked.append(done)
        return done, frame

    monkeypatch.setattr(walk.WalkPlan, "run", watched)
    for few_rows_max, done in ((128, 4), (2, 1)):
        graph._reading.few_rows_max = few_rows_max
        found = graph.query(FRIENDS, {"n": "Ada", "c0": "Acme"}).rows
        assert found == [{"n": "Bob"}, {"n": "Cy"}]
        assert walked.pop() == done


def test_a_held_graph_shows_what_another_writer_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = people(tmp_path / "g")
    hold(graph, monkeypatch)
    before = graph.query(POINT, {"n": "Bob"})
    with og.open(tmp_path / "g") as other:
        write(other, {"Person": [{"name": "Bob", "age": 99}, {"name": "Eve", "age": 1}]})
        write(other, edges={"Knows": [{"id": "k9", "src": "Ada", "dst": "Eve"}]})
    after = graph.query(POINT, {"n": "Bob"})
    assert (before.rows, after.rows) == ([{"a": 31}], [{"a": 99}])
    assert graph.query(POINT, {"n": "Eve"}).rows == [{"a": 1}]
    assert graph.query(COUNT, {"n": "Ada"}).rows == [{"n": 4}]
    past = graph.query(POINT, {"n": "Bob"}, snapshot=before.commit_id)
    assert (past.rows, past.commit_id) == (before.rows, before.commit_id)
    graph.branches.create("side")
    write(graph, {"Person": [{"name": "Bob", "age": 7}]}, branch="side")
    assert graph.query(POINT, {"n": "Bob"}, branch="side").rows == [{"a": 7}]
    assert graph.query(POINT, {"n": "Bob"}).rows == [{"a": 99}]


def test_what_the_cache_let_go_of_is_not_held_on_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = people(tmp_path / "g")
    hold(graph, monkeypatch)
    cache = graph._reading.holdings.cache
    view = graph._reading._view(graph._store.snapshot())
    assert view is graph._reading._view(graph._store.snapshot())
    cache.bytes_max = cache.bytes_kept
    cache.put("something else", object(), cache.bytes_max)
    assert cache.bytes_kept <= cache.bytes_max
    assert graph.query(COUNT, {"n": "Ada"}).rows == [{"n": 3}]
    assert view not in graph._reading._views.values()


def test_counting_a_last_step_makes_no_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = people(tmp_path / "g")
    everyone = "query q() { match { $p: Person  $p knows $f } return { "
    grouped = everyone + "$p.name as p, count($f) as n } order { n desc } }"
    edges = everyone.replace("knows", "$k:knows") + "count($k.since) as s, count($f) as n } }"
    distinct = everyone + "count(distinct $f) as n } }"
    nobody = everyone.replace("$p: Person", '$p: Person { name: "Cy" }') + "count($f) as n } }"
    for mode in ("csr", "indexed"):
        monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", mode)
        found = graph.query(grouped)
        assert found.rows == [{"p": "Ada", "n": 3}, {"p": "Bob", "n": 1}]
        assert found.explain().splitlines()[2].split()[-4:-2] == ["4", "rows"]
        assert graph.query(edges).rows == [{"s": 0, "n": 4}]
        assert graph.query(distinct).rows == [{"n": 4}]
        assert graph.query(nobody).rows == [{"n": 0}]
    monkeypatch.setattr(batches, "expand", lambda *_: pytest.fail("rows were made to be counted"))
    assert graph.query(grouped).rows == found.rows


@pytest.mark.parametrize("side", ["31 {} $f.age", "$a {} $f.age", "$f.age {} 31", "$f.age {} $a"])
@pytest.mark.parametrize("sign", ["<", "<=", ">", ">=", "=", "!="])
def test_a_constant_stands_on_either_side(tmp_path: Path, side: str, sign: str) -> None:
    text = f"""query q($n: String, $a: I32) {{ match {{ $p: Person {{ name: $n }}  $p knows $f
      {side.format(sign)} }} return {{ $f.name as n }} }}"""
    with people(tmp_path / "g") as graph:
        params = {"n": "Ada", "a": 31}
        expected = answers(graph, text, params, "csr", 0)
        assert answers(graph, text, params, "csr", 128) == expected
        found = {"Bob": 31, "Cy": 32, "Dee": 33}
        compare = COMPARED[sign] if side.startswith("$f") else MIRRORED[sign]
        assert [row["n"] for row in expected] == [n for n, a in found.items() if compare(a, 31)]


COMPARED: dict[str, Any] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
}
MIRRORED = {sign: COMPARED[sign.translate(str.maketrans("<>", "><"))] for sign in COMPARED}
