"""The server as processes: its start, its workers, its signals, and what a kill leaves."""

import hashlib
import json
import os
import signal
import subprocess
from pathlib import Path

import httpx
import pytest

import omnigraph as og
from omnigraph.server.serve_settings import (
    Access,
    ServerLimits,
    ServerSettings,
    address_of,
    graphs_by_id,
)
from omnigraph.server.supervisor import container_bytes
from tests.cli.program import run
from tests.server.process import PROGRAM, ServerProcess, until
from tests.server.world import NAMES, new_graph


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> str:
    return new_graph(tmp_path_factory.mktemp("process"))


# ---- what it refuses to start with


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["GRAPH"], "there are no tokens"),
        (["GRAPH", "--trust-tokens"], "--trust-tokens trusts nobody without tokens"),
        (["GRAPH", "--tokens", "missing.json"], "cannot read the tokens file"),
        (
            ["GRAPH", "--unauthenticated", "--policy", "p.yaml"],
            "it cannot be read",
        ),
        (["--unauthenticated"], "there is no graph to serve"),
        (["GRAPH", "GRAPH", "--unauthenticated"], "two graphs have the id 'people'"),
        (["GRAPH", "--as-id", "no_good", "--unauthenticated"], "is no id for the graph"),
        (["GRAPH", "--unauthenticated", "--bind", "x"], "is no address to listen on"),
        (["GRAPH", "--unauthenticated", "--tls-cert", "c"], "--tls-cert and --tls-key"),
        (["GRAPH", "--unauthenticated", "--default-graph", "x"], "is not served"),
        (["http://x", "--unauthenticated"], "is a server, not a graph"),
        (["--cluster", "c", "--unauthenticated"], "cluster_state_missing"),
    ],
)
def test_a_server_that_cannot_be_meant_does_not_start(
    arguments: list[str], error: str, graph: str
) -> None:
    done = run("serve", *(graph if word == "GRAPH" else word for word in arguments))
    assert done.returncode == 1
    assert error in done.stderr


def test_tokens_and_no_authentication_exclude_each_other(graph: str) -> None:
    assert run("serve", graph, "--unauthenticated", "--tokens", "x").returncode == 2


