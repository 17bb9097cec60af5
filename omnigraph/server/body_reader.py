"""Request bodies: read whole within a cap and a deadline, spooled to disk where they are large.

Invariant: a write begins when its body is whole. A spooled body is removed when its request ends.
"""

import asyncio
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from omnigraph.costs import COSTS
from omnigraph.server.call import JSON, RouteCall, require_media
from omnigraph.server.connection import WHOLE, ClientGone, Receive, Scope
from omnigraph.server.endpoint import ApiEndpoint, BodySize
from omnigraph.server.refusals import HttpRefusal, too_large, unread
from omnigraph.server.serve_settings import ServerLimits
from omnigraph.server.watchdog import Watchdog


class BodyReader:
    """Reads the bodies of one worker's requests."""

    def __init__(self, limits: ServerLimits, folder: str | None, watchdog: Watchdog) -> None:
        self._watchdog = watchdog
        self._limits = limits
        self._folder = folder
        self._caps = {
            BodySize.DEFAULT: limits.body_bytes,
            BodySize.LOAD: limits.load_body_bytes,
            BodySize.BLOB: limits.blob_body_bytes,
            BodySize.SPOOLED: limits.spooled_load_bytes,
        }

    async def read(
        self,
        endpoint: ApiEndpoint,
        call: RouteCall,
        scope: Scope,
        receive: Receive,
        stack: ExitStack,
    ) -> None:
        """Read the body whole, within its cap and its time."""
        limits = self._limits
        cap = self._caps[endpoint.size]
        length = call.headers.get("content-length")
        is_empty = length == "0" or (length is None and "transfer-encoding" not in call.headers)
        if endpoint.body_required or not is_empty:
            media = endpoint.request if isinstance(endpoint.request, str) else JSON
            given = require_media(call.headers, media, *endpoint.other_bodies)
            if given in endpoint.other_bodies:
                cap = limits.spooled_load_bytes
        if length is not None and length.isdigit() and int(length) > cap:
            raise unread(too_large("request_body_bytes", int(length), cap))
        whole = scope.get(WHOLE)
        body = None if whole is None else whole.body()
        if body is not None:
            if len(body) > cap:
                raise unread(too_large("request_body_bytes", len(body), cap))
            call.body = body
            return
        try:
            with self._watchdog.within(limits.body_seconds):
                await self._collect(endpoint, call, receive, cap, stack)
        except TimeoutError:
            raise unread(HttpRefusal(408, "the request body did not arrive in time")) from None

    async def _collect(
        self, endpoint: ApiEndpoint, call: RouteCall, receive: Receive, cap: int, stack: ExitStack
    ) -> None:
        chunks: list[bytes] = []
        size = kept = 0
        spool: IO[bytes] | None = None
        is_spooled = cap in (self._limits.spooled_load_bytes, self._limits.blob_body_bytes)
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            chunk = message.get("body", b"")
            size += len(chunk)
            kept += len(chunk)
            if size > cap:
                raise unread(too_large("request_body_bytes", size, cap))
            chunks.append(chunk)
            more = message.get("more_body", False)
            if is_spooled and kept > COSTS.body_memory_bytes_max:
                if spool is None:
                    spool = self._spool(call, stack)
                await asyncio.to_thread(spool.writelines, chunks)
                chunks, kept = [], 0
        if spool is None:
            call.body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            return
        await asyncio.to_thread(spool.writelines, chunks)
        await asyncio.to_thread(spool.close)

    def _spool(self, call: RouteCall, stack: ExitStack) -> IO[bytes]:
        file = tempfile.NamedTemporaryFile(dir=self._folder, suffix=".jsonl", delete=False)  # noqa: SIM115
        call.spooled = Path(file.name)
        stack.callback(call.spooled.unlink, missing_ok=True)
        return file
