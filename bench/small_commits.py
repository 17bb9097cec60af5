"""What a history of small commits costs: bytes a commit, an open and a short list, as it grows.

    python bench/small_commits.py [--commits 4000] [--folder PATH] [--save]

Commits of one row into one table of two columns, with the default settings and `durability="os"`.
At some counts it prints the bytes that a commit wrote since the count before, all calls of this
process included, its processor time, the sizes of the newest versions of the table and of
`__manifest`, the processor time of an open and of the newest five commits, and what is on disk.
With `--save` writes bench/results/small_commits.json.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import omnigraph as og

COUNTS = (50, 200, 500, 1_000, 2_000, 4_000, 8_000, 12_000, 16_000, 20_000)
ADD = "query add($n: String, $a: I64) { insert P { name: $n, age: $a } }"
RESULTS = Path(__file__).parent / "results" / "small_commits.json"


def written() -> int:
    """Bytes that this process has given to write calls."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("wchar")))


def newest(folder: Path) -> int:
    """The size of the newest version below a folder."""
    files = [path.stat() for path in folder.rglob("*.manifest")]
    return max(files, key=lambda stat: stat.st_mtime_ns).st_size


def cpu_ms(call: Callable[[], object]) -> float:
    """The least processor time of five calls."""
    taken = []
    for _ in range(5):
        began = time.process_time()
        call()
        taken.append(1_000 * (time.process_time() - began))
    return round(min(taken), 1)


def run(folder: Path, commits: int) -> list[dict[str, Any]]:
    """Write the commits; a line for each count."""
    schema, root = folder / "schema.pg", folder / "graph.omni"
    schema.write_text("node P { name: String @key  age: I64? }\n")
    graph = og.init(str(root), schema=schema, durability="os")
    lines: list[dict[str, Any]] = []
    last, wrote, began = 0, written(), time.process_time()
    for number in range(1, commits + 1):
        graph.mutate(ADD, {"n": f"p{number}", "a": number})
        if number not in COUNTS:
            continue
        line = {
            "commits": number,
            "bytes a commit": (written() - wrote) // (number - last),
            "cpu ms a commit": round(1_000 * (time.process_time() - began) / (number - last), 1),
            "table version": newest(root / "nodes"),
            "manifest version": newest(root / "__manifest"),
            "open, cpu ms": cpu_ms(lambda: og.open(str(root))),
            "list of 5, cpu ms": cpu_ms(lambda: og.open(str(root)).commits.list(limit=5)),
            "MB": round(sum(f.stat().st_size for f in root.rglob("*") if f.is_file()) / 1e6, 1),
        }
        lines.append(line)
        print(json.dumps(line), flush=True)
        last, wrote, began = number, written(), time.process_time()
    return lines


def main() -> None:
    """Run the bench."""
    options = argparse.ArgumentParser()
    options.add_argument("--commits", type=int, default=4_000)
    options.add_argument("--folder")
    options.add_argument("--save", action="store_true")
    given = options.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        lines = run(Path(folder), given.commits)
    if given.save:
        RESULTS.write_text(json.dumps({"load average": round(load, 1), "lines": lines}, indent=2))


if __name__ == "__main__":
    main()