@pytest.mark.parametrize("arguments", [["--unauthenticated"], ["--tokens", "tokens.json"]])
def test_a_secret_of_aws_is_refused_and_the_refusal_says_where_tokens_go(
    graph: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = "OMNIGRAPH_SERVER_BEARER_TOKENS_AWS_SECRET"
    monkeypatch.setenv(variable, "prod/tokens")
    done = run("serve", graph, *arguments)
    assert done.returncode == 1
    assert f"{variable} names 'prod/tokens'" in done.stderr
    assert "OMNIGRAPH_SERVER_BEARER_TOKENS_JSON" in done.stderr


def test_help_says_what_it_does() -> None:
    done = run("serve", "--help")
    assert done.returncode == 0
    for word in ("--workers", "--unauthenticated", "--trust-tokens", "--tokens", "SIGHUP"):
        assert word in done.stdout


def test_a_graph_that_is_not_there_is_said_and_ends_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [*PROGRAM, str(tmp_path / "no.omni"), "--unauthenticated", "--bind", "127.0.0.1:0"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert "not found" in done.stderr
    assert done.stdout == ""


def test_ids_and_addresses() -> None:
    assert graphs_by_id(["/a/people.omni", "s3://b/town/"], []) == {
        "people": "/a/people.omni",
        "town": "s3://b/town/",
    }
    assert graphs_by_id(["/a/x_y.omni"], ["x-y"]) == {"x-y": "/a/x_y.omni"}
    assert address_of("0.0.0.0:80") == ("0.0.0.0", 80)
    assert address_of("[::1]:0") == ("::1", 0)
    for wrong in ("80", "a:b", "a:99999", ""):
        with pytest.raises(og.BadRequest):
            address_of(wrong)


def test_settings_pass_to_a_worker_whole() -> None:
    settings = ServerSettings(
        graphs={"g": "/g.omni"}, access=Access.TRUSTED, limits=ServerLimits(query_seconds=3)
    )
    assert ServerSettings.from_json(settings.to_json()) == settings


def test_budgets_follow_the_container(tmp_path: Path) -> None:
    file = tmp_path / "memory.max"
    file.write_text("max\n")
    assert container_bytes((str(file),)) is None
    file.write_text("1073741824\n")
    assert container_bytes((str(file),)) == 1 << 30
    assert container_bytes((str(tmp_path / "none"),)) is None


# ---- two workers


def test_SV2_SV4_SV5_workers_are_restarted_and_drained(graph: str, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    tokens.write_text(json.dumps({"act-ada": "first"}))
    arguments = (
        graph,
        "--workers",
        "2",
        "--tokens",
        str(tokens),
        "--trust-tokens",
        "--log",
        "json",
    )
    with ServerProcess(*arguments) as server, server.client() as client:
        until(lambda: any("every known actor may do everything" in line for line in server.log))
        until(lambda: f"pages for people at {server.url}/ui/\n" in server.log)
        before = server.workers()
        assert len(before) == 2
        first = {"Authorization": "Bearer first"}
        path = "/graphs/people/query"
        assert client.post(path, json={"query": NAMES}, headers=first).status_code == 200

        # tokens are read again on SIGHUP; a broken file changes nothing
        tokens.write_text(json.dumps({"act-ada": "second"}))
        server.process.send_signal(signal.SIGHUP)
        second = {"Authorization": "Bearer second"}
        branches = "/graphs/people/branches"
        until(lambda: client.get(branches, headers=second).status_code == 200)
        until(lambda: client.get(branches, headers=first).status_code == 401)
        # a worker that is killed is started again, and its metrics stay
        os.kill(before[0], signal.SIGKILL)
        until(lambda: len(server.workers()) == 2 and before[0] not in server.workers())
        until(lambda: client.get("/readyz").status_code == 200)
        until(lambda: "omnigraph_workers 2" in client.get("/metrics").text)
        for _ in range(6):  # a worker that was started again reads the tokens of today
            answer = httpx.get(f"{server.url}{branches}", headers=first, timeout=60)
            assert answer.status_code == 401

        tokens.write_text("{")
        server.process.send_signal(signal.SIGHUP)
        until(lambda: sum("tokens_kept" in line for line in server.log) >= 2)
        assert client.get(branches, headers=second).status_code == 200

        assert client.post(path, json={"query": NAMES}, headers=second).status_code == 200
        asked = 'omnigraph_requests_total{route="/graphs/{graph_id}/query",status="200"}'
        until(lambda: asked in client.get("/metrics").text)
        assert "omnigraph_open_graphs 2" in client.get("/metrics").text
        assert server.stop() == 0
        lines = [json.loads(line) for line in server.log if line.startswith("{")]
        requests = [line for line in lines if line["event"] == "request"]
        assert {"method", "route", "status", "ms", "request_id"} <= requests[0].keys()
        assert all("second" not in line for line in server.log)
    assert not Path(f"/proc/{server.process.pid}").exists()


def test_SV4_a_supervisor_that_is_killed_takes_its_workers_along(graph: str) -> None:
    with ServerProcess(graph, "--unauthenticated") as server:
        (worker,) = server.workers()
        server.process.kill()
        until(lambda: not Path(f"/proc/{worker}").exists())


@pytest.mark.slow
def test_SV14_every_worker_takes_over_a_changed_policy_and_keeps_a_good_one(
    graph: str, tmp_path: Path
) -> None:
    policy, tokens = tmp_path / "policy.yaml", tmp_path / "tokens.json"
    reading = (
        "version: 1\ngroups: {g: [act-ada]}\n"
        "rules: [{id: r, allow: {actors: {group: g}, actions: [read]}}]\n"
    )
    policy.write_text("version: 1\n")
    tokens.write_text(json.dumps({"act-ada": "secret"}))
    arguments = (graph, "--workers", "2", "--tokens", str(tokens), "--policy", str(policy))
    ada = {"Authorization": "Bearer secret"}
    with ServerProcess(*arguments) as server:

        def answers(count: int = 8) -> set[int]:
            """Statuses of so many connections, which workers share out among themselves."""
            url = f"{server.url}/graphs/people/branches"
            return {httpx.get(url, headers=ada, timeout=60).status_code for _ in range(count)}

        until(lambda: any("the policy decides" in line for line in server.log))
        assert answers() == {403}
        policy.write_text(reading)
        until(lambda: sum("policy_reloaded" in line for line in server.log) == 2)
        assert answers() == {200}
        policy.write_text("version: 1\nrules: [")
        until(lambda: sum("policy_kept" in line for line in server.log) == 2)
        assert answers() == {200}
        before = server.workers()
        os.kill(before[0], signal.SIGKILL)  # the next worker starts beside a broken file
        until(lambda: len(server.workers()) == 2 and before[0] not in server.workers())
        until(lambda: sum("policy_kept" in line for line in server.log) >= 3)
        assert answers() == {200}
        ready = httpx.get(f"{server.url}/readyz", timeout=60).json()
        digest = hashlib.sha256(reading.encode()).hexdigest()
        assert ready["graphs"][0]["policy_digest"] == digest
        policy.write_text("version: 1\n")
        until(lambda: answers() == {403})
