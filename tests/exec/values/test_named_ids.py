"""Ids that texts name: one by one and by columns, and the same at every door."""

from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.catalog.model import NodeType
from omnigraph.exec.values.named_ids import id_of_key, named_id, named_ids

SCHEMA = """
node Day   { day: Date @key }
node At    { at: DateTime @key }
node Seat  { n: I32 @key }
node Rate  { x: F64 @key }
node Flag  { on: Bool @key }
node Word  { w: String @key }
node Free  { w: String? }
node Show  { stage: String  starts: DateTime  @key(stage, starts) }
node Grid  { a: I64  b: Bool  c: F32  d: Date  @key(a, b, c, d) }
edge Next:  Day -> Day
edge Plays: Seat -> Show
"""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    return og.init(tmp_path_factory.mktemp("g") / "g.omni", schema=SCHEMA)


def node(graph: og.Graph, name: str) -> NodeType:
    return graph.schema.catalog.nodes[name]


@pytest.mark.parametrize(
    ("name", "text", "named"),
    [
        ("Day", "2026-07-10", "20644"),
        ("Day", "20644", "20644"),
        ("Day", "tomorrow", "tomorrow"),
        ("At", "1970-01-01T00:00:01Z", "1000"),
        ("At", "20260710", "20260710"),  # milliseconds, and not the day that ISO may write so
        ("Seat", "1.0", "1"),
        ("Seat", "007", "7"),
        ("Seat", "1_0", "1_0"),
        ("Seat", "99999999999", "99999999999"),
        ("Rate", "1.50", "1.5"),
        ("Flag", "True", "true"),
        ("Word", "1.0", "1.0"),
        ("Free", " x", " x"),
        ("Show", '["Main", "1970-01-01T00:00:01Z"]', '["Main","1000"]'),
        ("Show", '["Main","1000"]', '["Main","1000"]'),
        ("Show", '["Main"]', '["Main"]'),
        ("Show", "Main", "Main"),
        ("Grid", '[1.0, "TRUE", "0.50", "1970-01-02"]', '["1","true","0.5","1"]'),
        ("Grid", '["x","true","0.5","1"]', '["x","true","0.5","1"]'),
    ],
)
def test_a_text_names_an_id_or_the_key_it_spells(
    graph: og.Graph, name: str, text: str, named: str
) -> None:
    owner = node(graph, name)
    assert named_id(owner, text) == named
    assert named_id(owner, named) == named
    assert named_ids(owner, pa.array([text, None, named])).to_pylist() == [named, None, named]


@given(texts=st.lists(st.text() | st.from_regex(r'\[("[a-z0-9.:-]*",? ?){0,3}\]')), data=st.data())
@example(texts=['["\\"","1"]', "-0", "[]", "null"], data=None)
def test_columns_name_what_single_texts_name(graph: og.Graph, texts: list[str], data: Any) -> None:
    for owner in graph.schema.catalog.nodes.values():
        expected = [named_id(owner, text) for text in texts]
        assert named_ids(owner, pa.array(texts, pa.utf8())).to_pylist() == expected
        assert [named_id(owner, each) for each in expected] == expected, "an id names itself"


@given(
    st.fixed_dictionaries(
        {
            "a": st.integers(-(2**63), 2**63 - 1),
            "b": st.booleans(),
            "c": st.floats(width=32, allow_nan=False, allow_infinity=False),
            "d": st.integers(-10_000, 10_000),
        }
    )
)
def test_a_key_and_its_id_name_one_node(graph: og.Graph, key: dict[str, Any]) -> None:
    owner = node(graph, "Grid")
    named = id_of_key(owner, [key[name] for name in owner.key])
    assert named is not None
    assert named_id(owner, named) == named


