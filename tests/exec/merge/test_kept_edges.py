"""A node that an answer keeps keeps the edges that went only because it went."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.graph import Graph
from omnigraph.storage.names import MAIN
from tests.exec.branching import Row, State, copy_of, edit, knows, person, state, works_at

Key = tuple[str, str]


def begun(graph: Graph) -> None:
    """Ada with an edge to Bob, one from Cem and a job; a branch."""
    edit(
        graph,
        Person={name: person(name, 30) for name in ("Ada", "Bob", "Cem")},
        Company={"Acme": {"id": "Acme", "name": "Acme"}},
        Knows={"ab": knows("ab", "Ada", "Bob"), "ca": knows("ca", "Cem", "Ada")},
        WorksAt={"w": works_at("w", "Ada", "Acme")},
    )
    graph.branches.create("b")


GONE = {"Person": {"Ada": None}, "Knows": {"ab": None, "ca": None}, "WorksAt": {"w": None}}
CHANGED = {"Person": {"Ada": person("Ada", 31)}}


@pytest.mark.parametrize("by", ["entity", "property"])
@pytest.mark.parametrize(("side", "answer"), [("b", "ours"), (MAIN, "theirs")])
def test_a_node_kept_against_its_deletion_keeps_its_edges(
    small: Graph, side: str, answer: str, by: str
) -> None:
    begun(small)
    edit(small, side, **GONE)
    edit(small, MAIN if side == "b" else "b", **CHANGED)
    head = small.snapshot()
    seen = small.branches.merge("b", resolve=answer, by=by, dry_run=True)
    assert small.snapshot() == head
    done = small.branches.merge("b", resolve=answer, by=by)
    now = state(small)
    assert now["Person", "Ada"]["age"] == 31
    assert {key for key in now if key[0] != "Person"} == {
        ("Company", "Acme"),
        ("Knows", "ab"),
        ("Knows", "ca"),
        ("WorksAt", "w"),
    }
    assert {(e.type_name, e.entity_id, e.node_type, e.node_id) for e in done.kept_edges} == {
        ("Knows", "ab", "Person", "Ada"),
        ("Knows", "ca", "Person", "Ada"),
        ("WorksAt", "w", "Person", "Ada"),
    }
    assert seen.kept_edges == done.kept_edges
    assert (seen.dry_run, seen.commit, seen.kind) == (True, None, "merged")
    assert {(c.type, c.id, c.op) for c in seen.changes} == {
        (c.type, c.id, c.op) for c in small.commits.changes(done.commit.id if done.commit else "")
    }
    assert done.to_json()["kept_edges"][0]["with"] == {"type_name": "Person", "entity_id": "Ada"}
    assert small.check().findings == ()


@pytest.mark.parametrize(("side", "answer"), [("b", "theirs"), (MAIN, "ours")])
def test_a_node_that_goes_takes_its_edges(small: Graph, side: str, answer: str) -> None:
    begun(small)
    edit(small, side, **GONE)
    edit(small, MAIN if side == "b" else "b", **CHANGED)
    done = small.branches.merge("b", resolve=answer)
    assert {key for key in state(small) if key[0] in ("Knows", "WorksAt")} == set()
    assert done.kept_edges == ()


def test_an_answer_by_hand_keeps_the_edges_too(small: Graph) -> None:
    begun(small)
    edit(small, **GONE)
    edit(small, "b", **CHANGED)
    small.branches.merge("b", resolve={("Person", "Ada"): {"age": 40}})
    assert state(small)["Person", "Ada"]["age"] == 40
    assert ("Knows", "ab") in state(small)


@pytest.mark.parametrize(("side", "answer"), [("b", "ours"), (MAIN, "theirs")])
def test_an_edge_whose_other_end_goes_as_well_goes(small: Graph, side: str, answer: str) -> None:
    begun(small)
    edit(small, side, Person={"Ada": None, "Bob": None}, Knows=GONE["Knows"], WorksAt={"w": None})
    edit(small, MAIN if side == "b" else "b", **CHANGED)
    done = small.branches.merge("b", resolve=answer)
    assert {key[1] for key in state(small) if key[0] == "Knows"} == {"ca"}
    assert {edge.entity_id for edge in done.kept_edges} == {"ca", "w"}


def test_an_edge_that_was_changed_goes_with_the_answer_to_its_node(small: Graph) -> None:
    begun(small)
    edit(small, "b", **GONE)
    edit(small, **CHANGED, Knows={"ab": knows("ab", "Ada", "Bob", 7)})
    with pytest.raises(og.MergeConflicts) as refused:
        small.branches.merge("b")
    assert {c.entity_id for c in refused.value.conflicts} == {"Ada", "ab"}
    answers = {("Person", "Ada"): "ours"}
    done = small.branches.merge("b", resolve=answers, dry_run=True)
    assert {edge.entity_id for edge in done.kept_edges} == {"ab", "ca", "w"}
    small.branches.merge("b", resolve=answers | {("Knows", "ab"): "theirs"})
    assert {key[1] for key in state(small) if key[0] == "Knows"} == {"ca"}


def test_an_edge_that_another_reason_removed_stays_away(small: Graph) -> None:
    """Bob's edge to Cem has nothing to do with Ada."""
    begun(small)
    edit(small, Knows={"bc": knows("bc", "Bob", "Cem")})
    small.branches.create("c")
    edit(small, "c", Person={"Ada": None}, Knows={"ab": None, "ca": None, "bc": None})
    edit(small, **CHANGED)
    small.branches.merge("c", resolve="ours")
    assert {key[1] for key in state(small) if key[0] == "Knows"} == {"ab", "ca"}


