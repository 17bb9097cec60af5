"""Loads of partial rows: what is given is set, what is absent stays, against a model of dicts."""

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.costs import COSTS
from omnigraph.exec.load import finish, patch
from omnigraph.graph import Graph
from tests.exec.bulk import by_name, contents, edge, lines, new_graph, node, person
from tests.lowered import lowered_by

pytestmark = pytest.mark.consistent

SCHEMA = """
node Item {
  code: String @key
  size: I32?
  label: String
  tags: [String]?
  pic: Blob?
}
"""
GIVEN = {
    "size": st.none() | st.integers(0, 9),
    "label": st.sampled_from(["x", "null", "y"]),
    "tags": st.none() | st.lists(st.sampled_from("ab"), max_size=2),
    "pic": st.none() | st.sampled_from(["base64:AAAA", "base64:AQ=="]),
}
BYTES = {"base64:AAAA": b"\0\0\0", "base64:AQ==": b"\1", None: None}
Record = dict[str, Any]


@st.composite
def partial_records(draw: st.DrawFn) -> Record:
    """One code of few, and any subset of the other properties."""
    names = draw(st.sets(st.sampled_from(sorted(GIVEN))))
    code = draw(st.sampled_from("abcdefgh"))
    return {"code": code, **{name: draw(GIVEN[name]) for name in sorted(names)}}


def applied(model: dict[str, Record], batch: list[Record]) -> dict[str, Record] | None:
    """What a patch leaves; None if an entity lacks what it needs."""
    after = {code: dict(row) for code, row in model.items()}
    for record in batch:
        row = after.setdefault(record["code"], dict.fromkeys(("code", *GIVEN)))
        row.update(record)
    return None if any(row["label"] is None for row in after.values()) else after


def stored(graph: Graph, branch: str = "main") -> dict[str, Record]:
    rows = contents(graph, branch).get("node:Item", [])
    return {row["id"]: {n: v for n, v in row.items() if n != "id"} for row in rows}


def as_stored(model: dict[str, Record]) -> dict[str, Record]:
    return {code: {**row, "pic": BYTES[row["pic"]]} for code, row in model.items()}


def source_of(batch: list[Record], kind: str) -> tuple[Any, dict[str, Any]]:
    if kind == "lines":
        return lines(*(node("Item", **record) for record in batch)), {}
    return [dict(record) for record in batch], {"type": "Item"}


@pytest.mark.parametrize("size", ["few", "many", "lowered"])
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    batches=st.lists(st.lists(partial_records(), min_size=1, max_size=8), min_size=1, max_size=4),
    kind=st.sampled_from(["lines", "records"]),
    seed=st.integers(0, 9_999),
)
def test_a_patch_leaves_what_a_model_of_dicts_says(
    monkeypatch: pytest.MonkeyPatch, size: str, batches: list[list[Record]], kind: str, seed: int
) -> None:
    if size == "many":
        monkeypatch.setattr(patch, "is_few", lambda count, reader: False)
        monkeypatch.setattr(COSTS, "upsert_rows_max", 0)
        monkeypatch.setattr(COSTS, "key_bucket_bytes", 100)
        monkeypatch.setattr(COSTS, "upsert_job_rows", 3)
    low = lowered_by(seed if size == "lowered" else None)
    with low, tempfile.TemporaryDirectory() as folder, og.init(f"{folder}/g", SCHEMA) as graph:
        model: dict[str, Record] = {}
        for batch in batches:
            after = applied(model, batch)
            data, options = source_of(batch, kind)
            if after is None:
                with pytest.raises(og.ConstraintViolated, match="label"):
                    graph.load(data, "patch", engine="local", **options)
                continue
            done = graph.load(data, "patch", engine="local", **options)
            codes = {record["code"] for record in batch}
            assert (done.inserted, done.updated) == (
                len(codes - model.keys()),
                len(codes & model.keys()),
            )
            model = after
            assert stored(graph) == as_stored(model)


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = new_graph(tmp_path)
    graph.load(
        lines(
            person("Ada", age=36, email="a@b", face=[1.0, 2.0], pic="base64:AAAA"),
            person("Bob", age=40),
            node("Ticket", tenant="t", number=1),
            node("Log", text="first", id="l"),
            edge("Wrote", "Ada", "l", id="w", weight=0.5),
        ),
        "append",
    )
    return graph


def ages(graph: Graph) -> dict[str, Any]:
    return {name: row["age"] for name, row in by_name(graph, "node:Person").items()}


def test_absent_stays_and_null_is_set(graph: Graph) -> None:
    done = graph.load(lines(person("Ada", age=None), person("Cy", score=1.5)), "patch")
    people = by_name(graph, "node:Person")
    assert (people["Ada"]["age"], people["Ada"]["email"]) == (None, "a@b")
    assert people["Ada"]["face"] == [1.0, 2.0]
    assert people["Ada"]["pic"] == b"\0\0\0"
    assert people["Cy"]["score"] == 1.5
    assert (done.mode, done.inserted, done.updated, done.nodes) == ("patch", 1, 1, {"Person": 2})


