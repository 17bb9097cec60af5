"""Patches on Spark leave what patches in one process leave."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import omnigraph as og
import omnigraph.spark as ogs
from omnigraph.costs import COSTS
from omnigraph.graph import Graph
from tests.exec.bulk import contents, edge, lines, new_graph, person

BASE = lines(
    *(person(f"p{n}", age=n, email=f"{n}@b", tags=["t"]) for n in range(6)),
    edge("Knows", "p0", "p1", id="k", since="2020-01-01"),
)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    graph = new_graph(tmp_path_factory.mktemp("patch"))
    graph.load(BASE, "append", engine="local")
    return graph


def outcome(graph: Graph, source: Any, engine: str, **options: Any) -> Any:
    """What a patch did on a branch of its own: rows and counts, or the refusal."""
    branch = f"{engine}-{len(graph.branches.list())}"
    graph.branches.create(branch)
    try:
        done = graph.load(source, "patch", engine=engine, branch=branch, **options)
    except og.ConstraintViolated as error:
        return error.counts, sorted(map(str, error.violations))
    return done.nodes, done.edges, done.inserted, done.updated, contents(graph, branch)


values = st.fixed_dictionaries(
    {},
    optional={
        "age": st.none() | st.integers(0, 160),
        "email": st.none() | st.sampled_from(["0@b", "8@b", "9@b"]),
        "tags": st.none() | st.lists(st.sampled_from("ab"), max_size=2),
        "pic": st.none() | st.just("base64:AAAA"),
    },
)
people = st.lists(st.tuples(st.sampled_from([f"p{n}" for n in range(9)]), values), max_size=12)


@settings(
    max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(batch=people)
def test_both_engines_leave_the_same(
    graph: Graph,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    batch: list[tuple[str, dict[str, Any]]],
) -> None:
    monkeypatch.setattr(COSTS, "spark_part_bytes_min", 60)
    monkeypatch.setattr(COSTS, "key_bucket_bytes", 400)
    file = tmp_path / "people.jsonl"
    file.write_bytes(
        lines(*(person(name, **data) for name, data in batch), edge("Knows", "p0", "p2", id="k"))
    )
    assert outcome(graph, file, "local") == outcome(graph, file, "spark")


def test_a_frame_is_patched_in_the_order_it_names(graph: Graph, spark: SparkSession) -> None:
    frame = spark.createDataFrame(
        [("p0", 7, 2), ("p0", 5, 1), ("p9", 1, 1)], "name string, age int, step int"
    )
    branch = "frame"
    graph.branches.create(branch)
    done = graph.load(frame, "patch", type="Person", branch=branch, order_by="step")
    rows = {row["id"]: row for row in contents(graph, branch)["node:Person"]}
    assert (rows["p0"]["age"], rows["p0"]["email"], rows["p9"]["age"]) == (7, "0@b", 1)
    assert (done.inserted, done.updated) == (1, 1)
    with pytest.raises(og.ConstraintViolated, match="order_by="):
        graph.load(frame.drop("step"), "patch", type="Person", branch=branch)


def test_edges_get_the_same_ids_on_both_engines(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = "node T { k: String @key }\nedge E: T -> T @key(src, dst, day) { day: Date  w: I32? }"
    graph = og.init(tmp_path / "g", schema)
    names = ["a", 'q"', "ü"]
    graph.load(lines(*({"type": "T", "data": {"k": name}} for name in names)), "append")
    file = tmp_path / "edges.jsonl"
    file.write_bytes(
        lines(
            *(edge("E", a, b, day="2020-01-02", w=n) for n in (1, 2) for a in names for b in names)
        )
    )
    for engine in ("local", "spark"):
        graph.branches.create(engine)
        done = graph.load(file, "merge", engine=engine, branch=engine)
        assert (done.inserted, done.updated) == (9, 0)
    assert contents(graph, "local") == contents(graph, "spark")
    graph.branches.merge("local")
    graph.branches.merge("spark")  # the same edges, so nothing disagrees
    assert len(contents(graph)["edge:E"]) == 9


def test_the_data_source_patches(graph: Graph, spark: SparkSession) -> None:
    graph.branches.create("source")
    frame = spark.createDataFrame([("p1", 77)], "name string, age int")
    ogs.register(spark)
    options = {"type": "Person", "branch": "source", "mode": "patch"}
    frame.write.format("omnigraph").options(**options).mode("append").save(graph.uri)
    row = next(r for r in contents(graph, "source")["node:Person"] if r["id"] == "p1")
    assert (row["age"], row["email"]) == (77, "1@b")
