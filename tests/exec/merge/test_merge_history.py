"""Merge bases in any history: back and forth, criss-cross, branches of branches.

Each test is a known mistake of systems that merge: a conflict where there is none, or something
deleted that comes back.
"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.exec.merge import ancestry
from omnigraph.exec.merge.ancestry import meeting, merge_bases
from omnigraph.graph import Graph
from omnigraph.storage.names import MAIN
from omnigraph.storage.records import Commit, CommitId
from tests.exec.branching import edit, knows, person, state


def dag(**parents: str) -> dict[CommitId, Commit]:
    """Commits by name, each with the names of its parents."""
    found = {}
    for number, (name, text) in enumerate(parents.items(), start=1):
        first, _, second = text.partition(" ")
        found[CommitId(name)] = Commit(
            id=CommitId(name),
            parent=CommitId(first) if first else None,
            merged_parent=CommitId(second) if second else None,
            created_at=number,
            branch=None,
            manifest_version=number,
        )
    return found


def bases(commits: dict[CommitId, Commit], ours: str, theirs: str) -> list[str]:
    found = merge_bases(commits.get, CommitId(ours), CommitId(theirs))
    assert set(found) == set(merge_bases(commits.get, CommitId(theirs), CommitId(ours)))
    return [commit.id for commit in found]


def test_the_base_of_a_line_is_the_older_end() -> None:
    commits = dag(a="", b="a", c="b")
    assert bases(commits, "a", "c") == ["a"]
    assert bases(commits, "c", "c") == ["c"]


def test_a_common_ancestor_behind_another_is_no_base_however_near() -> None:
    # x is two steps from both heads by short cuts, y is a descendant of x further away.
    commits = dag(
        x="", y1="x", y="y1", s1="y", s2="s1", s3="s2", t1="y", t2="t1", t3="t2", c="x", d="x",
        s="s3 c", t="t3 d",
    )  # fmt: skip
    assert bases(commits, "s", "t") == ["y"]


def test_a_criss_cross_has_two_bases() -> None:
    commits = dag(g="", p="g", q="g", s="p q", t="q p", s2="s", t2="t")
    assert sorted(bases(commits, "s2", "t2")) == ["p", "q"]


def test_unrelated_or_forgotten_commits_have_no_base() -> None:
    assert bases(dag(a="", b=""), "a", "b") == []
    assert bases(dag(g="", a="g gone", b="g gone"), "a", "b") == ["g"]


@st.composite
def histories(draw: st.DrawFn) -> dict[CommitId, Commit]:
    """Any history of a few commits, some of them gone, with versions that mean nothing."""
    found = {}
    for number in range(draw(st.integers(2, 14))):
        earlier = [CommitId(f"c{before}") for before in range(number)]
        chosen = draw(st.lists(st.sampled_from(earlier), max_size=2)) if earlier else []
        first, second = [*chosen, None, None][:2]
        name, version = CommitId(f"c{number}"), draw(st.integers(1, 5))
        found[name] = Commit(
            id=name,
            parent=first,
            merged_parent=second,
            created_at=number,
            branch=None,
            manifest_version=version,
        )
    gone = draw(st.sets(st.sampled_from(sorted(found)[:-2] or sorted(found)), max_size=2))
    return {name: commit for name, commit in found.items() if name not in gone}


@given(commits=histories(), data=st.data())
def test_a_short_walk_ends_where_a_walk_of_everything_does(
    commits: dict[CommitId, Commit], data: st.DataObject
) -> None:
    names = sorted(commits) or ["c0"]
    ours, theirs = (CommitId(data.draw(st.sampled_from(names))) for _ in range(2))
    expected = ancestry._meeting(commits.get, ours, theirs)
    assert meeting(commits.get, ours, theirs) == expected


def test_a_walk_reads_what_was_committed_since() -> None:
    line = {f"m{number}": f"m{number - 1}" if number else "" for number in range(1_000)}
    commits = dag(**line, b1="m990", b2="b1", b3="b2 m995", n="m999")
    asked = []

    def lookup(commit_id: CommitId) -> Commit | None:
        asked.append(commit_id)
        return commits.get(commit_id)

    assert [base.id for base in meeting(lookup, CommitId("n"), CommitId("b3")).bases] == ["m995"]
    assert len(set(asked)) < 20


# ---- in a graph


def begin(graph: Graph) -> None:
    people = {name: person(name, 30) for name in ("Alice", "Bob", "Carol")}
    edit(graph, Person=people, Knows={"bc": knows("bc", "Bob", "Carol")})


def age(graph: Graph, branch: str, name: str = "Alice") -> int:
    found = state(graph, branch)["Person", name]["age"]
    assert isinstance(found, int)
    return found


def test_back_and_forth(small: Graph) -> None:
    begin(small)
    small.branches.create("b")
    for number in range(3):
        edit(small, "b", Person={"Alice": person("Alice", 40 + number)})
        small.branches.merge("b")
        assert age(small, MAIN) == 40 + number
        edit(small, Person={"Alice": person("Alice", 50 + number)})
        small.branches.merge(MAIN, into="b")
        assert age(small, "b") == 50 + number
    assert small.branches.merge("b").kind == "fast_forward"
    assert small.branches.merge(MAIN, into="b").kind == "fast_forward"
    assert state(small) == state(small, "b")


@pytest.mark.parametrize("deleted", [False, True])
def test_both_sides_merged_the_same_third_branch(small: Graph, deleted: bool) -> None:
    begin(small)
    for name in ("b", "third"):
        small.branches.create(name)
    edit(small, "third", Person={"Alice": person("Alice", 40), "Eve": person("Eve", 1)})
    edit(small, "b", Person={"Bob": person("Bob", 31)})
    edit(small, Person={"Carol": person("Carol", 31)})
    small.branches.merge("third", into="b")
    small.branches.merge("third", delete_source=deleted)
    edit(small, Person={"Alice": person("Alice", 41), "Eve": None})
    assert small.branches.merge("b").kind == "merged"
    assert age(small, MAIN) == 41, "main changed what came from the third branch"
    assert ("Person", "Eve") not in state(small), "what main deleted since stays deleted"
    assert [age(small, MAIN, name) for name in ("Bob", "Carol")] == [31, 31]


@pytest.mark.parametrize("where", [MAIN, "b"])
def test_a_deleted_edge_does_not_come_back(small: Graph, where: str) -> None:
    begin(small)
    small.branches.create("b")
    edit(small, "b", Knows={"ab": knows("ab", "Alice", "Bob")})
    small.branches.merge("b")
    edit(small, where, Knows={"ab": None, "bc": None})
    other = "b" if where == MAIN else MAIN
    edit(small, other, Person={"Bob": person("Bob", 31)})
    small.branches.merge("b")
    small.branches.merge(MAIN, into="b")
    for branch in (MAIN, "b"):
        assert not {("Knows", "ab"), ("Knows", "bc")} & state(small, branch).keys()


def criss_cross(graph: Graph) -> None:
    """main and b each merge the other's head of before: two bases, P on main and Q on b."""
    begin(graph)
    graph.branches.create("b")
    edit(graph, Person={"Pam": person("Pam", 1), "Alice": person("Alice", 41)})
    edit(graph, "b", Person={"Quin": person("Quin", 1), "Bob": person("Bob", 41)})
    graph.branches.create("p", from_=MAIN)
    graph.branches.create("q", from_="b")
    graph.branches.merge("q")
    graph.branches.merge("p", into="b")
    assert state(graph) == state(graph, "b")


