"""What a load on Spark costs by either exchange: the folder of one machine, and the shuffle.

    python bench/spark.py                                  1M and 4M edges, append and merge
    python bench/spark.py --edges 5000000 20000000 --save  as the targets ask
    python bench/spark.py --exchanges shuffle --workers 1 2 4 --edges 4000000

Each run is a process of its own with a warm session: a small load came first, and CPU seconds are
those of the driver, the JVM and the Python workers together from there on. Memory is the highest
that each part had for itself (RssAnon), the largest worker alone. Bytes are what the tables, the
topology files and the exchange take. Ratios say more than seconds on a machine with other work.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import load_data

RESULTS = Path(__file__).parent / "results" / "spark.json"
TARGETS = {"shuffle ÷ folder, CPU": 1.4, "4 × the rows, CPU": 4.4}
_TICK = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Run every size by every exchange and mode."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--edges", type=int, nargs="+", default=[1_000_000, 4_000_000])
    words.add_argument("--exchanges", nargs="+", default=["folder", "shuffle"])
    words.add_argument("--modes", nargs="+", default=["append", "merge"])
    words.add_argument("--workers", type=int, nargs="+", default=[2], help="tasks at once")
    words.add_argument("--keep", help="a folder for the input, used again")
    words.add_argument("--save", action="store_true", help="keep the figures in results/spark.json")
    words.add_argument("--run", nargs=4, help=argparse.SUPPRESS)
    asked = words.parse_args()
    if asked.run:
        mode, edges, workers, files = asked.run
        print(json.dumps(_run(mode, int(edges), int(workers), Path(files))))
        return
    folder = Path(asked.keep or tempfile.mkdtemp(dir="/var/tmp"))
    print(f"load average {os.getloadavg()[0]:.1f}\n")
    print(
        "| edges | mode | exchange | tasks | CPU s | wall s | driver, JVM, worker MB | exchanged |"
    )
    print("|---|---|---|---|---|---|---|---|")
    runs: list[dict[str, Any]] = []
    for edges in asked.edges:
        files = load_data.make(folder, edges)
        for mode in asked.modes:
            for workers in asked.workers:
                for exchange in asked.exchanges:
                    run = _measured(mode, exchange, edges, workers, files)
                    runs.append(run)
                    print(_line(run), flush=True)
    print("\n" + "\n".join(_ratios(runs)))
    if asked.save:
        shown = {"load average": os.getloadavg()[0], "targets": TARGETS, "runs": runs}
        RESULTS.write_text(json.dumps(shown, indent=2) + "\n")
    if not asked.keep:
        shutil.rmtree(folder)


def _line(run: dict[str, Any]) -> str:
    peaks = f"{run['driver MB']}, {run['JVM MB']}, {run['worker MB']}"
    sizes = f"{run['exchanged'] >> 10:,} KiB"
    return (
        f"| {run['edges']:,} | {run['mode']} | {run['exchange']} | {run['workers']} | "
        f"{run['CPU s']} | {run['wall s']} | {peaks} | {sizes} |"
    )


def _ratios(runs: list[dict[str, Any]]) -> list[str]:
    """Shuffle beside folder, and the largest size beside the smallest."""
    by = {(r["edges"], r["mode"], r["workers"], r["exchange"]): r["CPU s"] for r in runs}
    lines = [
        f"{edges:,} edges, {mode}, {workers} tasks: shuffle ÷ folder = {cpu / other:.2f} CPU"
        for (edges, mode, workers, exchange), cpu in by.items()
        if exchange == "shuffle" and (other := by.get((edges, mode, workers, "folder")))
    ]
    sizes = sorted({r["edges"] for r in runs})
    for (edges, mode, workers, exchange), cpu in by.items():
        if edges == sizes[0] and len(sizes) > 1:
            grown = by[sizes[-1], mode, workers, exchange] / cpu
            times = sizes[-1] / sizes[0]
            lines.append(
                f"{mode}, {exchange}, {workers} tasks: {times:g} × rows = {grown:.2f} × CPU"
            )
    return lines


def _measured(mode: str, exchange: str, edges: int, workers: int, files: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as own:
        command = [sys.executable, __file__, "--run", mode, str(edges), str(workers), str(files)]
        environment = {**os.environ, "TMPDIR": own, "OMNIGRAPH_EXCHANGE": exchange}
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if ran.returncode:
        sys.exit(ran.stderr[-3_000:])
    facts: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return {"edges": edges, "mode": mode, "exchange": exchange, "workers": workers, **facts}


# One run, in a process of its own


def _run(mode: str, edges: int, workers: int, files: Path) -> dict[str, Any]:
    import omnigraph as og  # noqa: PLC0415
    from omnigraph.pipeline.session import session  # noqa: PLC0415

    spark = session("bulk", master=f"local[{workers}]")
    folder = Path(tempfile.mkdtemp())
    warm = og.init(folder / "warm.omni", load_data.SCHEMA)
    warm.load([{"type": "Person", "data": {"name": "a"}}], "merge", engine="spark", spark=spark)
    graph = og.init(folder / "graph.omni", load_data.SCHEMA)
    if mode == "merge":
        # Half of the people are there already, with other ages.
        half = load_data.people_table(0, max(1, edges // 10), age=9)
        graph.load(half, "append", type="Person", engine="local")
    exchanged = _counting()
    watch = Watch()
    started, before = time.monotonic(), watch.cpu()
    for name, how in (("people", {"type": "Person"}), ("knows", {"edge": "Knows"})):
        file, asked = files / f"{name}.parquet", mode if name == "people" else "append"
        graph.load(file, asked, engine="spark", spark=spark, indexes="later", **how)
    loaded, wall = watch.cpu() - before, time.monotonic() - started
    watch.stop()
    graph.ensure_indices()
    sizes = {
        "tables": _bytes(folder / "graph.omni", topology=False),
        "topology": _bytes(folder / "graph.omni", topology=True),
    }
    answer = {"CPU s": round(loaded, 1), "wall s": round(wall, 1), **watch.peaks()}
    answer |= {"exchanged": exchanged[0], "bytes": sizes, "load average": os.getloadavg()[0]}
    spark.stop()
    return answer


def _counting() -> list[int]:
    """The bytes that tasks put from here on, whichever way."""
    from omnigraph.exec.load.spill import Spill  # noqa: PLC0415
    from omnigraph.pipeline.folder_exchange import FolderExchange  # noqa: PLC0415
    from omnigraph.pipeline.shuffle_exchange import ShuffleExchange  # noqa: PLC0415

    total = [0]
    delivered, shuffled = FolderExchange._delivered, ShuffleExchange._shuffled

    def in_folder(exchange: Any, *args: Any) -> Any:
        done, blocks = delivered(exchange, *args)
        assert isinstance(blocks, Spill)
        total[0] += blocks.bytes
        return done, blocks

    def in_shuffle(exchange: Any, *args: Any) -> Any:
        done, blocks = shuffled(exchange, *args)
        total[0] += blocks.bytes
        return done, blocks

    FolderExchange._delivered = in_folder  # type: ignore[method-assign]
    ShuffleExchange._shuffled = in_shuffle  # type: ignore[method-assign]
    return total


def _bytes(graph: Path, *, topology: bool) -> int:
    files = (each for each in graph.rglob("*") if each.is_file())
    return sum(each.stat().st_size for each in files if ("__derived" in each.parts) == topology)


class Watch:
    """Samples this process and all it started: CPU, and the private memory of each part."""

    def __init__(self) -> None:
        self._cpu: dict[int, float] = {}
        self._peaks = {"driver": 0, "JVM": 0, "worker": 0}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def cpu(self) -> float:
        """CPU seconds so far, those of processes that ended too."""
        self._sample()
        return sum(self._cpu.values())

    def peaks(self) -> dict[str, int]:
        """The most that each part had, in MB."""
        return {f"{part} MB": size // 1000 for part, size in self._peaks.items()}

    def stop(self) -> None:
        """Sample no more."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.2):
            self._sample()

    def _sample(self) -> None:
        own = os.getpid()
        for pid, name in _tree(own):
            fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
            if len(fields) > 12:
                self._cpu[pid] = (int(fields[11]) + int(fields[12])) / _TICK
            part = "driver" if pid == own else "JVM" if name == "java" else "worker"
            status = _read(f"/proc/{pid}/status").partition("RssAnon:")[2].split()
            if status:
                self._peaks[part] = max(self._peaks[part], int(status[0]))


def _tree(root: int) -> list[tuple[int, str]]:
    children: dict[int, list[tuple[int, str]]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        head, _, tail = _read(f"{entry}/stat").rpartition(")")
        if tail:
            parent, name = int(tail.split()[1]), head.partition("(")[2]
            children.setdefault(parent, []).append((int(entry.name), name))
    found, waiting = [], [(root, "")]
    while waiting:
        found.append(waiting.pop())
        waiting += children.get(found[-1][0], [])
    return found


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


if __name__ == "__main__":
    main()
