"""Edges with an interface at an end: writes, loads, exports, changes, merges and schema changes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.graph import Graph
from omnigraph.storage import failpoints

SCHEMA = """interface Named { name: String @key }
node Doc { slug: String @key }
node Person implements Named {}
node Company implements Named {}
// what a text is about
edge Mentions: Doc -> Named @key(src, dst) { since: I32? }
edge Wrote: Named -> Doc @card(0..1)
"""
BIRD, FISH = "node Bird implements Named {}\n", "node Fish implements Named {}\n"

Row = tuple[Any, ...]


def node(type_: str, *keys: str) -> list[dict[str, Any]]:
    key = "slug" if type_ == "Doc" else "name"
    return [{"type": type_, "data": {key: each}} for each in keys]


def edge(type_: str, source: str, target: str, **data: Any) -> dict[str, Any]:
    return {"edge": type_, "from": source, "to": target, "data": data}


ROWS = [
    *node("Doc", "d", "e"),
    *node("Person", "Ada", "Same"),
    *node("Company", "Acme", "Same"),
    edge("Mentions_Person", "d", "Same", since=1),
    edge("Mentions_Company", "d", "Same", since=2),
    edge("Mentions_Company", "e", "Acme"),
    edge("Wrote_Person", "Ada", "d"),
]


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = og.init(tmp_path / "g", SCHEMA)
    graph.load(ROWS, "append")
    return graph


def read(graph: Graph, match: str, columns: str, branch: str = "main") -> list[Row]:
    text = f"query q() {{ match {{ {match} }} return {{ {columns} }} }}"
    return [tuple(row.values()) for row in graph.query(text, branch=branch).rows]


def mentions(graph: Graph, branch: str = "main") -> list[Row]:
    """The ends of every edge, by the type of its end."""
    found = list[Row]()
    for type_ in ("Person", "Company"):
        match = f"$d $k:mentions $x  $x: {type_}"
        found += [(type_, *row) for row in read(graph, match, "$d, $x, $k.since", branch)]
    return found


def change(graph: Graph, statement: str, branch: str = "main") -> og.MutationResult:
    return graph.mutate(f"query m() {{ {statement} }}", branch=branch)


EVERY = [("Person", "d", "Same", 1), ("Company", "d", "Same", 2), ("Company", "e", "Acme", None)]


def test_an_edge_says_which_of_two_nodes_with_one_id_it_leads_to(graph: Graph) -> None:
    assert mentions(graph) == EVERY
    assert read(graph, "$d mentions $x", "$d, $x.name") == [
        ("d", "Same"),
        ("d", "Same"),
        ("e", "Acme"),
    ]
    assert read(graph, "$x mentions $d  $x: Person  $d: Doc", "$d, $x") == [("d", "Same")]
    assert read(graph, '$x: Person { name: "Ada" }  not { $d mentions $x }', "$x") == [("Ada",)]


# ---- writes


def test_an_insert_names_the_edge_type_or_has_ends_of_known_types(graph: Graph) -> None:
    change(graph, 'insert Mentions_Person { from: "e", to: "Same", since: 3 }')
    found = '$d: Doc { slug: "e" }  $x: Person { name: "Ada" }'
    change(graph, f"insert Mentions {{ from: $d, to: $x, since: 4 }} match {{ {found} }}")
    found = '$d mentions $x  $x: Company { name: "Acme" }'
    change(graph, f"upsert Mentions {{ from: $d, to: $x, since: 5 }} match {{ {found} }}")

    assert set(mentions(graph)) == {
        *EVERY[:2],
        ("Company", "e", "Acme", 5),
        ("Person", "e", "Same", 3),
        ("Person", "e", "Ada", 4),
    }


@pytest.mark.parametrize(
    "statement",
    [
        'insert Mentions { from: "d", to: "Same" }',
        'upsert Mentions { from: "d", to: "Same" }',
        "insert Mentions { from: $d, to: $x } match { $d: Doc  $x: Named }",
        'insert Mentions { from: $d, to: "Same" } match { $d: Doc }',
    ],
)
def test_an_insert_that_leaves_the_type_of_an_end_open_says_what_to_write(
    graph: Graph, statement: str
) -> None:
    with pytest.raises(og.TypeCheckError, match="write one of Mentions_Person, Mentions_Company"):
        change(graph, statement)


def test_an_update_and_a_delete_are_of_all_its_edge_types_in_one_commit(graph: Graph) -> None:
    done = change(graph, 'update Mentions set { since: 9 } where from = "d"')
    assert done.affected_edges == 2
    assert [row[3] for row in mentions(graph)] == [9, 9, None]
    before = graph.commits.list()[0]

    assert change(graph, 'delete Mentions where to = "Same"').affected_edges == 2
    assert mentions(graph) == EVERY[2:]
    assert graph.commits.list()[1].id == before.id


def test_a_node_takes_the_edges_of_its_own_type_along(graph: Graph) -> None:
    assert change(graph, 'delete Person where name = "Same"').affected_edges == 1
    assert mentions(graph) == EVERY[1:]


def test_ends_and_bounds_are_checked_for_the_type_that_is_named(graph: Graph) -> None:
    for statement in (
        'insert Mentions_Person { from: "d", to: "Acme" }',
        'insert Wrote_Person { from: "Ada", to: "e" }',
    ):
        with pytest.raises(og.ConstraintViolated):
            change(graph, statement)
    change(graph, 'insert Wrote_Company { from: "Same", to: "e" }')
    change(graph, 'insert Wrote_Person { from: "Same", to: "e" }')


def test_a_match_that_reads_a_family_sees_what_was_there_before(graph: Graph) -> None:
    with pytest.raises(og.TypeCheckError, match="which statement 1 writes"):
        change(
            graph,
            "update Mentions set { since: 1 } where since is null "
            "insert Wrote { from: $x, to: $d } match { $d mentions $x  $x: Company }",
        )


# ---- in and out


def test_an_export_loads_again(graph: Graph, tmp_path: Path) -> None:
    lines = b"".join(graph.export_lines())
    other = og.init(tmp_path / "other", SCHEMA)
    other.load(lines, "append")
    assert mentions(other) == EVERY

    chosen = b"".join(graph.export_lines(types=["Mentions"]))
    assert len(chosen.splitlines()) == 3
    graph.load(chosen, "merge")
    assert mentions(graph) == EVERY, "a key of both ends is one edge"


@pytest.mark.parametrize(("given", "options"), [
    ([edge("Mentions", "d", "Ada")], {}),
    (pa.table({"from": ["d"], "to": ["Ada"]}), {"edge": "Mentions"}),
])  # fmt: skip
def test_a_load_names_an_edge_type(graph: Graph, given: Any, options: dict[str, Any]) -> None:
    with pytest.raises(og.OmnigraphError, match="name one of Mentions_Person, Mentions_Company"):
        graph.load(given, "append", **options)
    with pytest.raises(og.BadRequest, match="name one of Mentions_Person"):
        graph.entity("edge", "Mentions", "x")


def test_columns_load_into_the_type_that_is_named(graph: Graph) -> None:
    table = pa.table({"from": ["e", "e"], "to": ["Ada", "Same"], "since": [7, 8]})
    assert graph.load(table, "append", edge="Mentions_Person").edges == {"Mentions_Person": 2}
    assert ("Person", "e", "Ada", 7) in mentions(graph)


def test_changes_are_chosen_by_the_family(graph: Graph) -> None:
    graph.branches.create("b")
    change(graph, "delete Mentions where since > 0", branch="b")
    change(graph, 'insert Person { name: "New" }', branch="b")

    found = graph.diff("main", "b", types=["Mentions"])
    assert sorted(each.type for each in found) == ["Mentions_Company", "Mentions_Person"]


# ---- schemas


def test_a_type_that_implements_the_interface_later_is_an_end_from_then_on(graph: Graph) -> None:
    graph.branches.create("b")
    graph.schema.apply(SCHEMA + BIRD)
    graph.load([*node("Bird", "Jay"), edge("Mentions_Bird", "d", "Jay")], "append")
    change(graph, 'insert Mentions_Person { from: "e", to: "Ada" }', branch="b")
    graph.branches.merge("b")

    names = [name for _, name in read(graph, "$d mentions $x", "$d, $x.name")]
    assert names == ["Jay", "Same", "Same", "Acme", "Ada"]
    assert graph.check().findings == ()


def test_branches_that_add_types_meet_with_all_edges_between_them(graph: Graph) -> None:
    text = SCHEMA + "edge Links: Named -> Named\n"
    graph.schema.apply(text)
    graph.branches.create("b")
    graph.schema.apply(text + BIRD)
    graph.load([*node("Bird", "Jay"), edge("Mentions_Bird", "d", "Jay", since=5)], "append")
    wider = text.replace("since: I32?", "since: I32?  page: I32?")
    graph.schema.apply(wider + FISH, branch="b")
    more = [*node("Fish", "Eel"), edge("Mentions_Fish", "e", "Eel", page=3)]
    graph.load([*more, edge("Links_Fish_Person", "Eel", "Ada")], "append", branch="b")
    graph.branches.merge("b")

    change(graph, 'insert Links_Bird_Fish { from: "Jay", to: "Eel" }')
    change(graph, 'update Mentions set { page: 1 } where from = "d"')
    assert read(graph, "$x: Bird  $x links* $y", "$y.name") == [("Ada",), ("Eel",)]
    assert read(graph, "$d $k:mentions $x  $x: Fish", "$k.page, $k.since") == [(3, None)]
    assert read(graph, "$d $k:mentions $x  $x: Bird", "$k.page, $k.since") == [(1, 5)]
    assert "// what a text is about" in graph.schema.text
    assert "Mentions_" not in graph.schema.text
    assert graph.check().findings == ()


def test_an_end_is_opened_to_an_interface_with_its_edges_in_place(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", SCHEMA.replace("Doc -> Named", "Doc -> Person"))
    graph.load([*node("Doc", "d"), *node("Person", "Ada"), edge("Mentions", "d", "Ada")], "append")
    before = graph.snapshot().commit_id
    graph.schema.apply(SCHEMA)

    assert mentions(graph) == [("Person", "d", "Ada", None)]
    text = "query q() { match { $d mentions $x } return { $x.name as n } }"
    assert graph.query(text, snapshot=before).rows == [{"n": "Ada"}]


STOPS: Sequence[tuple[str, bool]] = (
    ("commit.sidecar_written", False),
    ("commit.table_after", False),
    ("publish.before", True),
)


@pytest.mark.parametrize(("place", "done"), STOPS)
def test_a_stopped_write_to_two_edge_types_is_whole_or_not_at_all(
    graph: Graph, place: str, done: bool
) -> None:
    with failpoints.armed(place), pytest.raises((failpoints.Injected, og.OmnigraphError)):
        change(graph, "update Mentions set { since: 7 } where since > 0")
    uri = graph.uri
    graph.close()

    with og.open(uri) as again:
        assert [row[3] for row in mentions(again)] == ([7, 7, None] if done else [1, 2, None])