def test_criss_cross_deletions_stay_deleted(small: Graph) -> None:
    criss_cross(small)
    edit(small, Person={"Quin": None, "Pam": None})
    edit(small, "b", Person={"Carol": person("Carol", 31)})
    assert small.branches.merge("b").kind == "merged"
    assert not {("Person", "Quin"), ("Person", "Pam")} & state(small).keys()
    assert age(small, MAIN, "Carol") == 31


def test_criss_cross_changes_of_one_side_are_no_conflict(small: Graph) -> None:
    criss_cross(small)
    edit(small, Person={"Alice": person("Alice", 42), "Bob": person("Bob", 42)})
    edit(small, "b", Person={"Quin": person("Quin", 2), "Pam": person("Pam", 2)})
    assert small.branches.merge("b").kind == "merged"
    assert [age(small, MAIN, n) for n in ("Alice", "Bob", "Quin", "Pam")] == [42, 42, 2, 2]


def test_criss_cross_where_the_bases_themselves_conflict(small: Graph) -> None:
    begin(small)
    small.branches.create("b")
    edit(small, Person={"Alice": person("Alice", 41)})
    edit(small, "b", Person={"Alice": person("Alice", 42)})
    small.branches.create("p", from_=MAIN)
    small.branches.create("q", from_="b")
    small.branches.merge("q", resolve="theirs")
    small.branches.merge("p", into="b", resolve="ours")
    assert age(small, MAIN) == age(small, "b") == 42
    edit(small, Person={"Bob": person("Bob", 31)})
    assert small.branches.merge("b").kind == "merged", "both came to the same answer"
    edit(small, "b", Person={"Alice": person("Alice", 43)})
    assert small.branches.merge("b").kind == "merged"


