"""Transport wrapper: the head and the body of an answer leave in one write (TCP segment, `send`).

The web server writes the head of an answer and then its body. On a socket each is a call of the
system and a segment of its own, which together cost as much as a point lookup.

Invariant: bytes leave in the order in which they were written, and nothing is kept outside the
block that joins them: `with transport: …`. What is aborted inside it leaves nothing.
"""

import asyncio
from types import TracebackType
from typing import Any

_COPIED_MAX = 1 << 16


class JoinedTransport:
    """A transport whose writes within a block leave together. All else is the transport's own."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._kept: list[bytes] | None = None
        self.is_closing = transport.is_closing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def __enter__(self) -> None:
        self._kept = []

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._let_go()

    def write(self, data: bytes) -> None:
        """Write, or keep for the end of the block."""
        if self._kept is None:
            self._transport.write(data)
        elif data:
            self._kept.append(data)

    def close(self) -> None:
        """Close when all has left."""
        self._let_go()
        self._transport.close()

    def abort(self) -> None:
        """Close now; nothing else leaves."""
        self._kept = None
        self._transport.abort()

    def _let_go(self) -> None:
        kept, self._kept = self._kept, None
        if not kept:
            return
        if sum(map(len, kept)) <= _COPIED_MAX:
            self._transport.write(b"".join(kept))
        else:
            self._transport.writelines(kept)
