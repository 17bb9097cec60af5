"""Three agents research one topic through MCP, each on a branch; a reviewer settles and merges.

    python agents.py [memory.omni]

The agents are scripts with the official MCP client, so that it can be seen which calls a language
model would make. They work at once against one server. Each has a token: every commit says who
made it. Two of them judge one fact differently; the second finds the conflict when it tries its
merge, leaves its branch as it is and stops. The reviewer reads both sides, decides, and merges.
The branches are kept, so that everything they did can be read back by actor.
"""

import asyncio
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

import omnigraph as og

HERE = Path(__file__).parent
MEMORY = (HERE / "memory.gq").read_text(encoding="utf-8")
NOTES = {
    "agent-a": ("The pump leaks oil when it is cold.", 0.9),
    "agent-b": ("Cold starts wear the pump.", 0.2),
    "agent-c": ("The spare pump is in bay two.", None),
}
TOKENS = {name: f"token-of-{name}" for name in (*NOTES, "reviewer")}
ADDRESS = re.compile(r"OMNIGRAPH_LISTEN_ADDR=(\S+)")
# The command `omnigraph-server`, of the interpreter that runs this.
PROGRAM = (sys.executable, "-c", "from omnigraph.cli.start import server_program as s; s()")


@contextmanager
def server(uri: str) -> Iterator[str]:
    """A server of one graph on a free port, until the block ends; its URL."""
    tokens = Path(uri).with_suffix(".tokens.json")
    tokens.write_text(json.dumps(TOKENS))
    options = ("--trust-tokens", "--tokens", str(tokens), "--bind", "127.0.0.1:0", "--mcp")
    running = subprocess.Popen(
        [*PROGRAM, uri, *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert running.stdout is not None
    try:
        listens = ADDRESS.match(running.stdout.readline())
        assert listens is not None, "the server did not start"
        yield f"http://{listens[1]}/mcp"
    finally:
        running.terminate()
        running.wait()
        running.stdout.close()


@asynccontextmanager
async def transport(url: str, actor: str) -> AsyncIterator[Any]:
    """A connection that sends the token of an actor."""
    headers = {"Authorization": f"Bearer {TOKENS[actor]}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        streamable_http_client(url, http_client=http) as streams,
    ):
        yield streams


class Refused(Exception):
    """A tool error: its status, and what it says."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["error"])
        self.status: int = error["status"]


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    """The result of a tool."""
    done = await client.call_tool(tool, arguments)
    if done.is_error:
        raise Refused(json.loads(done.content[0].text))  # an error is text alone
    return done.structured_content


async def research(url: str, agent: str) -> str:
    """One agent: look, write on its branch, look again, and merge if nothing is in the way."""
    text, sure = NOTES[agent]
    async with Client(transport(f"{url}?branch={agent}/pump", agent)) as client:
        await call(client, "schema_get")
        known = await call(client, "search", text="pump", branch="main")
        fact = {"slug": f"{agent}-1", "text": text, "topic": "pump", "sure": 0.6}
        memory = {"query": MEMORY}
        await call(client, "mutate", name="remember", params=fact, message="a fact", **memory)
        if sure is not None:  # a judgement of the fact that is there already
            doubt = {"slug": known["hits"][0]["id"], "sure": sure}
            await call(client, "mutate", name="doubt", params=doubt, message="judged", **memory)
        while True:
            preview = await call(client, "branches_merge", dry_run=True)
            if preview["merge_conflicts"]:
                return f"{agent}: left {agent}/pump for review"
            try:
                await call(client, "branches_merge", message=f"merged by {agent}")
            except Refused as cause:
                if cause.status not in (409, 412, 429):  # another agent's merge came first
                    raise
                continue
            return f"{agent}: merged"


async def review(url: str) -> None:
    """The reviewer: every branch that was left, its differences, its conflicts, a decision."""
    async with Client(transport(url, "reviewer")) as client:
        for branch in (await call(client, "branches_list"))["branches"]:
            if branch == "main":
                continue
            await call(client, "diff", **{"from": "main", "to": branch})
            preview = await call(client, "branches_merge", source=branch, dry_run=True)
            if preview["outcome"] == "already_up_to_date":
                continue
            answers = []
            for conflict in preview["merge_conflicts"]:
                sides = [conflict[side]["properties"]["sure"] for side in ("ours", "theirs")]
                print(f"conflict: {conflict['type_name']} {conflict['entity_id']}: {sorted(sides)}")
                answers.append(
                    {
                        "type_name": conflict["type_name"],
                        "entity_id": conflict["entity_id"],
                        "take": {"sure": round(sum(sides) / 2, 2)},
                    }
                )
            done = await call(
                client,
                "branches_merge",
                source=branch,
                resolutions=answers,
                message="between the two",
            )
            print(f"reviewer: {done['outcome']} what was left")


async def read_back(url: str) -> None:
    """What everybody did, from history, by actor."""
    async with Client(transport(url, "reviewer")) as client:
        for actor in TOKENS:
            listed = await call(client, "commits_list", actor=actor, all_branches=True)
            said = sorted(each.get("message", "") for each in listed["commits"])
            print(f"{actor}: {', '.join(said)}")
        shared = await call(client, "entity_history", type="Fact", id="start")
        print(f"changes of the shared fact: {len(shared['revisions'])}")
        fact = await call(client, "entity_get", type="Fact", id="start")
        print(f"sure of it now: {fact['properties']['sure']}")
        print(f"branches: {', '.join((await call(client, 'branches_list'))['branches'])}")


async def work(url: str) -> None:
    """Everything, in order."""
    for line in sorted(await asyncio.gather(*(research(url, agent) for agent in NOTES))):
        print(line)
    await review(url)
    await read_back(url)


def main(uri: str) -> None:
    with og.init(uri, schema=HERE / "schema.pg") as graph:
        first = {"slug": "start", "text": "The pump is old.", "topic": "pump", "sure": 0.5}
        graph.mutate(MEMORY, first, name="remember", actor="pat", message="what is known")
    with server(uri) as url:
        asyncio.run(work(url))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else str(Path(tempfile.mkdtemp()) / "memory.omni"))