BOSSES = """
node Person { name: String @key  age: I32? }
edge Boss: Person -> Person @card(0..1)
"""


@pytest.mark.parametrize(("side", "answer"), [("b", "ours"), (MAIN, "theirs")])
def test_a_kept_edge_beside_the_one_that_replaced_it_breaks_a_rule(
    tmp_path: Path, side: str, answer: str
) -> None:
    graph = og.init(tmp_path / "g", BOSSES)
    names = ("Ada", "Bob", "Cem")
    edit(graph, Person={name: {"id": name, "name": name, "age": 1} for name in names})
    edit(graph, Boss={"ca": {"id": "ca", "src": "Cem", "dst": "Ada"}})
    graph.branches.create("b")
    edit(graph, side, Person={"Ada": None}, Boss={"ca": None})
    edit(graph, side, Boss={"cb": {"id": "cb", "src": "Cem", "dst": "Bob"}})
    other = MAIN if side == "b" else "b"
    edit(graph, other, Person={"Ada": {"id": "Ada", "name": "Ada", "age": 2}})
    with pytest.raises(og.MergeConflicts) as refused:
        graph.branches.merge("b", resolve=answer)
    assert [c.kind for c in refused.value.conflicts] == ["cardinality_violation"]


# ---- the model

PEOPLE, EDGES = ("p1", "p2", "p3"), ("e1", "e2", "e3", "e4")
Steps = list[tuple[str, str, int]]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("delete"), st.sampled_from(PEOPLE), st.just(0)),
        st.tuples(st.just("age"), st.sampled_from(PEOPLE), st.integers(1, 2)),
        st.tuples(st.just("since"), st.sampled_from(EDGES), st.integers(1, 2)),
        st.tuples(st.just("unlink"), st.sampled_from(EDGES), st.just(0)),
    ),
    max_size=4,
)
ENDS = st.tuples(st.sampled_from(PEOPLE), st.sampled_from(PEOPLE))
ANSWERS = st.sampled_from(["ours", "theirs", "nodes ours", "nodes theirs"])


def after(base: State, steps: Steps) -> State:
    """What one side makes of the base."""
    now = dict(base)
    for verb, name, value in steps:
        key = ("Person" if verb in ("delete", "age") else "Knows", name)
        if key not in now:
            continue
        if verb == "delete":
            ends = {k for k, r in now.items() if k[0] == "Knows" and name in (r["src"], r["dst"])}
            now = {k: row for k, row in now.items() if k != key and k not in ends}
        elif verb == "unlink":
            del now[key]
        else:
            now[key] = now[key] | {verb: value}
    return now


