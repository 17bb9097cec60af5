"""Edges with identity: one edge a key, whichever way it comes in, and on whichever branch."""

import io
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.catalog.accept import accept
from omnigraph.catalog.ids import entity_id
from omnigraph.costs import COSTS
from omnigraph.exec.values.derived_ids import derived_ids
from omnigraph.graph import Graph
from tests.exec.bulk import contents, edge, lines, node

TOPICS = "node Topic { name: String @key }\n"
SCHEMA = (
    TOPICS
    + """
edge Broader: Topic -> Topic @key(src, dst) { weight: I32?  note: String? }
edge Rated: Topic -> Topic @key(src, dst, year) { year: I32  stars: I32? }
edge Near: Topic -> Topic { weight: I32? }
"""
)
NAMES = ["a", "b", 'q"', "ü\\", "\n"]


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = og.init(tmp_path / "g", SCHEMA)
    graph.load(lines(*(node("Topic", name=name) for name in NAMES)), "append")
    return graph


def edges(graph: Graph, kind: str = "Broader", branch: str = "main") -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in contents(graph, branch).get(f"edge:{kind}", [])}


def test_the_same_edge_again_is_the_same_edge(graph: Graph) -> None:
    for weight in (1, 2):
        done = graph.load(lines(edge("Broader", "a", "b", weight=weight, note="x")), "merge")
    assert (done.inserted, done.updated) == (0, 1)
    assert edges(graph)['["a","b"]'] | {"weight": 2, "note": "x"} == edges(graph)['["a","b"]']
    graph.mutate('query q() { insert Broader { from: "a", to: "b", weight: 3 } }')
    assert (edges(graph)['["a","b"]']["weight"], edges(graph)['["a","b"]']["note"]) == (3, None)
    graph.mutate('query q() { upsert Broader { from: "a", to: "b", note: "n" } }')
    assert (edges(graph)['["a","b"]']["weight"], edges(graph)['["a","b"]']["note"]) == (3, "n")
    graph.load(lines(edge("Broader", "a", "b", note=None)), "patch")
    assert (edges(graph)['["a","b"]']["weight"], edges(graph)['["a","b"]']["note"]) == (3, None)
    assert len(edges(graph)) == 1


def test_a_property_of_the_key_tells_edges_apart(graph: Graph) -> None:
    graph.load(
        lines(
            edge("Rated", "a", "b", year=2020, stars=1),
            edge("Rated", "a", "b", year=2021, stars=2),
            edge("Rated", "a", "b", year=2020, stars=5),
        ),
        "merge",
    )
    assert {i: r["stars"] for i, r in edges(graph, "Rated").items()} == {
        '["a","b","2020"]': 5,
        '["a","b","2021"]': 2,
    }
    with pytest.raises(og.TypeCheckError, match="cannot update @key property 'year'"):
        graph.mutate("query q() { update Rated set { year: 1 } where stars = 5 }")
    with pytest.raises(og.TypeCheckError, match="T16"):
        graph.mutate('query q() { update Rated set { to: "a" } where stars = 5 }')
    with pytest.raises(og.TypeCheckError, match="T12: upsert of Rated needs its @key property"):
        graph.mutate('query q() { upsert Rated { from: "a", to: "b" } }')


def test_an_id_that_contradicts_the_key_is_refused(graph: Graph) -> None:
    graph.load(lines(edge("Broader", "a", "b", id='["a","b"]')), "append")
    with pytest.raises(og.ConstraintViolated, match=r"is not the id '\[\"a\",\"b\"\]'"):
        graph.load(lines(edge("Broader", "a", "b", id="x")), "merge")
    table = pa.table({"src": ["a"], "dst": ["b"], "id": ["x"]})
    with pytest.raises(og.ConstraintViolated, match="that the key of Broader has"):
        graph.load(table, "merge", edge="Broader")
    with pytest.raises(og.KeyTaken):
        graph.load(lines(edge("Broader", "a", "b")), "append")
    with pytest.raises(og.ConstraintViolated, match="comes twice"):
        graph.load(lines(*[edge("Broader", "b", "a")] * 2), "append")


