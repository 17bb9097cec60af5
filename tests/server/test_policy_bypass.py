"""Ways around a policy, each tried: identity, spelling of names, keys of others, every writer."""

import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import yaml

import omnigraph as og
from omnigraph.server.bearer import digest_of
from omnigraph.server.policy_files import ReloadedFiles, policies_of
from omnigraph.server.request_log import RequestLog
from omnigraph.server.serve_settings import Access, ServerSettings
from tests.server.policy_world import CELLS, LINE, Sender, bearer, policy_text, served_policy
from tests.server.test_policy_matrix import settled, state
from tests.server.world import ADD, NAMES, Served, new_graph, served

WRITERS = [name for name, cell in CELLS.items() if cell.action == "change" and "cancel" not in name]
DRAFTER = "on-unprotected-change"
ADDS = {"query": ADD, "params": {"n": "By"}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("bypass")
    (folder / "allowed").mkdir()
    (folder / "allowed" / "rows.jsonl").write_text(LINE)
    (folder / "secret.jsonl").write_text(LINE)
    base = f"{folder / 'allowed'}/"
    running = served_policy(folder, job_sources=(base,), job_targets=(base,))
    running.folder = folder  # type: ignore[attr-defined]
    try:
        yield running
    finally:
        running.close()


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Actor": "act-everything"},
        {"X-Omnigraph-Actor": "act-everything"},
        {"X-Forwarded-User": "act-everything"},
        {"X-Remote-User": "act-everything", "Remote-User": "act-everything"},
        {"Omnigraph-Actor": "act-everything", "From": "act-everything"},
        {"Cookie": "token=token-everything"},
        {"Proxy-Authorization": "Bearer token-everything"},
        {"X-Authorization": "Bearer token-everything"},
        {"X-HTTP-Method-Override": "GET"},
        {"X-Original-URL": "/healthz", "X-Rewrite-URL": "/healthz"},
    ],
)
def test_no_header_but_the_token_says_who_asks(server: Served, headers: dict[str, str]) -> None:
    was = state(server)
    denied = Sender(server, {**bearer(DRAFTER), **headers}).post("/mutate", ADDS)
    assert denied.status_code == 403
    assert denied.json()["error"].endswith(f"on branch 'main' for actor 'act-{DRAFTER}'")
    assert Sender(server, headers).post("/mutate", ADDS).status_code == 401
    assert state(server) == was


def test_two_authorizations_are_not_a_choice(server: Served) -> None:
    was = state(server)
    url = f"{server.url}{server.base}/mutate"
    for first, second in ((DRAFTER, "everything"), ("everything", DRAFTER)):
        sent = [
            ("Authorization", f"Bearer token-{first}"),
            ("Authorization", f"Bearer token-{second}"),
        ]
        response = httpx.post(url, json=ADDS, headers=sent)
        assert response.status_code in (400, 401, 403), response.text
    assert state(server) == was


@pytest.mark.parametrize(
    "members",
    [
        {"actor": "act-everything"},
        {"actor_id": "act-everything"},
        {"as": "act-everything"},
        {"token": "token-everything"},
        {"metadata": {"actor": "act-everything"}},
    ],
)
def test_no_member_of_a_body_says_who_asks(server: Served, members: dict[str, Any]) -> None:
    was = state(server)
    drafter = Sender(server, bearer(DRAFTER))
    assert drafter.post("/mutate", {**ADDS, **members}).status_code == 403
    assert state(server) == was
    done = drafter.post("/mutate", {**ADDS, "branch": "draft", **members})
    assert done.status_code == 200
    assert done.json()["actor_id"] == done.json()["commit"]["actor_id"] == f"act-{DRAFTER}"
    for query in ("?actor=act-everything", "?as=act-everything&actor_id=act-everything"):
        assert drafter.post(f"/mutate{query}", ADDS).status_code == 403


