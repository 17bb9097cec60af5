"""Answers written at once: the bytes of the channels of the web server, in one write."""

import contextlib
import json
import re
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from omnigraph.server import whole_exchange
from omnigraph.server.whole_exchange import WholeExchange
from tests.server.world import NAMES, Served, new_graph, served

_QUERY = json.dumps({"query": NAMES}).encode()
_CHANGING = re.compile(rb"(?im)^date: [^\r]*\r\n")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(new_graph(tmp_path_factory.mktemp("whole"))) as running:
        yield running


def head(line: str, *fields: str) -> bytes:
    every = (line, "Host: localhost", "X-Request-Id: one", *fields)
    return "\r\n".join(every).encode() + b"\r\n\r\n"


def post(body: bytes, *fields: str) -> bytes:
    length = f"Content-Length: {len(body)}"
    line = "POST /graphs/people/query HTTP/1.1"
    return head(line, "Content-Type: application/json", length, *fields) + body


CHUNKED = head(
    "POST /graphs/people/query HTTP/1.1",
    "Content-Type: application/json",
    "Transfer-Encoding: chunked",
)
REQUESTS: dict[str, tuple[bytes, ...]] = {
    "no body": (head("GET /healthz HTTP/1.1"),),
    "a body with its head": (post(_QUERY),),
    "a body after its head": (post(_QUERY)[: -len(_QUERY)], _QUERY),
    "a body in two parts": (post(_QUERY)[:-9], _QUERY[-9:]),
    "a body in chunks": (CHUNKED, b"%x\r\n%s\r\n" % (len(_QUERY), _QUERY), b"0\r\n\r\n"),
    "a body that waits for leave": (
        post(_QUERY, "Expect: 100-continue")[: -len(_QUERY)],
        _QUERY,
    ),
    "a body that is no JSON": (post(b"{"),),
    "a body of nothing": (post(b""),),
    "a large body": (post(json.dumps({"query": NAMES, "x": "y" * 300_000}).encode()),),
    "a head alone": (head("HEAD /healthz HTTP/1.1"),),
    "no such route": (head("GET /nowhere HTTP/1.1"),),
    "a large answer": (head("GET /openapi.json HTTP/1.1"),),
    "an old client": (head("GET /healthz HTTP/1.0"),),
    "an old client that goes on": (head("GET /healthz HTTP/1.0", "Connection: keep-alive"),),
    "several at once": (head("GET /healthz HTTP/1.1") * 3 + post(_QUERY) * 2,),
}


def exchange(server: Served, parts: tuple[bytes, ...]) -> bytes:
    """All bytes of the answers on a connection that asks for its end, without the time of day."""
    came = bytearray()
    with socket.create_connection(server.address, timeout=30) as client:
        for part in parts:
            client.sendall(part)
            if len(parts) > 1:
                client.settimeout(0.2)
                with contextlib.suppress(TimeoutError):
                    came += client.recv(1 << 16)
                client.settimeout(30)
        client.sendall(head("GET /healthz HTTP/1.1", "Connection: close"))
        came += b"".join(iter(lambda: client.recv(1 << 16), b""))
    return _CHANGING.sub(b"", bytes(came))


@pytest.mark.parametrize("name", REQUESTS)
def test_an_exchange_at_once_gives_the_bytes_of_the_channels(
    server: Served, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    at_once = exchange(server, REQUESTS[name])
    with monkeypatch.context() as channels:
        channels.setattr(WholeExchange, "body", lambda _: None)
        channels.setattr(WholeExchange, "answer", lambda *_: False)
        assert at_once == exchange(server, REQUESTS[name])
    assert at_once.startswith(b"HTTP/1.1 ")


def test_the_web_server_is_of_the_version_that_is_known() -> None:
    assert whole_exchange.IS_KNOWN, "compare whole_exchange.py with the new version, then name it"


def test_beside_another_version_the_channels_answer(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> bool:
        raise AssertionError

    monkeypatch.setattr(whole_exchange, "IS_KNOWN", False)
    monkeypatch.setattr(WholeExchange, "body", never)
    monkeypatch.setattr(WholeExchange, "answer", never)
    assert server.post("/query", {"query": NAMES}).status_code == 200


def test_the_head_and_the_body_of_an_answer_are_one_write(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = list[bool]()
    answer = WholeExchange.answer

    def counted(exchange: WholeExchange, *given: Any) -> bool:
        written.append(answer(exchange, *given))
        return written[-1]

    monkeypatch.setattr(WholeExchange, "answer", counted)
    assert server.client.get("/healthz").json()["status"] == "ok"
    assert server.post("/query", {"query": NAMES}).status_code == 200
    assert server.client.get("/nowhere").status_code == 404
    assert written == [True] * 3
    server.client.get("/openapi.json")
    assert len(written) == 4


def test_answers_on_one_connection_come_whole_and_in_order(server: Served) -> None:
    count = 50
    with socket.create_connection(server.address, timeout=30) as client:
        last = b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * count + last)
        came = b"".join(iter(lambda: client.recv(1 << 16), b""))
    one = server.client.get("/healthz").content
    assert came.count(b"HTTP/1.1 200 OK\r\n") == came.count(one) == count
    assert came.rindex(b"HTTP/1.1 404") > came.rindex(one)


def test_answers_wait_for_a_client_that_does_not_read(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = list[bool]()
    answer = WholeExchange.answer

    def counted(exchange: WholeExchange, *given: Any) -> bool:
        written.append(answer(exchange, *given))
        return written[-1]

    monkeypatch.setattr(WholeExchange, "answer", counted)
    request, count = head("GET /openapi.json HTTP/1.1"), 200
    with socket.create_connection(server.address, timeout=30) as client:
        client.sendall(request * count + head("GET /nowhere HTTP/1.1", "Connection: close"))
        assert server.client.get("/healthz").status_code == 200
        assert len(written) < count, "it holds answers that nobody reads"
        came = b"".join(iter(lambda: client.recv(1 << 16), b""))
    assert came.count(b"HTTP/1.1 200 OK\r\n") == count
    assert came.count(server.client.get("/openapi.json").content) == count
    assert False in written, "it waited for the client"
