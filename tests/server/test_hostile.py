"""Requests that mean harm: smuggled, endless, stalled, too deep, of no encoding.

Nothing is written, nobody else waits, every answer is typed."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from omnigraph.server.serve_settings import ServerLimits
from omnigraph.server.watchdog import Watchdog
from omnigraph.server.worker import GuardedProtocol
from tests.server.world import JSON, NAMES, Served, new_graph, refused, served

MUTATE = b'{"query":"query a() { insert Person { name: \\"Mallory\\" } }"}'


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with little patience."""
    limits = ServerLimits(send_seconds=0.4, body_seconds=0.4)
    with served(new_graph(tmp_path_factory.mktemp("hostile")), limits=limits) as running:
        yield running


def exchanged(server: Served, data: bytes) -> bytes:
    """What comes back for some bytes until the server closes."""
    with socket.create_connection(server.address, 20) as sock:
        sock.sendall(data)
        answer = b""
        while chunk := sock.recv(65_536):
            answer += chunk
        return answer


def post(path: str, body: bytes, *headers: str, length: bool = True) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *headers]
    if length:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def test_a_request_that_is_smuggled_in_another_is_not_run(hasty: Served) -> None:
    inner = post(f"{hasty.base}/mutate", MUTATE, "Connection: close")
    chunked = b"0\r\n\r\n" + inner
    both = post(
        f"{hasty.base}/query",
        chunked,
        "Transfer-Encoding: chunked",
        f"Content-Length: {len(chunked)}",
        length=False,
    )
    twice = post(f"{hasty.base}/query", inner, "Content-Length: 0")
    for data in (both, twice):
        assert exchanged(hasty, data).startswith(b"HTTP/1.1 400 ")
    assert "Mallory" not in hasty.names()


def test_headers_that_never_end_are_cut_off(hasty: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GuardedProtocol, "header_seconds", 0.3)
    assert exchanged(hasty, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: ") == b""
    flood = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"X-A: " + b"a" * (1 << 20)
    answer = b""
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        answer = exchanged(hasty, flood)
    assert not answer.startswith(b"HTTP/1.1 2")


def test_a_client_that_reads_nothing_is_dropped_and_holds_nobody(hasty: Served) -> None:
    branch = "stalled"
    hasty.graph.branches.create(branch)
    rows = "".join(f'{{"type":"Note","data":{{"text":"{"x" * 900}{n}"}}}}\n' for n in range(9000))
    hasty.graph.load(rows.encode(), "append", branch=branch)
    query = "query n() { match { $n: Note } return { $n.text } }"
    body = f'{{"query":"{query}","branch":"{branch}"}}'.encode()
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(30)
        sock.connect(hasty.address)
        sock.sendall(post(f"{hasty.base}/query", body))
        assert hasty.post("/query", {"query": NAMES}).status_code == 200
        threading.Event().wait(1.0)
        received = 0
        with contextlib.suppress(ConnectionResetError):
            while chunk := sock.recv(1 << 20):
                received += len(chunk)
        assert received < 8_000_000, "the answer was cut"


@pytest.mark.parametrize("path", ["/query", "/mutate", "/jobs", "/transactions", "/branches/merge"])
@pytest.mark.parametrize(
    "body",
    [
        b"[" * 200_000,
        b'{"a":' * 50_000,
        b"\xff\xfe\x00",
        b'{"query": "\\ud800"',
        b'{"query": 1, "kind": 1, "source": [], "statements": {}}',
        b"",
        b"null",
        b'"x"',
    ],
)
def test_a_body_that_is_no_request_is_400(path: str, body: bytes, hasty: Served) -> None:
    head = hasty.graph.snapshot().commit_id
    response = hasty.client.post(hasty.base + path, content=body, headers=JSON)
    refused(response, 400, "bad_request")
    assert hasty.graph.snapshot().commit_id == head


@pytest.mark.parametrize(
    "name", ["..%2F..%2Fetc", "%00", "a%00b", "%ff", "%2e%2e", "x" * 5000, "~", "@%7B0%7D"]
)
@pytest.mark.parametrize(
    "path", ["/entities/node/Person/{}/history", "/entities/{}/{}/{}", "/jobs/{}", "/operations/{}"]
)
def test_a_name_that_leads_nowhere_is_refused(name: str, path: str, hasty: Served) -> None:
    response = hasty.get(path.replace("{}", name))
    assert response.status_code in (200, 400, 404, 414), response.text
    if response.status_code == 200:  # an idempotency key may be any text
        assert response.json()["state"] == "unknown"
    else:
        assert "error" in response.json()


@pytest.mark.parametrize("key", ["a\x07b", "\x7f", "x" * 256])
def test_a_key_with_signs_that_nobody_sees_is_refused(key: str, hasty: Served) -> None:
    data = post(f"{hasty.base}/mutate", MUTATE, f"Idempotency-Key: {key}", "Connection: close")
    answer = exchanged(hasty, data)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert "Mallory" not in hasty.names()


# ---- the watchdog


def test_a_block_that_takes_too_long_is_ended_and_no_other() -> None:
    async def run() -> list[str]:
        watchdog, seen = Watchdog(), []

        async def within(seconds: float, pause: float) -> None:
            try:
                with watchdog.within(seconds):
                    await asyncio.sleep(pause)
                seen.append("ended")
            except TimeoutError:
                seen.append("late")

        await asyncio.gather(within(0.05, 30), within(30, 0.01))
        other = asyncio.create_task(within(30, 30))
        await asyncio.sleep(0.01)
        other.cancel()
        with pytest.raises(asyncio.CancelledError):
            await other
        assert not watchdog._entries
        return seen

    assert asyncio.run(run()) == ["ended", "late"]