@pytest.mark.parametrize("operation", WRITERS)
@pytest.mark.parametrize("spelling", [" main", "main ", "main\u00a0", "\tmain"])
def test_no_writer_reaches_a_protected_branch_by_spaces(
    server: Served, operation: str, spelling: str
) -> None:
    was = state(server)
    cell = CELLS[operation]
    sender = Sender(server, bearer(DRAFTER))
    sender.head = lambda branch: server.graph.snapshot("main").commit_id  # type: ignore[method-assign]
    response = cell.send(sender, spelling)
    settled(server)
    assert response.status_code == 403, response.text
    assert state(server) == was


@pytest.mark.parametrize("operation", WRITERS)
def test_no_writer_reaches_a_protected_branch_by_another_name(
    server: Served, operation: str
) -> None:
    """Case, dots, slashes, points in time, encoded text, confusable letters, very long names."""
    cell = CELLS[operation]
    sender = Sender(server, bearer(DRAFTER))
    sender.head = lambda branch: server.graph.snapshot("main").commit_id  # type: ignore[method-assign]
    head = server.graph.snapshot("main").commit_id
    for spelling in (
        *("Main", "MAIN", "main.", "main..", "./main", "main/", "/main", "main%00", "main~0"),
        *(
            "ma%69n",
            "main\u200b",
            "mаin",
            "ｍａｉｎ",
            "main@{2999-01-01}",
            "x" * 20_000,
            head,
            "t0",
        ),
    ):
        response = cell.send(sender, spelling)
        settled(server)
        assert response.status_code >= 400 or _job_failed(server, response), (spelling, response)
        assert server.graph.snapshot("main").commit_id == head, spelling
    if operation in ("cluster_ingest",):
        made = [name for name in server.graph.branches.list() if name not in KNOWN]
        assert made == [], "a load forked without the right to create a branch"


KNOWN = {"main", "draft", "side", "new-main", "new-draft"}


def _job_failed(server: Served, response: httpx.Response) -> bool:
    job = response.json()
    return "kind" in job and bool(ended(server, job["id"])["state"] == "failed")


def ended(server: Served, job_id: str) -> Any:
    """A job once its end is stored."""
    everything = Sender(server, bearer("everything"))
    while (job := everything.get(f"/jobs/{job_id}").json())["state"] in ("queued", "running"):
        pass
    return job


def test_an_encoded_name_in_a_path_is_the_name_it_stands_for(server: Served) -> None:
    server.graph.branches.create("release/1")
    everything = policy_text(protected_branches=["release/*", "main"])
    file = server.settings.policies["people"]
    Path(file).write_text(everything)
    deleter = "on-unprotected-branch_delete"
    try:
        server.app.gate.policies = policies_of(server.settings)
        for spelling in (
            "release%2F1",
            "release%2f1",
            "release/1",
            "r%65lease%2F1",
            "%20release%2F1",
        ):
            url = f"{server.url}{server.base}/branches/{spelling}"
            denied = httpx.delete(url, headers=bearer(deleter))
            assert denied.status_code == 403, spelling
        for spelling in ("release%252F1", "RELEASE%2F1", "release%2F1.", "release%2F%2F1"):
            url = f"{server.url}{server.base}/branches/{spelling}"
            missing = httpx.delete(url, headers=bearer(deleter))
            assert missing.status_code in (400, 403, 404), spelling
        assert "release/1" in server.graph.branches.list()
    finally:
        Path(file).write_text(policy_text())
        server.app.gate.policies = policies_of(server.settings)
        server.graph.branches.delete("release/1")


def test_a_merge_reaches_no_protected_branch(server: Served) -> None:
    was = state(server)
    merger = Sender(server, bearer("on-unprotected-branch_merge"))
    for target in (None, "main", " main ", "main\n"):
        body = {"source": "draft"} if target is None else {"source": "draft", "target": target}
        for extra in ({}, {"dry_run": True}, {"by": "property"}, {"delete_branch": True}):
            response = merger.post("/branches/merge", {**body, **extra})
            assert response.status_code == 403, response.text
        job = merger.post("/jobs", {"kind": "merge", **body})
        assert job.status_code == 403
    settled(server)
    assert state(server) == was


