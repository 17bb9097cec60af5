"""Fast path of: the channels of ASGI — request bodies that have come, answers written at once.

The web server hands a body over as messages, and writes the head of an answer and then its body,
each field of which it looks through: together that costs as much as a point lookup.

Reference: `receive` and `send` of the web server (uvicorn).
Held equal by: `test_an_exchange_at_once_gives_the_bytes_of_the_channels`.
Falls back: while a body is still coming, while the client does not read, for answers without a
length, for those that close the connection, and beside a web server of another version.

Invariant: an answer leaves in one write, after what was written before it, or not at all.
"""

from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import (
    HEADER_VALUE_RE,
    STATUS_LINE,
    RequestResponseCycle,
)

IS_KNOWN = uvicorn.__version__.startswith("0.54.")
"""Whether the web server is of the version whose exchanges this knows: they are no public name."""

_BODILESS = (204, 304)


class WholeExchange:
    """One request and its answer, beside the channels of its connection."""

    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    def body(self) -> bytes | None:
        """The body of the request, once; None while some of it is still to come."""
        cycle = self._cycle
        if cycle.more_body or cycle.disconnected or cycle.response_complete:
            return None
        body = bytes(cycle.body)
        cycle.body = bytearray()
        cycle.message_event.clear()
        return body

    def answer(self, status: int, fields: list[tuple[bytes, bytes]], body: bytes) -> bool:
        """Write a whole answer; False where the channels must do it, and nothing was written."""
        cycle: Any = self._cycle
        if cycle.response_started or cycle.disconnected or cycle.flow.write_paused:
            return False
        if status in _BODILESS or cycle.scope["method"] == "HEAD":
            return False
        lines = [STATUS_LINE[status]]
        for name, value in (*cycle.default_headers, *fields):
            if name == b"connection" or HEADER_VALUE_RE.search(value):
                return False
            lines += (name, b": ", value, b"\r\n")
        lines += (b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n", body)
        cycle.transport.write(b"".join(lines))
        cycle.response_started = cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()
        return True
