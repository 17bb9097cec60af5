"""Waiting for commits: long polls, and the change feed as server-sent events (SSE).

Invariant: waiting holds no thread and no connection to storage, only a timer; a commit that comes
between two looks is in the next page, because each page goes on from the cursor of the last.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.datastructures import QueryParams

from omnigraph.server.call import Answer, RouteCall

WAIT_MS_MAX = 60_000
_LOOK_S = 0.1
_HEARTBEAT_S = 15.0
_STARTS = ("start", "cursor", "page_token")

Run = Callable[[RouteCall], Awaitable[Answer]]
Head = Callable[[], Awaitable[str]]


async def long_poll(run: Run, head: Head, call: RouteCall, stopping: asyncio.Event) -> Answer:
    """A page of the feed; one without a commit waits for one, up to `wait_ms`."""
    wait_ms = min(call.number("wait_ms") or 0, WAIT_MS_MAX)
    if not wait_ms:
        return await run(call)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_ms / 1000
    seen = await head()
    answer = await run(call)
    while _is_empty(answer) and loop.time() < deadline and not stopping.is_set():
        await _pause(stopping, min(_LOOK_S, deadline - loop.time()))
        now = await head()
        if now != seen:
            seen = now
            _go_on(call, answer)
            answer = await run(call)
    return answer


async def events(
    run: Run, head: Head, call: RouteCall, first: Answer, stopping: asyncio.Event
) -> AsyncIterator[bytes]:
    """The feed as events, beginning with a page that was read: the id of an event is the cursor to
    go on from."""
    loop = asyncio.get_running_loop()
    answer, seen, quiet_since = first, "", loop.time()
    yield b"retry: 1000\n\n"
    while not stopping.is_set():
        if not _is_empty(answer):
            yield _event(answer)
            quiet_since = loop.time()
        if "next_page_token" not in answer.document:
            while (now := await head()) == seen and not stopping.is_set():
                await _pause(stopping, _LOOK_S)
                if loop.time() - quiet_since > _HEARTBEAT_S:
                    yield b": nothing new\n\n"
                    quiet_since = loop.time()
            seen = now
        _go_on(call, answer)
        answer = await run(call)


def resumed(call: RouteCall) -> None:
    """Begin where `Last-Event-ID` says, if a client sends one."""
    last = call.headers.get("last-event-id")
    if last is not None:
        _begin(call, "cursor", last)


def _is_empty(answer: Answer) -> bool:
    return not answer.document["blocks"]


def _event(answer: Answer) -> bytes:
    cursor = answer.document.get("cursor")
    name = b"" if cursor is None else f"id: {cursor}\n".encode()
    return name + b"event: changes\ndata: " + answer.body + b"\n\n"


def _go_on(call: RouteCall, answer: Answer) -> None:
    """Ask for the page after the one that was answered."""
    token = answer.document.get("next_page_token")
    if token is not None:
        _begin(call, "page_token", token)
    else:
        _begin(call, "cursor", answer.document["cursor"])


def _begin(call: RouteCall, name: str, value: str) -> None:
    kept = [(key, text) for key, text in call.query.multi_items() if key not in _STARTS]
    call.query = QueryParams([*kept, (name, value)])


async def _pause(stopping: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(max(seconds, 0.001)):
            await stopping.wait()
    except TimeoutError:
        pass
