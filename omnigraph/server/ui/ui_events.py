"""New commits as server-sent events: how many a page has not seen.

Invariant: waiting holds no thread, only a timer; a look asks for heads and reads no table. A page
is never changed under its reader: it says what is new and takes it in on a click.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import orjson

from omnigraph.server.call import RouteCall
from omnigraph.server.ui.ui_points import branch_names

LOOK_S = 1.0
_QUIET_LOOKS = 15
_BRANCHES_MAX = 50
Heads = dict[str, str]
Run = Callable[[Callable[[], Any]], Awaitable[Any]]


def heads(call: RouteCall) -> Heads:
    """The heads of a branch, or of the first branches."""
    branch = call.one("branch")
    names = [branch] if branch else branch_names(call.graph)[:_BRANCHES_MAX]
    return {name: str(call.graph.snapshot(name).commit_id) for name in names}


def new_commits(call: RouteCall, before: Heads, after: Heads) -> int:
    """How many commits lead to heads now and did not before."""
    moved = [name for name, head in after.items() if before.get(name) != head]
    known = set(before.values())
    fresh: set[str] = set()
    for name in moved:
        for commit in call.graph.commits.list(name):
            if commit.id in known or commit.id in fresh:
                break
            fresh.add(commit.id)
    return len(fresh)


async def commit_events(run: Run, call: RouteCall, stopping: asyncio.Event) -> AsyncIterator[bytes]:
    """An event each time that there are more new commits than the last one said."""
    first: Heads = await run(lambda: heads(call))
    seen, quiet = first, 0
    yield b"retry: 2000\n\n"
    while not stopping.is_set():
        try:
            async with asyncio.timeout(LOOK_S):
                await stopping.wait()
            return
        except TimeoutError:
            pass
        now: Heads = await run(lambda: heads(call))
        if now == seen:
            quiet += 1
            if quiet % _QUIET_LOOKS == 0:
                yield b": nothing new\n\n"
            continue
        seen = now
        count = await run(partial(new_commits, call, first, now))
        yield b"event: commits\ndata: " + orjson.dumps({"new": count}) + b"\n\n"
