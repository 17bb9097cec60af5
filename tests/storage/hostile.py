"""A proxy before an S3 server that answers wrongly at random: what a bad day of a store looks like.

500, 503 SlowDown     before the effect, or after it
a reset connection    before the effect, or after it
a timeout             the answer comes when nobody waits any more
a body cut off        fewer bytes than the header says, lists included
a stale list          the newest keys are left out
a wrong ETag          of a read, a write or a look
a slow body           a few bytes at a time
"""

import http.client
import random
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

FAULTS = (
    "500 before", "500 after", "503 before", "503 after", "reset before", "reset after",
    "timeout", "cut off", "stale list", "wrong tag", "slow",
)  # fmt: skip
TIMEOUT_S = 2.0
_SLOW_DOWN = (
    b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>slow down</Message></Error>"
)
_INTERNAL = b"<?xml version='1.0'?><Error><Code>InternalError</Code><Message>no</Message></Error>"


@dataclass
class Weather:
    """How often a request goes wrong, in which ways, and how often each did."""

    share: float
    chance: random.Random
    faults: tuple[str, ...] = FAULTS
    seen: Counter[str] = field(default_factory=Counter)
    turn: threading.Lock = field(default_factory=threading.Lock)

    def fault(self) -> str | None:
        with self.turn:
            self.seen["requests"] += 1
            if self.chance.random() >= self.share:
                return None
            fault = self.chance.choice(self.faults)
            self.seen[fault] += 1
            return fault


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    weather: Weather
    target: tuple[str, int]

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._pass_on()

    do_PUT = do_POST = do_DELETE = do_HEAD = do_GET

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.weather.fault()
        if fault == "reset before":
            self._reset()
            return
        if fault in ("500 before", "503 before"):
            self._fail(int(fault[:3]))
            return
        status, headers, data = self._asked(body)
        if fault == "reset after":
            self._reset()
            return
        if fault in ("500 after", "503 after"):
            self._fail(int(fault[:3]))
            return
        if fault == "timeout":
            time.sleep(TIMEOUT_S * 1.5)
        if fault == "stale list" and b"ListBucketResult" in data[:300]:
            data = _stale(data)
        if fault == "wrong tag":
            headers = {
                k: '"0123456789abcdef"' if k.lower() == "etag" else v for k, v in headers.items()
            }
        self._answer(status, headers, data, fault)

    def _asked(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(*self.target, timeout=60)
        try:
            headers = {k: v for k, v in self.headers.items() if k.lower() != "connection"}
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            data = answer.read()
            skip = ("transfer-encoding", "connection", "content-length")
            kept = {k: v for k, v in answer.getheaders() if k.lower() not in skip}
            if self.command == "HEAD":
                kept["Content-Length"] = answer.getheader("Content-Length") or "0"
            return answer.status, kept, data
        finally:
            connection.close()

    def _answer(self, status: int, headers: dict[str, str], data: bytes, fault: str | None) -> None:
        with suppress(OSError):
            self.send_response_only(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if self.command != "HEAD" and status not in (204, 304):
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command == "HEAD":
                return
            if fault == "cut off" and data:
                self.wfile.write(data[: len(data) // 2])
                self._reset()
                return
            size = max(1, len(data) // 8) if fault == "slow" else len(data) or 1
            for start in range(0, len(data), size):
                self.wfile.write(data[start : start + size])
                if fault == "slow":
                    time.sleep(0.02)

    def _fail(self, status: int) -> None:
        data = _SLOW_DOWN if status == 503 else _INTERNAL
        self._answer(status, {"Content-Type": "application/xml"}, data, None)

    def _reset(self) -> None:
        """End the connection with a reset, not with an end."""
        self.close_connection = True
        with suppress(OSError):
            self.wfile.flush()
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.shutdown(socket.SHUT_RDWR)


def _stale(data: bytes) -> bytes:
    """A list without its newest keys."""
    parts = re.findall(rb"<Contents>.*?</Contents>", data, re.S)
    for part in sorted(parts, key=lambda p: re.findall(rb"<LastModified>(.*?)<", p))[-2:]:
        data = data.replace(part, b"", 1)
    return data


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is what this is about."""


@contextmanager
def before(endpoint: str, weather: Weather) -> Iterator[str]:
    """The address of a proxy before a server, for the length of a block."""
    target = urlsplit(endpoint)
    assert target.hostname is not None
    assert target.port is not None
    handler = type(
        "Handler", (_Handler,), {"weather": weather, "target": (target.hostname, target.port)}
    )
    server = _Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
