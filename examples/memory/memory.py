"""A memory for agents: episodes, entities, facts that begin and end, recall, and forgetting.

    python memory.py [memory.omni]

The queries of `memory.gq` are what an agent calls; `omnigraph mcp memory.omni --queries memory.gq`
gives them to one as tools. Vectors are made by the writes, here by the offline provider `mock`, so
that nothing leaves the machine; near texts are not near by it, a real model makes them so.
"""

import sys
import tempfile
from pathlib import Path

import omnigraph as og

HERE = Path(__file__).parent
MEMORY = HERE / "memory.gq"
SPRING, SUMMER, AUTUMN = "2026-03-01T09:00:00Z", "2026-07-01T09:00:00Z", "2026-10-01T09:00:00Z"


def observe(graph: og.Graph) -> None:
    """What was said, and what follows from it."""
    for slug, when, who, text, entity in (
        ("e1", SPRING, "ada", "The spare pump is in bay two.", "pump"),
        ("e2", SPRING, "bob", "The pump leaks oil when it is cold.", "pump"),
        ("e3", SUMMER, "ada", "We moved the spare pump to bay five.", "pump"),
    ):
        said = {"slug": slug, "when": when, "who": who, "text": text, "entity": entity}
        graph.mutate(MEMORY, said, name="observe", actor="agent", message=f"{who} said so")
    bay = {"slug": "e3", "entity": "bay five", "kind": "place"}
    graph.mutate(MEMORY, bay, name="mention", actor="agent", message="where it is")
    for slug, text, episode, since in (
        ("spare-two", "The spare pump is in bay two.", "e1", SPRING),
        ("leaks", "The pump leaks oil in the cold.", "e2", SPRING),
        ("spare-five", "The spare pump is in bay five.", "e3", SUMMER),
    ):
        fact = {"slug": slug, "text": text, "entity": "pump", "episode": episode, "since": since}
        graph.mutate(MEMORY, fact, name="believe", actor="agent", message="learned")
    ended = {"slug": "spare-two", "until": SUMMER}
    graph.mutate(MEMORY, ended, name="end_fact", actor="agent", message="it was moved")


def recall(graph: og.Graph, words: str, when: str) -> list[str]:
    """The facts that held at a moment, best first."""
    rows = graph.query(MEMORY, {"words": words, "when": when}, name="recall").rows
    beside = [f", beside {row['beside']}" if row["beside"] else "" for row in rows]
    return [
        f"{row['text']} ({row['said_by']}{more})" for row, more in zip(rows, beside, strict=True)
    ]


def forget(graph: og.Graph) -> str:
    """Forget the pump: one commit."""
    done = graph.mutate(
        MEMORY, {"entity": "pump"}, name="forget", actor="agent", message="asked to forget"
    )
    assert done.commit is not None
    return str(done.commit.id)


def main(uri: str) -> None:
    with og.init(uri, schema=HERE / "schema.pg") as graph:
        graph.embed_with("mock")
        observe(graph)
        for moment, when in (("spring", SPRING), ("autumn", AUTUMN)):
            for line in sorted(recall(graph, "where is the spare pump", when)):
                print(f"{moment}: {line}")
        commit = forget(graph)
        print(f"forgotten: {len(recall(graph, 'spare pump', AUTUMN))} facts recalled")
        graph.revert(commit, actor="pat", message="that was too much")
        print(f"undone: {len(recall(graph, 'spare pump', AUTUMN))} facts recalled")
        for each in graph.commits.list(limit=2):
            print(f"{each.actor}: {each.message}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else str(Path(tempfile.mkdtemp()) / "memory.omni"))
