"""How lookups, hops, opens and commits grow from 10 to 30 million friendships, in turns.

    python bench/scale_growth.py [--folder PATH] [--rounds 5] [--save]

Both graphs are made first, as `bench/scale.py` makes them, or found in the folder. Then new
processes read one and the other in turn, so that a machine that gets slower does so for both, and
with them bare numpy arrays of the same two sizes, which show what memory alone costs. Figures are
processor time, medians over the rounds; the target is 1.3 times. With `--save` writes
bench/results/scale_growth.json.
"""

import argparse
import json
import os
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import scale

RESULTS = Path(__file__).parent / "results" / "scale_growth.json"
SIZES = (1_000_000, 3_000_000)
ENGINES = ("omnigraph", "numpy")
LINES = (
    "open",
    "first hop",
    *(f"{question}, {ending}" for question in scale.QUERIES for ending in ("other people", "warm")),
    "one-node commit",
)


def made(folder: Path, people: int, engine: str) -> list[str]:
    """The arguments that name a graph, which is made unless it is there."""
    own = folder / str(people)
    own.mkdir(parents=True, exist_ok=True)
    named = ["--engines", engine, "--people", str(people), "--folder", str(own)]
    if not (own / engine).exists():
        scale.child("--child", "load", *named)
        scale.child("--child", "read", "--quick", *named)
    return named


def main() -> None:
    """Run the bench."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--folder", type=Path)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--save", action="store_true")
    given = options.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="scale-growth-"))
    graphs = {(each, size): made(folder, size, each) for each in ENGINES for size in SIZES}
    load = os.getloadavg()[0]
    rounds: dict[tuple[str, int], list[dict[str, float]]] = {graph: [] for graph in graphs}
    for _ in range(given.rounds):
        for graph, named in graphs.items():
            rounds[graph].append(scale.child("--child", "read", *named)["figures"])
    result: dict[str, Any] = {"load average": round(load, 1), "rounds": given.rounds, "lines": {}}
    print(f"load average {load:.1f}, {given.rounds} rounds, ms of processor time\n")
    print("| line | 10M | 30M | ratio | numpy's ratio |\n|---|---|---|---|---|")
    for line in LINES:
        cells = {
            graph: median(each[f"{line}, CPU"] for each in figures)
            for graph, figures in rounds.items()
            if all(f"{line}, CPU" in each for each in figures)
        }
        low, high = (cells["omnigraph", size] for size in SIZES)
        bare = [cells.get(("numpy", size)) for size in SIZES]
        ratio = f"{bare[1] / bare[0]:.2f}" if bare[0] and bare[1] else "–"
        print(f"| {line} | {low:.3g} | {high:.3g} | {high / low:.2f} | {ratio} |", flush=True)
        result["lines"][line] = {f"{name} {size}": cell for (name, size), cell in cells.items()}
    if given.save:
        RESULTS.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
