"""Every kind of input, loaded by both engines, from this machine and from S3."""

import bz2
import datetime
import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lance
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.orc as po
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import omnigraph as og
from omnigraph.graph import Graph
from tests.exec.bulk import SCHEMA, by_name, contents, edge, lines, new_graph, person
from tests.storage.s3 import Server, serve

ROWS = pa.table({"name": [f"p{n}" for n in range(30)], "age": pa.array(range(30), pa.int32())})
LINES = lines(*(person(f"p{n}", age=n) for n in range(30)))
FLAT = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS.to_pylist())


def _orc(path: Path) -> None:
    po.write_table(ROWS, path)


def _parquet(path: Path) -> None:
    pq.write_table(ROWS, path, row_group_size=7)


def _tsv(path: Path) -> None:
    pv.write_csv(ROWS, path, pv.WriteOptions(delimiter="\t"))


def _compressed(name: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with pa.CompressedOutputStream(str(path), name) as out:
            out.write(LINES)

    return write


def _lance(path: Path) -> None:
    lance.write_dataset(ROWS, path, max_rows_per_file=8)
    lance.write_dataset(ROWS.slice(0, 0), path, mode="append")


def _folder(path: Path) -> None:
    path.mkdir()
    cut = len(LINES.splitlines(keepends=True)) // 2
    halves = LINES.splitlines(keepends=True)
    (path / "a.jsonl").write_bytes(b"".join(halves[:cut]))
    (path / "deeper").mkdir()
    (path / "deeper" / "b.jsonl.gz").write_bytes(gzip.compress(b"".join(halves[cut:])))
    (path / "_SUCCESS").write_bytes(b"not data")


FILES: dict[str, tuple[Callable[[Path], Any], bool]] = {
    "a.jsonl": (lambda path: path.write_bytes(LINES), False),
    "a.jsonl.gz": (lambda path: path.write_bytes(gzip.compress(LINES)), False),
    "a.jsonl.bz2": (lambda path: path.write_bytes(bz2.compress(LINES)), False),
    "a.jsonl.zst": (_compressed("zstd"), False),
    "a.jsonl.lz4": (_compressed("lz4"), False),
    "folder": (_folder, False),
    "a.json": (lambda path: path.write_bytes(FLAT), True),
    "a.parquet": (_parquet, True),
    "a.csv": (lambda path: pv.write_csv(ROWS, path), True),
    "a.tsv": (_tsv, True),
    "a.orc": (_orc, True),
    "a.lance": (_lance, True),
}
"""How a file is made, and whether its rows must be told their type."""


def loaded(graph: Graph, source: Any, typed: bool, **options: Any) -> None:
    """Load by both engines, each on its own branch, and find all rows on both."""
    for engine in ("local", "spark"):
        graph.branches.create(engine)
        named = {"type": "Person"} if typed else {}
        done = graph.load(source, "append", branch=engine, engine=engine, **named, **options)
        assert (done.engine, done.nodes) == (engine, {"Person": 30})
        people = contents(graph, engine)["node:Person"]
        assert {(row["id"], row["age"]) for row in people} == {(f"p{n}", n) for n in range(30)}


@pytest.mark.parametrize("name", FILES)
def test_LD1_files(spark: SparkSession, tmp_path: Path, name: str) -> None:
    make, typed = FILES[name]
    make(tmp_path / name)
    loaded(new_graph(tmp_path), tmp_path / name, typed)


def test_LD1_patterns_and_lists(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    every = LINES.splitlines(keepends=True)
    for n in range(3):
        (tmp_path / "in" / f"{n}.jsonl").write_bytes(b"".join(every[n * 10 : n * 10 + 10]))
    graph = new_graph(tmp_path)
    loaded(graph, [str(tmp_path / "in" / "[01].jsonl"), tmp_path / "in" / "2.jsonl"], typed=False)
    with pytest.raises(og.NotFound, match="input file"):
        graph.load(tmp_path / "in" / "nope*.jsonl", "append")


@pytest.mark.parametrize(
    "make",
    [
        lambda: ROWS,
        lambda: ROWS.to_pandas(),
        lambda: pl.from_arrow(ROWS),
        lambda: ROWS.to_pylist(),
        lambda: ROWS.to_reader(),
    ],
    ids=["arrow", "pandas", "polars", "records", "reader"],
)
def test_LD1_tables_at_hand(spark: SparkSession, tmp_path: Path, make: Any) -> None:
    graph = new_graph(tmp_path)
    for engine in ("local", "spark"):
        graph.branches.create(engine)
        done = graph.load(make(), "append", type="Person", branch=engine, engine=engine)
        assert (done.engine, done.nodes) == (engine, {"Person": 30})
    assert isinstance(ROWS.to_pandas(), pd.DataFrame)


def test_LD1_a_lance_dataset_is_read_at_the_version_it_had(tmp_path: Path) -> None:
    _lance(tmp_path / "a.lance")
    graph = new_graph(tmp_path)
    assert graph.load(tmp_path / "a.lance", "append", type="Person").nodes == {"Person": 30}
    with pytest.raises(og.NotFound, match="a Lance dataset is a folder"):
        graph.load(tmp_path / "people-of-last-year.lance", "append", type="Person")
    (tmp_path / "c.lance").mkdir()
    with pytest.raises(og.BadRequest, match=r"c\.lance as lance"):
        graph.load(tmp_path / "c.lance", "append", type="Person")


def test_LD3_rejects_are_written_by_both_engines(spark: SparkSession, tmp_path: Path) -> None:
    graph = new_graph(tmp_path)
    source = lines(person("a"), person("b", age=200), b"{oops", edge("Knows", "a", "ghost"))
    told = {}
    for engine in ("local", "spark"):
        with pytest.raises(og.ConstraintViolated):
            graph.load(source, "append", engine=engine, rejects=tmp_path / engine)
        text = (tmp_path / engine / "rejects.jsonl").read_text()
        told[engine] = [json.loads(line) for line in text.splitlines()]
    key = lambda r: (r["rule"], r["line"] or 0)  # noqa: E731
    found = [{k: r[k] for k in ("rule", "line", "type", "value")} for r in told["local"]]
    on_spark = [{k: r[k] for k in ("rule", "line", "type", "value")} for r in told["spark"]]
    assert sorted(found, key=key) == sorted(on_spark, key=key)
    assert {r["rule"] for r in found} == {"range", "json", "endpoint"}


# S3


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serve() as running:
        yield running


@pytest.fixture
def on_s3(server: Server) -> Graph:
    where = server.place()
    return og.init(where.uri, SCHEMA, storage_options=server.options)


def _put(server: Server, uri: str, data: bytes) -> None:
    from omnigraph.exec.load.files import opened  # noqa: PLC0415

    files, path = opened(uri, tuple(server.options.items()))
    with files.open_output_stream(path, compression=None) as stream:
        stream.write(data)


def test_LD1_s3_graphs_and_inputs_on_both_engines(
    spark: SparkSession, server: Server, on_s3: Graph, tmp_path: Path
) -> None:
    folder = f"{on_s3.uri}-in"
    every = LINES.splitlines(keepends=True)
    _put(server, f"{folder}/a.jsonl", b"".join(every[:15]))
    _put(server, f"{folder}/b.jsonl.gz", gzip.compress(b"".join(every[15:])))
    on_s3.load(folder, "append", engine="spark", spark=spark)
    assert set(by_name(on_s3, "node:Person")) == {f"p{n}" for n in range(30)}
    again = on_s3.load(f"{folder}/*.jsonl", "merge", engine="local")
    assert again.nodes == {"Person": 15}
    done = on_s3.load(f"{folder}/b.jsonl.gz", "merge", engine="spark", spark=spark)
    assert (done.engine, done.nodes) == ("spark", {"Person": 15})
    with pytest.raises(og.NotFound, match="input file"):
        on_s3.load(f"{folder}/nope.jsonl", "append")

    out = on_s3.export(f"{on_s3.uri}-out", engine="spark", spark=spark)
    assert out.nodes["Person"] == 30
    copy = og.init(f"{on_s3.uri}-copy", SCHEMA, storage_options=server.options)
    copy.load(f"{on_s3.uri}-out", "append", engine="local")
    assert contents(copy) == contents(on_s3)
    frame = on_s3.spark.sql("select count(*) as n from Person", spark=spark)
    assert frame.collect()[0]["n"] == 30


# Export on Spark (EX1)


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_EX1_an_export_by_tasks_loads_again(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    graph = new_graph(tmp_path)
    people = (person(f"p{n}", age=n, pic="base64:aGk=", tags=["x"]) for n in range(30))
    graph.load(lines(*people, edge("Knows", "p1", "p2", id="k")), "append", engine="local")
    before = graph.snapshot().commit_id
    graph.load(lines(person("late")), "append", engine="local")
    done = graph.export(tmp_path / "out", format, snapshot=before, engine="spark")
    assert (done.nodes["Person"], done.edges["Knows"]) == (30, 1)
    copy = og.init(tmp_path / "copy.omni", SCHEMA)
    copy.load(tmp_path / "out", "append", engine="spark")
    wanted = contents(graph)
    wanted["node:Person"] = [row for row in wanted["node:Person"] if row["id"] != "late"]
    assert contents(copy) == wanted
    with pytest.raises(og.AlreadyExists):
        graph.export(tmp_path / "out", format, engine="spark")


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_LD1_a_relative_name_means_the_callers_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession, engine: str
) -> None:
    graph = new_graph(tmp_path)
    (tmp_path / "in.jsonl").write_bytes(LINES)
    monkeypatch.chdir(tmp_path)
    session = {"spark": spark} if engine == "spark" else {}
    assert graph.load("in.jsonl", "append", engine=engine, **session).nodes == {"Person": 30}
    (tmp_path / "bad.jsonl").write_bytes(b"{\n")
    with pytest.raises(og.OmnigraphError, match=r"bad\.jsonl") as refused:
        graph.load("bad.jsonl", "append", engine=engine, **session)
    assert str(tmp_path) not in str(refused.value)


def test_both_engines_refuse_a_quote_left_open_and_name_ragged_rows_and_mixed_objects(
    spark: SparkSession, tmp_path: Path
) -> None:
    graph, file = new_graph(tmp_path), tmp_path / "p.csv"
    days = [datetime.date(2024, 1, 2), "not a date"]
    frame = pd.DataFrame({"name": ["a", "b"], "born": days})

    def told(source: Any, text: str = "") -> str:
        file.write_text(text)
        texts = []
        for engine in ("local", "spark"):
            with pytest.raises(og.OmnigraphError) as refused:
                graph.load(source, "merge", type="Person", engine=engine)  # type: ignore[arg-type]
            texts.append(str(refused.value))
        assert texts[0] == texts[1]
        return texts[0].removeprefix(f"{tmp_path}/")

    said = told(file, 'name,age\nAda,1\n"Bob,2\nCy,3\n')
    assert f"the quote opened in line 3 of {file} is never closed" in said
    said = told(file, "name,age\nAda,old\nBob\nCy,3,4\n")
    assert said.startswith("p.csv:2: Person.age must be an integer, not 'old'; ")
    assert f"{file}:3: the row has 1 cell, not 2" in said
    assert told(frame).startswith("row 2: Person.born 'not a date' is not a date")


def test_views_of_bytes_reach_tasks_and_what_cannot_is_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    graph = og.init(tmp_path / "g.omni", "node Doc { name: String @key  data: Blob? }")
    record = {"name": "a", "data": memoryview(b"abc")}
    assert graph.load([record], "merge", type="Doc", engine="spark").nodes == {"Doc": 1}
    assert graph.blob("node", "Doc", "a", "data").read() == b"abc"
    with pytest.raises(og.BadRequest, match=r'handed to another process.*engine="local"'):
        graph.load([{"name": "b", "data": (n for n in "x")}], "merge", type="Doc", engine="spark")


def test_a_table_without_columns_is_not_handed_to_tasks(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Neither Parquet nor a pickled table knows how many rows it has."""
    graph = og.init(tmp_path / "g.omni", "node Note { text: String? }")
    rows = ROWS.select([])
    assert graph.load(rows, "append", type="Note").engine == "local"
    with pytest.raises(og.BadRequest, match="without columns is not loaded on Spark"):
        graph.load(rows, "append", type="Note", engine="spark")
