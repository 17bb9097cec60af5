"""SQL over a graph reads the columns and rows that it needs, and gives the rows it would give."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from omnigraph.graph import Graph
from omnigraph.pipeline import frames
from omnigraph.pipeline.session import beside
from omnigraph.pipeline.spark_columns import shown
from omnigraph.pipeline.sql_needs import needs_of
from tests.exec.world import graph_of

SCHEMA = """
node Person { name: String @key  age: I32?  city: String?  ok: Bool?  part: F64? }
edge Knows: Person -> Person
"""
ALL = ("id", "name", "age", "city", "ok", "part")


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    people = [
        {
            "name": f"p{n}",
            "age": None if n % 5 == 0 else n,
            "city": ("Oslo", "o'Hara", None)[n % 3],
            "ok": (True, False, None)[n % 3],
            "part": float("nan") if n == 7 else n / 2,
        }
        for n in range(20)
    ]
    knows = [{"id": f"k{n}", "src": f"p{n}", "dst": f"p{n * 3 % 20}"} for n in range(20)]
    path = Path(tmp_path_factory.mktemp("sql")) / "g"
    with graph_of(path, SCHEMA, {"Person": people}, {"Knows": knows}) as made:
        yield made


STATEMENTS = {
    "select name from Person where AGE > 3": (
        ("name", "age"),
        "(`age` is not null and `age` > 3)",
    ),
    "with p as (select city c from Person where ok) select c from p": (
        ("city", "ok"),
        "(`ok` is not null and `ok`)",
    ),
    "select count(*) from Person": ((), None),
    "select * from Person": (ALL, None),
    "select p.* from Person p where city = 'o''Hara' and part > 2": (
        ALL,
        "(`city` is not null and `city` = 'o''Hara')",
    ),
    "select age * 2 from Person where age in (1, 2, 3) or name < 'p12'": (
        ("name", "age"),
        "((`age` in (1, 2, 3) or `name` < 'p12'))",
    ),
    "select name from Person where age > 5 or part > 2": (("name", "age", "part"), None),
    "select name from Person where age > 2.5": (
        ("name", "age"),
        "(`age` is not null and `age` > 2)",
    ),
    "select name from Person where length(city) > 4 and ok is not null": (
        ("name", "city", "ok"),
        "(`city` is not null and `ok` is not null)",
    ),
    "select name from Person where age = 3 union select city from Person where age = 4": (
        ("name", "age", "city"),
        "(`age` is not null and `age` = 3) or (`age` is not null and `age` = 4)",
    ),
    "select name from Person where age = 3 union all select name from Person": (
        ("name", "age"),
        None,
    ),
    "select p.name, q.age from Knows k join Person p on p.id = k.src "
    "join Person q on q.id = k.dst where q.age < 9 and p.age >= 2": (
        ("id", "name", "age"),
        "(`age` is not null and `age` >= 2) or (`age` is not null and `age` < 9)",
    ),
    "select name from Person where id in (select src from Knows) and age < 4": (
        ("id", "name", "age"),
        "(`age` is not null and `age` < 4)",
    ),
}


@pytest.mark.parametrize("statement", STATEMENTS)
def test_SQ6_a_statement_reads_what_it_needs(
    graph: Graph, spark: SparkSession, statement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = graph.schema.catalog
    tables = {o.name: shown(o) for o in (*catalog.nodes.values(), *catalog.edges.values())}
    columns, where = STATEMENTS[statement]
    needs = needs_of(beside(spark), statement, tables, {})["Person"]
    assert set(needs.columns) == set(columns)
    either = [needs.where, " or ".join(reversed(str(needs.where).split(" or ")))]
    assert where in either, "in either order"
    narrow = rows_of(graph, spark, statement)
    monkeypatch.setattr(frames, "needs_of", lambda *_: {})
    assert narrow == rows_of(graph, spark, statement)
    assert narrow


def rows_of(graph: Graph, spark: SparkSession, statement: str, **options: Any) -> list[str]:
    """The rows of a statement, in some order."""
    rows = graph.spark.sql(statement, spark=spark, **options).collect()
    return sorted(str(tuple(row)) for row in rows)


def test_SQ6_what_is_planned_by_itself_narrows_nothing(graph: Graph, spark: SparkSession) -> None:
    person = {"Person": shown(graph.schema.catalog.nodes["Person"])}
    own = beside(spark)
    scalar = "select name from Person where age > (select max(age) - 2 from Person where ok)"
    assert needs_of(own, scalar, person, {}) == {}
    assert rows_of(graph, spark, scalar) == ["('p17',)", "('p18',)", "('p19',)"]
    for statement in ("describe Person", "table Person", "values (1)"):
        assert needs_of(own, statement, person, {}) == {}
    given = needs_of(own, "select name from Person where age = :n", person, {"args": {"n": 4}})
    assert given["Person"].where == "(`age` is not null and `age` = 4)"
    marked = "select name from Person where age = :n"
    assert rows_of(graph, spark, marked, args={"n": 4}) == ["('p4',)"]
