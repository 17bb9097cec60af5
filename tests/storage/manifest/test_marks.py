"""Marks of commits: found on every branch that has the commit, and each fragment is read once."""

from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.graph import Graph
from omnigraph.storage import failpoints
from omnigraph.storage.manifest.branches import Branches
from omnigraph.storage.manifest.queries import Queries
from tests.exec.branching import copy_of, make_template

ADD = "query add($n: String) { insert Person { name: $n } }"


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return copy_of(make_template(tmp_path / "t.omni"), tmp_path / "g.omni")


def test_SV8_a_lookup_reads_what_was_published_since_and_nothing_twice(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[str, ...]] = []
    reads = Queries._read_marks

    def noted(self: Queries, state: object, fragments: list[object]) -> object:
        read.append(tuple(str(fragment.metadata.files[0].path) for fragment in fragments))  # type: ignore[attr-defined]
        return reads(self, state, fragments)  # type: ignore[arg-type]

    monkeypatch.setattr(Queries, "_read_marks", noted)
    for number in range(24):
        graph.mutate(ADD, {"n": str(number)}, once=f"k{number}" if number % 2 else None)
    files = [path for each in read for path in each]
    assert len(files) == len(set(files)), "a fragment was read twice"
    read.clear()
    first = graph.commits.once("k1")
    assert first is not None
    assert first.mark == "k1"
    assert graph.commits.once("k2") is None
    read.clear()
    assert graph.commits.once("k23") is not None
    assert read == []


def test_SV8_a_writer_reads_the_marks_of_others_and_knows_its_own(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    reads = Queries._read_marks

    def noted(self: Queries, state: object, fragments: list[object]) -> object:
        read.append(len(fragments))
        return reads(self, state, fragments)  # type: ignore[arg-type]

    graph.mutate(ADD, {"n": "first"}, once="first")
    monkeypatch.setattr(Queries, "_read_marks", noted)
    for number in range(3):
        graph.mutate(ADD, {"n": f"n{number}"}, once=f"own{number}")
        graph.mutate(ADD, {"n": f"m{number}"})
    assert graph.mutate(ADD, {"n": "n1"}, once="own1").repeated
    assert read == []
    with og.open(graph.uri) as other:
        theirs = other.mutate(ADD, {"n": "theirs"}, once="theirs").commit
    read.clear()
    assert graph.commits.once("theirs") == theirs
    assert read == [1]


def test_SV8_a_branch_has_the_marks_that_it_inherited(graph: Graph) -> None:
    done = graph.mutate(ADD, {"n": "a"}, once="first")
    graph.branches.create("b")
    assert graph.commits.once("first", "b") == done.commit
    graph.mutate(ADD, {"n": "b"}, branch="b", once="second")
    assert graph.commits.once("second") is None
    assert graph.mutate(ADD, {"n": "b"}, branch="b", once="second").repeated
    graph.optimize("b")
    assert graph.commits.once("second", "b") is not None
    with og.open(graph.uri) as other:
        assert other.commits.once("first", "b") == done.commit
    said = {"mark": "third", "x": '"mark":"third"'}
    graph.mutate(ADD, {"n": "c"}, message='"mark":"third"', metadata=said)
    assert graph.commits.once("third") is None


def test_SV8_a_merge_once_is_made_once_and_its_source_still_goes(graph: Graph) -> None:
    graph.branches.create("b")
    graph.mutate(ADD, {"n": "b"}, branch="b")
    graph.mutate(ADD, {"n": "m"})
    first = graph.branches.merge("b", once="merge")
    assert (first.kind, first.repeated) == ("merged", False)
    again = graph.branches.merge("b", once="merge", delete_source=True)
    assert (again.kind, again.repeated, again.commit) == ("merged", True, first.commit)
    assert again.branch_deleted is True
    assert "b" not in graph.branches.list()
    graph.branches.create("b")
    graph.mutate(ADD, {"n": "new"}, branch="b")
    kept = graph.branches.merge("b", once="merge", delete_source=True)
    assert (kept.repeated, kept.branch_deleted) == (True, False)
    assert "b" in graph.branches.list()


def test_a_source_that_another_process_deletes_meanwhile_is_deleted(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.branches.create("b")
    graph.mutate(ADD, {"n": "b"}, branch="b")
    delete = Branches.delete

    def deleted_twice(self: Branches, name: str, **options: Any) -> None:
        delete(self, name, **options)
        delete(self, name, **options)

    monkeypatch.setattr(Branches, "delete", deleted_twice)
    done = graph.branches.merge("b", delete_source=True)
    assert (done.branch_deleted, done.branch_delete_error) == (True, None)


def test_SV8_a_transaction_once_commits_once(graph: Graph) -> None:
    commits = []
    for _ in range(2):
        with graph.transaction(once="tx") as block:
            block.mutate(ADD, {"n": "t"})
        assert block.outcome is not None
        commits.append(block.outcome.commit)
    assert commits[0] == commits[1]
    assert graph.branches.list() == ("main",)


@pytest.mark.parametrize("step", ["commit.sidecar_written", "publish.before", "publish.after"])
def test_SV8_a_merge_that_stopped_half_way_is_made_once_when_it_is_sent_again(
    graph: Graph, step: str
) -> None:
    graph.branches.create("b")
    graph.mutate(ADD, {"n": "b"}, branch="b")
    graph.mutate(ADD, {"n": "m"})
    with failpoints.armed(step), pytest.raises((og.OmnigraphError, failpoints.Injected)):
        graph.branches.merge("b", once="merge", delete_source=True)
    again = graph.branches.merge("b", once="merge", delete_source=True)
    assert again.branch_deleted is True
    marked = [commit for commit in graph.commits.list() if commit.mark == "merge"]
    assert [commit.id for commit in marked] == [again.commit.id if again.commit else ""]
    rows = graph.query("query n() { match { $p: Person } return { $p.name as n } order { n } }")
    assert [row["n"] for row in rows.rows] == ["b", "m"]
