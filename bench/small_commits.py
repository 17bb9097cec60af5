"""What a history of small commits costs: bytes a commit, an open and a short list, as it grows.

    python bench/small_commits.py [--commits 4000] [--keep 100] [--folder PATH] [--save]

Commits of one row into one table of two columns, with the default settings and `durability="os"`.
At some counts it prints the bytes that a commit wrote since the count before, all calls of this
process included, its processor time, the sizes of the newest versions of the table and of
`__manifest`, the processor time of an open and of the newest five commits, and what is on disk.
Then, with `--keep`, what is on disk after `cleanup(keep=N)`, once the last versions are old enough,
beside a fresh load of the same rows and what may be kept: 64 KB a commit, and 200 bytes for each
that went. With `--save` writes bench/results/small_commits.json.
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
from omnigraph.storage.manifest.manifest import RECLAIM_AGE_S

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


def on_disk(root: Path) -> int:
    """The bytes of all files below a folder."""
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file())


def cleaned(folder: Path, commits: int, keep: int) -> dict[str, Any]:
    """What a cleanup leaves, beside a fresh load of the same rows."""
    time.sleep(RECLAIM_AGE_S + 10)
    root, fresh = folder / "graph.omni", folder / "fresh.omni"
    before, began = on_disk(root), time.process_time()
    with og.open(str(root)) as graph:
        graph.cleanup(keep=keep, grace="0s", confirm=True)
    took = time.process_time() - began
    rows = [{"name": f"p{number}", "age": number} for number in range(1, commits + 1)]
    with og.init(str(fresh), schema=folder / "schema.pg", durability="os") as graph:
        graph.load(rows, "append", type="P", engine="local")
    allowed = on_disk(fresh) + keep * (64 << 10) + 200 * (commits - keep)
    return {
        "keep": keep,
        "MB before": round(before / 1e6, 1),
        "MB after": round(on_disk(root) / 1e6, 2),
        "MB of a fresh load": round(on_disk(fresh) / 1e6, 2),
        "MB allowed": round(allowed / 1e6, 2),
        "files after": sum(path.is_file() for path in root.rglob("*")),
        "cleanup, cpu s": round(took, 1),
    }


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
            "MB": round(on_disk(root) / 1e6, 1),
        }
        lines.append(line)
        print(json.dumps(line), flush=True)
        last, wrote, began = number, written(), time.process_time()
    return lines


def main() -> None:
    """Run the bench."""
    options = argparse.ArgumentParser()
    options.add_argument("--commits", type=int, default=4_000)
    options.add_argument("--keep", type=int)
    options.add_argument("--folder")
    options.add_argument("--save", action="store_true")
    given = options.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        lines = run(Path(folder), given.commits)
        after = None if given.keep is None else cleaned(Path(folder), given.commits, given.keep)
        print(json.dumps(after))
    if given.save:
        result = {"load average": round(load, 1), "lines": lines, "cleanup": after}
        RESULTS.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