def test_the_source_of_a_merge_is_not_deleted_without_the_right(server: Served) -> None:
    graph = server.graph
    graph.branches.create("spent", "draft")
    merger = Sender(server, bearer("has-branch_merge"))
    body = {"source": "spent", "target": "draft", "delete_branch": True}
    done = merger.post("/branches/merge", body).json()
    assert done["branch_deleted"] is False
    assert "policy denied action 'branch_delete'" in done["branch_delete_error"]
    assert "spent" in graph.branches.list()
    graph.branches.delete("spent")


def test_a_load_forks_only_with_the_right_to_create_a_branch(server: Served) -> None:
    was = state(server)
    changer = Sender(server, bearer("has-change"))
    for path in ("/load", "/ingest"):
        body = {"data": LINE, "branch": "forked", "from": "draft"}
        denied = changer.post(path, body)
        assert denied.status_code == 403
        assert "'branch_create' on branch 'draft' targeting branch 'forked'" in denied.text
    ndjson = {"Content-Type": "application/x-ndjson"}
    params = {"branch": "forked", "from": "draft"}
    denied = changer.request("POST", "/load/ndjson", headers=ndjson, params=params, content=LINE)
    assert denied.status_code == 403
    source = f"{server.folder}/allowed/rows.jsonl"  # type: ignore[attr-defined]
    job = changer.post("/jobs", {"kind": "load", "source": source, **params})
    settled(server)
    assert ended(server, job.json()["id"])["state"] == "failed"
    assert ended(server, job.json()["id"])["error"]["status"] == 403
    assert state(server)[:2] == was[:2]


def test_a_snapshot_is_read_as_the_branch_that_owns_it(server: Served) -> None:
    reader = Sender(server, bearer("on-unprotected-read"))
    main, draft = (server.graph.snapshot(name).commit_id for name in ("main", "draft"))
    for path in ("/snapshot", "/indexes", "/entities/node/Person/Ada"):
        assert reader.get(path, snapshot=main).status_code == 403, path
        assert reader.get(path, snapshot=draft).status_code == 200, path
        for point in ("main~0", "t0", main[:12].lower(), "main@{2999-01-01}"):
            assert reader.get(path, snapshot=point).status_code == 403, (path, point)
            assert reader.get(path, branch=point).status_code == 403, (path, point)
    body = {"query": NAMES, "snapshot": main}
    assert reader.post("/query", body).status_code == 403
    assert reader.post("/query", {"query": NAMES, "branch": "main~0"}).status_code == 403
    assert reader.get("/diff", **{"from": "draft", "to": "main"}).status_code == 403
    exporter = Sender(server, bearer("on-unprotected-export"))
    for selector in ({"snapshot": main}, {"branch": "main~0"}, {"branch": "t0"}):
        assert exporter.post("/export", selector).status_code == 403
    target = f"{server.folder}/allowed/out.jsonl"  # type: ignore[attr-defined]
    for selector in ({"snapshot": main}, {"branch": "main~0"}):
        job = exporter.post("/jobs", {"kind": "export", "target": target, **selector})
        settled(server)
        assert ended(server, job.json()["id"])["state"] == "failed"
    assert not Path(target).exists()


def test_a_commit_that_may_not_be_read_is_not_there(server: Served) -> None:
    reader = Sender(server, bearer("on-unprotected-read"))
    main = server.graph.snapshot("main").commit_id
    hidden = reader.get(f"/commits/{main}/changes")
    missing = reader.get(f"/commits/{'0' * 26}/changes")
    assert hidden.status_code == missing.status_code == 404
    assert hidden.json()["error"] == f"commit '{main}' not found"
    assert missing.json()["error"] == f"commit '{'0' * 26}' not found"
    assert hidden.json().keys() == missing.json().keys()


