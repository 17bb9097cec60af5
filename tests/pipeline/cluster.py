"""A load on a cluster of separate processes, with everything going wrong that may.

Run as a program with a graph, a file, a folder for notes, a master and an archive, it loads the
file and prints what was loaded and what happened. One task fails twice; another waits until the
executor it runs in is killed, and a third until a second copy of it runs. Executors have nothing
of ours but the archive; the tasks are functions of the program itself, so they reach the executors
by value.
"""

import json
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import omnigraph as og
from omnigraph.costs import COSTS
from omnigraph.pipeline import executors
from omnigraph.pipeline.session import session

URI, FILE, NOTES, MASTER, ARCHIVE = sys.argv[1:]
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.minTaskRuntime": "1s",
}


def unlucky(work: Callable[[Any], Any], item: bytes) -> bytes:
    """Do the work, files and all, and then perhaps lose its result."""
    from pyspark import TaskContext  # noqa: PLC0415  (in the executor)

    done = pickle.dumps(work(pickle.loads(item)))
    context = TaskContext.get()
    assert context is not None
    notes, part, attempt = Path(NOTES), context.partitionId(), context.attemptNumber()
    if context.stageId() > 0:
        return done
    home = Path(og.__file__)
    (notes / f"ran-{part}-{attempt}").write_text(str(home))
    if part == 0 and attempt == 0:
        raise OSError("the result is lost")
    if part == 0 and attempt == 1:
        os._exit(1)
    if part == 1 and not (notes / "killed").exists():
        # The Python worker's parent is the daemon, and its parent the executor.
        daemon = os.getppid()
        executor = Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1]
        (notes / "victim.new").write_text(executor)
        (notes / "victim.new").rename(notes / "victim")
        time.sleep(600)
    if part == 2 and attempt == 0 and MASTER.startswith("spark://"):
        wait_for(notes / "ran-2-1")  # the second copy, so that both end at about the same time
    return done


def wait_for(note: Path) -> None:
    """Wait for a note; an executor that replaces a killed one takes its time to start."""
    until = time.monotonic() + 120
    while not note.exists() and time.monotonic() < until:
        time.sleep(0.05)


def kill_the_executor(notes: Path) -> None:
    """Wait until a task says where it runs, and end that process."""
    while not (notes / "victim").exists():
        time.sleep(0.05)
    (notes / "killed").touch()
    os.kill(int((notes / "victim").read_text()), signal.SIGKILL)


if __name__ == "__main__":
    COSTS.spark_part_bytes_min = 2_000
    executors.pickled_task = unlucky
    spark = session(
        master=MASTER,
        archive=ARCHIVE,
        config={**SPECULATION, "spark.executor.memory": "512m", "spark.cores.max": "2"},
    )
    threading.Thread(target=kill_the_executor, args=(Path(NOTES),), daemon=True).start()
    loaded = og.open(URI).load(FILE, "append", engine="spark")
    ran = {path.name: path.read_text() for path in Path(NOTES).glob("ran-*")}
    told = {"nodes": loaded.nodes, "edges": loaded.edges, "ran": ran}
    sys.stdout.write(json.dumps(told))
    sys.stdout.flush()
    spark.stop()
