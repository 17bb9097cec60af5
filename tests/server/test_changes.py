"""The wire of changes: of a commit, the feed, baselines and exports."""

import json

import pytest

from omnigraph.server import wire_changes
from tests.server.world import ADD, AGE, NDJSON, Served, checked, refused


@pytest.fixture(scope="module")
def branch(server: Served) -> str:
    """A branch with three commits of its own."""
    server.graph.branches.create("fed")
    for name in ("Cy", "Di"):
        server.graph.mutate(ADD, {"n": name}, branch="fed", actor="act-ada")
    server.graph.mutate(AGE, {"n": "Ada", "a": 37}, branch="fed")
    return "fed"


def test_the_changes_of_a_commit_have_both_images(server: Served, branch: str) -> None:
    head = server.graph.commits.list(branch)[0]
    document = checked(server.get(f"/commits/{head.id}/changes"), wire_changes.CommitChangesOutput)
    assert document["cause"] == {
        "graph_commit_id": head.id,
        "parent_commit_id": head.parent,
        "authored_branch": branch,
        "authored_at": head.created_at,
        "graph_manifest_version": head.manifest_version,
        "counts": {"node:Person": {"inserted": 0, "updated": 1, "deleted": 0}},
    }
    (change,) = document["changes"]
    assert change["op"] == "update"
    assert change["type"]["name"] == "Person"
    assert change["before"]["properties"]["age"] == 36
    assert change["after"]["properties"]["age"] == 37


def test_changes_of_a_commit_are_paged_and_filtered(server: Served) -> None:
    load = server.graph.commits.list()[0].id
    path = f"/commits/{load}/changes"
    whole = checked(server.get(path), wire_changes.CommitChangesOutput)["changes"]
    listed, token = [], None
    while True:
        page = server.get(path, params={"limit": 1, **({"page_token": token} if token else {})})
        document = checked(page, wire_changes.CommitChangesOutput)
        listed += document["changes"]
        token = document.get("next_page_token")
        if token is None:
            break
    assert listed == whole
    edges = server.get(path, params={"kind": "edge"}).json()["changes"]
    assert [change["kind"] for change in edges] == ["edge"]
    assert edges[0]["after"]["endpoints"] == {"from": "Ada", "to": "Bob"}
    both = server.get(path, params=[("kind", "edge"), ("kind", "node"), ("op", "delete")])
    assert both.json()["changes"] == []


@pytest.mark.parametrize(
    ("params", "status", "error"),
    [
        ({"nope": "1"}, 400, "unknown query parameter 'nope'"),
        ([("limit", "1"), ("limit", "2")], 400, "may be given once"),
        ({"limit": "0"}, 400, "change page limit must be greater than zero"),
        ({"limit": "-1"}, 400, "no whole number"),
        ({"limit": "8193"}, 413, "commit_changes_page_changes"),
        ({"page_token": "rubbish"}, 400, "rejected"),
        ({"kind": "x"}, 400, "'x' is no kind"),
        ({"op": "x"}, 400, "'x' is no op"),
    ],
)
def test_a_listing_with_wrong_parameters_is_refused(
    params: dict[str, str], status: int, error: str, server: Served
) -> None:
    head = server.graph.commits.list()[0].id
    for path in (f"/commits/{head}/changes", "/changes"):
        response = server.get(path, params=params)
        members = ("resource_limit",) if status == 413 else ()
        assert error in refused(response, status, "bad_request", *members)["error"]


def test_a_commit_without_a_parent_has_no_changes(server: Served) -> None:
    first = server.graph.commits.list()[-1].id
    response = server.get(f"/commits/{first}/changes")
    document = refused(response, 409, "conflict", "change_diff_refusal")
    assert document["change_diff_refusal"] == {
        "reason": "parentless_commit",
        "graph_commit_id": first,
    }
    unknown = refused(server.get("/commits/nope/changes"), 404, "not_found")
    assert unknown["error"] == "commit 'nope' not found"


def test_the_feed_goes_on_from_its_cursor(server: Served, branch: str) -> None:
    path, where = "/changes", {"branch": branch}
    begun = checked(
        server.get(path, params={**where, "start": "beginning"}), wire_changes.ChangeFeedOutput
    )
    assert begun["caught_up"] is True
    assert [block["cause"]["graph_commit_id"] for block in begun["blocks"]][-3:] == [
        commit.id for commit in reversed(server.graph.commits.list(branch)[:3])
    ]
    assert begun["blocks"][-2]["cause"]["actor_id"] == "act-ada"
    later = server.get(path, params={**where, "cursor": begun["cursor"]}).json()
    assert later["blocks"] == []
    now = server.get(path, params={**where, "start": "now"}).json()
    assert now["blocks"] == []
    paged = checked(
        server.get(path, params={**where, "start": "beginning", "limit": 1}),
        wire_changes.ChangeFeedOutput,
    )
    assert "cursor" not in paged
    assert "caught_up" not in paged
    page = server.get(path, params={**where, "page_token": paged["next_page_token"]})
    checked(page, wire_changes.ChangeFeedOutput)


def test_a_feed_starts_where_it_may_and_nowhere_else(server: Served) -> None:
    refused(server.get("/changes", params={"start": "yesterday"}), 400, "bad_request")
    refused(server.get("/changes", params={"start": "after:nope"}), 404, "not_found")
    refused(server.get("/changes", params={"cursor": "nope"}), 400, "bad_request")
    refused(server.get("/changes", params={"branch": "nope"}), 404, "not_found")


def test_a_baseline_ends_with_its_handshake(server: Served, branch: str) -> None:
    response = server.post("/changes/baseline", {"branch": branch, "kind": ["node"]})
    assert response.status_code == 200
    assert response.headers["content-type"] == NDJSON["Content-Type"]
    *records, last = map(json.loads, response.text.splitlines())
    assert {record["type"] for record in records} == {"Person"}
    baseline = last["baseline"]
    assert baseline["snapshot_commit_id"] == server.graph.snapshot(branch).commit_id
    params = {"branch": branch, "cursor": baseline["resume_cursor"], "kind": "node"}
    assert server.get("/changes", params=params).json()["blocks"] == []
    refused(server.post("/changes/baseline", {"op": ["x"]}), 400, "bad_request")
    refused(server.post("/changes/baseline", {"branch": "x"}), 404, "not_found")


def test_an_export_loads_again(server: Served, branch: str) -> None:
    response = server.post("/export", {"branch": branch, "type_names": ["Person"]})
    assert response.headers["content-type"] == NDJSON["Content-Type"]
    records = [json.loads(line) for line in response.text.splitlines()]
    assert [record["data"]["name"] for record in records] == ["Ada", "Bob", "Cy", "Di"]
    server.graph.load(response.content, "merge")
    old = server.client.post("/export", json={"table_keys": ["edge:Knows"]})
    assert json.loads(old.text)["edge"] == "Knows"


def test_an_export_takes_what_it_knows_and_nothing_else(server: Served) -> None:
    refused(server.post("/export", {"branches": "x"}), 400, "bad_request")
    unknown = refused(server.post("/export", {"type_names": ["Nope"]}), 400, "bad_request")
    assert unknown["error"].startswith("unknown export type 'Nope'")
    refused(server.post("/export", {"table_keys": ["Nope"]}), 400, "bad_request")
    refused(server.post("/export", {"branch": "nope"}), 404, "not_found")
