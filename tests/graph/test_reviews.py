"""Reviews: states, comments, approvals that lapse, the gate of merges, races and crashes."""

import os
import signal
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.graph import Graph, review_records
from omnigraph.graph.door import graph_for
from omnigraph.graph.review_gate import ReviewGate
from omnigraph.graph.reviews import COMMENTS_MAX, TEXT_MAX, TITLE_MAX
from omnigraph.policy import Policy
from omnigraph.storage import failpoints
from tests.forked import KILLED, context, run
from tests.storage.conftest import s3_server
from tests.storage.s3 import BUCKET, Server

__all__ = ["s3_server"]

SCHEMA = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person"
POLICY = """
version: 1
groups:
  people: [ada, bob, cid]
  guests: [gus]
protected_branches: [main]
rules:
  - id: all
    allow:
      actors: { group: people }
      actions: [read, change, branch_create, branch_delete, branch_merge, review]
  - id: guests
    allow: { actors: { group: guests }, actions: [read, branch_merge] }
required_approvals: { main: 1, "release/*": 2 }
"""


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    made = og.init(tmp_path / "g.omni", schema=SCHEMA)
    add(made, "Ada", "main")
    made.branches.create("work")
    add(made, "Bob", "work")
    return made


def add(graph: Graph, name: str, branch: str) -> None:
    graph.mutate("query a($n: String) { insert Person { name: $n } }", {"n": name}, branch=branch)


def names(graph: Graph, branch: str = "main") -> list[str]:
    text = "query q() { match { $p: Person } return { $p.name as n } order { n } }"
    return [row["n"] for row in graph.query(text, branch=branch).rows]


def acting(graph: Graph, actor: str, text: str = POLICY) -> Graph:
    return graph_for(graph, actor, Policy.of_text(text))


# ---- without a policy


def test_SV17_a_review_is_opened_commented_approved_and_merged(graph: Graph) -> None:
    opened = graph.reviews.open("work", title=" Bob joins ", text="At last.", actor="ada")
    assert (opened.title, opened.state, opened.author) == ("Bob joins", "open", "ada")
    assert opened.source_commit == graph.snapshot("work").commit_id
    graph.reviews.comment(opened.id, "Who is he?", actor="cid")
    graph.reviews.comment(opened.id, "Him?", entity=("node", "Person", "Bob"), actor="cid")
    graph.reviews.approve(opened.id, actor="bob")
    review = graph.reviews.get(opened.id)
    assert [(c.author, c.text, c.entity_id) for c in review.comments] == [
        ("cid", "Who is he?", None),
        ("cid", "Him?", "Bob"),
    ]
    assert [(a.actor, a.is_current) for a in review.approvals] == [("bob", True)]
    done = graph.reviews.merge(opened.id, actor="cid")
    assert done.commit is not None
    assert done.commit.message == "Bob joins"
    assert names(graph) == ["Ada", "Bob"]
    merged = graph.reviews.get(opened.id)
    assert (merged.state, merged.ended_by, merged.commit_id) == ("merged", "cid", done.commit.id)
    assert graph.reviews.list() == (merged,)
    assert graph.reviews.list(state="open") == ()


def test_an_approval_binds_the_head_and_lapses_when_it_moves(graph: Graph) -> None:
    review = graph.reviews.open("work", title="t", actor="ada")
    seen = graph.snapshot("work").commit_id
    assert graph.reviews.approve(review.id, actor="bob").approvals[0].source_commit == seen
    assert graph.reviews.approve(review.id, actor="bob").approvals == (
        graph.reviews.get(review.id).approvals
    )
    add(graph, "Cid", "work")
    assert [a.is_current for a in graph.reviews.get(review.id).approvals] == [False]
    with pytest.raises(og.PreconditionFailed):
        graph.reviews.approve(review.id, if_source=seen, actor="bob")
    again = graph.reviews.approve(review.id, actor="bob").approvals
    assert [(a.actor, a.is_current) for a in again] == [("bob", True)]


