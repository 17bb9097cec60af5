"""How long a command takes from the start of its process, on a warm disk.

    python bench/cli.py [--repeat 7]

`omnigraph --help` must take less than 0.2 s of processor time and a point query less than 1 s.
The graph holds 20,000 people and 60,000 edges. Programs are compiled once beforehand, as an
installed program is. Prints medians and least times and writes bench/results/cli.json.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results" / "cli.json"
PROGRAM = [sys.executable, "-c", "from omnigraph.cli.start import program; program()"]
PEOPLE, EDGES = 20_000, 60_000
SCHEMA = "node Person { name: String @key\n age: I32? }\nedge Knows: Person -> Person\n"
POINT = "query one($n: String) { match { $p: Person { name: $n } } return { $p.name, $p.age } }"
FRIENDS = (
    "query friends($n: String) { match { $p: Person { name: $n } $p knows $f } "
    "return { $f.name } order { $f.name } }"
)
BIRTHDAY = "query older($n: String) { update Person set { age: 44 } where name = $n }"
ADA = ["--params", '{"n":"p17"}']


def prepare(folder: Path) -> str:
    """A graph, and one line to load into it."""
    (folder / "schema.pg").write_text(SCHEMA, "utf-8")
    with (folder / "people.jsonl").open("w", encoding="utf-8") as file:
        for n in range(PEOPLE):
            data = {"name": f"p{n}", "age": n % 90}
            file.write(json.dumps({"type": "Person", "data": data}) + "\n")
        for n in range(EDGES):
            ends = {"from": f"p{n % PEOPLE}", "to": f"p{n * 7919 % PEOPLE}"}
            file.write(json.dumps({"edge": "Knows", **ends}) + "\n")
    line = {"type": "Person", "data": {"name": "new", "age": 1}}
    (folder / "one.jsonl").write_text(json.dumps(line) + "\n", "utf-8")
    graph = str(folder / "g.omni")
    call("init", "--schema", str(folder / "schema.pg"), graph)
    data = str(folder / "people.jsonl")
    call("load", graph, "--data", data, "--mode", "append", "--engine", "local")
    return graph


def call(*words: str) -> tuple[float, float]:
    """Wall and processor seconds of one command, which must succeed."""
    env = {**os.environ}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run([*PROGRAM, *words], check=True, capture_output=True, env=env, cwd=ROOT)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu


def measured(words: list[str], repeat: int) -> dict[str, float]:
    call(*words)  # warms the disk and leaves compiled programs behind
    runs = [call(*words) for _ in range(repeat)]
    walls, cpus = [wall for wall, _ in runs], [cpu for _, cpu in runs]
    return {
        "wall_s": round(median(walls), 3),
        "wall_least_s": round(min(walls), 3),
        "cpu_s": round(median(cpus), 3),
        "cpu_least_s": round(min(cpus), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeat", type=int, default=7)
    repeat = parser.parse_args().repeat
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        graph = prepare(folder)
        one = ["load", graph, "--data", str(folder / "one.jsonl"), "--mode", "merge"]
        commands = {
            "--help": ["--help"],
            "version": ["version"],
            "point query": ["query", "-e", POINT, *ADA, "--store", graph],
            "friends": ["query", "-e", FRIENDS, *ADA, "--store", graph],
            "mutate": ["mutate", "-e", BIRTHDAY, *ADA, "--store", graph],
            "load one line": one,
            "branch list": ["branch", "list", graph],
        }
        results = {what: measured(words, repeat) for what, words in commands.items()}
    for what, numbers in results.items():
        print(f"{what:14} wall {numbers['wall_s']:.3f} s   cpu {numbers['cpu_s']:.3f} s")
    RESULTS.write_text(json.dumps(results, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
