"""Whether the 2,000th small commit since a load costs what the 50th does, and the reads after it.

    python bench/many_commits.py                 # 1M people, 10M friendships
    python bench/many_commits.py --people 100000 --commits 1000 --save

One process makes one commit after another on a graph of people and friendships, nothing is
optimized between, and reads after each commit: a lookup, a hop, and another hop, of people that
nobody asked for yet. Each kind of commit has a fresh copy of the graph. Figures are processor time
in ms, medians of the fifty commits before the number in the head. With `--save` writes
bench/results/many_commits.json.
"""

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import scale

import omnigraph as og

RESULTS = Path(__file__).parent / "results" / "many_commits.json"
TOGETHER = 50
KINDS = {
    "insert a person": "insert Person { name: $n, age: 1 }",
    "insert a friendship": "insert Knows { from: $p, to: $q }",
    "update a person": "update Person set { age: 7 } where name = $p",
    "delete a person": "delete Person where name = $p",
    "delete the friendships of a person": "delete Knows where from = $p",
}
LOOKUP, HOP = scale.QUERIES["point lookup"], scale.QUERIES["1 hop"]
LINES = ("commit", "first lookup", "first hop", "next hop")


def cpu_ms(work: Callable[[], Any]) -> float:
    """The processor time of a call, of all threads."""
    began = time.process_time()
    work()
    return (time.process_time() - began) * 1000


def measured(folder: Path, kind: str, people: int, heads: list[int]) -> dict[str, list[float]]:
    """The figures of one kind of commit, at each of the numbers of commits."""
    own = folder / "copy.omni"
    shutil.rmtree(own, ignore_errors=True)
    shutil.copytree(folder / "omnigraph", own)
    declared = {"$n": "String", "$p": "String", "$q": "String"}
    names = ", ".join(f"{name}: {kind_}" for name, kind_ in declared.items() if name in KINDS[kind])
    text = f"query w({names}) {{ {KINDS[kind]} }}"
    figures: dict[str, list[float]] = {line: [] for line in LINES}
    with og.open(own) as graph:
        graph.query(HOP, {"n": scale.person(people - 1)})
        made: list[list[float]] = []
        for number in range(heads[-1]):
            given = {
                "n": f"new{number}",
                "p": scale.person(2 * number),
                "q": scale.person(2 * number + 1),
            }
            used = {name: value for name, value in given.items() if f"${name}" in text}
            asked = [{"n": scale.person(people // 2 + 3 * number + k)} for k in range(3)]
            made.append(
                [
                    cpu_ms(lambda used=used: graph.mutate(text, used)),  # type: ignore[misc]
                    *(
                        cpu_ms(lambda q=query, n=name: graph.query(q, n))  # type: ignore[misc]
                        for query, name in zip((LOOKUP, HOP, HOP), asked, strict=True)
                    ),
                ]
            )
            if number + 1 in heads:
                for line, cells in zip(LINES, zip(*made[-TOGETHER:], strict=True), strict=True):
                    figures[line].append(round(statistics.median(cells), 3))
    return figures


def main() -> None:
    """Run the bench."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--people", type=int, default=1_000_000)
    options.add_argument("--commits", type=int, default=2000)
    options.add_argument("--folder", type=Path)
    options.add_argument("--save", action="store_true")
    given = options.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="many-commits-"))
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "omnigraph").exists():
        scale.OmniGraph(folder).load(given.people)
    heads = [TOGETHER, given.commits // 4, given.commits]
    result: dict[str, Any] = {"people": given.people, "commits": heads, "kinds": {}}
    head = " | ".join(map(str, heads))
    print(f"load average {os.getloadavg()[0]:.1f}\n\n| ms of CPU | commits | {head} |")
    print("|---" * (len(heads) + 2) + "|")
    for kind in KINDS:
        figures = result["kinds"][kind] = measured(folder, kind, given.people, heads)
        for line, cells in figures.items():
            print(f"| {kind} | {line} | {' | '.join(f'{c:.3g}' for c in cells)} |", flush=True)
    if given.save:
        RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    if given.folder is None:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
