"""What changed between two points: images, order, filters, pages, and what does not count."""

import json
import tracemalloc
from itertools import pairwise

import pytest

import omnigraph as og
from omnigraph.costs import COSTS
from omnigraph.exec.changes import diff
from omnigraph.graph import Graph
from omnigraph.storage.names import MAIN
from tests.exec.branching import PERSON, edit, knows, person, works_at
from tests.exec.town import do


def start(graph: Graph) -> None:
    people = {name: person(name, 30) for name in ("Ada", "Bob", "Cy")}
    edit(graph, Person=people, Knows={"ab": knows("ab", "Ada", "Bob", 2010)})


def test_a_change_has_both_images_and_the_ends_of_an_edge(small: Graph) -> None:
    start(small)
    small.branches.create("b")
    edit(
        small,
        "b",
        Person={"Ada": person("Ada", 37), "Dan": person("Dan"), "Cy": None},
        Knows={"ab": knows("ab", "Ada", "Dan", 2010)},
    )
    catalog = small.schema.catalog
    node_id, edge_id = str(catalog.nodes["Person"].id), str(catalog.edges["Knows"].id)
    ada, cy, dan, edge = small.diff(MAIN, "b")
    assert ada.to_json() == {
        "kind": "node",
        "type": {"id": node_id, "name": "Person"},
        "id": "Ada",
        "op": "update",
        "before": {"properties": {"name": "Ada", "age": 30, "email": None}},
        "after": {"properties": {"name": "Ada", "age": 37, "email": None}},
    }
    assert (cy.op, cy.after) == ("delete", None)
    assert "after" not in cy.to_json()
    assert (dan.op, dan.before) == ("insert", None)
    assert "before" not in dan.to_json()
    assert edge.moved
    assert not ada.moved
    assert edge.to_json() == {
        "kind": "edge",
        "type": {"id": edge_id, "name": "Knows"},
        "id": "ab",
        "op": "update",
        "before": {"properties": {"since": 2010}, "endpoints": {"from": "Ada", "to": "Bob"}},
        "after": {"properties": {"since": 2010}, "endpoints": {"from": "Ada", "to": "Dan"}},
    }
    back = list(small.diff("b", MAIN))
    assert [(c.id, c.op) for c in back] == [
        ("Ada", "update"),
        ("Cy", "insert"),
        ("Dan", "delete"),
        ("ab", "update"),
    ]


def test_equal_rows_written_again_are_no_change(small: Graph) -> None:
    start(small)
    before = small.snapshot().commit_id
    edit(small, Person={"Ada": person("Ada", 99)})
    edit(small, Person={"Ada": person("Ada", 30), "Bob": None})
    edit(small, Person={"Bob": person("Bob", 30)})
    after = small.snapshot().commit_id
    assert list(small.diff(before, after)) == []
    assert list(small.diff(before, before)) == []


def test_two_branches_are_compared_over_the_point_where_they_parted(small: Graph) -> None:
    start(small)
    small.branches.create("b")
    small.branches.create("c", from_="b")
    edit(small, Person={"Ada": person("Ada", 31)})
    edit(small, "c", Person={"Bob": person("Bob", 31)})
    assert [(c.id, c.op) for c in small.diff(MAIN, "c")] == [("Ada", "update"), ("Bob", "update")]
    assert [c.id for c in small.diff("b", "c")] == ["Bob"]
    counts = small.diff(MAIN, "c").counts()
    assert counts == {("node", "Person", "update"): 2}


def test_a_commit_is_compared_with_its_first_parent(small: Graph) -> None:
    start(small)
    small.branches.create("b")
    edit(small, "b", Person={"Ada": person("Ada", 31)})
    edit(small, Person={"Bob": person("Bob", 31)})
    merged = small.branches.merge("b").commit
    assert merged is not None
    assert [c.id for c in small.commits.changes(merged.id)] == ["Ada"]
    *_, genesis = small.commits.list()
    with pytest.raises(og.NoChanges, match="parentless_commit"):
        small.commits.changes(genesis.id)
    with pytest.raises(og.NotFound, match="commit 'nothing'"):
        small.commits.changes("nothing")
    with pytest.raises(og.NotFound, match="branch or commit 'nothing'"):
        small.diff(MAIN, "nothing")


def test_every_type_of_value_as_rows_show_it_and_an_export_writes_it(people: Graph) -> None:
    do(
        people,
        'insert Person { name: "a", photo: "base64:eHg=", place: [1.0, 2.5, 3.0], tags: ["x"],'
        ' born: date("1970-01-03"), seen: datetime("1970-01-01T00:00:01Z"), mood: "calm",'
        " score: 0.5, height: 1.5, active: true }",
    )
    (change,) = people.commits.changes(people.snapshot().commit_id)
    assert change.after is not None
    shown = {k: v for k, v in change.after.properties.items() if v is not None}
    assert shown == {
        "name": "a",
        "photo": "blob:2",
        "place": [1.0, 2.5, 3.0],
        "tags": ["x"],
        "born": "1970-01-03",
        "seen": "1970-01-01T00:00:01.000Z",
        "mood": "calm",
        "score": 0.5,
        "height": 1.5,
        "active": True,
    }
    written = json.loads(json.dumps(change.to_json()))["after"]["properties"]
    assert {k: v for k, v in written.items() if v is not None} == {
        **shown,
        "born": 2,
        "seen": 1000,
    }


