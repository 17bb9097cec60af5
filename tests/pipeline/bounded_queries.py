"""Queries over all of a graph, in one process or on Spark, with the private memory they took.

Run as a program with a graph and an engine, it prints what each query answered and how many MB more
than an idle one the process that solves it had: this one, or the largest Python worker of Spark.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import omnigraph as og
from tests.pipeline.power_law import QUERIES

FIRST = 'query q() { match { $a: P { name: "p0000007" } $a e $b } return { $b.age } }'
FIRST_OF_ALL = "query q() { match { $a: P $a.age > 900 $a e $b } return { count($b) as n } }"


def workers(root: int) -> Iterator[int]:
    """The Python processes below a process."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(folder.name))
    waiting = list(children.get(root, ()))
    while waiting:
        pid = waiting.pop()
        waiting += children.get(pid, ())
        with suppress(OSError):
            if b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes():
                yield pid


def private_mb(pid: int) -> float:
    """Anonymous memory of a process: what it maps from files is the system's to take back."""
    with suppress(OSError, IndexError):
        status = Path(f"/proc/{pid}/status").read_text()
        return int(status.partition("RssAnon:")[2].split()[0]) / 1024
    return 0.0


class Watch:
    """The highest private memory that one of the watched processes had."""

    def __init__(self, engine: str) -> None:
        self._own = engine == "local"
        self.peak_mb = 0.0
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            pids = [os.getpid()] if self._own else list(workers(os.getpid()))
            self.peak_mb = max([self.peak_mb, *map(private_mb, pids)])
            time.sleep(0.02)


def main() -> None:
    path, engine = sys.argv[1:]
    options: dict[str, Any] = {"engine": engine}
    if engine == "spark":
        from omnigraph.pipeline.session import session  # noqa: PLC0415

        options["spark"] = session(master="local[2]")
    watch, graph = Watch(engine), og.open(path)
    for text in (FIRST, FIRST_OF_ALL):
        graph.query(text, **options)
    time.sleep(0.5)
    idle, told = watch.peak_mb, {}
    for name, text in QUERIES.items():
        watch.peak_mb = 0.0
        rows = [list(row.values()) for row in graph.query(f"query q() {{ {text} }}", **options)]
        told[name] = {"rows": rows, "MB": watch.peak_mb - idle}
    sys.stdout.write(json.dumps({"idle MB": idle, "queries": told}))
    sys.stdout.flush()
    if engine == "spark":
        options["spark"].stop()


if __name__ == "__main__":
    main()
