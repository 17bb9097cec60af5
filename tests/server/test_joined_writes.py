"""Joined writes: the bytes of an answer leave together, whole and in order."""

import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.server.joined_writes import JoinedTransport
from tests.server.world import Served, new_graph, served


class Recorder:
    """A transport that remembers what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, bytes]] = []

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        self.told.append(("write", data))

    def writelines(self, parts: list[bytes]) -> None:
        self.told.append(("write", b"".join(parts)))

    def close(self) -> None:
        self.told.append(("close", b""))

    def abort(self) -> None:
        self.told.append(("abort", b""))

    @property
    def sent(self) -> bytes:
        return b"".join(data for _, data in self.told)


def joined() -> tuple[JoinedTransport, Recorder]:
    below = Recorder()
    return JoinedTransport(below), below  # type: ignore[arg-type]


@given(
    st.lists(
        st.tuples(
            st.booleans(), st.lists(st.binary(max_size=9) | st.just(b"x" * 40_000), max_size=4)
        )
    )
)
def test_bytes_leave_in_order_and_those_of_a_block_in_one_write(
    blocks: list[tuple[bool, list[bytes]]],
) -> None:
    transport, below = joined()
    for is_joined, parts in blocks:
        before = len(below.told)
        if is_joined:
            with transport:
                for part in parts:
                    transport.write(part)
            assert len(below.told) - before == any(parts)
        else:
            for part in parts:
                transport.write(part)
    assert below.sent == b"".join(part for _, parts in blocks for part in parts)


def test_a_close_within_a_block_comes_after_its_bytes() -> None:
    transport, below = joined()
    with transport:
        transport.write(b"head")
        transport.write(b"body")
        transport.close()
    assert below.told == [("write", b"headbody"), ("close", b"")]


def test_an_abort_within_a_block_leaves_nothing() -> None:
    transport, below = joined()
    with transport:
        transport.write(b"head")
        transport.abort()
    assert below.told == [("abort", b"")]


def test_what_was_kept_leaves_when_the_block_fails() -> None:
    transport, below = joined()
    with pytest.raises(TimeoutError):
        _fail_within(transport)
    assert below.told == [("write", b"head")]


def _fail_within(transport: JoinedTransport) -> None:
    with transport:
        transport.write(b"head")
        raise TimeoutError


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(new_graph(tmp_path_factory.mktemp("joined"))) as running:
        yield running


def test_the_head_and_the_body_of_an_answer_are_one_write(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[list[bytes]] = []

    def let_go(transport: JoinedTransport) -> None:
        kept.append(list(transport._kept or ()))
        leave(transport)

    leave = JoinedTransport._let_go
    monkeypatch.setattr(JoinedTransport, "_let_go", let_go)
    answer = server.client.get("/healthz")
    head, body = kept[0]
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert body == answer.content


def test_answers_on_one_connection_come_whole_and_in_order(server: Served) -> None:
    count = 50
    with socket.create_connection(server.address, timeout=30) as client:
        last = b"GET /nowhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * count + last)
        came = b"".join(iter(lambda: client.recv(1 << 16), b""))
    one = server.client.get("/healthz").content
    assert came.count(b"HTTP/1.1 200 OK\r\n") == came.count(one) == count
    assert came.rindex(b"HTTP/1.1 404") > came.rindex(one)


def test_a_large_answer_is_whole(server: Served) -> None:
    document = server.client.get("/openapi.json")
    assert len(document.content) > 100_000
    assert document.json()["openapi"].startswith("3.1")