def test_an_author_cannot_approve_and_nobody_is_no_approver(graph: Graph) -> None:
    review = graph.reviews.open("work", title="t", actor="ada")
    with pytest.raises(og.OwnReview) as refused:
        graph.reviews.approve(review.id, actor="ada")
    assert refused.value.review == review.id
    with pytest.raises(og.BadRequest, match="somebody's"):
        graph.reviews.approve(review.id)
    with pytest.raises(og.BadRequest, match="reserved"):
        graph.reviews.approve(review.id, actor="omnigraph:recovery")
    assert graph.reviews.get(review.id).approvals == ()


def test_what_has_ended_takes_comments_alone(graph: Graph) -> None:
    review = graph.reviews.open("work", title="t", actor="ada")
    assert graph.reviews.close(review.id, actor="bob").state == "closed"
    assert graph.reviews.close(review.id, actor="cid").ended_by == "bob"
    for verb in (
        lambda: graph.reviews.approve(review.id, actor="bob"),
        lambda: graph.reviews.merge(review.id, actor="bob"),
    ):
        with pytest.raises(og.ReviewEnded, match="is closed"):
            verb()
    assert len(graph.reviews.comment(review.id, "why?").comments) == 1
    other = graph.reviews.open("work", title="t", actor="ada")
    first = graph.reviews.merge(other.id)
    again = graph.reviews.merge(other.id)
    assert again.repeated
    assert again.commit == first.commit
    with pytest.raises(og.ReviewEnded, match="is merged"):
        graph.reviews.close(other.id)
    with pytest.raises(og.ReviewEnded, match="is merged"):
        graph.reviews.approve(other.id, actor="bob")
    assert [r.state for r in graph.reviews.list()] == ["merged", "closed"]
    assert [r.id for r in graph.reviews.list(state="closed")] == [review.id]


def test_a_page_of_reviews_reads_its_own_records(graph: Graph) -> None:
    ids = [graph.reviews.open("work", title=f"t{n}", actor="ada").id for n in range(12)][::-1]
    graph.reviews.close(ids[1])
    assert [each.id for each in graph.reviews.list()] == ids

    def read(**chosen: Any) -> tuple[list[str], int]:
        before = graph.stats().calls.get("object.get", 0)
        listed = [each.id for each in graph.reviews.list(**chosen)]
        return listed, graph.stats().calls.get("object.get", 0) - before

    _, whole = read()
    page, few = read(limit=3)
    assert page == ids[:3]
    assert few <= whole - 9
    assert read(limit=3, before=ids[2])[0] == ids[3:6]
    assert read(limit=3, state="open")[0] == [ids[0], ids[2], ids[3]]
    assert read(state="closed", before=ids[0])[0] == [ids[1]]
    assert read(before=ids[-1])[0] == []
    for wrong in ({"limit": 0}, {"limit": -1}, {"before": "\ud800"}):
        with pytest.raises(og.BadRequest):
            graph.reviews.list(**wrong)


def test_a_review_merges_with_its_resolutions(graph: Graph) -> None:
    for branch, age in (("work", 1), ("main", 2)):
        text = f'query u() {{ update Person set {{ age: {age} }} where name = "Ada" }}'
        graph.mutate(text, branch=branch)
    review = graph.reviews.open("work", title="t", actor="ada")
    with pytest.raises(og.MergeConflicts):
        graph.reviews.merge(review.id)
    assert graph.reviews.get(review.id).state == "open"
    assert graph.reviews.merge(review.id, dry_run=True).kind == "conflicts"
    done = graph.reviews.merge(
        review.id, resolve={("Person", "Ada"): {"age": 3}}, delete_source=True
    )
    assert done.branch_deleted
    text = 'query q() { match { $p: Person  $p.name = "Ada" } return { $p.age as age } }'
    assert graph.query(text).rows == [{"age": 3}]
    assert graph.reviews.get(review.id).source_commit is None


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda r: r.open("nope", title="t"), og.NotFound),
        (lambda r: r.open("work", "nope", title="t"), og.NotFound),
        (lambda r: r.open("work", "work", title="t"), og.BadRequest),
        (lambda r: r.open("work", title=" "), og.BadRequest),
        (lambda r: r.open("work", title="x" * (TITLE_MAX + 1)), og.LimitExceeded),
        (lambda r: r.open("work", title="t", text="x" * (TEXT_MAX + 1)), og.LimitExceeded),
        (lambda r: r.open("work", title="\ud800"), og.BadRequest),
        (lambda r: r.open("tx/1", title="t"), og.BadRequest),
        (lambda r: r.open(5, title="t"), og.BadRequest),
        (lambda r: r.list(state="done"), og.BadRequest),
        (lambda r: r.get("nope"), og.NotFound),
        (lambda r: r.get(""), og.NotFound),
        (lambda r: r.get("../jobs/x"), og.NotFound),
        (lambda r: r.get("x" * 500), og.NotFound),
        (lambda r: r.comment("nope", "t"), og.NotFound),
        (lambda r: r.approve("nope", actor="bob"), og.NotFound),
        (lambda r: r.close("nope"), og.NotFound),
        (lambda r: r.merge("nope"), og.NotFound),
    ],
)
def test_what_is_no_review_is_refused(
    graph: Graph, call: Callable[[Any], Any], kind: type[og.OmnigraphError]
) -> None:
    with pytest.raises(kind):
        call(graph.reviews)
    assert graph.reviews.list() == ()


