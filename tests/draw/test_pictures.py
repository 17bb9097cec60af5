"""Pictures as SVG: well-formed, escaped, stable; lanes that meet; boxes that do not overlap."""

import re
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.draw.bar_chart import bar_chart
from omnigraph.draw.commit_lanes import lane_rows, row_svg
from omnigraph.draw.commit_order import in_order
from omnigraph.draw.node_link import PictureEdge, PictureNode, node_link_picture
from omnigraph.draw.spring import separated
from omnigraph.draw.svg import Picture, colour_of, element, text

BAD = '<script>alert("x")</script>&\x00\ud800'


@dataclass(frozen=True)
class Drawn:
    """As much of a commit as an order needs."""

    id: str
    parents: tuple[str, ...]
    created_at: int
    manifest_version: int = 0


@st.composite
def histories(draw: st.DrawFn) -> list[Drawn]:
    """Commits with one or two earlier parents each."""
    commits: list[Drawn] = []
    for number in range(draw(st.integers(1, 25))):
        known = [each.id for each in commits]
        count = min(len(known), draw(st.integers(1, 2)))
        parents = draw(
            st.lists(st.sampled_from(known), min_size=count, max_size=count, unique=True)
            if known
            else st.just([])
        )
        commits.append(Drawn(f"c{number}", tuple(parents), number))
    return commits


@given(histories())
def test_a_lane_goes_on_where_the_row_above_ends_and_leads_to_its_parent(
    history: list[Drawn],
) -> None:
    order = in_order({each.id: each for each in history})  # type: ignore[misc]
    rows = lane_rows(order)
    for above, below in pairwise(rows):
        assert {edge for edge, _ in above.below} == {edge for edge, _ in below.above}
    lanes = {row.commit_id: row.lane for row in rows}
    ways = {each.id: {each.id: lanes[each.id]} for each in history}
    assert rows[0].above == ()
    assert rows[-1].below == ()
    for number, commit in enumerate(order):
        for parent in commit.parents:
            goals = {edge for edge, middle in rows[number].below if middle == rows[number].lane}
            reached = _followed(rows, number + 1, goals)
            assert parent in reached, (commit, ways)


def _followed(rows: list, start: int, lanes: set[int]) -> set[str]:  # type: ignore[type-arg]
    """The commits that lines in these lanes come to."""
    reached = set()
    for row in rows[start:]:
        middles = {middle for edge, middle in row.above if edge in lanes}
        if row.lane in middles:
            reached.add(row.commit_id)
        lanes = {edge for edge, middle in row.below if middle in middles and middle == edge}
    return reached


def test_a_picture_is_xml_whatever_its_texts_hold() -> None:
    nodes = [PictureNode(BAD, BAD, "t0", BAD, href=f"/x?{BAD}"), PictureNode("b", BAD, "t1")]
    edges = [PictureEdge(BAD, "b", BAD), PictureEdge("b", "b", BAD), PictureEdge("b", BAD, "k")]
    picture = node_link_picture(BAD, nodes, edges)
    ElementTree.fromstring(picture.to_svg())
    assert "<script>" not in picture.to_svg()
    chart = bar_chart(BAD, [(BAD, 3), ("b", -2.5), ("c", None), ("d", float("nan"))])
    ElementTree.fromstring(chart.to_svg())
    assert "<script>" not in chart.to_svg()
    assert text("a\x00b") == "a\ufffdb"
    assert element("a", class_="b", x_y=1.5, z=None) == '<a class="b" x-y="1.5"/>'


def test_a_picture_is_the_same_at_every_visit_and_grows_without_a_jump() -> None:
    first = [PictureNode(f"n{n}", f"n{n}", "t0", round=min(n, 1)) for n in range(9)]
    links = [PictureEdge("n0", f"n{n}") for n in range(1, 9)]
    before = node_link_picture("p", first, links)
    assert before == node_link_picture("p", first, links)
    more = [PictureNode(f"m{n}", f"m{n}", "t0", round=2) for n in range(6)]
    after = node_link_picture("p", first + more, links + [PictureEdge("n3", m.key) for m in more])
    moves = [_distance(before, after, node.key) for node in first]
    assert sum(move < 60 for move in moves) >= 7, moves
    pinned = [PictureNode("n0", "n0", "t0", pinned=(12.0, 34.0)), *first[1:]]
    assert _spot(node_link_picture("p", pinned, links), "n0") == (12.0, 34.0)


def _spot(picture: Picture, key: str) -> tuple[float, float]:
    spot = re.search(
        rf'data-key="{key}"><title>[^<]*</title><circle cx="([^"]*)" cy="([^"]*)"',
        re.sub(r' class="node" data-key="(\w+)"', r' data-key="\1"', picture.body),
    ) or re.search(rf'data-key="{key}">.*?cx="([^"]*)" cy="([^"]*)"', picture.body)
    assert spot is not None
    return float(spot[1]), float(spot[2])


