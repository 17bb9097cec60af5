"""A query on Spark gives the rows that it gives in one process."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from omnigraph.errors import BadRequest, LimitExceeded, StorageFailed
from omnigraph.exec.limits import Limits
from omnigraph.graph import Graph
from omnigraph.pipeline import executors, spark_query
from tests.exec.world import graph_of

SCHEMA = """
node Person {
    name: String @key
    age: I32?
    height: F32?
    tags: [String]?
    about: String? @index
    place: Vector(2)? @index
}
node Company { name: String @key }
edge Knows: Person -> Person
edge WorksAt: Person -> Company { since: Date? }
"""
PEOPLE = 60

QUERIES = {
    "all": "match { $p: Person } return { $p.name, $p.age, $p.tags, $p.place }",
    "ordered and cut": "match { $p: Person } return { $p.name } "
    "order { $p.age desc, $p.name } limit 7 offset 3",
    "cut far down": "match { $p: Person } return { $p.name } limit 5 offset 50",
    "a constant": "match { $p: Person } return { 1 as one } limit 4",
    "friends of friends": "match { $p: Person $p knows{1,2} $q $q.age > 20 } "
    "return { $p.name, $q.name } order { $q.name } limit 50",
    "edges": "match { $p: Person $p $e: worksAt $c $e.since > $since } "
    "return { $p.name, $e.since, $c.name }",
    "without": "match { $p: Person not { $p worksAt $c } } return { $p.name }",
    "optional": "match { $p: Person optional { $p worksAt $c } } return { $p.name, $c.name }",
    "distinct": "match { $p: Person $p worksAt $c } return distinct { $c.name, $p.age } limit 9",
    "count": "match { $p: Person } return { count($p) as people }",
    "nobody": 'match { $p: Person { name: "nobody" } $p knows $q } return { count($q) as n }',
    "nobody, grouped": "match { $p: Person $p.age > 900 } "
    "return { $p.age, count($p), avg($p.age) }",
    "groups": "match { $p: Person $p worksAt $c } return { $c.name, count($p) as heads, "
    "sum($p.age) as years, avg($p.age) as mean, min($p.name) as first, max($p.height) as tall } "
    "order { heads desc } limit 3",
    "distinct counts": "match { $p: Person $p worksAt $c } "
    "return { $c.name, count(distinct $p.age) as ages, avg($p.age) as mean }",
    "one person": 'match { $p: Person { name: "p7" } $p knows{1,3} $q } return { $q.name }',
    "expressions": "match { $p: Person $p.age % 2 = $odd "
    "case when $p.height > 3 then true else $p.age is null end } "
    "return { upper($p.name) as name, $p.age * 2 - 1 as odd, size($p.tags) as tags, "
    "coalesce($p.age / 4, 0.5) as part } order { length($p.name) desc, odd } limit $n",
    "grouped expressions": "match { $p: Person $p worksAt $c } return { lower($c.name) as c, "
    "$p.age % 3 as third, count(*) as n, sum($p.age + 1) / count(*) as mean, "
    "max($p.age) - min($p.age) as range } having { n > 1 } order { mean desc }",
    "lists and percentiles": "match { $p: Person $p worksAt $c } return { $c.name as c, "
    "collect($p.age) as ages, collect(distinct $p.height) as heights, median($p.age) as middle, "
    "percentile($p.height, 0.9) as high, any($p.age > 30) as old } having { size(ages) > 2 }",
    "unwound": "match { $p: Person unwind $p.tags as tag unwind $nth as n } "
    "return { $tag, $n, count(*) as heads }",
    "text": 'match { $p: Person } return { $p.name, bm25($p.about, "fish") as s } '
    'order { bm25($p.about, "fish") desc } limit 5',
    "vector": "match { $p: Person $p worksAt $c } return { $p.name, $c.name } "
    "order { nearest($p.place, $near) } limit 5",
    "walk": "match { $p: Person $p knows|worksAt{1,2} $c via $n where $n.age > 10 $c: Company } "
    "return { $c.name, count($p) as n }",
    "paths": "match { $p: Person $p.age < 3 $w = all shortest $p knows{1,4} $q $q.age < 2 } "
    "return { $p.name, $q.name as other, nodes($w) as way, length($w) as steps }",
    "stage": "match { $p: Person $p worksAt $c } with { $c, count($p) as n } order { n desc } "
    "limit 2 match { $q worksAt $c } return { $c.name, $n, max($q.age) as oldest }",
    "union": "match { $p: Person $p.age > 37 } return { $p.name as n } union "
    "match { $c: Company } return { $c.name }",
    "objects": "match { $p: Person optional { $p worksAt $c } } return { $p { name, age, tags }, "
    "$c as at { name } } order { $p.name } limit 9",
    "grouped objects": "match { $p: Person $p worksAt $c } "
    "return { $c as at { name, heads: count($p) }, max($p.age) as oldest } order { oldest }",
    "words": 'match { $p: Person search($p.about, "birds") } return { $p.name }',
}
PARAMS = {
    "edges": {"since": "2001-01-01"},
    "vector": {"near": [3.0, 4.0]},
    "expressions": {"odd": 1, "n": 9},
    "unwound": {"nth": [3, 1]},
}
DECLARED = {
    "edges": "$since: Date",
    "vector": "$near: Vector(2)",
    "expressions": "$odd: I64, $n: I64",
    "unwound": "$nth: [I64]",
}


def text_of(name: str) -> str:
    return f"query q({DECLARED.get(name, '')}) {{ {QUERIES[name]} }}"


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    people = [
        {
            "name": f"p{n}",
            "age": None if n % 7 == 0 else n % 40,
            "height": n / 4,
            "tags": None if n % 3 else ["a", f"t{n % 4}"],
            "about": ("fish and birds", "birds", "fish fish", None)[n % 4],
            "place": None if n % 5 == 0 else [n % 9, n % 11],
        }
        for n in range(PEOPLE)
    ]
    knows = [
        {"id": f"k{n}-{step}", "src": f"p{n}", "dst": f"p{(n * step + 1) % PEOPLE}"}
        for n in range(PEOPLE)
        for step in (1, 3, 5)
    ]
    works = [
        {"id": f"w{n}", "src": f"p{n}", "dst": f"c{n % 5}", "since": 11_000 + n * 10}
        for n in range(0, PEOPLE, 2)
    ]
    path = tmp_path_factory.mktemp("queries") / "g"
    nodes = {"Person": people, "Company": [{"name": f"c{n}"} for n in range(5)]}
    with graph_of(path, SCHEMA, nodes, {"Knows": knows, "WorksAt": works}) as made:
        yield made


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_gives_the_same_rows_on_spark(graph: Graph, spark: SparkSession, name: str) -> None:
    text, params = text_of(name), PARAMS.get(name)
    local = graph.query(text, params)
    found = graph.query(text, params, engine="spark", spark=spark)
    assert found.rows == local.rows
    assert found.rows or "nobody" in name
    assert found.columns == local.columns
    assert found.to_arrow().schema == local.to_arrow().schema
    assert found.commit_id == local.commit_id


def test_a_session_that_is_passed_runs_the_query(graph: Graph, spark: SparkSession) -> None:
    told = graph.query(text_of("groups"), spark=spark).explain().splitlines()
    here = graph.query(text_of("groups"), engine="local", spark=spark).explain().splitlines()
    assert [line.split("  ")[0:2] for line in told] == [line.split("  ")[0:2] for line in here]
    assert all("not run" not in line for line in told)
    assert f"{PEOPLE} rows" in told[1], "the shares of the first scan are all its nodes"


def test_time_travel_and_branches_on_spark(tmp_path: Path, spark: SparkSession) -> None:
    with graph_of(tmp_path / "g", SCHEMA, {"Person": [{"name": "Ada"}]}) as graph:
        before = graph.commits.list()[0].id
        graph.branches.create("side")
        add = 'query a() { insert Person { name: "Bob" } }'
        graph.mutate(add, branch="side")
        names = "query n() { match { $p: Person } return { $p.name } }"
        on_side = graph.query(names, branch="side", engine="spark", spark=spark)
        assert [row["p.name"] for row in on_side] == ["Ada", "Bob"]
        assert len(graph.query(names, engine="spark", spark=spark)) == 1
        graph.branches.merge("side")
        assert len(graph.query(names, engine="spark", spark=spark)) == 2
        assert len(graph.query(names, snapshot=before, engine="spark", spark=spark)) == 1


def test_a_limit_that_a_task_meets_is_told_as_ever(
    graph: Graph, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph._reading, "limits", Limits(memory_bytes_max=1000))
    crossed = "query q() { match { $p: Person $q: Person } return { $p.name, $q.name } }"
    assert len(graph.query(crossed, engine="spark", spark=spark)) == PEOPLE**2
    named = (
        'query q() { match { $p: Person { name: "p1" } $q: Person $r: Person } '
        "return { $q.name, $r.name } }"
    )
    assert len(graph.query(named, engine="spark", spark=spark)) == PEOPLE**2
    staged = (
        "query q() { match { $p: Person $q: Person } with { $p, $q } limit 3 "
        "match { $p knows $r } return { $r.name } }"
    )
    with pytest.raises(LimitExceeded, match="query memory in bytes at `scan node:Person"):
        graph.query(staged, engine="spark", spark=spark)
    with pytest.raises(BadRequest, match="is no engine"):
        graph.query(crossed, engine="duck", spark=spark)


def test_a_task_that_fails_is_told(
    graph: Graph, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = executors.Where(f"{graph.uri}/gone", None)
    monkeypatch.setattr(spark_query, "Where", lambda *_: gone)
    with pytest.raises(StorageFailed, match="ran a query on Spark"):
        graph.query(text_of("all"), engine="spark", spark=spark)


def test_edges_to_an_interface_are_loaded_and_walked_on_spark(
    tmp_path: Path, spark: SparkSession
) -> None:
    schema = """interface Named { name: String @key }
    node Doc { slug: String @key }
    node Person implements Named {}
    node Company implements Named {}
    edge Mentions: Doc -> Named"""
    ends = [("Person", "x"), ("Company", "x"), ("Company", "y")]
    nodes = [{"type": type_, "data": {"name": name}} for type_, name in ends]
    edges = [{"edge": f"Mentions_{t}", "from": "d", "to": name} for t, name in ends]
    lines = [*nodes, {"type": "Doc", "data": {"slug": "d"}}, *edges]
    with graph_of(tmp_path / "g", schema) as graph:
        done = graph.load(lines, "append", engine="spark", spark=spark)
        assert done.edges == {"Mentions_Company": 2, "Mentions_Person": 1}
        for match in ("$d mentions $x", "$d mentions $x  $x: Company", "$x: Named  $d _{1,2} $x"):
            text = f"query q() {{ match {{ $d: Doc  {match} }} return {{ $d, $x.name as name }} }}"
            there = graph.query(text, engine="spark", spark=spark).rows
            assert there == graph.query(text).rows
            assert len(there) == (2 if "Company" in match else 3)