def test_comments_are_bounded_and_name_whole_entities(graph: Graph) -> None:
    review = graph.reviews.open("work", title="t")
    for text, entity in (
        (" ", None),
        ("t", ("node", "Person")),
        ("t", ("vertex", "Person", "Ada")),
        ("t", "node"),
    ):
        with pytest.raises(og.BadRequest):
            graph.reviews.comment(review.id, text, entity=entity)
    with pytest.raises(og.LimitExceeded):
        graph.reviews.comment(review.id, "x" * (TEXT_MAX + 1))
    records = graph.reviews._records
    one = graph.reviews.comment(review.id, "t").comments
    records.change(review.id, lambda r: replace(r, comments=one * COMMENTS_MAX))
    with pytest.raises(og.LimitExceeded):
        graph.reviews.comment(review.id, "one more")


def test_a_read_only_graph_shows_reviews_and_changes_none(graph: Graph) -> None:
    review = graph.reviews.open("work", title="t", actor="ada")
    with og.open(graph.uri, read_only=True) as shown:
        assert shown.reviews.get(review.id) == review
        for verb in (
            lambda: shown.reviews.open("work", title="t"),
            lambda: shown.reviews.comment(review.id, "t"),
            lambda: shown.reviews.approve(review.id, actor="bob"),
            lambda: shown.reviews.close(review.id),
            lambda: shown.reviews.merge(review.id),
        ):
            with pytest.raises(og.BadRequest, match="read-only"):
                verb()
    assert graph.reviews.get(review.id) == review


# ---- the gate


def test_a_direct_merge_obeys_the_gate_of_reviews(graph: Graph) -> None:
    ada, bob, cid = (acting(graph, actor) for actor in ("ada", "bob", "cid"))
    with pytest.raises(og.ApprovalsMissing, match="open a review"):
        ada.branches.merge("work")
    review = ada.reviews.open("work", title="t")
    assert review.required_approvals == 1
    for merge in (
        lambda: ada.branches.merge("work"),
        lambda: ada.branch("work").merge_into("main"),
        lambda: cid.branches.merge(" work ", " main "),
        lambda: ada.reviews.merge(review.id),
    ):
        with pytest.raises(og.ApprovalsMissing) as refused:
            merge()
        assert (refused.value.approvals, refused.value.required) == (0, 1)
        assert refused.value.review == review.id
    assert ada.branches.merge("work", dry_run=True).kind == "fast_forward"
    bob.reviews.approve(review.id)
    add(graph, "Cid", "work")
    with pytest.raises(og.ApprovalsMissing):
        ada.branches.merge("work")
    bob.reviews.approve(review.id)
    assert names(graph) == ["Ada"]
    done = cid.branches.merge("work", once="m")
    assert ada.reviews.get(review.id).state == "merged"
    assert ada.reviews.get(review.id).ended_by == "cid"
    assert cid.branches.merge("work", once="m").commit == done.commit
    with pytest.raises(og.ReviewEnded, match="is merged"):
        ada.reviews.merge(review.id)
    with pytest.raises(og.ApprovalsMissing):
        cid.branches.merge("work")