texts = st.text(st.characters(codec="utf-8"), max_size=4)


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.tuples(texts, texts, st.integers(-9, 9)), min_size=1, max_size=5))
def test_ids_of_columns_are_those_of_the_rows(rows: list[tuple[str, str, int]]) -> None:
    catalog = accept(SCHEMA)
    sources, targets, years = (list(column) for column in zip(*rows, strict=True))
    columns = {
        "src": pa.array(sources, pa.utf8()),
        "dst": pa.array(targets, pa.utf8()),
        "year": pa.array(years, pa.int32()),
    }
    for kind in ("Broader", "Rated"):
        owner = catalog.edges[kind]
        each = [
            entity_id(owner, {"src": s, "dst": d, "year": y})
            for s, d, y in zip(sources, targets, years, strict=True)
        ]
        assert derived_ids(owner, columns).to_pylist() == each


def test_every_input_derives_the_same_id(graph: Graph, tmp_path: Path) -> None:
    pairs = [(a, b) for a in NAMES for b in NAMES]
    table = pa.table({"from": [a for a, _ in pairs], "to": [b for _, b in pairs]})
    graph.load(table, "merge", edge="Broader")
    ids = set(edges(graph))
    assert len(ids) == len(pairs)
    graph.load(lines(*(edge("Broader", a, b) for a, b in pairs)), "merge")
    graph.load([{"edge": "Broader", "from": a, "to": b} for a, b in pairs], "merge")
    graph.load(lines(*(edge("Broader", a, b) for a, b in pairs)), "merge", permissive=True)
    graph.mutate(
        "query q($a: String, $b: String) { insert Broader { from: $a, to: $b } }",
        {"a": NAMES[2], "b": NAMES[3]},
    )
    assert set(edges(graph)) == ids


def test_the_older_format_derives_ids_from_the_ends_as_they_are_spelled_in_the_end(
    tmp_path: Path,
) -> None:
    graph = og.init(tmp_path / "g", "node N { n: I64 @key }\nedge E: N -> N @key(src, dst)")
    records = lines(edge("E", "042", "042"), node("N", n=42, id="042"))
    graph.load(records, "merge", permissive=True)
    (row,) = edges(graph, "E").values()
    assert (row["id"], row["src"]) == ('["42","42"]', "42")


def test_an_export_loads_again(graph: Graph, tmp_path: Path) -> None:
    graph.load(
        lines(edge("Broader", "a", 'q"', weight=1), edge("Rated", "a", "b", year=7)), "merge"
    )
    first = io.BytesIO()
    graph.export(first)
    other = og.init(tmp_path / "other", graph.schema.text)
    other.load(first.getvalue(), "append")
    again = io.BytesIO()
    other.export(again)
    assert again.getvalue() == first.getvalue()
    assert "@key(src, dst)" in other.schema.text


def test_branches_meet_by_key(graph: Graph) -> None:
    graph.branches.create("other")
    graph.load(lines(edge("Broader", "a", "b", weight=1)), "merge")
    graph.load(lines(edge("Broader", "a", "b", weight=1)), "merge", branch="other")
    graph.load(lines(edge("Broader", "b", "a", weight=2)), "merge", branch="other")
    graph.branches.merge("other")
    assert {i: r["weight"] for i, r in edges(graph).items()} == {'["a","b"]': 1, '["b","a"]': 2}
    graph.branches.create("third")
    graph.load(lines(edge("Broader", "a", "a", weight=1)), "merge")
    graph.load(lines(edge("Broader", "a", "a", weight=9)), "merge", branch="third")
    with pytest.raises(og.MergeConflicts, match="divergent_insert"):
        graph.branches.merge("third")
    graph.branches.merge("third", resolve="theirs")
    assert edges(graph)['["a","a"]']["weight"] == 9


# Without a key