@pytest.mark.parametrize(
    ("actor", "path", "body"),
    [
        ("on-unprotected-read", "/query", {"query": NAMES, "branch": "draftt"}),
        ("on-unprotected-read", "/query", {"query": NAMES, "snapshot": "sidee"}),
        ("on-unprotected-read", "/query", {"query": NAMES, "branch": "side~99"}),
        ("on-unprotected-export", "/export", {"branch": "draftt"}),
        ("has-change", "/revert", {"commit": "mian"}),
        ("has-change", "/restore", {"point": "mian~99"}),
        ("has-change", "/load", {"data": LINE, "branch": "sidee"}),
        ("has-branch_create", "/branches", {"name": "x", "from": "sidee"}),
        ("has-branch_create", "/tags", {"name": "x", "point": "mian"}),
    ],
)
def test_who_may_not_list_branches_is_told_of_none(
    server: Served, actor: str, path: str, body: dict[str, Any]
) -> None:
    told = Sender(server, bearer(actor)).post(path, body)
    assert told.status_code == 404, told.text
    assert not {"main", "side", "draft"} & set(told.text.split("'")), told.text
    assert "did you mean" not in told.text
    assert "come before" not in told.text


def test_the_feed_tells_who_may_not_list_branches_of_none(server: Served) -> None:
    feed = Sender(server, bearer("on-unprotected-read")).get(
        "/changes", branch="side", start="after:drafd"
    )
    assert feed.status_code == 404
    assert "did you mean" not in feed.text
    listing = Sender(server, bearer("everything")).get("/changes", start="after:drafd")
    assert "did you mean 'draft'?" in listing.json()["error"]


@pytest.mark.parametrize("name", ["main", "main~99", "main@{1999-01-01}", "tag-main", "tag-main~1"])
def test_a_denial_does_not_tell_whether_a_branch_is_there(server: Served, name: str) -> None:
    reader = Sender(server, bearer("on-unprotected-read"))
    statuses = {
        reader.post("/query", {"query": NAMES, "branch": name}).status_code,
        reader.post("/query", {"query": NAMES, "snapshot": name}).status_code,
        reader.get("/commits", branch=name).status_code,
        reader.get("/snapshot", branch=name).status_code,
        reader.get("/diff", **{"from": name, "to": "side"}).status_code,
    }
    assert statuses == {403}


def test_a_stored_query_that_may_not_be_run_is_not_there(server: Served) -> None:
    for name in ("lacks-invoke_query", "everything", "stranger"):
        for path in ("/queries/x", "/queries/y"):
            response = Sender(server, bearer(name)).post(path, {})
            assert response.status_code == 404
            assert response.json()["error"] == "stored query not found"


def test_whoever_may_do_nothing_learns_nothing_from_bad_requests(server: Served) -> None:
    nobody = Sender(server, bearer("nothing"))
    for body in ("{", "[]", '{"query": 7}', '{"branch": "nope", "query": "x"}', ""):
        response = nobody.request(
            "POST", "/mutate", content=body, headers={"Content-Type": "application/json"}
        )
        assert response.status_code == 403, body
    assert nobody.get("/commits/nope").status_code == 403
    assert nobody.get("/snapshot", branch="nope").status_code == 403
    assert nobody.get("/changes", start="nonsense", bogus=1).status_code == 403


@pytest.mark.parametrize(
    ("path", "media"),
    [
        ("/load/ndjson", "application/x-ndjson"),
        ("/load/ndjson?branch=main", "application/x-ndjson"),
        ("/load?type=Person", "application/vnd.apache.parquet"),
        ("/blob?entity=node&type=Person&id=Ada&property=photo", "application/octet-stream"),
    ],
)
@pytest.mark.parametrize("name", ["nothing", DRAFTER])
def test_a_denied_load_is_not_read(server: Served, path: str, media: str, name: str) -> None:
    """The answer comes although the body never does."""
    method = "PUT" if path.startswith("/blob") else "POST"
    head = (
        f"{method} {server.base}{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {media}\r\n"
        f"Authorization: Bearer token-{name}\r\nContent-Length: 1000000\r\n\r\n"
    )
    with socket.create_connection(server.address, timeout=30) as connection:
        connection.sendall(head.encode())
        answer = b""
        while b"}" not in answer:
            answer += connection.recv(65_536)
    assert b" 403 " in answer.splitlines()[0]
    assert f"on branch 'main' for actor 'act-{name}'".encode() in answer