def _distance(one: Picture, other: Picture, key: str) -> float:
    (x, y), (u, v) = _spot(one, key), _spot(other, key)
    return float(((x - u) ** 2 + (y - v) ** 2) ** 0.5)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=12))
def test_boxes_are_pushed_apart(points: list[tuple[int, int]]) -> None:
    boxes = {str(n): (float(x), float(y), 30.0, 20.0) for n, (x, y) in enumerate(points)}
    centres = list(separated(boxes, 2.0).values())
    for n, (x, y) in enumerate(centres):
        for u, v in centres[n + 1 :]:
            assert abs(x - u) > 24 or abs(y - v) > 16


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    """A small graph with two lines of commits."""
    made = og.init(
        str(tmp_path_factory.mktemp("draw") / "g.omni"),
        schema="node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person\n",
    )
    add = "query a($n: String) { insert Person { name: $n } }"
    made.mutate(add, {"n": "Ada"})
    made.mutate(add, {"n": "Bob"})
    made.mutate('query k() { insert Knows { from: "Ada", to: "Bob" } }', message="they met <b>")
    made.branches.create("side")
    made.mutate(add, {"n": "Cy"}, branch="side")
    made.mutate('query s() { update Person set { age: 3 } where name = "Bob" }')
    made.branches.merge("side")
    return made


def test_a_graph_draws_commits_schema_entities_and_diffs(graph: og.Graph, tmp_path: Path) -> None:
    pictures = {
        "commits": graph.draw(),
        "one": graph.draw("commits", branch="side", limit=2),
        "schema": graph.draw("schema"),
        "entity": graph.draw("entity", "Person", "Ada"),
        "diff": graph.draw("diff", "main~2", "main"),
    }
    for name, picture in pictures.items():
        picture.save(str(tmp_path / f"{name}.svg"))
        ElementTree.parse(tmp_path / f"{name}.svg")
        assert picture._repr_svg_() == str(picture)
    assert "they met &lt;b&gt;" in str(pictures["commits"])
    assert "[main]" in str(pictures["commits"])
    assert str(pictures["one"]).count("<circle") == 2
    assert "age: I32?" in str(pictures["schema"])
    assert "Bob" in str(pictures["entity"])
    assert 'class="dot t1 added"' in str(pictures["diff"])
    with pytest.raises(og.BadRequest, match="cannot be drawn"):
        graph.draw("nothing")
    with pytest.raises(og.NotFound):
        graph.draw("entity", "Person", "Zed")


def test_pages_of_a_type_join_and_refuse_what_is_no_page(graph: og.Graph) -> None:
    first = graph.page("node", "Person", limit=2)
    rest = graph.page("node", "Person", offset=first.next_offset or 0, snapshot=first.commit_id)
    ids = [each.id for each in (*first.entities, *rest.entities)]
    assert sorted(ids) == ["Ada", "Bob", "Cy"]
    assert rest.next_offset is None
    assert graph.page("node", "Person", offset=99).entities == ()
    assert [each.id for each in graph.listed("node", "Person", ["Cy", "Zed", "Ada"])] == [
        "Cy",
        "Ada",
    ]
    for wrong in ({"offset": -1}, {"limit": 0}, {"limit": 100_000}):
        with pytest.raises(og.BadRequest):
            graph.page("node", "Person", **wrong)


def test_colours_follow_identities_and_rows_are_pictures() -> None:
    assert colour_of(13) == "t3"
    (row,) = lane_rows([Drawn("c", ("gone",), 0)])  # type: ignore[list-item]
    assert row_svg(row, 1).startswith("<svg")
    assert row.below == ((0, 0),)


def test_the_names_of_edges_lie_over_no_node_and_no_other_name() -> None:
    nodes = [PictureNode(f"n{n}", f"Somebody {n}", "t1") for n in range(16)]
    edges = [PictureEdge("n0", f"n{n}", "Knows") for n in range(1, 16)]
    root = ElementTree.fromstring(node_link_picture("a star", nodes, edges).to_svg())
    texts = list(root.iter("{http://www.w3.org/2000/svg}text"))
    boxes = []
    for each in texts:
        x, y = float(each.attrib["x"]), float(each.attrib["y"])
        half = len(each.text or "") * 2.8
        boxes.append((x - half, y - 8, x + half, y, each.text == "Knows"))
    assert 5 <= sum(is_name for *_, is_name in boxes) <= 15
    for one, other in combinations(boxes, 2):
        is_beside = one[2] <= other[0] or other[2] <= one[0]
        is_above = one[3] <= other[1] or other[3] <= one[1]
        assert is_beside or is_above or not (one[4] or other[4])
