"""Agents that share one memory: each works on a branch of its own, and merges when it is done.

    python agents.py [memory.omni]

Three agents run at once, each in a process of its own. Two of them then disagree about one fact:
the second merge finds the conflict, publishes nothing, and a rule settles it.
"""

import multiprocessing
import sys
import tempfile
from pathlib import Path

import omnigraph as og

HERE = Path(__file__).parent
MEMORY = HERE / "memory.gq"
NOTES = {
    "agent-a": ("engine", ["The pump leaks oil when it is cold.", "The spare pump is in bay two."]),
    "agent-b": ("hull", ["Two coats of paint were put on the hull."]),
    "agent-c": ("engine", ["Cold starts wear the pump."]),
}


def work(uri: str, agent: str) -> None:
    """One agent: a branch, some facts, a merge. Nobody waits for anybody."""
    topic, texts = NOTES[agent]
    with og.open(uri) as graph:
        graph.branches.create(f"{agent}/work")
        mine = graph.branch(f"{agent}/work")
        for number, text in enumerate(texts, start=1):
            fact = {"slug": f"{agent}-{number}", "text": text, "topic": topic, "sure": 0.6}
            mine.mutate(MEMORY, fact, name="remember", actor=agent)
        merge(graph, agent)


def merge(graph: og.Graph, agent: str) -> None:
    """Bring a branch into main. Another agent's merge may come first: then try again."""
    while True:
        try:
            mine = graph.branch(f"{agent}/work")
            outcome = mine.merge_into("main", actor=agent, delete_source=True)
        except (og.VersionMismatch, og.PreconditionFailed):
            continue
        print(f"{agent}: {outcome.kind}", flush=True)
        return


def disagree(graph: og.Graph) -> None:
    """Two branches say something different about one fact."""
    for agent, sure in (("agent-a", 0.9), ("agent-b", 0.1)):
        graph.branches.create(f"{agent}/doubt")
        mine = graph.branch(f"{agent}/doubt")
        mine.mutate(MEMORY, {"slug": "agent-a-1", "sure": sure}, name="doubt", actor=agent)
    graph.branches.merge("agent-a/doubt", actor="agent-a", delete_source=True)
    try:
        graph.branches.merge("agent-b/doubt", actor="agent-b")
    except og.MergeConflicts as found:
        (conflict,) = found.conflicts
        assert conflict.ours is not None
        assert conflict.theirs is not None
        print(
            f"conflict: {conflict.type_name} {conflict.entity_id}: main says "
            f"{conflict.ours['properties']['sure']}, "
            f"agent-b says {conflict.theirs['properties']['sure']}"
        )
    # The rule here: what is on main stays. Nothing was published until now.
    graph.branches.merge("agent-b/doubt", actor="agent-b", resolve="ours", delete_source=True)


def main(uri: str) -> None:
    og.init(uri, schema=HERE / "schema.pg").close()
    # Lance has threads of its own, which a forked process would lack.
    start = multiprocessing.get_context("spawn")
    agents = [start.Process(target=work, args=(uri, agent)) for agent in NOTES]
    for process in agents:
        process.start()
    for process in agents:
        process.join()
    with og.open(uri) as graph:
        disagree(graph)
        for row in graph.query(MEMORY, {"words": "cold pump"}, name="recall"):
            print(f"recalled: {row['slug']} ({row['topic']}, {row['sure']}): {row['text']}")
        print(f"branches: {', '.join(graph.branches.list())}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else str(Path(tempfile.mkdtemp()) / "memory.omni"))
