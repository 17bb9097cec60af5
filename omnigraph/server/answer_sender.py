"""Answers to the wire: whole bodies, streams of chunks, and server-sent events.

Invariant: an answer that was begun is ended, or its connection is closed; nobody takes a part for
the whole. A slow client holds no thread.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

from omnigraph.costs import COSTS
from omnigraph.server.call import Answer
from omnigraph.server.connection import (
    ABORT,
    WHOLE,
    AnswerBroken,
    ClientGone,
    Receive,
    Scope,
    Send,
)
from omnigraph.server.pools import BoundedPool
from omnigraph.server.refusals import overloaded
from omnigraph.server.request_headers import RequestHeaders
from omnigraph.server.request_log import RequestLog
from omnigraph.server.serve_settings import ServerLimits
from omnigraph.server.status import error_answer
from omnigraph.server.watchdog import Watchdog

_STREAM_SECONDS = 5
_EVENT_STREAMS_MAX = 256

_SENT = (
    "Authorization", "Content-Type", "Idempotency-Key", "If-Match", "If-None-Match", "If-Range",
    "Last-Event-ID", "Mcp-Protocol-Version", "Mcp-Session-Id", "Omnigraph-Http-Api",
    "Omnigraph-If-Graph-Commit", "Omnigraph-Timeout-Ms", "Range", "X-Request-Id",
)  # fmt: skip
_READ = (
    "Accept-Ranges", "Content-Range", "Deprecation", "ETag", "Idempotent-Replay", "Link",
    "Mcp-Session-Id", "Omnigraph-Query-Name", "Omnigraph-Snapshot-Id", "Retry-After",
    "WWW-Authenticate", "X-Request-Id",
)  # fmt: skip


class AnswerSender:
    """Sends the answers of one worker."""

    def __init__(
        self,
        limits: ServerLimits,
        origin: str | None,
        log: RequestLog,
        watchdog: Watchdog,
        stopping: asyncio.Event,
    ) -> None:
        self._stopping = stopping
        self._watchdog = watchdog
        self._limits = limits
        self._origin = origin
        self._log = log
        self._stream_pool = BoundedPool("stream", limits.streams, limits.streams)
        self._streams = 0
        self._events = 0

    def is_allowed_origin(self, headers: RequestHeaders) -> bool:
        """Whether a page of the one allowed origin asks."""
        return self._origin is not None and headers.get("origin") == self._origin

    async def send(
        self, answer: Answer, scope: Scope, receive: Receive, send: Send, request_id: str
    ) -> int:
        """Send an answer; its status."""
        if self._stopping.is_set():
            answer.headers["Connection"] = "close"  # else the client would send another request
        fields = _fields(answer, request_id)
        if self._origin is not None and self.is_allowed_origin(RequestHeaders(scope["headers"])):
            fields += origin_fields(self._origin)
        is_bodiless = scope["method"] == "HEAD"
        if answer.events is not None and not is_bodiless:
            await self._send_events(answer.events, fields, receive, send, request_id)
            return answer.status
        is_streamed = answer.stream is not None or answer.events is not None
        has_length = "Content-Length" in answer.headers or is_streamed
        if not has_length and answer.status not in (204, 304):
            fields.append((b"content-length", str(len(answer.body)).encode()))
        start = {"type": "http.response.start", "status": answer.status, "headers": fields}
        if answer.stream is not None and not is_bodiless:
            try:
                await self._send_stream(start, answer.stream, send, request_id)
            except AnswerBroken as broken:
                if isinstance(broken.__cause__, TimeoutError):
                    scope.get(ABORT, _nothing)()
                raise
            return answer.status
        body = b"" if is_bodiless else answer.body
        if len(body) <= COSTS.answer_piece_bytes:
            whole = scope.get(WHOLE)
            if whole is not None and whole.answer(answer.status, fields, body):
                return answer.status
        try:
            with self._watchdog.within(self._limits.send_seconds):
                await send(start)
            for begin in range(0, max(len(body), 1), COSTS.answer_piece_bytes):
                piece = body[begin : begin + COSTS.answer_piece_bytes]
                more = begin + COSTS.answer_piece_bytes < len(body)
                # The web server waits before a piece until the client has read the ones before it.
                with self._watchdog.within(self._limits.send_seconds):
                    await send({"type": "http.response.body", "body": piece, "more_body": more})
        except TimeoutError:
            scope.get(ABORT, _nothing)()  # to close it would wait for the client to read
            raise AnswerBroken from None
        return answer.status

    async def _send_stream(
        self, start: dict[str, Any], chunks: Iterator[bytes], send: Send, request_id: str
    ) -> None:
        """Send chunks as they are read; one that cannot be read closes the connection."""
        if self._streams >= self._limits.streams:
            raise overloaded("too many streams are open", seconds=_STREAM_SECONDS)
        self._streams += 1
        try:
            await send(start)
            more = True
            while more:
                chunk = await self._stream_pool.submit(lambda: next(chunks, None))
                more = chunk is not None
                message = {"type": "http.response.body", "body": chunk or b"", "more_body": more}
                with self._watchdog.within(self._limits.send_seconds):
                    await send(message)
        except Exception as cause:
            self._log.fault(request_id, cause)
            raise AnswerBroken from cause
        finally:
            self._streams -= 1

    async def _send_events(
        self,
        events: AsyncIterator[bytes],
        fields: list[tuple[bytes, bytes]],
        receive: Receive,
        send: Send,
        request_id: str,
    ) -> None:
        """Send events as they come, until the client leaves or the server stops."""
        if self._events >= _EVENT_STREAMS_MAX:
            raise overloaded("too many event streams are open", seconds=_STREAM_SECONDS)
        gone = asyncio.get_running_loop().create_task(_gone(receive))
        self._events += 1
        try:
            await send({"type": "http.response.start", "status": 200, "headers": fields})
            async for event in events:
                with self._watchdog.within(self._limits.send_seconds):
                    await send({"type": "http.response.body", "body": event, "more_body": True})
                if gone.done():
                    break
            await send({"type": "http.response.body", "body": b""})
        except ClientGone:
            raise
        except Exception as cause:
            if error_answer(cause).is_fault:  # else the branch, the history or the token is gone
                self._log.fault(request_id, cause)
            raise AnswerBroken from cause
        finally:
            self._events -= 1
            gone.cancel()


def preflight() -> Answer:
    """What a page of the allowed origin may send."""
    headers = {
        "Access-Control-Allow-Methods": "GET, HEAD, POST, PUT, DELETE",
        "Access-Control-Allow-Headers": ", ".join(_SENT),
        "Access-Control-Max-Age": "600",
    }
    return Answer(status=204, media=None, headers=headers)


def origin_fields(origin: str) -> list[tuple[bytes, bytes]]:
    """The header fields that let a page of the allowed origin read an answer."""
    return [
        (b"access-control-allow-origin", origin.encode()),
        (b"access-control-expose-headers", ", ".join(_READ).encode()),
        (b"vary", b"Origin"),
    ]


def _nothing() -> None:
    pass


def _fields(answer: Answer, request_id: str) -> list[tuple[bytes, bytes]]:
    """The header fields of an answer."""
    fields = [(b"x-request-id", request_id.encode())]
    if answer.media is not None:
        fields.append((b"content-type", answer.media.encode()))
    for name, value in answer.headers.items():
        fields.append((name.lower().encode(), _field_value(value)))
    return fields


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _field_value(value: str) -> bytes:
    """A header's value; an address with other signs than Latin-1 is percent-encoded."""
    return value.encode("latin-1", "replace").replace(b"\r", b"").replace(b"\n", b"")