def test_a_key_of_another_actor_replays_nothing(server: Served) -> None:
    key = {"Idempotency-Key": "shared-key"}
    body = {**ADDS, "params": {"n": "Key"}, "branch": "draft"}
    first = Sender(server, {**bearer("has-change"), **key}).post("/mutate", body)
    again = Sender(server, {**bearer("has-change"), **key}).post("/mutate", body)
    assert again.headers["idempotent-replay"] == "true"
    other = Sender(server, {**bearer(DRAFTER), **key}).post("/mutate", body)
    assert "idempotent-replay" not in other.headers
    if other.status_code == 200 and other.json()["commit"]:
        assert (
            other.json()["commit"]["graph_commit_id"] != first.json()["commit"]["graph_commit_id"]
        )
    for name in ("nothing", "has-read"):
        denied = Sender(server, {**bearer(name), **key}).post("/mutate", body)
        assert denied.status_code == 403
    seen = Sender(server, bearer("has-read")).get("/operations/shared-key", branch="draft").json()
    assert seen["state"] == "unknown"


def test_names_of_actors_with_colons_share_no_key(tmp_path: Path) -> None:
    tokens = {digest_of("one"): "a", digest_of("two"): "a:b"}
    with served(new_graph(tmp_path), access=Access.TRUSTED, tokens=tokens) as trusted:
        body = {"query": ADD, "params": {"n": "Colon"}}
        for token, key, is_replay in (("one", "b:c", False), ("two", "c", False)):
            headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": key}
            done = trusted.post("/mutate", body, headers=headers)
            assert ("idempotent-replay" in done.headers) is is_replay, done.text


def test_confusable_actors_are_other_actors(tmp_path: Path) -> None:
    spellings = [
        "аct-everything",
        "ACT-EVERYTHING",
        "act-everything.",
        "act‐everything",
        "ａct-everything",
    ]
    file = tmp_path / "p.yaml"
    file.write_text(policy_text())
    tokens = {digest_of(f"t{n}"): actor for n, actor in enumerate(spellings)}
    with served(
        new_graph(tmp_path), access=Access.READ_ONLY, tokens=tokens, policies={"people": str(file)}
    ) as guarded:
        for number, actor in enumerate(spellings):
            headers = {"Authorization": f"Bearer t{number}"}
            denied = guarded.post("/query", {"query": NAMES}, headers=headers)
            assert denied.status_code == 403
            assert denied.json()["error"] == (
                f"policy denied action 'read' for unknown actor '{actor}'"
            )


@pytest.mark.parametrize(
    "address",
    [
        "http://169.254.169.254/latest/meta-data/",
        "https://example.com/x.jsonl",
        "file:///etc/passwd",
        "/etc/passwd",
        "s3://other/secret.jsonl",
        "{folder}/secret.jsonl",
        "{folder}/allowed/../secret.jsonl",
        "{folder}/allowed/%2e%2e/secret.jsonl",
        "gs://bucket/x",
        "ftp://host/x",
    ],
)
def test_no_job_reads_or_writes_where_it_may_not(server: Served, address: str) -> None:
    named = address.format(folder=server.folder)  # type: ignore[attr-defined]
    everything = Sender(server, bearer("everything"))
    was = state(server)
    for body in (
        {"kind": "load", "source": named},
        {"kind": "export", "target": named},
        {"kind": "embed", "source": named, "target": named, "spec": {}},
    ):
        response = everything.post("/jobs", body)
        assert response.status_code == 400, (body, response.text)
    assert state(server) == was


