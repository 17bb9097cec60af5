"""Points in time: one text for a branch, a tag, a commit or a place before one, read everywhere."""

import io
from datetime import UTC, datetime
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.costs import COSTS
from omnigraph.exec.points import Points
from omnigraph.graph import Graph
from omnigraph.storage.names import encode
from omnigraph.storage.records import Commit
from tests.exec.branching import edit, person, state

ASK = "query who() { match { $p: Person } return { $p.name } }"


def chain(graph: Graph, length: int, branch: str = "main") -> list[Commit]:
    """Commits of one person each; the first of the list is the genesis."""
    return [
        graph.commits.list()[-1],
        *(
            edit(graph, branch, Person={f"{branch}{n}": person(f"{branch}{n}")})
            for n in range(length)
        ),
    ]


def iso(micros: int) -> str:
    return datetime.fromtimestamp(micros / 1e6, UTC).isoformat(timespec="microseconds")


def test_every_name_of_a_commit_names_it(small: Graph) -> None:
    commits = chain(small, 5)
    small.tags.create("v1", commits[2].id)
    for text, number in {
        "main": 5,
        "main~0": 5,
        "main~": 4,
        "main~3": 2,
        "main~2~1": 2,
        "main~~~": 2,
        "v1": 2,
        "v1~": 1,
        commits[3].id: 3,
        commits[3].id.lower(): 3,
        f"{commits[3].id}~2": 1,
        commits[4].id[:20]: 4,
        f"{commits[4].id[:20]}~4": 0,
        f"main@{{{iso(commits[3].created_at)}}}": 3,
        f"main@{{{iso(commits[3].created_at - 1)}}}": 2,
        f"main@{{{iso(commits[3].created_at)}}}~1": 2,
        f"main~1@{{{iso(commits[5].created_at)}}}": 4,
        "main@{2999-01-01}": 5,
        "main@{2999-01-01T10:00Z}": 5,
    }.items():
        assert small.commits.get(text).id == commits[number].id, text
        assert small.snapshot(text).commit_id == commits[number].id, text
        assert small.snapshot(commit=text).commit_id == commits[number].id, text


def test_a_moment_without_a_zone_is_utc(small: Graph) -> None:
    commits = chain(small, 2)
    moment = datetime.fromtimestamp(commits[1].created_at / 1e6, UTC)
    plain = moment.replace(tzinfo=None).isoformat(timespec="microseconds")
    assert small.commits.get(f"main@{{{plain}}}").id == commits[1].id
    assert small.commits.get(f"main@{{{plain.replace('T', ' ')}}}").id == commits[1].id


def test_every_read_takes_a_point(small: Graph) -> None:
    commits = chain(small, 3)
    small.tags.create("v1", "main~1")
    names = [{"p.name": "main0"}, {"p.name": "main1"}]
    assert small.query(ASK, branch="v1").rows == names
    assert small.query(ASK, snapshot="main~1").rows == names
    out = io.BytesIO()
    assert small.export(out, snapshot="v1").nodes["Person"] == 2
    assert small.export(io.BytesIO(), branch="v1~1").nodes["Person"] == 1
    assert [c.id for c in small.diff("v1", "main")] == ["main2"]
    assert [c.id for c in small.diff("main~3", "v1")] == ["main0", "main1"]
    assert [c.id for c in small.commits.changes("main~1")] == ["main1"]
    assert [c.id for c in small.commits.list("v1")] == [c.id for c in commits[2::-1]]
    assert [c.id for c in small.commits.list("v1", limit=1)] == [commits[2].id]
    page = small.changes.poll(start="after:v1")
    assert [block.cause.id for block in page.blocks] == [commits[3].id]
    assert small.schema.at("v1").text == small.schema.text


def test_a_branch_hides_a_commit_and_both_marks_are_read_in_names_that_have_them(
    small: Graph,
) -> None:
    """A branch of an earlier program may be called `old~2`: it opens, and it is walked from."""
    commits = chain(small, 3)
    small._store.datasets.create_branch(
        "__manifest", "main~1", source=None, version=commits[1].manifest_version
    )
    assert small.snapshot("main~1").commit_id == commits[1].id
    assert small.commits.get("main~1~1").id == commits[0].id
    edit(small, "main~1", Person={"own": person("own")})
    assert small.commits.get("main~1~1").id == commits[1].id
    assert "main~1" in small.branches.list()


@pytest.mark.parametrize("name", ["a~1", "a@{b", "~", "x~"])
def test_new_names_hold_no_marks(small: Graph, name: str) -> None:
    with pytest.raises(og.BadRequest, match="name points in time"):
        small.branches.create(name)
    with pytest.raises(og.BadRequest, match="name points in time"):
        small.tags.create(name)


