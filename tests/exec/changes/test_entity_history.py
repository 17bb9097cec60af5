"""The history of one entity: what every commit of the line lists about it, and what it costs."""

from itertools import islice
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

import omnigraph as og
from omnigraph.costs import COSTS
from omnigraph.graph import Graph
from omnigraph.storage.manifest import manifest
from omnigraph.storage.names import MAIN
from tests.exec.branching import copy_of, edit, knows, make_template, person

Seen = list[tuple[str, str, Any, Any]]


def seen(graph: Graph, entity: str, kind: str = "node", type_: str = "Person", **at: str) -> Seen:
    """What `history` says, each commit with its images."""
    revisions = graph.history(kind, type_, entity, **at)
    return [(r.cause.id, r.change.op, r.change.before, r.change.after) for r in revisions]


def listed(graph: Graph, entity: str, type_: str = "Person", point: str = MAIN) -> Seen:
    """The same, gathered from the changes of every commit on the line."""
    rows: Seen = []
    commit = graph.commits.get(point)
    while commit.parent is not None:
        changes = graph.commits.changes(commit.id)
        for change in changes:
            if change.id == entity and change.type == type_:
                rows.append((commit.id, change.op, change.before, change.after))
        commit = graph.commits.get(commit.parent)
    return rows


def test_SV12_every_commit_that_changed_it_and_no_other(small: Graph) -> None:
    edit(small, Person={"Ada": person("Ada", 30), "Bob": person("Bob", 1)})
    edit(small, Person={"Bob": person("Bob", 2)})
    edit(small, Person={"Ada": person("Ada", 31)})
    edit(small, Person={"Ada": None})
    edit(small, Knows={"bb": knows("bb", "Bob", "Bob", 1)})
    edit(small, Person={"Ada": person("Ada", 32), "Bob": person("Bob", 2)})
    assert [op for _, op, _, _ in seen(small, "Ada")] == ["insert", "delete", "update", "insert"]
    assert seen(small, "Ada") == listed(small, "Ada")
    assert seen(small, "Bob") == listed(small, "Bob")
    assert [op for _, op, _, _ in seen(small, "bb", "edge", "Knows")] == ["insert"]
    assert seen(small, "nobody") == []


def test_SV12_of_a_branch_a_merge_and_a_point(small: Graph) -> None:
    edit(small, Person={"Ada": person("Ada", 30)})
    small.branches.create("b")
    edit(small, "b", Person={"Ada": person("Ada", 31)})
    edit(small, "b", Person={"Ada": person("Ada", 32)})
    edit(small, Person={"Bob": person("Bob")})
    assert [op for _, op, _, _ in seen(small, "Ada", branch="b")] == ["update", "update", "insert"]
    merged = small.branches.merge("b").commit
    assert merged is not None
    newest, first = seen(small, "Ada")
    assert newest[:2] == (merged.id, "update")
    assert newest[2].properties["age"] == 30
    assert newest[3].properties["age"] == 32
    assert seen(small, "Ada", snapshot="main~1") == [first]
    assert seen(small, "Ada", branch="b") == listed(small, "Ada", point="b")


def test_SV12_through_a_rename_with_the_names_of_each_time(small: Graph) -> None:
    edit(small, Person={"Ada": person("Ada", 30)})
    text = small.schema.text.replace("Person", "Human")
    small.schema.apply(text.replace("node Human", 'node Human @rename_from("Person")'))
    small.mutate('query m() { update Human set { age: 31 } where name = "Ada" }')
    types = [r.change.type for r in small.history("node", "Human", "Ada")]
    assert types == ["Human", "Person"]
    with pytest.raises(og.BadRequest, match="unknown node type 'Person'"):
        small.history("node", "Person", "Ada")


def test_SV12_a_page_reads_no_further_than_it_goes(small: Graph) -> None:
    for age in range(6):
        edit(small, Person={"Ada": person("Ada", age)})
    for age in range(30):
        edit(small, Person={"Bob": person("Bob", age)})

    def calls(work: Any) -> int:
        before = sum(small.stats().calls.values())
        work()
        return sum(small.stats().calls.values()) - before

    graph_history = small.history("node", "Person", "Ada")
    one = calls(lambda: list(islice(graph_history, 1)))
    every = calls(lambda: list(graph_history))
    assert len(list(graph_history)) == 6
    assert one < every
    # Thirty commits of Bob lie between: none of them is looked at.
    assert every < 30 * 2


