"""Reviews and checks over HTTP and through the client, with and without a policy."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

import omnigraph as og
from omnigraph.errors import BadRequest, PolicyInvalid
from omnigraph.server import wire, wire_reviews
from omnigraph.server.bearer import digest_of
from omnigraph.server.serve_settings import Access, ServerSettings
from omnigraph.server.served import ServedGraphs
from omnigraph.server.served_sets import extras_of_folder
from tests.server.world import ADD, Served, checked, new_graph, refused

POLICY = """
version: 1
groups: { people: [ada, bob, cid] }
rules:
  - id: all
    allow:
      actors: { group: people }
      actions: [read, change, branch_create, branch_delete, branch_merge, review]
required_approvals: { main: 1 }
"""
OLD = "query old() { match { $p: Person  $p.age > 99 } return { $p.name as name } }"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    """A server with a policy that demands an approval, and a check of merges into main."""
    folder = tmp_path / "queries"
    folder.mkdir()
    (folder / "checks.gq").write_text(OLD)
    (folder / "checks.yaml").write_text("version: 1\nchecks: [{target: main, query: old}]\n")
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    running = Served(
        ServerSettings(
            graphs={"people": new_graph(tmp_path)},
            access=Access.READ_ONLY,
            tokens={digest_of(f"token-{actor}"): actor for actor in ("ada", "bob", "cid")},
            policies={"people": str(policy)},
            extras={"people": extras_of_folder(str(folder))},
        )
    )
    running.graph.branches.create("work")
    running.graph.mutate(ADD, {"n": "Dee", "a": 40}, branch="work")
    try:
        yield running
    finally:
        running.close()


def by(actor: str) -> dict[str, Any]:
    return {"headers": {"Authorization": f"Bearer token-{actor}"}}


def shown(response: httpx.Response, shape: type[wire.Body] = wire_reviews.ReviewOutput) -> Any:
    """The document of a response, checked against its shape, with its members as attributes."""
    text = json.dumps(checked(response, shape))
    return json.loads(text, object_hook=lambda members: SimpleNamespace(**members))


def opened(server: Served) -> str:
    body = {"source": "work", "title": "Dee joins", "text": "at last"}
    review = shown(server.post("/reviews", body, **by("ada")))
    assert (review.author_id, review.state, review.target) == ("ada", "open", "main")
    assert review.required_approvals == 1
    return str(review.id)


def test_SV17_a_review_over_http_from_its_opening_to_its_merge(server: Served) -> None:
    review = opened(server)
    path = f"/reviews/{review}"
    comment = {"text": "Her?", "entity_kind": "node", "type_name": "Person", "entity_id": "Dee"}
    shown(server.post(f"{path}/comments", comment, **by("bob")))
    assert refused(server.post(f"{path}/approve", {}, **by("ada")), 403, "forbidden")
    merge = server.post("/branches/merge", {"source": "work"}, **by("cid"))
    document = refused(merge, 403, "forbidden", "missing_approvals")
    assert document["missing_approvals"] == {"required": 1, "approvals": 0, "review_id": review}
    job = server.post("/jobs", {"kind": "merge", "source": "work"}, **by("cid")).json()
    while (state := server.get(f"/jobs/{job['id']}", **by("cid")).json())["state"] in (
        "queued",
        "running",
    ):
        pass
    assert state["state"] == "failed"
    head = server.graph.snapshot("work").commit_id
    stale = {"if_source_commit": server.graph.snapshot().commit_id}
    refused(server.post(f"{path}/approve", stale, **by("bob")), 412, None, "precondition_failure")
    done = server.client.post(f"{server.base}{path}/approve", **by("bob"))  # without a body
    approved = shown(done)
    assert [(a.actor_id, a.source_commit_id, a.is_current) for a in approved.approvals] == [
        ("bob", head, True)
    ]
    assert approved.comments[0].entity_id == "Dee"
    outcome = shown(server.post(f"{path}/merge", {}, **by("cid")), wire.BranchMergeOutput)
    assert (outcome.outcome, outcome.commit.message) == ("fast_forward", "Dee joins")
    assert "Dee" in server.names()
    again = server.post(f"{path}/merge", {}, **by("cid"))
    assert again.headers["Idempotent-Replay"] == "true"
    assert again.json()["commit"]["graph_commit_id"] == outcome.commit.graph_commit_id
    merged = shown(server.get(path, **by("bob")))
    assert (merged.state, merged.ended_by) == ("merged", "cid")
    assert merged.merge_commit_id == outcome.commit.graph_commit_id
    refused(server.post(f"{path}/close", {}, **by("ada")), 409, "conflict")


def test_SV18_a_failed_check_is_409_with_the_rows_in_merges_and_previews(server: Served) -> None:
    review = opened(server)
    server.graph.mutate(ADD, {"n": "Old", "a": 120}, branch="work")
    server.post(f"/reviews/{review}/approve", {}, **by("bob"))
    was = server.names()
    for path, body in (
        ("/branches/merge", {"source": "work"}),
        ("/branches/merge", {"source": "work", "dry_run": True}),
        (f"/reviews/{review}/merge", {}),
        (f"/reviews/{review}/merge", {"dry_run": True}),
    ):
        document = refused(server.post(path, body, **by("cid")), 409, "conflict", "failed_checks")
        assert document["failed_checks"] == [
            {"query": "old", "row_count": 1, "rows": [{"name": "Old"}]}
        ]
    assert server.names() == was
    assert shown(server.get(f"/reviews/{review}", **by("bob"))).state == "open"


def test_reviews_are_listed_in_pages_and_bad_requests_are_refused(server: Served) -> None:
    ids = [opened(server) for _ in range(3)]
    server.post(f"/reviews/{ids[0]}/close", {}, **by("ada"))
    page = shown(server.get("/reviews?limit=2", **by("bob")), wire_reviews.ReviewList)
    assert [each.id for each in page.reviews] == [ids[2], ids[1]]
    rest = server.get(f"/reviews?limit=2&page_token={page.next_page_token}", **by("bob")).json()
    assert [each["id"] for each in rest["reviews"]] == [ids[0]]
    assert "next_page_token" not in rest
    closed = server.get("/reviews?state=closed&source=work", **by("bob")).json()["reviews"]
    assert [each["id"] for each in closed] == [ids[0]]
    refused(server.get("/reviews?state=x", **by("bob")), 400, "bad_request")
    refused(server.get("/reviews?author=x", **by("bob")), 400, "bad_request")
    refused(server.get("/reviews/nope", **by("bob")), 404, "not_found")
    refused(server.get("/reviews/..%2Fjobs%2Fx", **by("bob")), 404, "not_found")
    for path, body in (
        ("/reviews", {"source": "work"}),
        ("/reviews", {"source": "work", "title": 5}),
        (f"/reviews/{ids[1]}/comments", {"text": "t", "entity_id": "Dee"}),
        (f"/reviews/{ids[1]}/merge", {"metadata": {"omnigraph:outcome": "x"}}),
    ):
        refused(server.post(path, body, **by("ada")), 400, "bad_request")
    gone = {"source": "gone", "title": "t"}
    refused(server.post("/reviews", gone, **by("ada")), 404, "not_found")


def test_RC1_the_client_has_the_verbs_of_the_library(server: Served) -> None:
    def graph(actor: str) -> og.Graph:
        return og.connect(server.url, graph="people", token=f"token-{actor}")

    with graph("ada") as ada, graph("bob") as bob:
        review = ada.reviews.open("work", title="t", text="x")
        assert review == server.graph.reviews.get(review.id) or review.required_approvals == 1
        bob.reviews.comment(review.id, "c", entity=("node", "Person", "Dee"))
        with pytest.raises(og.OwnReview):
            ada.reviews.approve(review.id)
        with pytest.raises(og.ApprovalsMissing) as refusal:
            ada.branches.merge("work")
        assert (refusal.value.required, refusal.value.review) == (1, review.id)
        assert bob.reviews.approve(review.id, if_source=review.source_commit).approvals
        with pytest.raises(og.NotServed):
            ada.reviews.merge(review.id, checks=[OLD])
        with pytest.raises(og.BadRequest, match="actor of its token"):
            ada.reviews.merge(review.id, actor="bob")
        server.graph.mutate(ADD, {"n": "Old", "a": 120}, branch="work")
        bob.reviews.approve(review.id)
        with pytest.raises(og.ChecksFailed) as failed:
            ada.reviews.merge(review.id)
        assert failed.value.checks == (og.FailedCheck("old", 1, ({"name": "Old"},)),)
        server.graph.mutate('query d() { delete Person where name = "Old" }', branch="work")
        bob.reviews.approve(review.id)
        assert ada.reviews.merge(review.id, dry_run=True).kind == "fast_forward"
        done = ada.reviews.merge(review.id, delete_source=True)
        assert done.branch_deleted
        assert ada.reviews.merge(review.id).repeated
        assert [r.state for r in bob.reviews.list(state="merged")] == ["merged"]
        with pytest.raises(og.ReviewEnded):
            ada.reviews.close(review.id)
        with pytest.raises(og.NotFound):
            ada.reviews.get("../x")


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("version: 1\nchecks: [{target: main, query: gone}]", BadRequest, "is not stored"),
        ("version: 1\nchecks: [{target: main, query: asks}]", BadRequest, "needs parameters"),
        ("version: 1\nchecks: [{target: main, query: writes}]", BadRequest, "writes"),
        ("version: 2\nchecks: []", PolicyInvalid, "version"),
        ("checks: [", PolicyInvalid, "YAML"),
    ],
)
def test_checks_that_cannot_be_run_are_refused_at_the_start(
    tmp_path: Path, text: str, kind: type[Exception], message: str
) -> None:
    (tmp_path / "q.gq").write_text(
        "query asks($n: String) { match { $p: Person  $p.name = $n } return { $p.name } }\n"
        'query writes() { insert Person { name: "X" } }\n'
    )
    (tmp_path / "checks.yaml").write_text(text)
    uri = new_graph(tmp_path)
    with pytest.raises(kind, match=message):
        ServedGraphs({"people": uri}, {"people": extras_of_folder(str(tmp_path))}).open_all(
            require_all=True
        )