def test_an_unknown_point_lists_what_resembles_it(small: Graph) -> None:
    commits = chain(small, 1)
    small.branches.create("review/hire")
    small.tags.create("release-1", commits[1].id)
    small.tags.create("v1", commits[1].id)
    for text, near in {
        "review/hier": "review/hire",
        "Release-1": "release-1",
        "mian": "main",
        "v9": "v1",
        commits[1].id[:6]: commits[1].id,
        commits[1].id[:8] + "00000000": commits[1].id,
    }.items():
        with pytest.raises(og.UnknownPoint, match="did you mean") as refused:
            small.query(ASK, branch=text)
        assert near in refused.value.near
        assert isinstance(refused.value, og.NotFound)
    with pytest.raises(og.UnknownPoint) as refused:
        small.diff("main", "mian~4")
    assert (refused.value.name, refused.value.near) == ("mian~4", ("main",))


def test_a_walk_past_the_first_commit_says_how_many_there_are(small: Graph) -> None:
    commits = chain(small, 2)
    with pytest.raises(og.UnknownPoint, match="only 2 commits come before"):
        small.commits.get("main~3")
    with pytest.raises(og.UnknownPoint, match="its first commit is of 20"):
        small.commits.get("main@{1999-12-31}")
    assert small.commits.get("main~2").id == commits[0].id


@pytest.mark.parametrize("text", ["main@{yesterday}", "main@{}", "main@{2026-13-01}"])
def test_what_is_no_moment_is_refused(small: Graph, text: str) -> None:
    with pytest.raises(og.BadRequest, match=r"in @\{"):
        small.query(ASK, branch=text)


@pytest.mark.parametrize("text", ["", "~", "~3", "@{2026-01-01}", "x" * 4_000, "main~x", "a\0b"])
def test_what_is_no_point_is_not_found(small: Graph, text: str) -> None:
    with pytest.raises(og.UnknownPoint):
        small.query(ASK, snapshot=text)


def test_an_ambiguous_beginning_lists_the_commits(
    small: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = chain(small, 2)
    shared = 0
    while commits[1].id[shared] == commits[2].id[shared]:
        shared += 1
    monkeypatch.setattr("omnigraph.exec.points.PREFIX_CHARS_MIN", 4)
    with pytest.raises(og.AmbiguousPoint, match="give more of the id") as refused:
        small.commits.get(commits[1].id[:shared])
    assert {commits[1].id, commits[2].id} <= set(refused.value.candidates)
    assert small.commits.get(commits[1].id[: shared + 1]).id == commits[1].id


def test_a_beginning_is_looked_for_on_every_branch(small: Graph) -> None:
    chain(small, 1)
    small.branches.create("b")
    own = edit(small, "b", Person={"x": person("x")})
    assert small.commits.get(own.id[:18]).branch == "b"
    assert state(small, commit=small.commits.get(own.id[:18]).id).keys() >= {("Person", "x")}


@pytest.mark.parametrize("point", ["main~1", "v1", "main@{2999-01-01}"])
def test_a_write_needs_a_branch_and_says_how_to_get_one(small: Graph, point: str) -> None:
    chain(small, 2)
    small.tags.create("v1")
    for write in (
        lambda: small.mutate(
            "query a() { insert Company { name: 'x' } }".replace("'", '"'), branch=point
        ),
        lambda: small.load(b"", "append", branch=point),
        lambda: small.branches.merge(point),
        lambda: small.optimize(point),
        lambda: small.branch(point),
    ):
        with pytest.raises(og.NotFound, match=r"branch create NAME --from"):
            write()


def test_a_branch_and_a_snapshot_stay_exclusive(small: Graph) -> None:
    with pytest.raises(og.BadRequest, match="not both"):
        small.query(ASK, branch="main", snapshot="main~1")


def test_main_costs_what_it_cost_and_a_walk_reads_what_it_walks(small: Graph) -> None:
    chain(small, 100)
    points = Points(small._store)

    def calls(text: str) -> dict[str, int]:
        before = dict(small.stats().calls)
        points.snapshot(text)
        now = small.stats().calls
        return {
            name: n - before.get(name, 0) for name, n in now.items() if n != before.get(name, 0)
        }

    plain = dict(small.stats().calls)
    small._store.snapshot("main")
    cost = {n: c - plain.get(n, 0) for n, c in small.stats().calls.items() if c != plain.get(n, 0)}
    assert calls("main") == cost
    assert calls("main~3").get("lance.scan_lineage") == 2, "the head and one window"
    read = small._store.queries.commits_of_versions(
        small._store.manifest.state("main"), range(60, 64)
    )
    assert 0 < len(read) <= 4


def test_a_walk_passes_the_windows_and_the_branch_point(
    small: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(COSTS, "history_window_versions", 2)
    before = chain(small, 9)
    small.branches.create("b")
    after = chain(small, 7, "b")[1:]
    expected = [*before, *after]
    for back in range(len(expected)):
        assert small.commits.get(f"b~{back}").id == expected[-1 - back].id


def test_a_long_name_is_no_failure_of_the_disk(tmp_path: Path, small: Graph) -> None:
    assert len(encode("ü" * 100)) > 255
    with pytest.raises(og.NotFound):
        small.query(ASK, branch="ü" * 100)