@pytest.mark.parametrize(
    "address",
    [
        "http://169.254.169.254/x",
        "file:///etc/passwd",
        "s3://bucket/key",
        "/etc/passwd",
        "ftp://h/x",
    ],
)
def test_no_blob_is_fetched_from_outside(server: Served, address: str) -> None:
    everything = Sender(server, bearer("everything"))
    was = server.graph.snapshot("draft").commit_id
    text = 'query p($b: Blob) { insert Person { name: "Blobby", photo: $b } }'
    mutation = {"query": text, "params": {"b": address}, "branch": "draft"}
    assert everything.post("/mutate", mutation).status_code == 400
    line = json.dumps({"type": "Person", "data": {"name": "Blobby", "photo": address}})
    assert everything.post("/load", {"data": line, "branch": "draft"}).status_code == 400
    transaction = {"branch": "draft", "statements": [{"query": text, "params": {"b": address}}]}
    assert everything.post("/transactions", transaction).status_code == 400
    assert server.graph.snapshot("draft").commit_id == was


def test_the_branch_of_a_transaction_is_out_of_reach(server: Served) -> None:
    with server.graph.transaction() as block:
        inner = next(name for name in server.graph.branches.list() if name.startswith("tx/"))
        everything = Sender(server, bearer("everything"))
        assert everything.post("/mutate", {**ADDS, "branch": inner}).status_code == 403
        assert everything.post("/query", {"query": NAMES, "branch": inner}).status_code == 403
        deleting = everything.request("DELETE", f"/branches/{quote(inner, safe='')}")
        assert deleting.status_code == 403
        block.query(NAMES)


def test_the_transaction_of_a_client_asks_for_each_of_its_steps(server: Served) -> None:
    for name, is_allowed in (("everything", True), ("lacks-branch_merge", False)):
        with og.connect(server.url, "people", token=f"token-{name}") as client:
            was = state(server)
            with contextlib.suppress(og.Forbidden), client.transaction(branch="draft") as block:
                block.mutate(ADD, {"n": f"Client {name}"})
            names = {row["name"] for row in server.graph.query(NAMES, branch="draft").rows}
            assert (f"Client {name}" in names) is is_allowed
            assert is_allowed or state(server) == was


def test_denials_are_counted_and_logged_without_data(
    server: Served, capfd: pytest.CaptureFixture[str]
) -> None:
    secret = "a-very-private-name"
    body = {"query": ADD, "params": {"n": secret}, "branch": "main"}
    before = _denials(server, "change")
    Sender(server, bearer(DRAFTER)).post("/mutate", body)
    Sender(server, {"Authorization": "Bearer bad-token-xyz"}).post("/mutate", body)
    main = server.graph.snapshot("main").commit_id
    reads = _denials(server, "read")
    Sender(server, bearer("on-unprotected-read")).get(f"/commits/{main}/changes")
    assert _denials(server, "change") == before + 1
    assert _denials(server, "read") == reads + 1, "a hidden denial is counted too"
    assert _denials(server, "authentication") >= 1
    lines = capfd.readouterr().err.splitlines()
    denied = next(line for line in lines if "denied=change" in line)
    assert f"actor=act-{DRAFTER}" in denied
    assert "status=403" in denied
    assert not [line for line in lines if secret in line or "bad-token-xyz" in line]


def _denials(server: Served, action: str) -> int:
    text = server.client.get("/metrics").text
    name = f'omnigraph_denials_total{{action="{action}"}} '
    values = [line.removeprefix(name) for line in text.splitlines() if line.startswith(name)]
    return int(values[0]) if values else 0


