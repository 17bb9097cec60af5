"""RC2: what is sent again after a failure, and what is not; every failure has a class."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import omnigraph as og
from tests.remote.both import SharedServer
from tests.server.world import ADD, NAMES, new_graph

CUT = b"<cut>"
BRANCHES = b'{"branches":["main"]}'
DONE = (
    b'{"branch":"main","query_name":"add","affected_nodes":1,"affected_edges":0,"actor_id":null,'
    b'"commit":null}'
)


def answer(body: bytes, status: bytes = b"200 OK", headers: bytes = b"") -> bytes:
    length = f"content-length: {len(body)}\r\n".encode()
    return b"HTTP/1.1 " + status + b"\r\n" + length + headers + b"\r\n" + body


class Script:
    """A server that does to each request what its script says next."""

    def __init__(self, *steps: bytes | None) -> None:
        self.steps = [answer(BRANCHES), *steps]
        self.requests: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/graphs/people"
        self._socket.settimeout(0.05)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while self.steps:
            try:
                connection, _ = self._socket.accept()
            except TimeoutError:
                continue
            with connection:
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        connection.settimeout(10)
        while self.steps:
            request = self._request(connection)
            if not request:
                return
            self.requests.append(request)
            step = self.steps.pop(0)
            if step is None:  # it dies
                return
            if step == b"silence":
                threading.Event().wait(0.8)
                return
            connection.sendall(step.removesuffix(CUT))
            if step.endswith(CUT):
                return

    def _request(self, connection: socket.socket) -> bytes:
        data = b""
        while b"\r\n\r\n" not in data:
            chunk = connection.recv(65536)
            if not chunk:
                return b""
            data += chunk
        head, _, body = data.partition(b"\r\n\r\n")
        lengths = [
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length")
        ]
        while lengths and len(body) < lengths[0]:
            body += connection.recv(65536)
        return head + b"\r\n\r\n" + body

    def close(self) -> None:
        self.steps.clear()
        self._thread.join(10)
        self._socket.close()


@contextlib.contextmanager
def scripted(*steps: bytes | None, **options: object) -> Iterator[tuple[Script, og.Graph]]:
    script = Script(*steps)
    try:
        with og.connect(script.url, **options) as graph:  # type: ignore[arg-type]
            yield script, graph
    finally:
        script.close()


def keys(script: Script) -> set[bytes]:
    lines = (line for request in script.requests for line in request.split(b"\r\n"))
    return {line for line in lines if line.lower().startswith(b"idempotency-key")}


def test_RC2_a_read_is_sent_again() -> None:
    with scripted(None, None, answer(BRANCHES)) as (script, graph):
        assert graph.branches.list() == ("main",)
        assert len(script.requests) == 4


def test_RC2_a_write_with_a_key_is_sent_again_with_the_same_key() -> None:
    replayed = answer(DONE, headers=b"idempotent-replay: true\r\n")
    with scripted(None, replayed) as (script, graph):
        assert graph.mutate(ADD, {"n": "x"}).repeated
        assert len(keys(script)) == 1
        assert len(script.requests) == 3


def test_RC2_writes_of_two_calls_have_two_keys() -> None:
    with scripted(answer(DONE), answer(DONE)) as (script, graph):
        graph.mutate(ADD, {"n": "x"})
        graph.mutate(ADD, {"n": "x"})
        assert len(keys(script)) == 2


@pytest.mark.parametrize(
    "write",
    [
        lambda graph: graph.branches.create("x"),
        lambda graph: graph.tags.create("x"),
        lambda graph: graph.revert("main"),
    ],
)
def test_RC2_a_write_without_a_key_is_sent_once(write: Callable[[og.Graph], object]) -> None:
    with scripted(None, answer(BRANCHES)) as (script, graph):
        with pytest.raises(og.ServerUnreachable, match="may have been done") as lost:
            write(graph)
        assert lost.value.is_unsettled
        assert len(script.requests) == 2


def test_RC2_no_key_is_made_if_told_so() -> None:
    with scripted(None, retry_writes=False) as (script, graph):
        with pytest.raises(og.ServerUnreachable) as lost:
            graph.mutate(ADD, {"n": "x"})
        assert lost.value.is_unsettled
        assert keys(script) == set()


def test_a_server_that_is_busy_is_asked_again_soon_but_not_late() -> None:
    busy = answer(b'{"error":"too many"}', b"429 Busy", b"retry-after: 0\r\n")
    running = answer(b'{"error":"this write is running"}', b"409 C", b"retry-after: 0\r\n")
    with scripted(busy, running, answer(DONE)) as (script, graph):
        graph.mutate(ADD, {"n": "x"})
        assert len(keys(script)) == 1
    late = answer(b'{"error":"too many"}', b"429 Busy", b"retry-after: 60\r\n")
    with scripted(late) as (_, graph):
        with pytest.raises(og.ServerBusy, match="repeat after 60 s") as refused:
            graph.query(NAMES)
        assert refused.value.retry_after == 60


def test_RC2_a_write_that_was_lost_and_then_refused_may_have_been_done() -> None:
    late = answer(b'{"error":"too many"}', b"429 Busy", b"retry-after: 60\r\n")
    with scripted(None, late) as (script, graph):
        with pytest.raises(og.ServerUnreachable, match="may have been done") as lost:
            graph.mutate(ADD, {"n": "x"})
        assert lost.value.is_unsettled
        assert len(script.requests) == 3
    refused = answer(b'{"error":"it breaks a rule"}', b"400 Bad")
    with scripted(None, refused) as (_, graph), pytest.raises(og.BadRequest, match="breaks a rule"):
        graph.mutate(ADD, {"n": "x"})  # it would be refused the first time, too


def test_a_server_that_is_silent_is_given_up() -> None:
    with scripted(b"silence", timeout=0.5) as (_, graph):
        with pytest.raises(og.ServerUnreachable, match="timed out") as lost:
            graph.branches.list()
        assert not lost.value.is_unsettled


def test_an_answer_that_breaks_off_is_no_answer(tmp_path: Path) -> None:
    schema = answer(b'{"schema_source":"node Person { name: String @key }"}')
    half = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nabcde\r\n" + CUT
    with scripted(half, timeout=5) as (_, graph):
        chunks = graph.export_lines()
        with pytest.raises(og.ServerUnreachable, match="broke off"):
            list(chunks)
    with scripted(schema, timeout=5) as (_, graph):
        assert list(graph.schema.catalog.nodes) == ["Person"]
    assert list(tmp_path.iterdir()) == []


def test_a_baseline_without_its_last_line_is_refused() -> None:
    with (
        scripted(answer(b'{"type":"A"}\n')) as (_, graph),
        pytest.raises(og.StorageFailed, match="before its last line"),
    ):
        graph.changes.baseline()


def test_rows_that_are_no_rows_are_refused() -> None:
    with (
        scripted(answer(b"<html>")) as (_, graph),
        pytest.raises(og.StorageFailed, match="no Arrow stream"),
    ):
        graph.query(NAMES)


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(og.ServerUnreachable, match="whether the server runs") as lost:
        og.connect(f"http://127.0.0.1:{port}", graph="people")
    assert not lost.value.is_unsettled


@pytest.mark.parametrize(
    "url",
    [
        "",
        "people.omni",
        "ftp://host",
        "http://",
        "http://host/graphs/a?b=c",
        "http://h/graphs/a%2Fb",
    ],
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(og.BadRequest):
        og.connect(url)


def test_the_graph_is_named_or_alone(shared: SharedServer, tmp_path: Path) -> None:
    url = shared.server.url
    name = shared.add(new_graph(tmp_path))
    with og.connect(f"{url}/graphs/{name}/") as graph:
        assert graph.uri == f"{url}/graphs/{name}"
    with pytest.raises(og.BadRequest, match=f"several graphs: .*{name}"):
        og.connect(url)
    with pytest.raises(og.BadRequest, match="names the graph"):
        og.connect(f"{url}/graphs/{name}", graph="other")
    with pytest.raises(og.NotFound, match=r"graph 'nothing' not found; known: .*first"):
        og.connect(url, graph="nothing")
    with pytest.raises(og.NotFound, match=r"graph 'frist' not found; did you mean 'first'"):
        og.connect(url, graph="frist")


def test_another_version_of_the_api_is_refused_by_the_server(shared: SharedServer) -> None:
    refused = shared.server.client.get("/graphs", headers={"Omnigraph-Http-Api": "0.11"})
    assert refused.status_code == 400


def test_a_feed_whose_connection_breaks_goes_on_at_its_cursor() -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"

    def event(cursor: bytes) -> bytes:
        data = b'data: {"blocks":[],"cursor":"' + cursor + b'","caught_up":true}\n\n'
        return head + f"{len(data):x}\r\n".encode() + data + b"\r\n" + CUT

    with scripted(event(b"one"), event(b"two")) as (script, graph):
        pages = graph.changes.follow(start="beginning")
        assert [next(pages).cursor for _ in range(2)] == ["one", "two"]
        pages.close()  # type: ignore[attr-defined]
        assert b"start=beginning" in script.requests[1]
        assert b"cursor=one" in script.requests[2]