def test_SV12_what_cleanup_removed_ends_it_and_is_said(
    small: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "RECLAIM_AGE_S", 0.0)
    for age in range(5):
        edit(small, Person={"Ada": person("Ada", age)})
    small.cleanup(keep=2, confirm=True, grace="0s")
    revisions = small.history("node", "Person", "Ada")
    rows = list(revisions)
    assert 1 <= len(rows) < 5
    assert revisions.unreadable is not None
    assert rows[0].change.after is not None
    assert rows[0].change.after.properties["age"] == 4


def test_SV12_an_entity_with_its_edges_counted(small: Graph) -> None:
    people = {name: person(name, 30) for name in ("Ada", "Bob")}
    edges = {"ab": knows("ab", "Ada", "Bob"), "aa": knows("aa", "Ada", "Ada")}
    edit(small, Person=people, Knows=edges)
    ada = small.entity("node", "Person", "Ada")
    assert ada.image.properties == {"name": "Ada", "age": 30, "email": None}
    assert [(e.type, e.direction, e.count) for e in ada.edges] == [
        ("Knows", "out", 2),
        ("Knows", "in", 1),
    ]
    edge = small.entity("edge", "Knows", "ab")
    assert edge.image.endpoints == ("Ada", "Bob")
    assert edge.edges == ()
    with pytest.raises(og.NotFound, match="node Person 'Cy'"):
        small.entity("node", "Person", "Cy")
    with pytest.raises(og.BadRequest, match="neither node nor edge"):
        small.entity("nodes", "Person", "Ada")


NAMES = ("Ada", "Bob")
STEPS = st.one_of(
    st.tuples(st.just("write"), st.sampled_from(NAMES), st.integers(0, 3)),
    st.tuples(st.just("delete"), st.sampled_from(NAMES), st.just(0)),
    st.tuples(st.just("overwrite"), st.sampled_from(NAMES), st.integers(0, 3)),
    st.tuples(st.just("optimize"), st.just(""), st.just(0)),
    st.tuples(st.just("merge"), st.sampled_from(NAMES), st.integers(4, 6)),
    st.tuples(st.just("other"), st.just("Cy"), st.integers(0, 3)),
)


def do(graph: Graph, step: tuple[str, str, int], number: int) -> None:
    verb, name, age = step
    if verb in ("write", "other"):
        edit(graph, Person={name: person(name, age)})
    elif verb == "delete":
        graph.mutate("query d($n: String) { delete Person where name = $n }", {"n": name})
    elif verb == "overwrite":
        line = f'{{"type":"Person","data":{{"name":"{name}","age":{age}}}}}\n'
        graph.load(line.encode(), "overwrite")
    elif verb == "optimize":
        graph.optimize()
    else:
        branch = f"b{number}"
        graph.branches.create(branch)
        edit(graph, branch, Person={name: person(name, age), "Cy": person("Cy", number)})
        graph.branches.merge(branch, delete_source=True)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_template(tmp_path_factory.mktemp("history") / "empty.omni")


def compare(template: Path, folder: Path, steps: list[tuple[str, str, int]], exact: int) -> None:
    with pytest.MonkeyPatch.context() as patched, copy_of(template, folder) as graph:
        patched.setattr(COSTS, "exact_versions", exact)
        patched.setattr(COSTS, "runs_few", 0)
        patched.setattr(COSTS, "fold_fragments_min", 4)
        for number, step in enumerate(steps):
            do(graph, step, number)
        for name in NAMES:
            assert seen(graph, name) == listed(graph, name)


@given(steps=st.lists(STEPS, min_size=3, max_size=7), exact=st.sampled_from([0, 2, 128]))
@settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_SV12_history_is_what_the_commits_list(
    template: Path,
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, str, int]],
    exact: int,
) -> None:
    compare(template, tmp_path_factory.mktemp("walk") / "g.omni", steps, exact)


@pytest.mark.slow
@given(steps=st.lists(STEPS, min_size=5, max_size=40), exact=st.sampled_from([0, 2, 128]))
@settings(max_examples=60, deadline=None)
def test_SV12_history_is_what_the_commits_list_at_length(
    template: Path,
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, str, int]],
    exact: int,
) -> None:
    compare(template, tmp_path_factory.mktemp("walk") / "g.omni", steps, exact)
