"""Tags name commits and keep them; branches start at any point and keep it too."""

import threading
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.exec.upkeep.cleanup import CleanupReport
from omnigraph.graph import Graph
from omnigraph.storage import failpoints
from omnigraph.storage.manifest import manifest
from tests.exec.branching import edit, person, state


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody counts versions here, so that cleanup need not wait."""
    monkeypatch.setattr(manifest, "RECLAIM_AGE_S", 0.0)


def clean(graph: Graph) -> CleanupReport:
    report = graph.cleanup(keep=1, grace=0, confirm=True)
    assert report.errors == ()
    return report


def grow(graph: Graph, length: int, branch: str = "main") -> list[str]:
    """As many commits, each of which replaces one person and adds one."""
    return [
        edit(
            graph,
            branch,
            Person={"Ada": person("Ada", n), f"{branch}{n}": person(f"{branch}{n}")},
        ).id
        for n in range(length)
    ]


def test_a_tag_is_created_listed_read_and_deleted(small: Graph) -> None:
    commits = grow(small, 3)
    tag = small.tags.create(" release/1.0 ", "main~1")
    assert (tag.name, tag.commit_id, tag.branch) == ("release/1.0", commits[1], "main")
    assert small.tags.get("release/1.0") == tag
    small.tags.create("äon")
    small.tags.create("release/1.0-b", "release/1.0~")
    assert [(each.name, each.commit_id) for each in small.tags.list()] == [
        ("release/1.0", commits[1]),
        ("release/1.0-b", commits[0]),
        ("äon", commits[2]),
    ]
    with og.open(small.uri, read_only=True) as reader:
        assert reader.tags.list() == small.tags.list()
        assert reader.snapshot("release/1.0").commit_id == commits[1]
    small.tags.delete("release/1.0")
    with pytest.raises(og.UnknownPoint, match=r"did you mean 'release/1.0-b'\?"):
        small.tags.get("release/1.0")
    with pytest.raises(og.UnknownPoint, match=r"tag 'release/1\.0' not found"):
        small.tags.delete("release/1.0")


def test_a_tag_does_not_move(small: Graph) -> None:
    commits = grow(small, 2)
    small.tags.create("v1", commits[0])
    small.tags.create("v1", "main~1")  # the same commit
    with pytest.raises(og.AlreadyExists, match=f"names commit {commits[0]}; delete it first"):
        small.tags.create("v1")
    grow(small, 1)
    assert small.tags.get("v1").commit_id == commits[0]


def test_a_branch_and_a_tag_never_share_a_name(small: Graph) -> None:
    small.branches.create("b")
    small.tags.create("v1")
    with pytest.raises(og.AlreadyExists, match="branch 'b' already exists"):
        small.tags.create("b")
    with pytest.raises(og.AlreadyExists, match="tag 'v1' already exists"):
        small.branches.create("v1")
    with pytest.raises(og.AlreadyExists, match="tag 'v1' already exists"):
        small.branches.create("v1", from_="v1")
    with pytest.raises(og.BadRequest, match="cannot create tag 'main'"):
        small.tags.create("main")


def test_a_graph_that_is_read_only_refuses_tags(small: Graph) -> None:
    small.tags.create("v1")
    with og.open(small.uri, read_only=True) as reader:
        with pytest.raises(og.BadRequest, match="read-only"):
            reader.tags.create("v2")
        with pytest.raises(og.BadRequest, match="read-only"):
            reader.tags.delete("v1")
        with pytest.raises(og.BadRequest, match="read-only"):
            reader.branches.create("b", from_="v1")


def test_cleanup_keeps_what_a_tag_names_and_nothing_else_of_its_age(small: Graph) -> None:
    commits = grow(small, 5)
    expected = state(small, commit=commits[1])
    small.tags.create("v1", commits[1])
    clean(small)
    with og.open(small.uri) as again:
        assert state(again, commit=again.tags.get("v1").commit_id) == expected
        assert again.diff("v1", "main").counts()
        for gone in (commits[0], commits[2], commits[3]):
            with pytest.raises((og.ChangeFeedGap, og.Reclaimed)):
                again.snapshot(gone)
        again.tags.delete("v1")
        clean(again)
        with pytest.raises((og.ChangeFeedGap, og.Reclaimed)):
            again.snapshot(commits[1])


def test_a_tag_keeps_the_branch_of_its_commit(small: Graph) -> None:
    grow(small, 1)
    small.branches.create("work")
    (commit, *_) = grow(small, 2, "work")
    small.tags.create("milestone", commit)
    assert small.tags.get("milestone").branch == "work"
    with pytest.raises(
        og.InUse, match="tag 'milestone' names a commit of it; delete the tag"
    ) as held:
        small.branches.delete("work")
    assert (held.value.by, held.value.by_kind) == ("milestone", "tag")
    outcome = small.branches.merge("work", delete_source=True)
    assert not outcome.branch_deleted
    assert "milestone" in str(outcome.branch_delete_error)
    expected = state(small, commit=commit)
    clean(small)
    assert state(small, commit=commit) == expected
    small.tags.delete("milestone")
    small.branches.delete("work")
    assert small.branches.list() == ("main",)


def test_a_branch_starts_at_any_point_and_merges_back(small: Graph) -> None:
    commits = grow(small, 4)
    past = state(small, commit=commits[1])
    assert small.branches.create("fix", from_="main~2") == "fix"
    assert small.snapshot("fix").commit_id == commits[1]
    assert state(small, "fix") == past
    edit(
        small,
        "fix",
        Person={"Eve": person("Eve", 1)},
        Company={"Acme": {"id": "Acme", "name": "Acme"}},
    )
    assert state(small, "fix") == past | {
        ("Person", "Eve"): person("Eve", 1),
        ("Company", "Acme"): {"id": "Acme", "name": "Acme"},
    }
    before = state(small)
    assert [c.id for c in small.commits.list("fix")][1:] == [
        commits[1],
        commits[0],
        *([small.commits.list()[-1].id]),
    ]
    assert small.branches.merge("fix").kind == "merged"
    assert state(small) == before | {
        ("Person", "Eve"): person("Eve", 1),
        ("Company", "Acme"): {"id": "Acme", "name": "Acme"},
    }


def test_a_branch_starts_inside_another_branch(small: Graph) -> None:
    grow(small, 2)
    small.branches.create("work")
    own = grow(small, 3, "work")
    small.branches.create("spike", from_="work~1")
    small.branches.create("before", from_="work~3")
    assert small.snapshot("before").commit_id == small.snapshot("main").commit_id
    assert state(small, "spike") == state(small, commit=own[1])
    edit(small, "spike", Person={"Eve": person("Eve")})
    assert small.commits.get("spike~1").id == own[1]
    with pytest.raises(og.InUse, match="'spike' still depends on it"):
        small.branches.delete("work")
    small.branches.merge("spike", "work")
    assert ("Person", "Eve") in state(small, "work")
    assert ("Person", "work2") in state(small, "work")


def test_a_load_makes_its_branch_at_a_point(small: Graph) -> None:
    commits = grow(small, 2)
    line = b'{"type": "Person", "data": {"name": "Eve"}}'
    done = small.load(line, "append", branch="import", from_branch="main~1")
    assert done.branch_created
    assert small.commits.get("import~1").id == commits[0]


def test_cleanup_keeps_the_point_a_branch_starts_at(small: Graph) -> None:
    commits = grow(small, 5)
    past = state(small, commit=commits[1])
    small.branches.create("fix", from_=commits[1])
    clean(small)
    with og.open(small.uri) as again:
        assert state(again, "fix") == past
        assert state(again, commit=commits[1]) == past
        edit(again, "fix", Person={"Eve": person("Eve")})
        clean(again)
        assert again.branches.merge("fix").kind == "merged"
        assert ("Person", "Eve") in state(again)
        assert again.check().ok


def test_what_a_stopped_cleanup_half_removed_is_no_point_to_start_at(small: Graph) -> None:
    commits = grow(small, 4)
    with failpoints.armed("cleanup.manifest"):
        report = small.cleanup(keep=1, grace=0, confirm=True)
    assert report.errors
    for take in (
        lambda: small.branches.create("fix", from_=commits[0]),
        lambda: small.tags.create("v0", commits[0]),
    ):
        with pytest.raises(og.Reclaimed, match="was reclaimed"):
            take()
    assert small.branches.list() == ("main",)
    assert small.tags.list() == ()


def test_a_name_given_while_cleanup_runs_names_something_whole(small: Graph) -> None:
    """Points are named by one thread and reclaimed by another: a name is refused, or it reads."""
    commits = grow(small, 24)
    states = {each: state(small, commit=each) for each in commits}
    done: dict[str, str] = {}
    refused: list[Exception] = []
    start = threading.Barrier(2)

    def name_points() -> None:
        with og.open(small.uri) as graph:
            start.wait()
            for number, commit in enumerate(reversed(commits)):
                try:
                    if number % 2:
                        graph.branches.create(f"b{number}", from_=commit)
                    else:
                        graph.tags.create(f"b{number}", commit)
                    done[f"b{number}"] = commit
                except (og.Reclaimed, og.ChangeFeedGap) as cause:
                    refused.append(cause)

    naming = threading.Thread(target=name_points)
    naming.start()
    with og.open(small.uri) as cleaner:
        start.wait()
        for _ in range(2):
            clean(cleaner)
    naming.join()
    assert len(done) + len(refused) == len(commits)
    with og.open(small.uri) as again:
        clean(again)
        for name, commit in done.items():
            assert again.snapshot(name).commit_id == commit
            assert state(again, commit=commit) == states[commit]


def test_tags_of_many_names_are_read_back(small: Graph, tmp_path: Path) -> None:
    names = ["v1", "V1", "a/b", "ü", "x" * 100, "a.b_c-d", "__", "01"]
    for name in names:
        small.tags.create(name)
    assert {tag.name for tag in small.tags.list()} == set(names)
    for name in ("", " ", "a b", "a//b", "..", "y" * 300):
        with pytest.raises(og.BadRequest):
            small.tags.create(name)
