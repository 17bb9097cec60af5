"""Who may do what: the open, the trusted and the read-only state, tokens and admission."""

import json
import threading
from pathlib import Path

import pytest

from omnigraph import BadRequest, Forbidden
from omnigraph.remote.wire_faults import error_of
from omnigraph.server import wire
from omnigraph.server.bearer import Tokens, digest_of, digests, tokens_of_file, tokens_of_text
from omnigraph.server.pools import WriteAdmission
from omnigraph.server.refusals import HttpRefusal
from omnigraph.server.serve_settings import Access
from tests.server.world import ADD, NAMES, PEOPLE, TOKENS, checked, refused, served

ADA = {"Authorization": f"Bearer {TOKENS['act-ada']}"}
WRITES = [
    ("POST", "/mutate"),
    ("POST", "/mutate/if-graph-commit"),
    ("POST", "/change"),
    ("POST", "/load"),
    ("POST", "/load/ndjson"),
    ("POST", "/ingest"),
    ("POST", "/branches"),
    ("DELETE", "/branches/x"),
    ("POST", "/branches/merge"),
    ("POST", "/schema/apply"),
    ("POST", "/export"),
    ("POST", "/changes/baseline"),
]


def test_only_a_known_token_opens_the_door(graph_uri: str) -> None:
    with served(graph_uri, access=Access.READ_ONLY) as server:
        assert server.client.get("/healthz").status_code == 200
        for headers in ({}, {"Authorization": "Basic x"}, {"Authorization": "bearer x"}):
            document = refused(server.get("/branches", headers=headers), 401, "unauthorized")
            assert document["error"] == "missing bearer token"
        unknown = server.get("/branches", headers={"Authorization": "Bearer nope"})
        assert refused(unknown, 401, "unauthorized")["error"] == "invalid bearer token"
        assert unknown.headers["www-authenticate"].startswith("Bearer")
        assert server.get("/branches", headers=ADA).status_code == 200
        hidden = server.client.get("/graphs/nope/branches")
        assert refused(hidden, 401, "unauthorized")["error"] == "missing bearer token"


def test_without_a_policy_a_known_actor_reads_and_nothing_more(graph_uri: str) -> None:
    with served(graph_uri, access=Access.READ_ONLY) as server:
        response = server.post("/query", {"query": NAMES}, headers=ADA)
        checked(response, wire.ReadOutput)
        for method, path in WRITES:
            denied = server.client.request(method, server.base + path, headers=ADA)
            document = refused(denied, 403, "forbidden")
            assert document["error"].startswith("policy denied action '")
            assert document["error"].endswith("for actor 'act-ada'")
            with pytest.raises(Forbidden, match=r"read it and nothing more; .* --trust-tokens"):
                raise error_of(403, denied.content, {}, server.url)
        refused(server.client.get("/graphs", headers=ADA), 403, "forbidden")


def test_SV6a_trusted_actors_do_everything_and_are_recorded(graph_uri: str) -> None:
    with served(graph_uri, access=Access.TRUSTED) as server:
        assert server.client.get("/graphs", headers=ADA).status_code == 200
        server.graph.branches.create("trusted")
        body = {"query": ADD, "params": {"n": "Cy"}, "branch": "trusted"}
        spoofed = {**ADA, "X-Actor": "act-eve"}
        document = checked(server.post("/mutate", body, headers=spoofed), wire.ChangeOutput)
        assert document["actor_id"] == document["commit"]["actor_id"] == "act-ada"
        assert server.graph.commits.list("trusted")[0].actor == "act-ada"
        load = {"data": PEOPLE, "branch": "trusted"}
        assert server.post("/load", load, headers=ADA).json()["actor_id"] == "act-ada"
        made = server.post("/branches", {"name": "by-ada"}, headers=ADA).json()
        assert made["actor_id"] == "act-ada"
        merge = {"source": "trusted", "target": "by-ada"}
        merged = server.post("/branches/merge", merge, headers=ADA).json()
        assert merged["commit"]["actor_id"] == "act-ada"
        gone = server.client.delete(f"{server.base}/branches/by-ada", headers=ADA)
        assert gone.json()["actor_id"] == "act-ada"
        document = server.app.openapi()
        assert document["components"]["securitySchemes"]["bearer_token"]["scheme"] == "bearer"


def test_SV6_tokens_are_digests_and_may_be_given_as_such(tmp_path: Path) -> None:
    secret = digest_of("secret")
    known = Tokens(digests({"a": f"sha256:{secret}", "b": "other"}, "here"))
    assert known.actor("Bearer secret") == "a"
    assert known.actor("Bearer other") == "b"
    assert "secret" not in repr(vars(known))
    file = tmp_path / "tokens.json"
    file.write_text(json.dumps({"a": "secret"}))
    assert tokens_of_file(str(file)) == {secret: "a"}
    several = Tokens(digests({"a": ["old", "new"], "b": []}, "here"))
    assert several.actor("Bearer old") == several.actor("Bearer new") == "a"
    known.replace(tokens_of_text('{"c": "third"}', "OMNIGRAPH_X"))
    with pytest.raises(HttpRefusal):
        known.actor("Bearer secret")


@pytest.mark.parametrize(
    "tokens",
    [
        {},
        [],
        "x",
        {"a": ""},
        {"a": 7},
        {"a": "x", "b": "x"},
        {"a": []},
        {"a": ["x", ""]},
        {"a": "sha256:zz"},
        {"": "x"},
    ],
)
def test_tokens_that_cannot_be_used_are_refused(tokens: object) -> None:
    with pytest.raises(BadRequest):
        digests(tokens, "here")


def test_a_tokens_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    for text in ("{", "[]"):
        (tmp_path / "t").write_text(text)
        with pytest.raises(BadRequest):
            tokens_of_file(str(tmp_path / "t"))
    with pytest.raises(BadRequest):
        tokens_of_file(str(tmp_path / "missing"))
    with pytest.raises(BadRequest):
        tokens_of_text("{", "X")


def test_an_actor_has_so_many_writes_in_flight_and_so_many_bytes() -> None:
    admission = WriteAdmission(2, 100)
    with admission.admitted("a", 60):
        with pytest.raises(HttpRefusal) as refusal, admission.admitted("a", 50):
            pass
        assert refusal.value.status == 429
        assert refusal.value.headers == {"Retry-After": "60"}
        with admission.admitted("a", 40):
            with pytest.raises(HttpRefusal), admission.admitted("a", 0):
                pass
            with admission.admitted("b", 100):
                pass
    with admission.admitted("a", 100):
        pass


def test_a_write_beyond_what_the_actor_may_have_in_flight_is_429(
    graph_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnigraph.server.serve_settings import ServerLimits  # noqa: PLC0415

    with served(graph_uri, limits=ServerLimits(actor_inflight=1)) as server:
        inside, leave = threading.Event(), threading.Event()

        def slow(*_: object, **__: object) -> str:
            inside.set()
            assert leave.wait(30)
            return "made"

        monkeypatch.setattr(server.graph.branches, "create", slow)
        answers: list[int] = []
        first = threading.Thread(
            target=lambda: answers.append(server.post("/branches", {"name": "x"}).status_code)
        )
        first.start()
        assert inside.wait(30)
        second = server.post("/branches", {"name": "y"})
        refused(second, 429, "too_many_requests")
        assert second.headers["retry-after"] == "60"
        leave.set()
        first.join(30)
        assert answers == [200]
