"""ASGI connection: the types of its channels, and how it may end early."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

ABORT = "omnigraph.abort"
"""The key of a scope whose value drops the connection, with what was not sent yet."""

JOINED = "omnigraph.joined"
"""The key of a scope whose value is a block: what is sent within it leaves in one write."""

PROGRESS = "omnigraph.progress"
"""The key of a scope whose value hears how far a load or merge is; an agent's tool sets it."""


class ClientGone(Exception):
    """The client closed the connection before it was answered."""


class AnswerBroken(Exception):
    """An answer that was begun and cannot be ended: the connection is closed under it."""