def test_a_branch_of_a_branch_merges_past_its_parent(small: Graph) -> None:
    begin(small)
    small.branches.create("b")
    edit(small, "b", Person={"Alice": person("Alice", 41)})
    small.branches.create("c", from_="b")
    edit(small, "c", Person={"Bob": person("Bob", 41)})
    edit(small, "b", Person={"Alice": person("Alice", 42)})
    edit(small, Person={"Carol": person("Carol", 41)})
    small.branches.merge("c")
    assert [age(small, MAIN, n) for n in ("Alice", "Bob", "Carol")] == [41, 41, 41]
    small.branches.merge("b")
    assert [age(small, MAIN, n) for n in ("Alice", "Bob", "Carol")] == [42, 41, 41]
    assert small.branches.merge("c").kind == "already_up_to_date"


def test_merging_again_does_nothing(small: Graph) -> None:
    begin(small)
    small.branches.create("b")
    edit(small, "b", Person={"Alice": person("Alice", 41)})
    edit(small, Person={"Bob": person("Bob", 41)})
    small.branches.merge("b")
    head = small.snapshot()
    assert small.branches.merge("b").kind == "already_up_to_date"
    assert small.snapshot() == head


def test_a_name_used_again_is_another_branch(small: Graph) -> None:
    begin(small)
    small.branches.create("b")
    edit(small, "b", Person={"Alice": person("Alice", 41)})
    small.branches.merge("b", delete_source=True)
    small.branches.create("b")
    edit(small, "b", Person={"Alice": person("Alice", 42)})
    edit(small, Person={"Bob": person("Bob", 41)})
    assert small.branches.merge("b").kind == "merged"
    assert age(small, MAIN) == 42
    assert [c.id for c in og.open(small.uri).commits.list(limit=1)] == [small.snapshot().commit_id]


def test_merges_of_deleted_branches_do_not_look_into_every_live_one(small: Graph) -> None:
    begin(small)
    for number in range(50):
        small.branches.create(f"live{number}")
    small.branches.create("b")
    for number in range(3):
        small.branches.create("gone")
        edit(small, "gone", Person={"Alice": person("Alice", 40 + number)})
        edit(small, Person={"Bob": person("Bob", 40 + number)})
        assert small.branches.merge("gone", delete_source=True).kind == "merged"
    edit(small, "b", Person={"Carol": person("Carol", 50)})
    cold = og.open(small.uri)
    before = cold._store.stats.view()
    assert cold.branches.merge("b").kind == "merged"
    calls = cold._store.stats.view().since(before).calls
    assert calls.get("lance.list_branches", 0) == 0
    assert calls["lance.open"] < 20
    assert calls["object.get"] < 20
    assert sum(calls.values()) < 120


@pytest.mark.parametrize("origin", [None, ("other", "")])
def test_a_merge_that_does_not_say_where_from_is_found_all_the_same(
    small: Graph, monkeypatch: pytest.MonkeyPatch, origin: tuple[str, str] | None
) -> None:
    begin(small)
    for name in ("b", "third", "other"):
        small.branches.create(name)
    history = small._store.history
    real = history.origin
    other = None if origin is None else ("other", small._store.manifest.identity("other") or "")
    monkeypatch.setattr(history, "origin", lambda commit: other)
    edit(small, "third", Person={"Alice": person("Alice", 40)})
    edit(small, Person={"Bob": person("Bob", 31)})
    edit(small, "b", Person={"Carol": person("Carol", 31)})
    small.branches.merge("third")
    small.branches.merge("third", into="b")
    monkeypatch.setattr(history, "origin", real)
    edit(small, Person={"Alice": person("Alice", 41)})
    assert og.open(small.uri).branches.merge("b").kind == "merged"
    assert age(small, MAIN) == 41
    merges = [c for c in small.commits.list() if c.merged_parent is not None]
    assert [c.merged_from is None for c in merges] == [False, origin is None]


def test_a_merge_says_where_the_merged_commit_was_written(small: Graph) -> None:
    begin(small)
    small.branches.create("b")
    edit(small, "b", Person={"Alice": person("Alice", 40)})
    small.branches.create("c", from_="b")
    commit = small.branches.merge("c").commit
    assert commit is not None
    assert commit.merged_from == ("b", small._store.manifest.identity("b"))
    assert og.open(small.uri).commits.get(commit.id) == replace(commit)
    edit(small, Person={"Bob": person("Bob", 31)})
    back = small.branches.merge(MAIN, into="b").commit
    assert back is not None
    assert back.merged_from == (MAIN, "")
