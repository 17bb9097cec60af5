"""A served graph for tests: the real application on a real socket, in a thread of this process."""

import asyncio
import contextlib
import io
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import msgspec
import uvicorn

import omnigraph as og
from omnigraph.server import wire, wire_errors
from omnigraph.server.asgi import ServerApp
from omnigraph.server.bearer import digest_of
from omnigraph.server.oidc_trust import trust_of_file
from omnigraph.server.policy_files import policies_of
from omnigraph.server.request_log import RequestLog
from omnigraph.server.serve_settings import Access, ServerLimits, ServerSettings
from omnigraph.server.served import ServedGraphs
from omnigraph.server.worker import GuardedProtocol, WorkerServer

SCHEMA = """
node Person {
  name: String @key
  age: I32?
  photo: Blob?
  joined: DateTime?
  @range(age, 0..150)
}
node Note { text: String }
edge Knows: Person -> Person { since: I32? }
"""
PEOPLE = (
    '{"type":"Person","data":{"name":"Ada","age":36,"photo":"base64:aGVsbG8gd29ybGQ="}}\n'
    '{"type":"Person","data":{"name":"Bob","age":25}}\n'
    '{"edge":"Knows","from":"Ada","to":"Bob","data":{"since":2020}}\n'
)
NAMES = "query names() { match { $p: Person } return { $p.name as name } order { name } }"
ADD = "query add($n: String, $a: I32?) { insert Person { name: $n, age: $a } }"
AGE = "query set_age($n: String, $a: I32) { update Person set { age: $a } where name = $n }"
TOKENS = {"act-ada": "ada-token", "act-bob": "bob-token"}
JSON = {"Content-Type": "application/json"}
NDJSON = {"Content-Type": "application/x-ndjson"}


def new_graph(folder: Path, name: str = "people") -> str:
    """A small graph; where it is."""
    uri = str(folder / f"{name}.omni")
    with og.init(uri, schema=SCHEMA) as graph:
        graph.load(PEOPLE.encode(), "merge")
    return uri


class Served:
    """A running server and a client of it."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.graphs = ServedGraphs(
            settings.graphs, settings.extras, settings.quarantined, settings.coalesce_ms
        )
        self.graphs.open_all(require_all=True)
        self.log = io.StringIO()
        log = RequestLog(as_json=settings.log_json)
        trusted = settings.oidc_trust
        trust = None if trusted is None else trust_of_file(trusted)
        self.app = ServerApp(settings, self.graphs, log, policies_of(settings), trust)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = self._socket.getsockname()[:2]
        self.url = f"http://127.0.0.1:{self.address[1]}"
        config = uvicorn.Config(
            self.app,
            http=GuardedProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=2,
        )
        self._server = WorkerServer(config)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self.client = httpx.Client(base_url=self.url, timeout=60)
        deadline = threading.Event()
        while not self._server.started:
            deadline.wait(0.005)

    def _run(self) -> None:
        loop = self._server.config.get_loop_factory()
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(self._server.serve(sockets=[self._socket]))

    def close(self) -> None:
        self.client.close()
        self._server.should_exit = True
        self._thread.join(20)
        self.app.jobs.close(20)
        self.graphs.close()

    @property
    def graph(self) -> og.Graph:
        """The first graph, to look at from inside."""
        return self.graphs.opened()[0]

    @property
    def base(self) -> str:
        return f"/graphs/{next(iter(self.settings.graphs))}"

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.client.get(self.base + path, **options)

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        return self.client.post(self.base + path, json=body, **options)

    def answer(self, path: str, body: Any, shape: type[wire.Body], **options: Any) -> Any:
        """The document of a POST that succeeds, checked against its shape."""
        return checked(self.post(path, body, **options), shape)

    def names(self, branch: str = "main") -> list[str]:
        return [row["name"] for row in self.graph.query(NAMES, branch=branch).rows]


@contextlib.contextmanager
def served(
    uris: list[str] | str,
    *,
    access: Access = Access.OPEN,
    limits: ServerLimits | None = None,
    **settings: Any,
) -> Iterator[Served]:
    """A server of some graphs."""
    every = [uris] if isinstance(uris, str) else uris
    tokens = {} if access is Access.OPEN else {digest_of(t): a for a, t in TOKENS.items()}
    facts = ServerSettings(
        graphs={Path(uri).name.removesuffix(".omni"): uri for uri in every},
        access=access,
        tokens=tokens,
        limits=limits or ServerLimits(),
    )
    server = Served(replace(facts, **settings))
    try:
        yield server
    finally:
        server.close()


def checked(response: httpx.Response, shape: type[wire.Body], status: int = 200) -> Any:
    """The JSON of a response that has a status and the members of a shape, no more and no less."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    value = msgspec.json.decode(response.content, type=shape)
    assert msgspec.json.decode(msgspec.json.encode(value)) == response.json()
    return response.json()


def refused(response: httpx.Response, status: int, code: str | None, *members: str) -> Any:
    """The error body of a response: its status, its code and exactly these members, beside the
    class of the library's error, if it is one."""
    document = checked(response, wire_errors.ErrorOutput, status)
    assert document.get("code") == code
    assert document.keys() - {"error", "code", "fault"} == set(members)
    if "fault" in document:
        assert document["fault"]["name"] in og.__all__
    return document
