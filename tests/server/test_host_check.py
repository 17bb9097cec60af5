"""Host and Origin of requests: what a server on loopback answers, and to whom (DNS rebinding)."""

import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.server.host_check import (
    HostCheck,
    checked_hosts,
    hostname,
    is_loopback,
    is_loopback_address,
    origin_hostname,
)
from omnigraph.server.refusals import HttpRefusal
from omnigraph.server.request_headers import RequestHeaders
from omnigraph.server.serve_settings import Access, ServerSettings
from tests.server.process import ServerProcess
from tests.server.world import ADD, NAMES, Served, new_graph, served

EVIL = "evil.example"


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(new_graph(tmp_path_factory.mktemp("hosts")), allowed_hosts=("graph.home",)) as made:
        yield made


def asked(
    server: Served,
    method: str,
    path: str,
    *,
    host: str | None,
    body: object = None,
    origin: str | None = None,
    version: int = 11,
    accept: str = "application/json",
) -> tuple[int, str]:
    """Send a request with exactly these headers; its status and body."""
    connection = http.client.HTTPConnection(*server.address, timeout=20)
    connection._http_vsn = version  # type: ignore[attr-defined]
    connection._http_vsn_str = f"HTTP/{version // 10}.{version % 10}"  # type: ignore[attr-defined]
    data = None if body is None else json.dumps(body).encode()
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    fields = {"Host": host, "Origin": origin, "Accept": accept}
    if data is not None:
        fields |= {"Content-Type": "application/json", "Content-Length": str(len(data))}
    for name, value in fields.items():
        if value is not None:
            connection.putheader(name, value)
    connection.endheaders(data)
    response = connection.getresponse()
    text = "" if response.getheader("content-type") == "text/event-stream" else response.read()
    connection.close()
    return response.status, text if isinstance(text, str) else text.decode()


@pytest.mark.parametrize(
    "host",
    [
        "localhost", "LOCALHOST:1", "localhost.", "127.0.0.1:8080", "127.1.2.3", "[::1]",
        "[::1]:80", "a.localhost", "[::ffff:127.0.0.1]", "graph.home", "Graph.Home:443", None,
    ],
)  # fmt: skip
def test_loopback_and_allowed_hosts_are_answered(open_server: Served, host: str | None) -> None:
    assert asked(open_server, "GET", f"{open_server.base}/branches", host=host)[0] == 200


@pytest.mark.parametrize(
    "host",
    [EVIL, f"{EVIL}:8080", "localhost.evil.example", "graph.home.evil.example", "127.0.0.1.nip.io",
     "192.168.1.5", "[::2]", "::1", "127.0.0.1@evil.example", "", "localhost:port", "[::1"],
)  # fmt: skip
@pytest.mark.parametrize("version", [10, 11])
def test_another_host_is_refused(open_server: Served, host: str, version: int) -> None:
    status, text = asked(
        open_server, "GET", f"{open_server.base}/branches", host=host, version=version
    )
    assert status == 421, text
    assert "--allowed-host" in json.loads(text)["error"]


