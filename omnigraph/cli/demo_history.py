"""A history for `omnigraph demo`: days of small commits by several actors, branches, a conflict.

Invariant: the same number of commits gives the same history, but for ids and moments.
"""

from __future__ import annotations

from pathlib import Path

from omnigraph.cli.engine import open_graph

WAITING = "review/relocation"
_MOVE = "query move($n: String, $c: String) { update Person set { city: $c } where name = $n }"
_AGE = "query age($n: String, $a: I32) { update Person set { age: $a } where name = $n }"
_ADD = "query add($n: String) { insert Person { name: $n, age: 30 } }"
_CITIES = ("Oslo", "Bergen", "Tromsø", "Bodø", "Hamar")
_ACTORS = ("act-ines", "act-jon", "act-kim", "act-import")
_EVERY = 40  # commits of main between two merged branches


def write_history(folder: Path, commits: int, hero: str) -> None:
    """About so many commits on the graph of a folder, and a branch that conflicts with main."""
    with open_graph(str(folder / "graph.omni")) as graph:
        for number in range(commits):
            actor, city = _ACTORS[number % 4], _CITIES[number % 5]
            name = f"Newcomer {number}"
            graph.mutate(_ADD, {"n": name}, actor=actor)
            if number % _EVERY == _EVERY // 2:
                branch = f"review/batch-{number // _EVERY + 1}"
                graph.branches.create(branch)
                for each in range(3):
                    given = {"n": f"Newcomer {number - each}", "c": city}
                    graph.mutate(_MOVE, given, branch=branch, actor=actor)
                early = f"Newcomer {number - 4}"
                graph.mutate(_AGE, {"n": early, "a": 31}, actor="act-kim", message="a birthday")
                graph.branches.merge(
                    branch,
                    actor="act-jon",
                    message=f"{city}: three moves, reviewed",
                    delete_source=number % (2 * _EVERY) != _EVERY // 2,
                )
        graph.branches.create(WAITING)
        graph.mutate(_MOVE, {"n": hero, "c": "Hamar"}, branch=WAITING, actor="act-ines")
        graph.mutate(_ADD, {"n": "Ola Ny"}, branch=WAITING, actor="act-ines", message="Ola joins")
        graph.mutate(_MOVE, {"n": hero, "c": "Bodø"}, actor="act-jon", message="back to the north")
        text = "One moved on main too: somebody has to say where to."
        review = graph.reviews.open(WAITING, title="Relocation", text=text, actor="act-ines")
        about = ("node", "Person", hero)
        graph.reviews.comment(review.id, "Hamar or Bodø?", entity=about, actor="act-jon")