def test_SV14_changed_files_take_effect_and_broken_ones_do_not(tmp_path: Path) -> None:
    policy, tokens = tmp_path / "p.yaml", tmp_path / "t.json"
    document = yaml.safe_load(policy_text())
    policy.write_text(yaml.safe_dump(document))
    tokens.write_text(json.dumps({"act-has-read": "token-has-read"}))
    settings: dict[str, Any] = {
        "tokens": {digest_of("token-has-read"): "act-has-read"},
        "tokens_file": str(tokens),
        "policies": {"people": str(policy)},
    }
    with served(new_graph(tmp_path), access=Access.READ_ONLY, **settings) as guarded:
        files = ReloadedFiles(guarded.settings, guarded.app.gate, RequestLog(as_json=False))
        reader = Sender(guarded, bearer("has-read"))
        assert reader.get("/branches").status_code == 200
        files.look()
        policy.write_text("version: 1\nrules: [")
        files.look()
        assert reader.get("/branches").status_code == 200, "a broken policy keeps the old one"
        policy.unlink()
        files.look()
        assert reader.get("/branches").status_code == 200, "so does a missing one"
        policy.write_text("version: 1")
        files.look()
        assert reader.get("/branches").status_code == 403
        policy.write_text(policy_text())
        tokens.write_text("{")
        files.look()
        assert reader.get("/branches").status_code == 200
        tokens.write_text(json.dumps({"act-has-read": ["new-one", "token-has-read"]}))
        files.look()
        assert reader.get("/branches").status_code == 200
        tokens.write_text(json.dumps({"act-has-read": "new-one"}))
        files.look()
        assert reader.get("/branches").status_code == 401
        rotated = Sender(guarded, {"Authorization": "Bearer new-one"})
        assert rotated.get("/branches").status_code == 200


def test_a_stream_ends_when_its_reader_may_read_no_more(tmp_path: Path) -> None:
    policy = tmp_path / "p.yaml"
    policy.write_text(policy_text())
    tokens = {digest_of("token-has-read"): "act-has-read"}
    with served(
        new_graph(tmp_path),
        access=Access.READ_ONLY,
        tokens=tokens,
        policies={"people": str(policy)},
    ) as guarded:
        url = f"{guarded.base}/changes/stream"
        seen: list[bytes] = []
        with guarded.client.stream("GET", url, headers=bearer("has-read")) as response:
            chunks = response.iter_raw()
            seen.append(next(chunks))
            policy.write_text("version: 1")
            guarded.app.gate.policies = policies_of(guarded.settings)
            guarded.graph.mutate(ADD, {"n": "Unseen"})
            with contextlib.suppress(httpx.RemoteProtocolError):  # cut off
                seen.extend(chunks)
        assert b"Unseen" not in b"".join(seen)


def test_a_policy_for_the_server_grants_the_list_of_graphs(tmp_path: Path) -> None:
    file = tmp_path / "server.yaml"
    file.write_text(
        "version: 1\ngroups: {all: [act-ada]}\n"
        "rules: [{id: list, allow: {actors: {group: all}, actions: [graph_list]}}]\n"
    )
    with served(new_graph(tmp_path), access=Access.READ_ONLY, server_policy=str(file)) as guarded:
        ada = {"Authorization": "Bearer ada-token"}
        bob = {"Authorization": "Bearer bob-token"}
        assert (
            guarded.client.get("/graphs", headers=ada).json()["graphs"][0]["graph_id"] == "people"
        )
        denied = guarded.client.get("/graphs", headers=bob)
        assert denied.status_code == 403
        assert denied.json()["error"] == (
            "policy denied action 'graph_list' for unknown actor 'act-bob'"
        )
        with pytest.raises(og.NotFound, match="did you mean 'people'"):
            og.connect(guarded.url, graph="peopel", token="ada-token")
        with pytest.raises(og.NotFound) as missing:
            og.connect(guarded.url, graph="peopel", token="bob-token")
        assert "people" not in str(missing.value), "who may not list graphs is told none"
        assert guarded.get("/branches", headers=bob).status_code == 200
        assert guarded.post("/mutate", ADDS, headers=ada).status_code == 403


def test_settings_with_policies_pass_to_a_worker(tmp_path: Path) -> None:
    settings = ServerSettings({"g": "g.omni"}, policies={"g": "/p.yaml"}, server_policy="/s.yaml")
    assert ServerSettings.from_json(settings.to_json()) == settings