def test_edges_name_nodes_by_their_keys_at_every_door(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g.omni", schema=SCHEMA)
    graph.load([{"day": f"2026-07-1{n}"} for n in range(5)], "append", type="Day")
    graph.load([{"n": 1}, {"n": 2}], "append", type="Seat")
    graph.load([{"stage": "Main", "starts": "2026-07-10T12:00:00Z"}], "append", type="Show")
    (tmp_path / "next.csv").write_text("from,to\n2026-07-10,2026-07-11\n")
    graph.load(tmp_path / "next.csv", "append", edge="Next")
    (tmp_path / "next.jsonl").write_text('{"from": "2026-07-11", "to": "20646"}\n' * 50)
    graph.load(tmp_path / "next.jsonl", "append", edge="Next")
    line = '{"edge": "Next", "from": "2026-07-12", "to": "2026-07-13"}\n'
    graph.load((line * 50).encode(), "append")
    graph.mutate('query q() { insert Next { from: "2026-07-13", to: "20648" } }')
    show = '["Main", "2026-07-10T12:00:00Z"]'
    graph.load(pa.table({"from": [1.0], "to": [show]}), "append", edge="Plays")
    graph.load(pa.table({"from": ["2.0"], "to": [show]}), "append", edge="Plays")
    graph.load(
        b'{"edge": "Plays", "from": "1", "to": ["Main", "2026-07-10T12:00:00Z"]}\n', "append"
    )
    days = "query q() { match { $a: Day  $a next $b } return { $a.day as a, $b.day as b } }"
    walked = [(row["a"], row["b"]) for row in graph.query(days).rows]
    assert walked == [(f"2026-07-1{n}", f"2026-07-1{n + 1}") for n in range(4)]
    plays = "query q() { match { $a: Seat  $a plays $b } return { $a.n as n } }"
    assert [row["n"] for row in graph.query(plays).rows] == [1, 2]
    assert graph.entity("node", "Day", "2026-07-10").id == "20644"
    assert [each.change.op for each in graph.history("node", "Day", "2026-07-10")] == ["insert"]
    with pytest.raises(og.ConstraintViolated, match="dst '22280' not found"):
        graph.load([{"from": "20644", "to": "2031-01-01"}], "append", edge="Next")


def test_the_key_of_an_edge_is_spelled_as_that_of_a_node_is(tmp_path: Path) -> None:
    schema = (
        "node Book { no: String @key }  edge Loan: Book -> Book @key(src, dst, on) { on: Date }"
    )
    graph = og.init(tmp_path / "loans.omni", schema=schema)
    graph.load([{"no": "K"}, {"no": "B"}], "append", type="Book")
    graph.load([{"from": "K", "to": "B", "on": "2010-01-01"}], "append", edge="Loan")
    for text in ('["K","B","2010-01-01"]', '["K", "B", 14610]', '["K","B","14610"]'):
        assert graph.entity("edge", "Loan", text).id == '["K","B","14610"]'
        assert len(list(graph.history("edge", "Loan", text))) == 1
    with pytest.raises(og.NotFound):
        graph.entity("edge", "Loan", '["K","B","2011-01-01"]')


def test_the_ends_in_the_key_of_an_edge_are_named_by_the_keys_of_their_nodes(
    tmp_path: Path,
) -> None:
    schema = """
    node Show { day: Date  room: I64  @key(day, room) }
    edge Moved: Show -> Show @key(src, dst, on) { on: Date }
    """
    graph = og.init(tmp_path / "shows.omni", schema=schema)
    graph.load([{"day": f"2026-07-1{n}", "room": 4} for n in (0, 1)], "append", type="Show")
    one, other = ["2026-07-10", 4], ["2026-07-11", "4.0"]
    graph.load([{"from": one, "to": other, "on": "1970-01-02"}], "append", edge="Moved")
    moved = '["[\\"20644\\",\\"4\\"]","[\\"20645\\",\\"4\\"]","1"]'
    for key in (
        [one, other, "1970-01-02"],
        ([date(2026, 7, 10), 4], other, date(1970, 1, 2)),
        ['["20644","4"]', other, 1],
        '[["2026-07-10", 4], ["2026-07-11", 4], "1970-01-02"]',
        moved,
    ):
        assert graph.entity("edge", "Moved", key).id == moved
        assert len(list(graph.history("edge", "Moved", key))) == 1
    for unknown in ([one, one, "1970-01-02"], [[1], other, 1], "x", [one, other]):
        with pytest.raises(og.NotFound):
            graph.entity("edge", "Moved", unknown)
    with pytest.raises(og.BadRequest, match="null is no id and no value of a key"):
        graph.entity("edge", "Moved", [None, other, 1])


def test_a_truth_value_names_the_node_whose_key_it_is(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "flags.omni", schema="node Flag { on: Bool @key }")
    graph.load([{"on": True}], "append", type="Flag")
    assert graph.entity("node", "Flag", True).id == graph.entity("node", "Flag", "true").id
    assert len(list(graph.history("node", "Flag", True))) == 1
    with pytest.raises(og.NotFound):
        graph.entity("node", "Flag", False)
