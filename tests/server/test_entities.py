"""Entities and their histories on the wire (SV12)."""

from urllib.parse import quote

from omnigraph.server import wire_entities
from tests.server.world import ADD, AGE, Served, checked, refused


def test_SV12_an_entity_has_its_values_and_its_edges_counted(server: Served) -> None:
    ada = checked(server.get("/entities/node/Person/Ada"), wire_entities.EntityOutput)
    assert ada["properties"]["age"] == 36
    assert ada["properties"]["photo"] == "blob:11"
    assert ada["edges"] == [{"type_name": "Knows", "direction": "out", "count": 1}]
    assert ada["graph_commit_id"] == server.graph.snapshot().commit_id
    (change,) = [c for c in server.graph.commits.changes("main") if c.kind == "edge"]
    edge = checked(server.get(f"/entities/edge/Knows/{change.id}"), wire_entities.EntityOutput)
    assert edge["endpoints"] == {"from": "Ada", "to": "Bob"}
    assert edge["edges"] == []


def test_SV12_an_id_with_signs_of_its_own_is_one_segment(server: Served) -> None:
    server.graph.mutate(ADD, {"n": "a/b c?ü"}, branch="main")
    path = f"/entities/node/Person/{quote('a/b c?ü', safe='')}"
    assert checked(server.get(path), wire_entities.EntityOutput)["id"] == "a/b c?ü"
    pages = checked(server.get(f"{path}/history"), wire_entities.EntityHistoryOutput)
    assert [each["change"]["op"] for each in pages["revisions"]] == ["insert"]


def test_SV12_a_history_comes_in_pages_that_join(server: Served) -> None:
    server.graph.branches.create("aged")
    for age in (1, 2, 3):
        server.graph.mutate(
            AGE, {"n": "Bob", "a": age}, branch="aged", message=f"to {age}", actor="act-me"
        )
    path = "/entities/node/Person/Bob/history?branch=aged"
    whole = checked(server.get(path), wire_entities.EntityHistoryOutput)
    ages = [each["change"]["after"]["properties"]["age"] for each in whole["revisions"]]
    assert ages == [3, 2, 1, 25]
    newest = whole["revisions"][0]
    assert newest["change"]["before"]["properties"]["age"] == 2
    assert (newest["cause"]["message"], newest["cause"]["actor_id"]) == ("to 3", "act-me")
    first = checked(server.get(f"{path}&limit=3"), wire_entities.EntityHistoryOutput)
    token = first["next_page_token"]
    rest = server.get(f"{path}&limit=3&page_token={token}")
    last = checked(rest, wire_entities.EntityHistoryOutput)
    assert first["revisions"] + last["revisions"] == whole["revisions"]
    assert "next_page_token" not in last
    at = server.get("/entities/node/Person/Bob/history?snapshot=aged~2")
    assert len(checked(at, wire_entities.EntityHistoryOutput)["revisions"]) == 2
    wrong = server.get(f"/entities/node/Person/Ada/history?limit=3&page_token={token}")
    refused(wrong, 400, "bad_request")


def test_SV12_what_is_not_there_is_refused(server: Served) -> None:
    refused(server.get("/entities/node/Person/Zed"), 404, "not_found")
    refused(server.get("/entities/node/Person/Zed/history"), 404, "not_found")
    refused(server.get("/entities/node/Nobody/Ada"), 400, "bad_request")
    refused(server.get("/entities/thing/Person/Ada/history"), 400, "bad_request")
    refused(server.get("/entities/node/Person/Ada?brunch=main"), 400, "bad_request")
    refused(server.get("/entities/node/Person/Ada?branch=none"), 404, "not_found")
    refused(server.get("/entities/node/Person/Ada/history?limit=0"), 400, "bad_request")
    refused(
        server.get("/entities/node/Person/Ada/history?limit=9999"),
        413,
        "bad_request",
        "resource_limit",
    )
