"""What HTTP itself refuses: paths, methods, sizes, slow and broken clients, full queues."""

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import omnigraph as og
from omnigraph.server import wire
from omnigraph.server.refusals import HttpRefusal
from omnigraph.server.request_log import RequestLog
from omnigraph.server.route_table import FLAT, NESTED
from omnigraph.server.router import Router
from omnigraph.server.serve_settings import ServerLimits
from tests.server.process import until
from tests.server.world import (
    JSON,
    NAMES,
    NDJSON,
    PEOPLE,
    Served,
    checked,
    new_graph,
    refused,
    served,
)


@pytest.fixture(scope="module")
def tight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with small limits."""
    limits = ServerLimits(
        body_bytes=2000,
        load_body_bytes=3000,
        spooled_load_bytes=4000,
        answer_bytes=600,
        body_seconds=0.5,
        read_threads=1,
        read_queue=1,
        query_seconds=2,
    )
    with served(new_graph(tmp_path_factory.mktemp("tight")), limits=limits) as running:
        yield running


@pytest.mark.parametrize(
    "graph_id", ["no_good", "a" * 65, "policies", "openapi", "a%20b", "..%2Fx"]
)
def test_an_id_that_no_graph_can_have_is_400(graph_id: str, server: Served) -> None:
    refused(server.client.get(f"/graphs/{graph_id}/branches"), 400, "bad_request")


def test_a_graph_that_is_not_served_is_404(server: Served) -> None:
    document = refused(server.client.get("/graphs/other/branches"), 404, "not_found")
    assert document["error"] == "graph 'other' not found"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/graphs/people/query", "POST"),
        ("PUT", "/graphs/people/branches", "GET, HEAD, POST"),
        ("POST", "/healthz", "GET, HEAD"),
        ("PATCH", "/graphs/people/branches/x", "DELETE"),
    ],
)
def test_another_method_is_405(method: str, path: str, allowed: str, server: Served) -> None:
    response = server.client.request(method, path)
    refused(response, 405, "method_not_allowed")
    assert response.headers["allow"] == allowed


@pytest.mark.parametrize(
    "path",
    ["/graphs/people", "/graphs/people/nope", "/graphs//branches", "/x/../healthz"],
)
def test_an_unknown_path_is_404(path: str, server: Served) -> None:
    raw = send(
        server, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    )
    assert raw.startswith(b"HTTP/1.1 404")


def test_an_encoded_slash_belongs_to_the_name_it_stands_in() -> None:
    router = Router((*NESTED, *FLAT))
    endpoint, values = router.find("DELETE", b"/graphs/g/branches/review%2Fx%20y")
    assert (endpoint.operation, values) == (
        "cluster_deleteBranch",
        {"graph_id": "g", "branch": "review/x y"},
    )
    endpoint, values = router.find("DELETE", b"/graphs/g/branches/merge")
    assert values["branch"] == "merge"
    endpoint, values = router.find("DELETE", b"/branches/a/b")
    assert values == {"branch": "a/b"}
    for path in (b"/graphs/g/branches/a//b", b"/graphs/g/branches/"):
        with pytest.raises(HttpRefusal):
            router.find("DELETE", path)
    with pytest.raises(HttpRefusal) as refusal:
        router.find("DELETE", b"/graphs/g/branches/%ff")
    assert refusal.value.status == 400


def test_every_operation_has_an_id_of_its_own() -> None:
    operations = [endpoint.operation for endpoint in (*NESTED, *FLAT)]
    assert len(operations) == len(set(operations))


# ---- versions and ids


def test_SV13_another_version_of_the_api_is_refused(server: Served) -> None:
    for version, status in (("0.10", 200), ("0.11", 400), ("1", 400)):
        response = server.get("/branches", headers={"Omnigraph-Http-Api": version})
        assert response.status_code == status
    assert "0.10" in response.json()["error"]


def test_SV5_a_request_has_an_id_and_a_log_line(
    server: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    response = server.post(
        "/query",
        {"query": NAMES, "params": {}},
        headers={"X-Request-Id": "my-id-1", "Authorization": "Bearer hush"},
    )
    assert response.headers["x-request-id"] == "my-id-1"
    text = ""

    def logged() -> bool:  # the line leaves at the end of the turn that answered
        nonlocal text
        text += capsys.readouterr().err
        return "my-id-1" in text and text.endswith("\n")

    until(logged)
    line = next(line for line in text.splitlines() if "my-id-1" in line)
    for fact in ("method=POST", "graph=people", "branch=main", "status=200", "rows=2", "ms="):
        assert fact in line
    assert "hush" not in line
    assert "Ada" not in line
    assert "match" not in line
    made = server.get("/branches", headers={"X-Request-Id": "no good"})
    assert made.headers["x-request-id"] != "no good"


def test_no_other_origin_reads_the_answers(graph_uri: str, server: Served) -> None:
    origin = {"Origin": "https://app.example"}
    assert "access-control-allow-origin" not in server.get("/branches", headers=origin).headers
    with served(graph_uri, allow_origin="https://app.example") as allowing:
        response = allowing.get("/branches", headers=origin)
        assert response.headers["access-control-allow-origin"] == "https://app.example"
        other = allowing.get("/branches", headers={"Origin": "https://evil.example"})
        assert "access-control-allow-origin" not in other.headers
        preflight = allowing.client.options(f"{allowing.base}/query", headers=origin)
        assert preflight.status_code == 204


# ---- sizes


def test_a_body_beyond_its_cap_is_413(tight: Served) -> None:
    size = 2001
    response = tight.post("/query", {"query": "x" * size})
    document = refused(response, 413, "bad_request", "resource_limit")
    assert document["resource_limit"]["resource"] == "request_body_bytes"
    assert document["resource_limit"]["limit"] == 2000
    long = {"data": "x" * 3100}
    refused(tight.post("/load", long), 413, "bad_request", "resource_limit")
    fits = tight.post("/load", {"data": PEOPLE + " " * 2000})
    assert fits.status_code == 200


def test_a_body_of_unknown_length_is_capped_too(tight: Served) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(50):
            yield b"x" * 100

    path = f"{tight.base}/load/ndjson"
    response = tight.client.post(path, content=chunks(), headers=NDJSON)
    refused(response, 413, "bad_request", "resource_limit")


def test_an_answer_beyond_its_cap_is_413(tight: Served) -> None:
    four = "match { $a: Person $b: Person $c: Person $d: Person }"
    pairs = f"query q() {{ {four} return {{ $a, $b, $c, $d }} }}"
    response = tight.post("/query", {"query": pairs})
    document = refused(response, 413, "bad_request", "resource_limit")
    assert document["resource_limit"]["resource"] == "response_bytes"


# ---- slow and broken clients


def send(server: Served, data: bytes, *, half_close: bool = False, wait: float = 20) -> bytes:
    """Everything that a server says to some bytes."""
    with socket.create_connection(server.address, timeout=wait) as sock:
        sock.sendall(data)
        if half_close:
            sock.shutdown(socket.SHUT_WR)
        parts = []
        while part := sock.recv(65536):
            parts.append(part)
        return b"".join(parts)


def head(path: str, length: int, extra: str = "") -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {length}\r\n{extra}\r\n"
    ).encode()


def test_a_body_that_does_not_arrive_in_time_is_408(tight: Served) -> None:
    before = tight.graph.snapshot().commit_id
    raw = send(tight, head(f"{tight.base}/mutate", 500) + b'{"query": ')
    assert raw.startswith(b"HTTP/1.1 408")
    assert b'"error"' in raw
    assert tight.graph.snapshot().commit_id == before


def test_a_connection_that_is_half_closed_writes_nothing(server: Served) -> None:
    before = server.graph.snapshot().commit_id
    body = b'{"query": "query q() { insert Note { text: \\"x\\" } }"'
    send(server, head(f"{server.base}/mutate", 500) + body, half_close=True)
    time.sleep(0.05)
    assert server.graph.snapshot().commit_id == before


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 60,
        b"GET / HTTP/9.9\r\n\r\n",
        b"GARBAGE\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_no_http_is_400_in_json(data: bytes, server: Served) -> None:
    raw = send(server, data)
    assert raw.startswith(b"HTTP/1.1 400") or raw.startswith(b"HTTP/1.1 404")
    assert b'{"error":' in raw
    assert server.client.get("/healthz").status_code == 200


def test_what_is_no_http_is_not_the_answer_of_a_write_before_it(server: Served) -> None:
    before = server.graph.snapshot().commit_id
    body = b'{"query": "query q() { insert Note { text: \\"x\\" } }"}'
    assert send(server, head(f"{server.base}/mutate", len(body)) + body + b"GARBAGE\r\n\r\n") == b""
    until(lambda: server.graph.snapshot().commit_id != before)


@pytest.mark.parametrize("offer", ["h2c", "websocket"])
def test_an_offer_of_an_upgrade_is_ignored_and_its_body_is_read(offer: str, server: Served) -> None:
    body = b'{"query": "query q() { match { $p: Person } return { $p.name } order { $p.name } }"}'
    extra = f"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: {offer}\r\nHTTP2-Settings: AA\r\n"
    one = head(f"{server.base}/query", len(body), extra) + body
    last = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    at_once = send(server, one * 3 + last)
    assert at_once.count(b"HTTP/1.1 200 ") == 4
    assert at_once.count(b'"p.name":"Ada"') == 3
    with socket.create_connection(server.address, timeout=20) as sock:
        for part in (one[:40], one[40:-60], one[-60:-9], one[-9:] + last):
            sock.sendall(part)
            time.sleep(0.02)
        came = b"".join(iter(lambda: sock.recv(65536), b""))
    assert came.count(b"HTTP/1.1 200 ") == 2
    assert b'"p.name":"Ada"' in came


def test_a_body_behind_an_offer_of_an_upgrade_is_no_request(server: Served) -> None:
    hidden = b"GET /graphs/people/branches HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    extra = "Connection: Upgrade\r\nUpgrade: h2c\r\n"
    last = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with socket.create_connection(server.address, timeout=20) as sock:
        sock.sendall(head(f"{server.base}/query", len(hidden), extra))
        time.sleep(0.05)
        sock.sendall(hidden + last)
        came = b"".join(iter(lambda: sock.recv(65536), b""))
    assert came.startswith(b"HTTP/1.1 400 ")
    assert came.count(b"HTTP/1.1 ") == 2
    assert b"branches" not in came
    assert b'"status":"ok"' in came


@pytest.mark.parametrize("target", ["x:80", "http://x/healthz"])
def test_nothing_is_connected_to(target: str, server: Served) -> None:
    raw = send(
        server,
        f"CONNECT {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode(),
    )
    assert raw.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 405 "))
    assert server.client.get("/healthz").status_code == 200


def test_a_client_that_leaves_cancels_its_read(
    graph_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(graph_uri) as server:
        stopped = threading.Event()
        query = server.graph.query

        def slow(*args: object, **options: object) -> object:
            stop = options["stop"]
            for _ in range(600):
                if stop.is_cancelled:  # type: ignore[attr-defined]
                    stopped.set()
                    break
                time.sleep(0.05)
            return query(*args, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(server.graph, "query", slow)
        with socket.create_connection(server.address) as sock:
            body = b'{"query": "query q() { match { $p: Person } return { $p } }"}'
            sock.sendall(head(f"{server.base}/query", len(body)) + body)
            time.sleep(0.2)
        assert stopped.wait(30)


@pytest.mark.parametrize("behind", [0, 2])
def test_a_client_that_leaves_is_no_fault_whatever_waits_behind_its_read(
    behind: int, graph_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults, lines, query = list[object](), list[object](), og.Graph.query
    monkeypatch.setattr(RequestLog, "fault", lambda *cause: faults.append(cause))
    monkeypatch.setattr(RequestLog, "request", lambda _, facts: lines.append(facts["status"]))
    begun = threading.Event()

    def slow(*args: Any, **options: Any) -> og.QueryResult:
        begun.set()
        until(lambda: options["stop"].is_cancelled, 30)
        return query(*args, **options)

    with served(graph_uri) as server:
        monkeypatch.setattr(og.Graph, "query", slow)
        body = b'{"query": "query q() { match { $p: Person } return { $p } }"}'
        with socket.create_connection(server.address) as sock:
            sock.sendall((head(f"{server.base}/query", len(body)) + body) * (1 + behind))
            assert begun.wait(30)
        until(lambda: lines, 10)
    assert lines == [499]
    assert faults == []


def test_SV3_a_full_queue_is_429_and_a_late_read_504(
    tight: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave = threading.Event()

    def slow(*_: object, **__: object) -> tuple[str, ...]:
        assert leave.wait(30)
        return ("main",)

    monkeypatch.setattr(tight.graph.branches, "list", slow)
    statuses: list[httpx.Response] = []
    threads = [
        threading.Thread(target=lambda: statuses.append(tight.get("/branches"))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(40)
    leave.set()
    codes = sorted(response.status_code for response in statuses)
    assert set(codes) == {429, 504}
    full = next(response for response in statuses if response.status_code == 429)
    refused(full, 429, "too_many_requests")
    assert full.headers["retry-after"] == "1"
    late = next(response for response in statuses if response.status_code == 504)
    refused(late, 504, None)
    deadline = time.monotonic() + 30
    while tight.get("/commits").status_code != 200:
        assert time.monotonic() < deadline, "the pool never recovered"
        time.sleep(0.05)


def test_a_query_past_its_deadline_is_504_and_says_where(server: Served) -> None:
    many = " ".join(f"$p{n}: Person" for n in range(24))
    body = {"query": f"query q() {{ match {{ {many} }} return {{ count($p0) as n }} }}"}
    response = server.post("/query", body, headers={"Omnigraph-Timeout-Ms": "100"})
    document = response.json()
    assert response.status_code in (413, 504)
    assert document["resource_limit"]["limit"] > 0


def test_pipelined_requests_are_answered_in_their_order(server: Served) -> None:
    one = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    last = b"GET /nope HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    raw = send(server, one * 3 + last)
    assert raw.count(b"HTTP/1.1 200") == 3
    assert raw.rindex(b"HTTP/1.1 404") > raw.rindex(b"HTTP/1.1 200")


def test_traversal_in_names_touches_no_file(server: Served, tmp_path: Path) -> None:
    for name in ("../../x", "..", "a/../../b", "/etc/passwd", "\\..\\x", "a" * 300):
        response = server.post("/branches", {"name": name})
        if response.status_code == 200:
            made = checked(response, wire.BranchCreateOutput)["name"]
            path = f"{server.base}/branches/{made.replace('/', '%2F').replace('.', '%2E')}"
            assert server.client.delete(path).status_code in (200, 404)
        else:
            refused(response, response.status_code, response.json()["code"])
    raw = server.client.post(f"{server.base}/query", content=b"\x00" * 100, headers=JSON)
    refused(raw, 400, "bad_request")


def test_SV4_a_request_that_is_not_done_when_the_server_must_end_is_503(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ends = threading.Event(), threading.Event()

    def endless(*_: object, **__: object) -> None:
        begun.set()
        ends.wait(60)

    answers: list[httpx.Response] = []
    with served(new_graph(tmp_path)) as stopped:
        monkeypatch.setattr(type(stopped.graph), "query", endless)
        asked = threading.Thread(
            target=lambda: answers.append(stopped.post("/query", {"query": NAMES}))
        )
        asked.start()
        assert begun.wait(60)
        stopped.app.stopping.set()
        stopped._server.should_exit = True  # its connections have two seconds
        asked.join(60)
        ends.set()
    refused(answers[0], 503, None)
    assert answers[0].headers["connection"] == "close"
