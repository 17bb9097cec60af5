"""ASGI connection: the types of its channels, and how it may end early."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

ABORT = "omnigraph.abort"
"""The key of a scope whose value drops the connection, with what was not sent yet."""

WHOLE = "omnigraph.whole"
"""The key of a scope whose value takes and gives what is whole, beside the channels."""

PROGRESS = "omnigraph.progress"
"""The key of a scope whose value hears how far a load or merge is; an agent's tool sets it."""


class ClientGone(Exception):
    """The client closed the connection before it was answered."""


class AnswerBroken(Exception):
    """An answer that was begun and cannot be ended: the connection is closed under it."""


async def refuse_scope(scope: Scope, receive: Receive, send: Send) -> None:
    """Begin and end with the server, and refuse web sockets."""
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return
    await receive()
    await send({"type": "websocket.close", "code": 1003})


async def when_gone(receive: Receive, end: Callable[[], None]) -> None:
    """Call `end` once the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
    end()