def expected(base: State, theirs: State, ours: State, answer: str) -> State | set[Key]:
    """The merged graph, or the conflicts that stay: nodes first, then edges by their nodes."""
    merged: State = {}
    kept: dict[str, set[str]] = {"ours": set(), "theirs": set()}
    sides = {"ours": ours, "theirs": theirs}
    open_: set[Key] = set()
    side = answer.removeprefix("nodes ")
    for key in sorted(base, reverse=True):  # people before who knows whom
        was, a, b = base[key], ours.get(key), theirs.get(key)
        loser = "ours" if a is None else "theirs"
        if a == b:
            chosen = a
        elif was in (a, b) and key[0] == "Person":
            chosen = b if a == was else a
        elif key[0] == "Person":
            chosen = sides[side].get(key)
            if chosen is not None and None in (a, b):
                kept[loser].add(key[1])
        elif None not in (a, b):
            if was in (a, b):
                chosen = b if a == was else a
            elif answer.startswith("nodes"):
                open_.add(key)
                continue
            else:
                chosen = sides[side][key]
        else:
            chosen = edge(was, a, b, kept[loser], merged, answer, side)
            if chosen == OPEN:
                open_.add(key)
                continue
        if chosen is not None:
            merged[key] = chosen
    return open_ or merged


OPEN: Row = {"open": True}


def edge(
    was: Row,
    a: Row | None,
    b: Row | None,
    kept: set[str],
    merged: State,
    answer: str,
    side: str,
) -> Row | None:
    """An edge that one side has and the other lost."""
    has = a if a is not None else b
    assert has is not None
    ends = {has["src"], has["dst"]}
    along = bool(ends & kept) and all(("Person", end) in merged for end in ends)
    if has == was:
        return has if along else None
    if not answer.startswith("nodes"):
        return a if side == "ours" else b
    return has if along else OPEN


def orphans(merged: State) -> set[Key]:
    return {
        key
        for key, row in merged.items()
        if key[0] == "Knows" and any(("Person", row[end]) not in merged for end in ("src", "dst"))
    }


@settings(max_examples=15, deadline=None)
@given(ends=st.lists(ENDS, min_size=4, max_size=4), source=STEPS, target=STEPS, answer=ANSWERS)
def test_answers_keep_edges_as_the_model_does(
    small_template: Path,
    ends: list[tuple[str, str]],
    source: Steps,
    target: Steps,
    answer: str,
) -> None:
    base: State = {("Person", name): person(name, 0) for name in PEOPLE}
    base |= {("Knows", e): knows(e, *pair, 0) for e, pair in zip(EDGES, ends, strict=True)}
    theirs, ours = after(base, source), after(base, target)
    side = answer.removeprefix("nodes ")
    whole = side if side == answer else (lambda c: side if c.entity_kind == "node" else None)
    model = expected(base, theirs, ours, answer)
    with TemporaryDirectory() as folder:
        graph = copy_of(small_template, Path(folder) / "g")
        write(graph, MAIN, {}, base)
        graph.branches.create("b")
        write(graph, "b", base, theirs)
        write(graph, MAIN, base, ours)
        try:
            done = graph.branches.merge("b", resolve=whole)
        except og.MergeConflicts as refused:
            names = {(c.type_name, c.entity_id) for c in refused.conflicts}
            kinds = {c.kind for c in refused.conflicts}
            assert names == (model if isinstance(model, set) else orphans(model))
            assert isinstance(model, set) or kinds == {"orphan_edge"}
            return
        if done.kind == "already_up_to_date":
            return
        assert isinstance(model, dict)
        assert state(graph) == model
        assert {("Knows", e.entity_id) for e in done.kept_edges} <= model.keys()


def write(graph: Graph, branch: str, before: Mapping[Key, Row], now: Mapping[Key, Row]) -> None:
    tables: dict[str, dict[str, Row | None]] = {}
    for key in before.keys() | now.keys():
        if before.get(key) != now.get(key):
            tables.setdefault(key[0], {})[key[1]] = now.get(key)
    if tables:
        edit(graph, branch, **tables)
