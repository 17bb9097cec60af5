"""Two agents and a person, through one server: the agents write on branches, the person decides.

    python served.py [memory.omni]

Nobody but the server touches the files. Each has a token, so every commit says who made it. The
agents work at once and disagree about one fact; the person looks at both branches, merges the
first, answers the conflict of the second, and later takes one change back.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import omnigraph as og

MEMORY = Path(__file__).parents[1] / "agents" / "memory.gq"
SCHEMA = MEMORY.with_name("schema.pg")
TOKENS = {"agent-a": "token-of-a", "agent-b": "token-of-b", "pat": "token-of-pat"}
ADDRESS = re.compile(r"OMNIGRAPH_LISTEN_ADDR=(\S+)")
# The command `omnigraph-server`, of the interpreter that runs this.
PROGRAM = (sys.executable, "-c", "from omnigraph.cli.start import server_program as s; s()")


@contextmanager
def server(uri: str, tokens: Path) -> Iterator[str]:
    """A server of one graph on a free port, until the block ends; its URL."""
    tokens.write_text(json.dumps(TOKENS))
    options = ("--trust-tokens", "--tokens", str(tokens), "--bind", "127.0.0.1:0")
    running = subprocess.Popen(
        [*PROGRAM, uri, *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert running.stdout is not None
    try:
        listens = ADDRESS.match(running.stdout.readline())
        assert listens is not None, "the server did not start"
        yield f"http://{listens[1]}"
    finally:
        running.terminate()  # it answers what it has begun
        running.wait()
        running.stdout.close()


def work(url: str, agent: str, sure: float) -> None:
    """One agent: a branch, a fact of its own, and a doubt about the one they share."""
    with og.connect(url, token=TOKENS[agent]) as graph:
        graph.branches.create(f"{agent}/work")
        mine = graph.branch(f"{agent}/work")
        fact = {"slug": agent, "text": f"{agent} looked at the pump.", "topic": "engine"}
        mine.mutate(MEMORY, {**fact, "sure": 0.5}, name="remember", message="looked")
        mine.mutate(MEMORY, {"slug": "pump", "sure": sure}, name="doubt", message="how sure")


def review(graph: og.Graph, agent: str) -> None:
    """The person: what would change, and then the merge."""
    branch = f"{agent}/work"
    preview = graph.branches.merge(branch, dry_run=True)
    changed = sum(1 for _ in graph.diff("main", branch))
    print(f"pat looks at {branch}: {preview.kind}, {changed} differences")
    try:
        done = graph.branches.merge(branch, delete_source=True, message=f"work of {agent}")
    except og.MergeConflicts as open_:
        (conflict,) = open_.conflicts
        assert conflict.ours is not None
        assert conflict.theirs is not None
        ours, theirs = (side["properties"]["sure"] for side in (conflict.ours, conflict.theirs))
        print(f"conflict: {conflict.type_name} {conflict.entity_id}: {ours} or {theirs}")
        middle = {("Fact", "pump"): {"sure": (ours + theirs) / 2}}
        done = graph.branches.merge(
            branch, resolve=middle, delete_source=True, message="the truth lies between"
        )
    print(f"pat merges {branch}: {done.kind}")


def main(uri: str) -> None:
    with og.init(uri, schema=SCHEMA) as graph:
        fact = {"slug": "pump", "text": "The pump leaks.", "topic": "engine", "sure": 0.5}
        graph.mutate(MEMORY, fact, name="remember", actor="pat")
    with (
        tempfile.TemporaryDirectory() as folder,
        server(uri, Path(folder, "tokens.json")) as url,
        og.connect(url, token=TOKENS["pat"]) as graph,
    ):
        with ThreadPoolExecutor(2) as agents:
            list(agents.map(work, [url] * 2, ("agent-a", "agent-b"), (0.9, 0.1)))
        for agent in ("agent-a", "agent-b"):
            review(graph, agent)
        for row in graph.query(MEMORY, name="everything"):
            print(f"{row['slug']}: {row['sure']}")
        graph.revert("main", message="ask again")
        (pump,) = (r for r in graph.query(MEMORY, name="everything") if r["slug"] == "pump")
        print(f"after the revert pump: {pump['sure']}")
        for commit in graph.commits.list(limit=3):
            print(f"{commit.actor}: {commit.message}")
        try:
            og.connect(url, token="stolen")
        except og.Unauthenticated as refused:
            print(f"nobody: {refused.reason}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else str(Path(tempfile.mkdtemp()) / "memory.omni"))