@pytest.mark.parametrize("kind", ["arrow", "parquet", "csv"])
def test_a_column_is_given_for_every_row_and_a_missing_one_for_none(
    graph: Graph, tmp_path: Path, kind: str
) -> None:
    table = pa.table({"name": ["Ada", "Bob"], "age": pa.array([37, None], pa.int32())})
    source: Any = table
    if kind == "parquet":
        source = tmp_path / "p.parquet"
        pq.write_table(table, source)
    if kind == "csv":
        source = tmp_path / "p.csv"
        source.write_text("name,age\nAda,37\nBob,\n")
    graph.load(source, "patch", type="Person")
    assert ages(graph) == {"Ada": 37, "Bob": None}
    assert by_name(graph, "node:Person")["Ada"]["email"] == "a@b"


def test_rows_without_key_are_patched_by_their_id(graph: Graph) -> None:
    graph.load(lines(edge("Wrote", "Ada", "l", id="w"), node("Log", id="m", text="new")), "patch")
    assert by_name(graph, "edge:Wrote")["w"]["weight"] == 0.5
    assert by_name(graph, "node:Log")["m"]["text"] == "new"
    with pytest.raises(og.ConstraintViolated, match=r"line 1: a patch of Log needs its `id`"):
        graph.load(lines(node("Log", text="which?")), "patch")


def test_rules_see_the_whole_row(graph: Graph) -> None:
    graph.load(lines(person("Bob", email="b@b")), "patch")
    with pytest.raises(og.ConstraintViolated, match="held by 'Ada' and 'Bob'"):
        graph.load(lines(person("Bob", email="a@b")), "patch")
    with pytest.raises(og.ConstraintViolated, match=r"line 2: @range violation on Person.age"):
        graph.load(lines(person("Ada", age=1), person("Bob", age=151)), "patch")
    with pytest.raises(og.ConstraintViolated, match=r"line 1: dst 'nobody' not found in Log"):
        graph.load(lines(edge("Wrote", "Ada", "nobody", id="w")), "patch")


def test_duplicates_are_applied_in_order_or_refused(graph: Graph) -> None:
    twice = lines(person("Ada", age=1), person("Ada", score=2.0), person("Ada", age=3))
    with pytest.raises(og.ConstraintViolated, match=r"line 3: .* value 'Ada' comes twice"):
        graph.load(twice, "patch", on_duplicate="refuse")
    graph.load(twice, "patch")
    assert ages(graph)["Ada"] == 3
    assert by_name(graph, "node:Person")["Ada"]["score"] == 2.0


def test_a_patch_that_lost_a_race_completes_from_the_new_head(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = og.open(graph.uri)
    stage = finish.Finish._stage

    def stage_late(self: finish.Finish, write: Any) -> None:
        stage(self, write)
        monkeypatch.setattr(finish.Finish, "_stage", stage)
        other.mutate('query q() { update Person set { score: 7.0 } where name = "Ada" }')

    monkeypatch.setattr(finish.Finish, "_stage", stage_late)
    graph.load(lines(person("Ada", age=99)), "patch")
    ada = by_name(graph, "node:Person")["Ada"]
    assert (ada["age"], ada["score"]) == (99, 7.0)


def test_a_load_once_is_done_once(graph: Graph) -> None:
    for _ in range(2):
        done = graph.load(lines(person("Ada", age=5)), "patch", once="p1")
        graph.mutate('query q() { update Person set { age: 6 } where name = "Ada" }')
    assert done.repeated
    assert ages(graph)["Ada"] == 6


def test_rejects_name_the_lines(graph: Graph, tmp_path: Path) -> None:
    with pytest.raises(og.ConstraintViolated):
        graph.load(lines(person("Ada", age=151)), "patch", rejects=tmp_path / "r")
    assert '"line":1' in (tmp_path / "r" / "rejects.jsonl").read_text()


def test_the_older_format_is_not_patched_with(graph: Graph) -> None:
    with pytest.raises(og.BadRequest, match="mode merge"):
        graph.load(lines(person("Ada")), "patch", permissive=True)


def test_x1_a_patch_looks_ids_up_and_reads_no_other_row(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", SCHEMA)
    graph.load(
        pa.table({"code": [f"c{n}" for n in range(30_000)], "label": ["x"] * 30_000}),
        "append",
        type="Item",
    )
    graph.optimize()
    graph.load(lines(node("Item", code="c1", size=1)), "patch")
    before = graph.stats()
    graph.load(lines(node("Item", code="c7", size=1), node("Item", code="c8", size=2)), "patch")
    made = graph.stats().since(before).calls
    assert made.get("lance.fragments", 0) == 0  # the id column is not walked
    assert stored(graph)["c7"]["label"] == "x"