def test_every_entry_point_refuses_another_host(open_server: Served) -> None:
    base = open_server.base
    for method, path, body in (
        ("GET", "/", None),
        ("GET", "/ui/", None),
        ("GET", f"/ui{base}", None),
        ("GET", f"{base}/changes/stream", None),
        ("GET", "/metrics", None),
        ("GET", "/graphs", None),
        ("OPTIONS", f"{base}/query", None),
        ("POST", f"{base}/query", {"query": NAMES}),
        ("POST", f"{base}/mutate", {"query": ADD, "params": {"n": "Eve"}}),
        ("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
    ):
        accept = "application/json, text/event-stream"
        answer = asked(open_server, method, path, host=EVIL, body=body, accept=accept)
        assert answer[0] == 421, (path, answer)
    assert open_server.names() == ["Ada", "Bob"]


def test_a_web_socket_is_refused_like_a_request(open_server: Served) -> None:
    with socket.create_connection(open_server.address, timeout=20) as raw:
        raw.sendall(
            f"GET {open_server.base}/branches HTTP/1.1\r\nHost: {EVIL}\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade, close\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
        )
        assert raw.recv(64).startswith(b"HTTP/1.1 421 ")


def test_a_second_host_does_not_hide_behind_the_first(open_server: Served) -> None:
    with socket.create_connection(open_server.address, timeout=20) as raw:
        head = (
            f"GET /graphs HTTP/1.1\r\nHost: localhost\r\nHost: {EVIL}\r\nConnection: close\r\n\r\n"
        )
        raw.sendall(head.encode())
        assert raw.recv(64).split(b" ")[1] in (b"400", b"421")


@pytest.mark.parametrize(
    "origin", [f"http://{EVIL}", "null", "https://localhost.evil.example", "x"]
)
def test_a_write_of_another_sites_page_is_refused(open_server: Served, origin: str) -> None:
    body = {"query": ADD, "params": {"n": "Eve"}}
    path = f"{open_server.base}/mutate"
    status, text = asked(open_server, "POST", path, host="localhost", body=body, origin=origin)
    assert status == 421
    assert json.loads(text)["error"].startswith("Origin ")
    assert open_server.names() == ["Ada", "Bob"]
    read = asked(open_server, "GET", "/graphs", host="localhost", origin=origin)
    assert read[0] == 200, "a browser does not let the page read it"


def test_writes_of_own_pages_and_of_the_allowed_origin_pass(tmp_path: Path) -> None:
    with served(new_graph(tmp_path), allow_origin="https://app.example") as server:
        for number, origin in enumerate(("http://localhost:1", "https://app.example")):
            body = {"query": ADD, "params": {"n": f"N{number}"}}
            path = f"{server.base}/mutate"
            answer = asked(server, "POST", path, host="localhost", body=body, origin=origin)
            assert answer[0] == 200, answer


def test_with_tokens_the_pages_are_protected_and_the_api_is_not(tmp_path: Path) -> None:
    with served(new_graph(tmp_path), access=Access.TRUSTED) as server:
        assert asked(server, "GET", "/ui/sign-in", host=EVIL)[0] == 421
        assert asked(server, "GET", "/ui/sign-in", host="localhost")[0] == 200
        assert asked(server, "POST", "/ui/sign-in", host=EVIL, body={})[0] == 421
        headers = {"Authorization": "Bearer ada-token", "Host": EVIL}
        assert server.get("/branches", headers=headers).status_code == 200


def test_a_refusal_on_a_page_is_a_page_without_markup_of_the_host(open_server: Served) -> None:
    status, text = asked(open_server, "GET", "/ui/", host="<b>x", accept="text/html")
    assert status == 421
    assert "<b>x" not in text


@pytest.mark.parametrize(
    ("host", "allowed", "checks"),
    [
        ("127.0.0.1", (), True), ("localhost", (), True), ("::1", (), True),
        ("127.0.0.9", (), True),
        ("0.0.0.0", (), False), ("::", (), False), ("192.168.1.5", (), False),
        ("0.0.0.0", ("graph.home",), True), ("127.0.0.1", ("*",), False),
    ],
)  # fmt: skip
def test_the_check_is_made_on_loopback_and_where_hosts_are_named(
    host: str, allowed: tuple[str, ...], checks: bool
) -> None:
    check = HostCheck.of(ServerSettings({}, host=host, allowed_hosts=allowed))
    headers = RequestHeaders([(b"host", EVIL.encode())])
    if not checks:
        check.require("POST", "/", headers)
        return
    with pytest.raises(HttpRefusal) as refused:
        check.require("POST", "/", headers)
    assert refused.value.status == 421


def test_hosts_and_origins_are_read_as_browsers_send_them() -> None:
    assert hostname("EXAMPLE.com:80") == "example.com"
    assert hostname("[::1]:8080") == "::1"
    assert hostname("a/b") is None
    assert origin_hostname("https://a.example:8443") == "a.example"
    assert origin_hostname("file://") is None
    assert not is_loopback("localhost.example")
    assert not is_loopback_address("no-such-name.invalid")


@pytest.mark.parametrize("name", ["http://a", "a:80", "a/b", "", "[::1"])
def test_an_allowed_host_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(og.BadRequest, match="--allowed-host"):
        checked_hosts([name])


def test_every_worker_checks(tmp_path: Path) -> None:
    uri = new_graph(tmp_path)
    words = (uri, "--unauthenticated", "--workers", "2", "--allowed-host", "graph.home")
    with ServerProcess(*words) as running:
        for host, status in ((EVIL, 421), ("graph.home", 200), ("localhost", 200)):
            for _ in range(6):
                connection = http.client.HTTPConnection(*running.address, timeout=20)
                connection.request("GET", "/graphs", headers={"Host": host})
                assert connection.getresponse().status == status
                connection.close()