def test_a_type_is_found_under_its_old_name_and_a_new_one_is_all_inserts(small: Graph) -> None:
    start(small)
    before = small.snapshot().commit_id
    text = small.schema.text.replace("Person", "Human")
    text = text.replace("node Human", 'node Human @rename_from("Person")')
    small.schema.apply(text)
    small.mutate('query m() { update Human set { age: 31 } where name = "Ada" }')
    assert [(change.type, change.id) for change in small.diff(before, "main")] == [("Human", "Ada")]
    small.schema.apply(f"{text} node Pet {{ name: String @key }}")
    small.mutate('query m() { insert Pet { name: "Rex" } }')
    told = [(change.type, change.id, change.op) for change in small.diff(before, "main")]
    assert told == [("Human", "Ada", "update"), ("Pet", "Rex", "insert")]


# ---- order, filters, pages


def many(graph: Graph) -> None:
    start(graph)
    graph.branches.create("b")
    edit(
        graph,
        "b",
        Person={f"p{i:02}": person(f"p{i:02}", i) for i in range(25)} | {"Cy": None},
        Company={"Acme": {"id": "Acme", "name": "Acme"}},
        WorksAt={"w": works_at("w", "Ada", "Acme")},
        Knows={"ab": None},
    )


def test_changes_come_in_one_order(small: Graph) -> None:
    many(small)
    changes = list(small.diff(MAIN, "b"))
    assert len(changes) == 29
    places = [diff.position_of(change) for change in changes]
    assert all(one < next_ for one, next_ in pairwise(places))
    assert [c.kind for c in changes] == ["node"] * 27 + ["edge"] * 2


def test_filters_are_any_within_and_all_across(small: Graph) -> None:
    many(small)

    def ids(**wanted: tuple[str, ...]) -> list[str]:
        return [c.id for c in small.diff(MAIN, "b", **wanted)]

    assert ids(kinds=("edge",)) == ["ab", "w"] or ids(kinds=("edge",)) == ["w", "ab"]
    assert ids(ops=("delete",)) == ["Cy", "ab"]
    assert ids(kinds=("node",), ops=("delete",)) == ["Cy"]
    assert sorted(ids(types=("Company", "WorksAt"))) == ["Acme", "w"]
    assert ids(types=("Company",), kinds=("edge",)) == []
    for wrong in ({"kinds": ("row",)}, {"ops": ("upsert",)}):
        with pytest.raises(og.BadRequest, match="is no kind of"):
            ids(**wrong)
    with pytest.raises(og.NotFound, match="type 'Nobody'"):
        ids(types=("Nobody",))


@pytest.mark.parametrize("limit", [1, 7, 29, 30])
def test_pages_are_the_whole_in_pieces(small: Graph, limit: int) -> None:
    many(small)
    whole = list(small.diff(MAIN, "b"))
    seen: list[og.Change] = []
    token = None
    for _ in range(40):
        page = small.diff(MAIN, "b").page(limit, token)
        assert 0 < len(page.changes) <= limit
        seen += page.changes
        token = page.next_page_token
        if token is None:
            break
    assert seen == whole


def test_a_page_that_grows_large_ends_early(small: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    many(small)
    monkeypatch.setattr(COSTS, "change_page_bytes_max", 1)
    page = small.diff(MAIN, "b").page()
    assert len(page.changes) == 1
    assert page.next_page_token is not None


def other_char(token: str, place: int) -> str:
    return token[:place] + ("A" if token[place] != "A" else "B") + token[place + 1 :]


def test_tokens_are_bound_to_their_listing(small: Graph) -> None:
    many(small)
    token = small.diff(MAIN, "b").page(3).next_page_token
    assert token is not None
    for other in (small.diff("b", MAIN), small.diff(MAIN, "b", ops=("insert",))):
        with pytest.raises(og.BadRequest, match=r"^change cursor rejected:"):
            other.page(3, token)
    for wrong in ("", "x", token[:-3], other_char(token, 20), token + "AA", "é"):
        with pytest.raises(og.BadRequest, match=r"^change cursor rejected:"):
            small.diff(MAIN, "b").page(3, wrong)
    with pytest.raises(og.BadRequest, match="greater than zero"):
        small.diff(MAIN, "b").page(0)
    with pytest.raises(og.LimitExceeded, match="commit_changes_page_changes"):
        small.diff(MAIN, "b").page(8_193)


# ---- cost


def test_the_cost_follows_the_change(small: Graph) -> None:
    start(small)
    calls = []
    for size in (100, 20_000):
        edit(small, Person={f"p{i}": person(f"p{i}", i) for i in range(size)})
        small.branches.create(f"b{size}")
        edit(small, f"b{size}", Person={"p7": person("p7", 0)})
        list(small.diff(MAIN, f"b{size}"))
        fresh = og.open(small.uri)
        fresh.snapshot(), fresh.snapshot(f"b{size}")
        before = fresh.stats()
        tracemalloc.start()
        assert len(list(fresh.diff(MAIN, f"b{size}"))) == 1
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1_000_000
        calls.append(fresh.stats().since(before).calls)
    assert calls[0] == calls[1]
    assert PERSON in small.snapshot().tables
