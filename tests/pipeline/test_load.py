"""Loads on Spark: the same answers as in one process, and nothing twice when tasks fail."""

import json
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import omnigraph as og
from omnigraph.costs import COSTS
from omnigraph.exec.load import local as loading
from omnigraph.exec.load.inputs import Input, open_input
from omnigraph.exec.load.request import LoadRequest
from omnigraph.exec.load.spill import Spill
from omnigraph.graph import Graph
from omnigraph.pipeline import splits
from omnigraph.pipeline.load import Order, choose_engine
from omnigraph.pipeline.tasks import LoadJob, run_part
from omnigraph.storage.protocol.intent import WriterKind
from tests.exec.bulk import CATALOG, by_name, contents, edge, lines, new_graph, node, person
from tests.thinned import thinned

MODES = ("append", "merge", "overwrite")
MADE_UP = re.compile("0[0-9A-Z]{25}")
"""Ids that each load makes up for itself."""

BASE = lines(
    person("Ada", email="a@b"),
    person("Bob"),
    node("Log", text="t", id="l"),
    node("Count", n=1),
    edge("Knows", "Ada", "Bob", id="k"),
    edge("Owns", "1", "l", id="o"),
)


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = new_graph(tmp_path)
    graph.load(BASE, "append", engine="local")
    return graph


def outcome(graph: Graph, source: Any, mode: str, **options: Any) -> Any:
    """What a load did: counts and rows, or the error with everything it tells."""
    try:
        done = graph.load(source, mode, **options)
    except og.ConstraintViolated as error:
        told = sorted(repr(v) for v in error.violations)
        return "refused", error.counts, MADE_UP.sub("…", repr(told))
    except og.OmnigraphError as error:
        return type(error).__name__, str(error)
    rows = {
        key: sorted(MADE_UP.sub("…", repr(sorted(row.items()))) for row in rows)
        for key, rows in contents(graph, options["branch"]).items()
    }
    return done.nodes, done.edges, rows, done.rounded