def test_patterns_need_their_number_and_other_targets_none(graph: Graph) -> None:
    ada, bob, cid = (acting(graph, actor) for actor in ("ada", "bob", "cid"))
    for name in ("release/1", "side"):
        graph.branches.create(name)
    assert ada.branches.merge("work", "side").kind == "fast_forward"
    review = ada.reviews.open("work", "release/1", title="t")
    main = ada.reviews.open("work", title="t")
    bob.reviews.approve(main.id)
    bob.reviews.approve(review.id)
    with pytest.raises(og.ApprovalsMissing) as refused:
        bob.branches.merge("work", "release/1")
    assert (refused.value.approvals, refused.value.required) == (1, 2)
    cid.reviews.approve(review.id)
    assert bob.reviews.merge(review.id).kind == "fast_forward"
    assert names(graph, "release/1") == ["Ada", "Bob"]
    assert names(graph) == ["Ada"]


def test_an_approval_of_somebody_who_may_no_longer_review_does_not_count(graph: Graph) -> None:
    ada, bob = acting(graph, "ada"), acting(graph, "bob")
    review = ada.reviews.open("work", title="t")
    bob.reviews.approve(review.id)
    today = POLICY.replace("people: [ada, bob, cid]", "people: [ada, cid]")
    with pytest.raises(og.ApprovalsMissing):
        acting(graph, "ada", today).branches.merge("work")
    assert ada.branches.merge("work").kind == "fast_forward"


def test_a_closed_review_lets_nothing_through(graph: Graph) -> None:
    ada, bob = acting(graph, "ada"), acting(graph, "bob")
    review = ada.reviews.open("work", title="t")
    bob.reviews.approve(review.id)
    ada.reviews.close(review.id)
    with pytest.raises(og.ApprovalsMissing, match="open a review"):
        ada.branches.merge("work")


def test_a_branch_of_the_same_name_is_not_what_was_approved(graph: Graph) -> None:
    ada, bob = acting(graph, "ada"), acting(graph, "bob")
    review = ada.reviews.open("work", title="t")
    bob.reviews.approve(review.id)
    ada.branches.delete("work")
    with pytest.raises(og.NotFound):
        ada.branches.merge("work")
    ada.branches.create("work")
    add(graph, "Eve", "work")
    with pytest.raises(og.ApprovalsMissing):
        ada.branches.merge("work")


