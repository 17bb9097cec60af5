"""Embedding providers, against a server on this machine that speaks their protocols."""

import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import BadRequest, EmbeddingFailed
from omnigraph.exec.search.embed import (
    Mock,
    Provider,
    Purpose,
    embed_query,
    make_provider,
    mock_vector,
    require_provider,
)
from omnigraph.exec.search.embed_http import Patience

KEY = "sk-local-test"
QUICK = Patience(timeout_ms=300, deadline_ms=2000, attempts=4, backoff_ms=1)
Answer = tuple[int, dict[str, str], bytes]


@dataclass
class Server:
    """A provider that answers as it is told, one answer a request, the last for ever."""

    answers: list[Answer | float] = field(default_factory=list)  # a number is seconds of silence
    requests: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    url: str = ""

    def answer(self, path: str, headers: dict[str, str], body: bytes) -> Answer | float:
        self.requests.append((path, headers, json.loads(body)))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def says(self, *answers: Answer | float) -> None:
        self.answers = list(answers)


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()
    closing = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found = state.answer(self.path, dict(self.headers), body)
            if isinstance(found, float):
                closing.wait(found)
                return
            status, headers, data = found
            self.send_response(status)
            for name, value in {"Content-Length": str(len(data)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Keep the terminal quiet."""

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
    thread.start()
    state.url = f"http://127.0.0.1:{listening.server_port}/v1"
    yield state
    closing.set()
    listening.shutdown()
    thread.join()
    listening.server_close()


def _openai(server: Server, patience: Patience = QUICK) -> Provider:
    return make_provider(
        "openai-compatible", key=KEY, base_url=server.url, model="m", patience=patience
    )


def _vectors(*vectors: list[float]) -> Answer:
    data = [{"index": n, "embedding": vector} for n, vector in enumerate(vectors)]
    return 200, {}, json.dumps({"data": data}).encode()


def _refusal(status: int, **headers: str) -> Answer:
    return status, headers, b'{"error": "no"}'


def test_a_text_is_sent_as_the_protocol_says_and_its_vector_has_length_one(server: Server) -> None:
    server.says(_vectors([3.0, 4.0]))
    assert embed_query(_openai(server), "graph", 2) == pytest.approx([0.6, 0.8])
    [(path, headers, body)] = server.requests
    assert path == "/v1/embeddings"
    assert headers["Authorization"] == f"Bearer {KEY}"
    assert body == {"model": "m", "input": ["graph"], "dimensions": 2}


def test_vectors_come_back_in_the_order_of_the_texts(server: Server) -> None:
    data = [{"index": 1, "embedding": [0, 1]}, {"index": 0, "embedding": [1, 0]}]
    server.says((200, {}, json.dumps({"data": data}).encode()))
    assert _openai(server).embed(["a", "b"], 2, Purpose.DOCUMENT) == [[1, 0], [0, 1]]


def test_gemini_gets_one_request_a_text(server: Server) -> None:
    server.says((200, {}, b'{"embedding": {"values": [0, 2]}}'))
    provider = make_provider("gemini", key=KEY, base_url=server.url, patience=QUICK)
    assert provider.embed(["a", "b"], 2, Purpose.QUERY) == [[0, 1], [0, 1]]
    path, headers, body = server.requests[0]
    assert len(server.requests) == 2
    assert path == "/v1/models/gemini-embedding-2:embedContent"
    assert headers["X-Goog-Api-Key"] == KEY
    assert body["taskType"] == "RETRIEVAL_QUERY"
    assert body["outputDimensionality"] == 2
    assert body["content"] == {"parts": [{"text": "a"}]}


@pytest.mark.parametrize("first", [_refusal(429), _refusal(500), _refusal(503), 0.0, 1.0])
def test_a_failure_that_may_pass_is_tried_again(server: Server, first: Answer | float) -> None:
    server.says(first, first, _vectors([1.0, 0.0]))
    assert embed_query(_openai(server), "graph", 2) == [1, 0]
    assert len(server.requests) == 3


def test_it_gives_up_after_the_attempts(server: Server) -> None:
    server.says(_refusal(500))
    with pytest.raises(EmbeddingFailed, match=r"answered 500 .*\(4 attempts\)"):
        embed_query(_openai(server), "graph", 2)
    assert len(server.requests) == 4


def test_it_gives_up_at_the_deadline(server: Server) -> None:
    server.says(10.0)
    patience = Patience(timeout_ms=5000, deadline_ms=200, attempts=4, backoff_ms=1)
    began = time.monotonic()
    with pytest.raises(EmbeddingFailed, match="gave no answer"):
        embed_query(_openai(server, patience), "graph", 2)
    assert time.monotonic() - began < 2


def test_it_does_not_begin_a_wait_that_the_deadline_cuts(server: Server) -> None:
    server.says(_refusal(429, **{"Retry-After": "3600"}))
    with pytest.raises(EmbeddingFailed, match=r"answered 429 .*deadline 2000 ms"):
        embed_query(_openai(server), "graph", 2)
    assert len(server.requests) == 1


def test_nobody_there_is_tried_again_and_named(server: Server) -> None:
    server.says(_refusal(500))
    provider = make_provider("openai", key=KEY, base_url="http://127.0.0.1:9", patience=QUICK)
    with pytest.raises(EmbeddingFailed, match="could not be reached"):
        embed_query(provider, "graph", 2)


@pytest.mark.parametrize("status", [400, 401, 404, 302])
def test_a_refusal_is_final_and_never_shows_the_key(server: Server, status: int) -> None:
    server.says((status, {"Location": f"{server.url}/elsewhere"}, f"bad key {KEY}".encode()))
    with pytest.raises(EmbeddingFailed, match=f"answered {status}") as raised:
        embed_query(_openai(server), "graph", 2)
    assert len(server.requests) == 1
    assert KEY not in str(raised.value)
    assert KEY not in repr(_openai(server))


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (_vectors([1.0, 0.0, 0.0]), "3 components where 2"),
        (_vectors([0.0, 0.0]), "zero or not finite"),
        (_vectors([1.0, 0.0], [1.0, 0.0]), "2 vectors for 1 texts"),
        ((200, {}, b"<html>"), "not JSON"),
        ((200, {}, b"[]"), "without `data`"),
        ((200, {}, b'{"data": [{}]}'), "without `embedding`"),
        ((200, {}, b'{"data": [{"embedding": ["x", null]}]}'), "no number"),
        ((200, {}, b'{"data": [{"index": 4, "embedding": [1, 0]}]}'), "indexes"),
    ],
)
def test_an_answer_that_cannot_be_used_is_refused(
    server: Server, answer: Answer, complaint: str
) -> None:
    server.says(answer)
    with pytest.raises(EmbeddingFailed, match=complaint):
        embed_query(_openai(server), "graph", 2)


# Configuration


def _from(**values: str) -> Callable[[], Provider]:
    return lambda: require_provider(None, {f"OMNIGRAPH_{k}": v for k, v in values.items()})


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (_from(), "no embedding provider is named.*set OMNIGRAPH_EMBED_PROVIDER"),
        (_from(EMBED_PROVIDER="openai-compatible"), "has no key; set OPENROUTER_API_KEY"),
        (_from(EMBED_PROVIDER="openai"), "has no key; set OPENAI_API_KEY"),
        (_from(EMBED_PROVIDER="gemini"), "has no key; set GEMINI_API_KEY"),
        (
            _from(EMBED_PROVIDER="acme"),
            "OMNIGRAPH_EMBED_PROVIDER is 'acme'; use openai-compatible, openai",
        ),
        (_from(EMBED_TIMEOUT_MS="soon", EMBED_PROVIDER="mock"), "EMBED_TIMEOUT_MS is 'soon'"),
        (
            _from(EMBED_RETRY_ATTEMPTS="0", EMBED_PROVIDER="mock"),
            "EMBED_RETRY_ATTEMPTS is '0'; set it to a whole number from 1 to 1024",
        ),
    ],
)
def test_a_configuration_that_cannot_work_says_what_to_set(
    make: Callable[[], Provider], complaint: str
) -> None:
    with pytest.raises(BadRequest, match=complaint):
        make()


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(BadRequest, match="ftp://x"):
        make_provider("openai", key=KEY, base_url="ftp://x")


def test_the_environment_chooses_provider_model_and_patience(server: Server) -> None:
    server.says(_vectors([1.0, 0.0]))
    provider = require_provider(
        None,
        {
            "OMNIGRAPH_EMBED_PROVIDER": "openai",
            "OMNIGRAPH_EMBED_BASE_URL": server.url + "/",
            "OMNIGRAPH_EMBED_MODEL": "mine",
            "OMNIGRAPH_EMBED_RETRY_ATTEMPTS": "1",
            "OPENAI_API_KEY": KEY,
        },
    )
    assert provider.model == "mine"
    assert embed_query(provider, "graph", 2) == [1, 0]
    server.says(_refusal(500))
    with pytest.raises(EmbeddingFailed, match="1 attempts"):
        embed_query(provider, "graph", 2)


@pytest.mark.parametrize("value", ["1", "true", "YES", "on"])
def test_mock_can_be_forced(value: str) -> None:
    values = {"OMNIGRAPH_EMBEDDINGS_MOCK": value, "OMNIGRAPH_EMBED_PROVIDER": "openai"}
    assert isinstance(require_provider(None, values), Mock)


# The mock


def test_the_mock_gives_these_bits() -> None:
    # Worked by hand from the definition: FNV-1a of "a" is af63dc4c8601ec8c.
    state = 0xAF63DC4C8601EC8C
    raw = []
    for _ in range(3):
        state ^= state << 13 & (2**64 - 1)
        state ^= state >> 7
        state ^= state << 17 & (2**64 - 1)
        raw.append(np.float32(np.float32(state / (2**64 - 1)) * np.float32(2)) - np.float32(1))
    length = math.sqrt(sum(float(x) ** 2 for x in raw))
    assert mock_vector("a", 3) == pytest.approx([float(x) / length for x in raw], rel=1e-6)


@given(text=st.text(max_size=20), dimension=st.integers(1, 64))
def test_a_mock_vector_is_repeatable_has_length_one_and_32_bits(text: str, dimension: int) -> None:
    vector = mock_vector(text, dimension)
    assert vector == mock_vector(text, dimension)
    assert math.hypot(*vector) == pytest.approx(1, rel=1e-5)
    assert np.array(vector, dtype=np.float32).astype(np.float64).tolist() == vector