@pytest.fixture
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even a small file is cut into several parts, and its keys into several buckets."""
    monkeypatch.setattr(COSTS, "spark_part_bytes_min", 60)
    monkeypatch.setattr(COSTS, "key_bucket_bytes", 100)


def both(graph: Graph, source: Any, mode: str, exchange: str = "auto") -> tuple[Any, Any]:
    """The outcomes of the two engines, each on a branch of its own."""
    found = []
    for engine in ("local", "spark"):
        branch = f"{engine}-{len(graph.branches.list())}"
        graph.branches.create(branch)
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("OMNIGRAPH_EXCHANGE", exchange)
            found.append(outcome(graph, source, mode, engine=engine, branch=branch))
    return found[0], found[1]


@pytest.mark.parametrize("mode", thinned(("merge", "append", "overwrite")))
@pytest.mark.parametrize(
    "records",
    [
        (person("Cy"), edge("Knows", "Cy", "Ada"), edge("Knows", "Bob", "Cy", id="x")),
        (person("Ada", age=3), person("Bob"), edge("Knows", "Bob", "Bob", id="k")),
        (person("Cy"), person("Cy"), b"{oops", person("D", age=200, email="x", role="no")),
        (edge("Knows", "Ada", "Ghost"), edge("Knows", "Ada", "Bob"), edge("Owns", "1", "l")),
        (edge("Owns", "1", "l", id="o"), edge("Owns", "1", "l", id="o")),
        (node("Count", n=2), edge("Owns", "2", "l", id="o")),
        (person("Eve", email="a@b"), {"type": "Nope"}, {"type": "Log", "data": {"x": 1}}),
        (),
    ],
)
def test_SP1_both_engines_answer_alike(
    spark: SparkSession, graph: Graph, records: tuple[Any, ...], mode: str
) -> None:
    local, on_spark = both(graph, lines(*records), mode)
    assert on_spark == local


@pytest.mark.usefixtures("in_pieces")
def test_SP1_moments_cut_in_several_tasks_are_counted_as_one_process_counts_them(
    spark: SparkSession, graph: Graph, tmp_path: Path
) -> None:
    records = (person(f"p{n}", seen=f"1969-12-31T23:59:59.{n}999Z") for n in range(100, 110))
    (tmp_path / "in.jsonl").write_bytes(lines(*records, person("q", seen=0)))
    local, on_spark = both(graph, tmp_path / "in.jsonl", "append")
    assert on_spark == local
    assert local[-1] == {"Person.seen": 10}
    frame = spark.createDataFrame([("a", "2024-01-31T10:00:00.123456Z")], ["name", "seen"])
    assert graph.load(frame, "merge", type="Person").rounded == {"Person.seen": 1}
    moments = frame.selectExpr("name", "cast(seen as timestamp) as seen")
    with pytest.raises(og.ConstraintViolated, match="date_trunc"):
        graph.load(moments, "merge", type="Person")
    cut = moments.selectExpr("name", "date_trunc('millisecond', seen) as seen")
    assert graph.load(cut, "merge", type="Person").rounded == {}


@pytest.mark.parametrize("mode", MODES)
def test_LD1_blobs_by_their_addresses_are_copied_in_by_both_engines(
    spark: SparkSession, graph: Graph, tmp_path: Path, mode: str
) -> None:
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.png").write_bytes(b"picture")
    allowed = og.open(graph.uri, external_blobs=[f"file://{tmp_path}/in"])
    good = [person(name, pic=f"file://{tmp_path}/in/a.png") for name in ("Ada", "Bob", "Cy")] + [
        person("Di", pic="base64:aGk=")
    ]
    local, on_spark = both(allowed, lines(*good), mode if mode != "append" else "merge")
    assert on_spark == local
    assert str(local[2]).count("b'picture'") == 3
    for address, why in (
        ("out/a.png", "no configured base allows"),
        ("in/none.png", "cannot be read: No such file"),
        ("in/../out/a.png", "no configured base allows"),
    ):
        bad = lines(person("E"), person("F", pic=f"file://{tmp_path}/{address}"))
        local, on_spark = both(allowed, bad, mode)
        assert on_spark == local
        assert local[0] == "refused"
        assert dict(local[1])["blob"] == 1
        assert why in local[2]
        assert "line=2" in local[2]
    denied = outcome(graph, lines(*good[:1]), "merge", engine="spark", branch="main")
    assert "no configured base allows" in denied[2], "without bases nothing is allowed"


_FILE = (
    *(person(f"p{n}", age=n, email=f"p{n}@b") for n in range(6)),
    *(edge("Knows", f"p{n}", f"p{n // 2}", id=f"e{n}") for n in range(1, 6)),
    *(node("Log", text="t", id=f"l{n}") for n in range(3)),
    *(edge("Wrote", f"p{n // 2}", f"l{n % 3}") for n in range(6)),
)


PIECES: tuple[tuple[Any, ...], ...] = (
    (),
    (person("p0"), person("p3")),
    (edge("Knows", "p1", "ghost"), edge("Knows", "phantom", "p5"), edge("Knows", "p9", "p8")),
    (edge("Wrote", "p4", "l0"), *(edge("Wrote", "p2", f"l{n}") for n in range(3))),
    (*(person(f"q{n}", email=f"p{n}@b") for n in range(6)), edge("Knows", "p5", "p2", id="z")),
    (*(edge("Knows", f"p{n}", "p5", id=f"e{n}") for n in range(1, 6)),),
    (*(person(f"q{n}", age=150 + n) for n in range(4)), b"{oops", b""),
)


@pytest.mark.parametrize("mode", thinned(("merge", "append", "overwrite")))
@pytest.mark.parametrize("more", thinned(range(len(PIECES)), every=2), ids=str)
def test_SP1_both_engines_answer_alike_on_a_file_in_pieces(
    spark: SparkSession,
    graph: Graph,
    tmp_path: Path,
    in_pieces: None,
    more: int,
    mode: str,
) -> None:
    file = tmp_path / "in.jsonl"
    file.write_bytes(lines(*_FILE, *PIECES[more]))
    parts = splits.split(open_input(file), tasks=4, folder=tmp_path)
    assert len(parts) > 3 < loading.bucket_count(file.stat().st_size)
    for exchange in ("folder", "shuffle"):
        local, on_spark = both(graph, file, mode, exchange)
        assert on_spark == local


_NAMES = st.sampled_from(["Ada", "Bob", "Cy", "Dan", ""])
_RECORDS = st.one_of(
    st.builds(person, _NAMES, age=st.sampled_from([None, 1, 200, "x"])),
    st.builds(person, _NAMES, email=st.sampled_from([None, "a@b", "c@d"])),
    st.builds(edge, st.sampled_from(["Knows", "knows"]), _NAMES, _NAMES),
    st.builds(edge, st.just("Knows"), _NAMES, _NAMES, id=st.sampled_from(["k", "m"])),
    st.builds(edge, st.just("Owns"), st.just("1"), st.just("l"), id=st.sampled_from(["o", "p"])),
    st.sampled_from(
        [b"", b"{", b'{"type":"Nope"}', b'{"type":"Log","data":{"text":"a","text":"a"}}']
    ),
)


@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    records=st.lists(_RECORDS, max_size=12),
    mode=st.sampled_from(MODES),
    exchange=st.sampled_from(["shuffle", "folder"]),
)
def test_SP1_both_engines_answer_alike_on_anything(
    spark: SparkSession,
    graph: Graph,
    tmp_path: Path,
    in_pieces: None,
    records: list[Any],
    mode: str,
    exchange: str,
) -> None:
    file = tmp_path / "in.jsonl"
    file.write_bytes(lines(*records))
    local, on_spark = both(graph, file, mode, exchange)
    assert on_spark == local


def test_a_file_cut_into_many_parts_keeps_its_line_numbers(
    spark: SparkSession, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(COSTS, "spark_part_bytes_min", 2_000)
    graph = new_graph(tmp_path)
    good = [person(f"p{n}", age=n % 100) for n in range(1_000)]
    file = tmp_path / "in.jsonl"
    bad = [*good[:700], b"{oops", person("p3"), *good[700:], edge("Knows", "p1", "ghost")]
    file.write_bytes(lines(*bad))
    with pytest.raises(og.ConstraintViolated) as caught:
        graph.load(file, "append", engine="spark")
    told = {v.rule: v for v in caught.value.violations}
    assert {rule: v.line for rule, v in told.items()} == {
        "json": 701,
        "unique": 702,
        "endpoint": 1003,
    }
    assert {v.file for v in told.values()} == {str(file)}
    file.write_bytes(lines(*good, *[edge("Knows", f"p{n}", "p0") for n in range(1_000)]))
    done = graph.load(file, "append", engine="spark")
    assert (done.engine, done.total_entities) == ("spark", 2_000)
    assert len(by_name(graph, "node:Person")) == 1_000
    assert len(by_name(graph, "edge:Knows")) == 1_000
    assert not list((tmp_path / "graph.omni" / "__scratch").iterdir())


def test_a_dataframe_is_loaded_where_it_is(spark: SparkSession, graph: Graph) -> None:
    frame = spark.range(2_000).selectExpr(
        "concat('p', id) as full_name", "cast(id % 90 as int) age"
    )
    done = graph.load(frame, "append", type="Person", columns={"full_name": "name"})
    assert (done.engine, done.nodes) == ("spark", {"Person": 2_000})
    edges = spark.sql("select * from values ('p1', 'p2'), ('p3', 'ghost') as t(`from`, to)")
    with pytest.raises(og.ConstraintViolated, match="dst 'ghost' not found in Person"):
        graph.load(edges, "append", edge="Knows")
    with pytest.raises(og.BadRequest, match="loaded by Spark"):
        graph.load(edges, "append", edge="Knows", engine="local")


def test_parquet_is_cut_by_row_groups(
    spark: SparkSession, graph: Graph, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(COSTS, "spark_part_bytes_min", 1_000)
    names = pa.table({"name": [f"p{n}" for n in range(5_000)]})
    pq.write_table(names, tmp_path / "p.parquet", row_group_size=500)
    done = graph.load(tmp_path / "p.parquet", "merge", type="Person", engine="spark", spark=spark)
    assert done.nodes == {"Person": 5_000}
    assert len(by_name(graph, "node:Person")) == 5_002
    twice = pa.concat_tables([names, names.slice(4_990)])
    pq.write_table(twice, tmp_path / "p.parquet", row_group_size=500)
    done = graph.load(tmp_path / "p.parquet", "merge", type="Person", engine="spark")
    assert (done.nodes, len(by_name(graph, "node:Person"))) == ({"Person": 5_010}, 5_002)
    with pytest.raises(og.ConstraintViolated) as caught:
        graph.load(
            tmp_path / "p.parquet", "merge", type="Person", engine="spark", on_duplicate="refuse"
        )
    assert caught.value.counts == (("unique", 10),)
    assert caught.value.violations[0].line == 5_001


def test_SX3a_the_last_one_wins_on_both_engines(
    spark: SparkSession, graph: Graph, in_pieces: None, tmp_path: Path
) -> None:
    for name, first in (("z", 0), ("a", 100)):
        people = [person(f"p{n % 7}", age=first + n) for n in range(40)]
        (tmp_path / f"{name}.jsonl").write_bytes(lines(*people))
    files = [tmp_path / "z.jsonl", tmp_path / "a.jsonl"]
    local, on_spark = both(graph, files, "merge")
    assert on_spark == local
    graph.load(files, "merge", engine="spark")
    ages = {i: row["age"] for i, row in by_name(graph, "node:Person").items()}
    assert {n: ages[f"p{n}"] for n in range(7)} == {n: 100 + (39 - (39 - n) % 7) for n in range(7)}


def test_SX3a_a_key_that_comes_twice_in_a_dataframe_is_refused_without_an_order(
    spark: SparkSession, graph: Graph
) -> None:
    rows = [("Cy", n, n * 3 % 10, "x") for n in range(10)]
    frame = spark.createDataFrame(rows, "name string, age int, version int, note string")
    plain = frame.select("name", "age").repartition(4)
    head = graph.snapshot().commit_id
    for options in ({}, {"on_duplicate": "refuse"}):
        with pytest.raises(og.ConstraintViolated, match="comes twice") as caught:
            graph.load(plain, "merge", type="Person", **options)
        assert "order_by" in str(caught.value) or options
    edges = spark.createDataFrame(
        [("e", "Ada", "Bob"), ("e", "Bob", "Bob")], "id string, src string, dst string"
    )
    with pytest.raises(og.ConstraintViolated, match="order_by"):
        graph.load(edges, "merge", edge="Knows")
    with pytest.raises(og.BadRequest, match="order_by"):
        graph.load(plain, "merge", type="Person", on_duplicate="last")
    with pytest.raises(og.BadRequest, match="merge"):
        graph.load(plain, "append", type="Person", order_by="age")
    with pytest.raises(og.BadRequest, match="'nope'"):
        graph.load(plain, "merge", type="Person", order_by="nope")
    with pytest.raises(og.BadRequest, match="refuse"):
        graph.load(plain, "merge", type="Person", order_by="age", on_duplicate="refuse")
    assert graph.snapshot().commit_id == head


def test_SX3a_order_by_says_which_row_of_a_dataframe_is_the_last(
    spark: SparkSession, graph: Graph
) -> None:
    rows = [(f"p{n % 5}", n, n * 7 % 50) for n in range(50)]
    frame = spark.createDataFrame(rows, "name string, age int, version int").repartition(4)
    graph.load(frame, "merge", type="Person", order_by="version")
    ages = {i: row["age"] for i, row in by_name(graph, "node:Person").items()}
    newest = {n: max((r for r in rows if r[0] == f"p{n}"), key=lambda r: r[2])[1] for n in range(5)}
    assert {n: ages[f"p{n}"] for n in range(5)} == newest
    graph.load(frame.drop("version"), "merge", type="Person", order_by=["age"])
    ages = {i: row["age"] for i, row in by_name(graph, "node:Person").items()}
    assert {n: ages[f"p{n}"] for n in range(5)} == {n: 45 + n for n in range(5)}


def test_LD6_a_task_that_ran_twice_counts_once(graph: Graph, tmp_path: Path) -> None:
    """What speculation and retries do: the same part read twice, one result used."""
    (tmp_path / "in.jsonl").write_bytes(lines(person("Cy"), edge("Knows", "Cy", "Ada")))
    (part,) = splits.split(_input(tmp_path), tasks=1, folder=tmp_path)
    write = graph._store.begin(kind=WriterKind.LOAD)
    bases = {owner.table: write.base(owner.table) for owner in CATALOG.nodes.values()}
    bases |= {owner.table: write.base(owner.table) for owner in CATALOG.edges.values()}
    job = LoadJob(graph.uri, None, CATALOG, LoadRequest("append"), bases)
    run_part(job, part, Spill(tmp_path))
    second = pickle.loads(pickle.dumps(run_part(job, part, Spill(tmp_path))))
    for table, fragments in second.fragments.items():
        write.fragments(table, fragments)
    graph._store.commit(write)
    assert set(by_name(graph, "node:Person")) == {"Ada", "Bob", "Cy"}
    assert len(by_name(graph, "edge:Knows")) == 2


def _input(folder: Path) -> Input:
    return open_input(str(folder / "in.jsonl"))


def test_a_file_that_vanishes_is_told_as_such(
    spark: SparkSession, graph: Graph, tmp_path: Path, monkeypatch: Any
) -> None:
    file = tmp_path / "in.jsonl"
    file.write_bytes(lines(person("Cy")))
    cut = splits.split

    def vanishing(*args: Any, **options: Any) -> Any:
        found = cut(*args, **options)
        file.unlink()
        return found

    monkeypatch.setattr("omnigraph.pipeline.spark_load.split", vanishing)
    with pytest.raises(og.NotFound, match="it was there when the load began"):
        graph.load(file, "append", engine="spark")
    assert "Cy" not in by_name(graph, "node:Person")


def test_SP2_auto_takes_spark_unless_the_input_is_small(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("omnigraph.pipeline.load._session_is_active", lambda: False)
    (tmp_path / "in.jsonl").write_bytes(b"x" * 1_000)
    found = _input(tmp_path)
    order = Order(source="", mode="append")
    assert choose_engine(order, found, is_frame=False) == "local"
    assert choose_engine(Order("", "append", spark=object()), found, is_frame=False) == "spark"
    monkeypatch.setenv("OMNIGRAPH_LOCAL_BYTES_MAX", "999")
    assert choose_engine(order, found, is_frame=False) == "spark"
    assert choose_engine(Order("", "append", engine="local"), found, is_frame=False) == "local"


@pytest.mark.slow
def test_LD6_tasks_that_fail_twice_leave_no_row_twice(graph: Graph, tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_bytes(lines(person("Cy"), edge("Knows", "Cy", "Ada", id="e0")))
    command = [sys.executable, "-m", "tests.pipeline.failing", graph.uri, str(file)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stderr[-2_000:]
    assert json.loads(ran.stdout) == {"nodes": {"Person": 1}, "edges": {"Knows": 1}}
    again = og.open(graph.uri)
    assert set(by_name(again, "node:Person")) == {"Ada", "Bob", "Cy"}
    assert set(by_name(again, "edge:Knows")) == {"k", "e0"}