def test_a_source_that_moves_between_gate_and_merge_is_not_merged(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, bob = acting(graph, "ada"), acting(graph, "bob")
    review = ada.reviews.open("work", title="t")
    bob.reviews.approve(review.id)
    real = ReviewGate.require

    def require(self: ReviewGate, *branches: Any) -> Any:
        passed = real(self, *branches)
        add(graph, "Eve", "work")
        return passed

    monkeypatch.setattr(ReviewGate, "require", require)
    with pytest.raises(og.PreconditionFailed):
        ada.branches.merge("work")
    assert names(graph) == ["Ada"]


def test_rights_are_asked_for_and_transactions_need_no_review(graph: Graph) -> None:
    ada, gus = acting(graph, "ada"), acting(graph, "gus")
    review = ada.reviews.open("work", title="t")
    for verb in (
        lambda: gus.reviews.open("work", title="t"),
        lambda: gus.reviews.comment(review.id, "t"),
        lambda: gus.reviews.comment("nope", "t"),
        lambda: gus.reviews.approve(review.id),
        lambda: gus.reviews.close(review.id),
    ):
        with pytest.raises(og.Forbidden, match="policy denied action 'review'"):
            verb()
    assert gus.reviews.get(review.id) == gus.reviews.list()[0]
    stranger = acting(graph, "eve")
    for verb in (
        lambda: stranger.reviews.list(),
        lambda: stranger.reviews.get(review.id),
        lambda: stranger.reviews.get("nope"),
        lambda: stranger.reviews.merge("nope"),
    ):
        with pytest.raises(og.Forbidden, match="unknown actor"):
            verb()
    with pytest.raises(og.BadRequest, match="acts as 'ada'"):
        ada.reviews.approve(review.id, actor="bob")
    with ada.transaction() as tx:
        tx.mutate('query t() { insert Person { name: "Tom" } }')
    assert names(graph) == ["Ada", "Tom"]


# ---- at once


def _work(uri: str, review_id: str, actor: str, barrier: Any, merges: bool) -> None:
    with og.open(uri) as graph:
        barrier.wait(60)
        for number in range(5):
            graph.reviews.comment(review_id, f"{actor} {number}", actor=actor)
        graph.reviews.approve(review_id, actor=actor)
        barrier.wait(60)
        if merges:
            graph.reviews.merge(review_id, actor=actor)


def test_of_processes_at_once_no_comment_is_lost_and_one_merges(graph: Graph) -> None:
    review = graph.reviews.open("work", title="t", actor="ada")
    made = context()
    barrier = made.Barrier(3)
    actors = ("bob", "cid", "dan")
    processes = [
        made.Process(target=_work, args=(graph.uri, review.id, actor, barrier, True))
        for actor in actors
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    merged = graph.reviews.get(review.id)
    assert sorted(c.text for c in merged.comments) == sorted(
        f"{actor} {number}" for actor in actors for number in range(5)
    )
    assert sorted(a.actor for a in merged.approvals) == sorted(actors)
    assert merged.state == "merged"
    merges = [c for c in graph.commits.list() if c.message == "t"]
    assert [c.id for c in merges] == [merged.commit_id]


# ---- crashes


def _merge_and_die(uri: str, review_id: str, place: str) -> None:
    graph = og.open(uri)
    failpoints.arm(place, "kill")
    graph.reviews.merge(review_id, actor="bob")


@pytest.mark.parametrize("place", ["commit.checked", "publish.before", "publish.after"])
def test_a_kill_leaves_a_review_open_or_merged_with_its_commit(graph: Graph, place: str) -> None:
    review = graph.reviews.open("work", title="t", actor="ada")
    uri = graph.uri
    graph.close()
    assert run(_merge_and_die, uri, review.id, place) == KILLED
    with og.open(uri) as again:
        stands = names(again) == ["Ada", "Bob"]
        shown = again.reviews.get(review.id)
        assert shown.state == ("merged" if stands else "open")
        done = again.reviews.merge(review.id, actor="cid")
        assert done.repeated is stands
        settled = again.reviews.get(review.id)
        assert settled.ended_by in (("bob", "omnigraph:recovery") if stands else ("cid",))
        assert done.commit is not None
        assert settled.commit_id == done.commit.id
        assert names(again) == ["Ada", "Bob"]
        assert len([c for c in again.commits.list() if c.message == "t"]) == 1


def _change_and_die(uri: str, review_id: str) -> None:
    graph = og.open(uri)
    beside = graph.beside
    real = beside._objects.put

    def put(path: str, data: bytes) -> None:
        real(f"{path}.half", data)
        os.kill(os.getpid(), signal.SIGKILL)

    beside._objects.put = put  # type: ignore[method-assign]
    graph.reviews.approve(review_id, actor="bob")


def test_a_kill_in_a_change_leaves_the_record_and_no_lock(graph: Graph) -> None:
    review = graph.reviews.open("work", title="t", actor="ada")
    assert run(_change_and_die, graph.uri, review.id) == KILLED
    assert graph.reviews.get(review.id) == review
    assert len(graph.reviews.approve(review.id, actor="cid").approvals) == 1


# ---- in a bucket


def test_reviews_in_a_bucket_are_swapped_there(s3_server: Server) -> None:
    uri = f"s3://{BUCKET}/{uuid.uuid4().hex}.omni"
    options = {"storage_options": s3_server.options}
    with og.init(uri, schema=SCHEMA, **options) as graph, og.open(uri, **options) as other:
        graph.branches.create("work")
        add(graph, "Bob", "work")
        review = graph.reviews.open("work", title="t", actor="ada")
        with ThreadPoolExecutor(6) as pool:
            handles = [graph, other] * 3
            calls = [
                pool.submit(handle.reviews.comment, review.id, f"c{number}", actor=f"a{number}")
                for number, handle in enumerate(handles)
            ]
            for call in calls:
                call.result()
        other.reviews.approve(review.id, actor="bob")
        shown = graph.reviews.get(review.id)
        assert sorted(c.text for c in shown.comments) == [f"c{number}" for number in range(6)]
        stale = review_records._encoded(review)
        assert not graph.beside.swap("reviews", review.id, b"{}", stale)
        done = other.reviews.merge(review.id, actor="bob")
        assert done.commit is not None
        assert graph.reviews.get(review.id).commit_id == done.commit.id
        assert graph.reviews.merge(review.id).repeated


# ---- answers to conflicts

LIMITED = """
version: 1
groups: { people: [ada, bob], mergers: [cid], editors: [dan] }
protected_branches: [main]
rules:
  - { id: all, allow: { actors: { group: people }, actions: [read, review, branch_merge] } }
  - { id: merge, allow: { actors: { group: mergers }, actions: [read, branch_merge] } }
  - { id: edit, allow: { actors: { group: editors }, actions: [read, branch_merge, change] } }
"""
DEMANDING = LIMITED + "required_approvals: { main: 1 }\n"
AGES = {("Person", "Ada"): {"age": 3}}


@pytest.fixture
def clashing(graph: Graph) -> Graph:
    for branch, age in (("work", 1), ("main", 2)):
        text = f'query u() {{ update Person set {{ age: {age} }} where name = "Ada" }}'
        graph.mutate(text, branch=branch)
    return graph


def age(graph: Graph) -> int:
    text = 'query q() { match { $p: Person  $p.name = "Ada" } return { $p.age } }'
    value: int = graph.query(text).scalar()
    return value


@pytest.mark.parametrize("policy", [DEMANDING, LIMITED], ids=["approvals", "protected"])
@pytest.mark.parametrize("resolve", [AGES, "theirs", lambda conflict: {"age": 3}])
def test_answers_that_nobody_approved_are_not_merged(
    clashing: Graph, policy: str, resolve: Any
) -> None:
    review = acting(clashing, "ada", policy).reviews.open("work", title="t")
    acting(clashing, "bob", policy).reviews.approve(review.id)
    cid = acting(clashing, "cid", policy)
    for merge in (
        lambda: cid.branches.merge("work", resolve=resolve),
        lambda: cid.reviews.merge(review.id, resolve=resolve),
    ):
        with pytest.raises(og.ApprovalsMissing, match="with these resolutions needs 1") as refused:
            merge()
        assert refused.value.review == review.id
    assert age(clashing) == 2


@pytest.mark.parametrize("resolve", [AGES, "theirs", lambda conflict: {"age": 3}])
def test_answers_that_were_approved_are_merged_and_no_others(clashing: Graph, resolve: Any) -> None:
    ada, bob, cid = (acting(clashing, actor, DEMANDING) for actor in ("ada", "bob", "cid"))
    review = ada.reviews.open("work", title="t")
    approved = bob.reviews.approve(review.id, resolve=resolve).approvals
    assert [(each.actor, each.resolutions) for each in approved] == [("bob", 1)]
    assert bob.reviews.approve(review.id, resolve=resolve).approvals == approved
    for other in ("ours", {("Person", "Ada"): {"age": 4}}):
        with pytest.raises(og.ApprovalsMissing):
            cid.branches.merge("work", resolve=other)
    assert cid.branches.merge("work", resolve=resolve).kind == "merged"
    assert age(clashing) in (1, 3)


def test_a_mapping_that_answers_more_than_it_lists_is_merged_as_listed(clashing: Graph) -> None:
    class Sly(dict):  # type: ignore[type-arg]
        def __missing__(self, key: object) -> object:
            return {"age": 99}

    cid = acting(clashing, "cid", LIMITED)
    with pytest.raises(og.MergeConflicts):
        cid.branches.merge("work", resolve=Sly())
    assert age(clashing) == 2


def test_who_may_change_the_target_answers_conflicts_once_the_source_is_approved(
    clashing: Graph,
) -> None:
    dan = acting(clashing, "dan", DEMANDING)
    with pytest.raises(og.ApprovalsMissing, match="needs 1 approval"):
        dan.branches.merge("work", resolve=AGES)
    review = acting(clashing, "ada", DEMANDING).reviews.open("work", title="t")
    acting(clashing, "bob", DEMANDING).reviews.approve(review.id)
    assert dan.branches.merge("work", resolve=AGES).kind == "merged"
    assert age(clashing) == 3


def test_an_approval_of_an_earlier_program_covers_a_merge_without_answers(
    clashing: Graph,
) -> None:
    ada, bob, cid = (acting(clashing, actor, DEMANDING) for actor in ("ada", "bob", "cid"))
    review = ada.reviews.open("work", title="t")
    bob.reviews.approve(review.id)
    records = clashing._reviews

    def as_stored_before(stored: Any) -> Any:
        (approval,) = stored.approvals
        return replace(stored, approvals=(replace(approval, digest=None),))

    records.change(review.id, as_stored_before)
    with pytest.raises(og.ApprovalsMissing):
        cid.branches.merge("work", resolve=AGES)
    with pytest.raises(og.MergeConflicts):
        cid.branches.merge("work")


def test_an_approval_is_of_answers_to_conflicts(clashing: Graph) -> None:
    review = clashing.reviews.open("work", title="t", actor="ada")
    with pytest.raises(og.BadRequest, match="without a conflict"):
        clashing.reviews.approve(review.id, resolve={("Person", "Bob"): "ours"}, actor="bob")
    assert clashing.reviews.get(review.id).approvals == ()


def test_an_approval_is_of_the_schema_steps_that_the_merge_takes(graph: Graph) -> None:
    wider = SCHEMA.replace("name: String @key", "name: String @key, town: String?")
    assert wider != SCHEMA
    graph.schema.apply(wider, branch="work")
    ada, bob, cid = (acting(graph, actor) for actor in ("ada", "bob", "cid"))
    review = ada.reviews.open("work", title="t")
    bob.reviews.approve(review.id)
    graph.schema.apply(wider, branch="main")  # the merge no longer changes the schema
    with pytest.raises(og.ApprovalsMissing):
        cid.branches.merge("work")
    bob.reviews.approve(review.id)
    assert cid.branches.merge("work").kind == "merged"


# ---- branches that may not be read

SCOPED = """
version: 1
groups: { people: [ada], guests: [gus] }
protected_branches: [secret, ghost]
rules:
  - { id: all, allow: { actors: { group: people }, actions: [read, review] } }
  - { id: some, allow: { actors: { group: guests }, actions: [read], branch_scope: unprotected } }
  - { id: reviews, allow: { actors: { group: guests }, actions: [review] } }
"""


def test_a_review_of_a_branch_that_may_not_be_read_is_denied_alike(graph: Graph) -> None:
    graph.branches.create("secret")
    gus = acting(graph, "gus", SCOPED)
    for pair in (("secret", "main"), ("ghost", "main"), ("main", "secret"), ("main", "ghost")):
        hidden = next(name for name in pair if name != "main")
        with pytest.raises(og.Forbidden) as denied:
            gus.reviews.open(*pair, title="t")
        assert (
            str(denied.value) == f"policy denied action 'read' on branch '{hidden}' for actor 'gus'"
        )


def test_reviews_of_hidden_branches_are_not_shown(graph: Graph) -> None:
    graph.branches.create("secret")
    ada, gus = acting(graph, "ada", SCOPED), acting(graph, "gus", SCOPED)
    shown = ada.reviews.open("work", title="shown")
    hidden = ada.reviews.open("secret", title="hidden")
    assert {each.id for each in ada.reviews.list()} == {shown.id, hidden.id}
    for verb in (
        lambda: gus.reviews.get(hidden.id),
        lambda: gus.reviews.comment(hidden.id, "t"),
        lambda: gus.reviews.approve(hidden.id),
        lambda: gus.reviews.close(hidden.id),
    ):
        with pytest.raises(og.Forbidden, match="'read' on branch 'secret'"):
            verb()
    assert gus.reviews.get(shown.id).title == "shown"