def test_a_merge_says_what_it_added_beside_equal_edges(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = lines(edge("Near", "a", "b", weight=1), edge("Near", "a", "b"), edge("Near", "b", "a"))
    assert graph.load(batch, "merge").beside_equal == {}
    more = lines(
        edge("Near", "a", "b", weight=1),
        edge("Near", "a", "b", weight=2),
        edge("Near", "b", "a"),
        edge("Near", "b", "a", id="own"),
    )
    assert graph.load(more, "merge").beside_equal == {"Near": 2}
    assert graph.load(lines(edge("Broader", "a", "b")), "merge").beside_equal == {}
    monkeypatch.setattr(COSTS, "upsert_rows_max", 0)
    assert graph.load(batch, "merge").beside_equal == {}  # many are not counted


# Schema changes


def with_key(graph: Graph) -> str:
    return graph.schema.text.replace(
        "edge Near: Topic -> Topic", "edge Near: Topic -> Topic @key(src, dst)"
    )


def test_a_key_gives_existing_edges_new_ids(graph: Graph) -> None:
    graph.load(lines(edge("Near", "a", "b", weight=1), edge("Near", 'q"', "a", weight=2)), "merge")
    without = graph.schema.text
    before = graph.snapshot().commit_id
    done = graph.schema.apply(with_key(graph))
    assert [str(step) for step in done.steps] == ["add constraint @key(src, dst) on edge 'Near'"]
    assert {i: r["weight"] for i, r in edges(graph, "Near").items()} == {
        '["a","b"]': 1,
        '["q\\"","a"]': 2,
    }
    ask = "query q() { match { $a: Topic  $a $e:near $b } return { $e.weight as w } order { w } }"
    assert [row["w"] for row in graph.query(ask).rows] == [1, 2]
    assert [row["w"] for row in graph.query(ask, snapshot=before).rows] == [1, 2]
    assert graph.load(lines(edge("Near", "a", "b", weight=7)), "merge").updated == 1
    assert graph.check().findings == ()
    # Without the key ids stay, and new edges get new ones.
    graph.schema.apply(without)
    graph.load(lines(edge("Near", "a", "b", weight=8)), "merge")
    assert len(edges(graph, "Near")) == 3
    assert '["a","b"]' in edges(graph, "Near")


def test_duplicates_are_named_and_nothing_changes(graph: Graph) -> None:
    graph.load(lines(*(edge("Near", "a", "b", id=f"n{n}") for n in range(2))), "merge")
    head = graph.snapshot().commit_id
    with pytest.raises(og.ConstraintViolated, match=r"@key violation on Near.*'\(a, b\)'.*'n0'"):
        graph.schema.apply(with_key(graph))
    assert graph.snapshot().commit_id == head


def test_a_key_beside_branches_is_refused_and_names_them(graph: Graph) -> None:
    graph.branches.create("work")
    for text in (with_key(graph), graph.schema.text.replace("@key(src, dst) {", "{")):
        with pytest.raises(og.SchemaHeld, match=r"'work'"):
            graph.schema.apply(text)


def test_a_key_with_other_changes_lands_in_one_commit(graph: Graph) -> None:
    graph.load(lines(edge("Near", "a", "b", weight=1)), "merge")
    text = graph.schema.text.replace(
        "edge Near: Topic -> Topic { weight: I32? }",
        'edge Close: Topic -> Topic @rename_from("Near") @key(src, dst) {'
        ' mass: I32? @rename_from("weight")  far: Bool? @backfill(true) }',
    )
    graph.schema.apply(text)
    row = edges(graph, "Close")['["a","b"]']
    assert (row["mass"], row["far"]) == (1, True)
    assert graph.check().findings == ()


def test_a_key_of_a_property_that_comes_with_it_is_refused(graph: Graph) -> None:
    text = graph.schema.text.replace(
        "edge Near: Topic -> Topic { weight: I32? }",
        "edge Near: Topic -> Topic @key(src, dst, year) { weight: I32?  year: I32 @backfill(1) }",
    )
    with pytest.raises(og.MigrationUnsupported, match="adding constraint @key"):
        graph.schema.apply(text)


def test_blobs_keep_their_bytes_through_new_ids() -> None:
    schema = TOPICS + "edge Pic: Topic -> Topic { pic: Blob? }"
    with tempfile.TemporaryDirectory() as folder:
        graph = og.init(Path(folder) / "g", schema)
        graph.load(
            lines(
                node("Topic", name="a"),
                edge("Pic", "a", "a", pic="base64:AAAA"),
            ),
            "append",
        )
        graph.schema.apply(schema.replace("-> Topic {", "-> Topic @key(src, dst) {"))
        assert graph.blob("edge", "Pic", '["a","a"]', "pic").read() == b"\0\0\0"
