"""Exports: the format, line by line, and that loading one gives the same graph."""

import io
import tempfile
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.graph import Graph
from tests.exec.bulk import contents, edge, lines, new_graph, node, person

EVERYTHING = lines(
    edge("Wrote", "Bob", "l1", id="w1", weight=0.5),
    edge("Knows", "Ada", "Bob", id="k2", since="2020-01-01"),
    edge("Knows", "Bob", "Ada", id="k1"),
    person(
        "Ada", age=36, email="a@b", role="admin", score=0.1, height=1e300, big=2**64 - 1, ok=False,
        born="1815-12-10", seen="2024-01-31T10:00:00.5Z", tags=["x", ""], marks=[0.1], days=[3],
        face=[1, 2], pic="base64:aGk=",
    ),
    person("Bob", pic="base64:", tags=[]),
    node("Ticket", tenant="ac\"me", number=-42),
    node("Log", text="ü\n☃", id="l1"),
)  # fmt: skip


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = new_graph(tmp_path)
    graph.load(EVERYTHING, "append")
    return graph


def exported(graph: Graph, **options: Any) -> list[dict[str, Any]]:
    out = io.BytesIO()
    graph.export(out, **options)
    return [orjson.loads(line) for line in out.getvalue().splitlines()]


def test_EX1_edges_come_first_types_by_name_rows_by_id(graph: Graph) -> None:
    order = [(r.get("edge") or r["type"], r["data"]["id"]) for r in exported(graph)]
    assert order == [
        ("Knows", "k1"),
        ("Knows", "k2"),
        ("Wrote", "w1"),
        ("Log", "l1"),
        ("Person", "Ada"),
        ("Person", "Bob"),
        ("Ticket", '["-42","ac\\"me"]'),
    ]


def test_every_property_is_there_and_moments_are_numbers(graph: Graph) -> None:
    ada, bob = (r["data"] for r in exported(graph, types=["Person"]))
    assert (ada["born"], ada["seen"]) == (-56270, 1706695200500)
    assert ada["score"] == 0.10000000149011612, "an F32 is widened"
    assert (ada["big"], ada["days"], ada["face"]) == (2**64 - 1, [3], [1.0, 2.0])
    assert (ada["pic"], bob["pic"]) == ("base64:aGk=", "base64:")
    assert set(ada) == set(bob)
    assert bob["age"] is None
    assert bob["tags"] == []


def test_a_line_has_the_members_of_the_format(graph: Graph) -> None:
    out = io.BytesIO()
    graph.export(out, types=["Knows"])
    assert out.getvalue().splitlines()[0] == (
        b'{"edge":"Knows","from":"Bob","to":"Ada","data":{"id":"k1","since":null}}'
    )


def test_an_unknown_type_is_refused(graph: Graph) -> None:
    with pytest.raises(og.BadRequest, match="unknown export type 'Nope'"):
        graph.export(io.BytesIO(), types=["Nope"])
    with pytest.raises(og.BadRequest, match="unknown export format"):
        graph.export(io.BytesIO(), "xml")


def test_one_snapshot_or_branch_is_exported(graph: Graph) -> None:
    then = graph.commits.list()[0].id
    graph.load(lines(person("Cy")), "append", branch="x", from_branch="main")
    graph.load(lines(person("Dan")), "append")
    people = [r["data"]["id"] for r in exported(graph, types=["Person"], branch="x")]
    assert people == ["Ada", "Bob", "Cy"]
    people = [r["data"]["id"] for r in exported(graph, types=["Person"], snapshot=then)]
    assert people == ["Ada", "Bob"]


def test_an_export_loads_into_the_same_graph(graph: Graph, tmp_path: Path) -> None:
    done = graph.export(tmp_path / "dump.jsonl")
    assert (done.total_entities, done.edges) == (7, {"Knows": 2, "Owns": 0, "Wrote": 1})
    (tmp_path / "again").mkdir()
    again = new_graph(tmp_path / "again")
    again.load(tmp_path / "dump.jsonl", "overwrite")
    assert contents(again) == contents(graph)
    graph.load(tmp_path / "dump.jsonl", "merge")
    assert contents(again) == contents(graph)


def test_a_folder_of_parts_loads_too(graph: Graph, tmp_path: Path) -> None:
    graph.export(f"{tmp_path}/dump/")
    assert {p.name for p in (tmp_path / "dump").iterdir()} >= {"edge-Knows.jsonl", "node-Log.jsonl"}
    (tmp_path / "again").mkdir()
    again = new_graph(tmp_path / "again")
    again.load(tmp_path / "dump", "overwrite")
    assert contents(again) == contents(graph)
    with pytest.raises(og.AlreadyExists):
        graph.export(f"{tmp_path}/dump/")


def test_parquet_goes_to_a_folder_a_type_and_loads_again(graph: Graph, tmp_path: Path) -> None:
    graph.export(tmp_path / "dump", "parquet")
    (tmp_path / "again").mkdir()
    again = new_graph(tmp_path / "again")
    for name in ("Person", "Log", "Ticket"):
        again.load(tmp_path / "dump" / "nodes" / name, "append", type=name)
    for name in ("Knows", "Wrote"):
        again.load(tmp_path / "dump" / "edges" / name, "append", edge=name)
    assert contents(again) == contents(graph)


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
_PEOPLE = st.dictionaries(
    _TEXT,
    st.fixed_dictionaries(
        {},
        optional={
            "height": st.floats(allow_nan=False, allow_infinity=False),
            "score": st.floats(width=32, allow_nan=False, allow_infinity=False),
            "born": st.dates().map(str),
            "seen": st.integers(-(10**12), 10**12),
            "tags": st.lists(_TEXT, max_size=2),
            "big": st.integers(0, 2**64 - 1),
            "pic": st.binary(max_size=3).map(
                lambda b: "base64:" + __import__("base64").b64encode(b).decode()
            ),
        },
    ),
    max_size=5,
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(people=_PEOPLE)
def test_any_graph_comes_back_as_it_was(people: dict[str, dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "a").mkdir()
        (folder / "b").mkdir()
        one, two = new_graph(folder / "a"), new_graph(folder / "b")
        knows = [edge("Knows", each, each) for each in people]
        one.load([*(person(n, **data) for n, data in people.items()), *knows], "append")
        one.export(folder / "dump.jsonl")
        two.load(folder / "dump.jsonl", "overwrite")
        assert contents(two) == contents(one)
