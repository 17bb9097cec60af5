"""What Spark costs: loads by folder and by shuffle, and queries beside those of one process.

    python bench/spark.py                                  1M and 4M edges
    python bench/spark.py --edges 5000000 20000000 --save  as the targets ask
    python bench/spark.py --only loads --exchanges shuffle --workers 1 2 4 --edges 5000000

Each run is a process of its own. A load has a warm session: a small load came first, and CPU
seconds are those of the driver, the JVM and the Python workers together from there on. Queries are
in spark_queries.py. Memory is the highest that each part had for itself (RssAnon), the largest
worker alone. Bytes are what the tables, the topology files and the exchange take. Figures are kept
in results/spark.json as they come, those of an earlier run of the same kind and size go, and
results/spark.md is their table. Ratios say more than seconds on a machine with other work.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import load_data
import spark_queries
from spark_watch import Watch

RESULTS = Path(__file__).parent / "results"
TARGETS = {
    "load: shuffle ÷ folder": 1.4,
    "query: Spark ÷ one process, both without what a small graph takes": 1.3,
    "query: cold ÷ warm, both without what a small graph takes": 1.5,
    "4 × the rows": 4.4,
}
SMALL_EDGES = 300_000
"""The fixed start is what a query takes on a graph of so many edges: the least that gives every
core as many tasks as the large ones have, for tasks are most of it."""
Run = dict[str, Any]


def main() -> None:
    """Run every size, loads and queries."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--edges", type=int, nargs="+", default=[1_000_000, 4_000_000])
    words.add_argument("--only", choices=["loads", "queries"])
    words.add_argument("--exchanges", nargs="+", default=["folder", "shuffle"])
    words.add_argument("--modes", nargs="+", default=["append", "merge"])
    words.add_argument("--workers", type=int, nargs="+", default=[2], help="tasks at once")
    words.add_argument("--queries", nargs="+", default=list(spark_queries.QUERIES))
    words.add_argument("--times", type=int, default=2, help="warm runs of a query")
    words.add_argument("--keep", help="a folder for inputs and graphs of queries, used again")
    words.add_argument("--save", action="store_true", help="keep the figures in results/")
    words.add_argument("--run", nargs=4, help=argparse.SUPPRESS)
    asked = words.parse_args()
    if asked.run:
        mode, edges, workers, files = asked.run
        print(json.dumps(_load(mode, int(edges), int(workers), Path(files))))
        return
    folder = Path(asked.keep or tempfile.mkdtemp(dir="/var/tmp"))
    kept = _Kept(save=asked.save)
    if asked.only != "queries":
        _loads(asked, folder, kept)
    if asked.only != "loads":
        _queries(asked, folder, kept)
    print("\n".join(kept.page()))
    if not asked.keep:
        shutil.rmtree(folder)


def _loads(asked: argparse.Namespace, folder: Path, kept: "_Kept") -> None:
    for edges in asked.edges:
        files = load_data.make(folder, edges)
        for mode in asked.modes:
            for workers in asked.workers:
                for exchange in asked.exchanges:
                    words = ["--run", mode, str(edges), str(workers), str(files)]
                    facts = _child([__file__, *words], {"OMNIGRAPH_EXCHANGE": exchange})
                    known = {"edges": edges, "mode": mode, "exchange": exchange}
                    kept.add("loads", {**known, "workers": workers}, facts)


def _queries(asked: argparse.Namespace, folder: Path, kept: "_Kept") -> None:
    for edges in (SMALL_EDGES, *asked.edges):
        path = folder / f"queries-{edges}.omni"
        if not path.exists():
            spark_queries.build(path, edges)
        for name in asked.queries:
            for engine, workers in [("local", 1), *(("spark", n) for n in asked.workers)]:
                words = [str(path), engine, str(workers), str(asked.times), name]
                facts = _child([spark_queries.__file__, *words], {})
                known = {"edges": edges, "query": name, "engine": engine, "workers": workers}
                kept.add("queries", known, facts)


def _child(words: list[str], settings: dict[str, str]) -> Run:
    """The figures of a run, in a process with a temporary folder of its own."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as own:
        environment = {**os.environ, "TMPDIR": own, **settings}
        environment["OMNIGRAPH_QUERY_TIME_MS_MAX"] = str(10**9)
        command = [sys.executable, *words]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if ran.returncode:
        sys.exit(ran.stderr[-3_000:])
    facts: Run = json.loads(ran.stdout.splitlines()[-1])
    return {**facts, "load average": round(os.getloadavg()[0], 1)}


class _Kept:
    """Runs so far: of an earlier run those that were not done again."""

    def __init__(self, *, save: bool) -> None:
        self._save = save
        self._runs: dict[str, list[tuple[Run, Run]]] = {"loads": [], "queries": []}
        if save and (RESULTS / "spark.json").exists():
            stored = json.loads((RESULTS / "spark.json").read_text())
            for kind in self._runs:
                self._runs[kind] = [(each["known"], each["facts"]) for each in stored[kind]]

    def add(self, kind: str, known: Run, facts: Run) -> None:
        """Keep one more run."""
        print(json.dumps({**known, **facts}, ensure_ascii=False), flush=True)
        others = [run for run in self._runs[kind] if run[0] != known]
        self._runs[kind] = sorted([*others, (known, facts)], key=lambda run: _order(run[0]))
        if self._save:
            stored: Run = {
                name: [{"known": k, "facts": f} for k, f in runs]
                for name, runs in self._runs.items()
            }
            text = json.dumps({"targets": TARGETS, **stored}, indent=1, ensure_ascii=False)
            (RESULTS / "spark.json").write_text(text + "\n")
            (RESULTS / "spark.md").write_text("\n".join(self.page()) + "\n")

    def page(self) -> list[str]:
        """Tables of all runs and their ratios."""
        lines = ["# Spark", "", *_ABOUT, "", "## Loads", "", *_LOAD_HEAD]
        lines += [_load_line(known, facts) for known, facts in self._runs["loads"]]
        lines += ["", *_load_ratios(self._runs["loads"]), "", "## Queries", "", *_QUERY_HEAD]
        lines += [_query_line(known, facts) for known, facts in self._runs["queries"]]
        return [*lines, "", *_query_ratios(self._runs["queries"]), "", *_remarks()]


def _remarks() -> list[str]:
    """What somebody wrote below the tables; it stays when they are made anew."""
    page = RESULTS / "spark.md"
    lines = page.read_text().splitlines() if page.exists() else []
    return lines[lines.index(REMARKS) :] if REMARKS in lines else [REMARKS]


REMARKS = "## Remarks"
_ABOUT = [
    "What `python bench/spark.py --save` measured; its docstring says how. The load average is",
    "that at the end of a run. Compare CPU seconds.",
]
_LOAD_HEAD = [
    "| edges | mode | exchange | tasks | CPU s | wall s | driver, JVM, worker MB | exchanged MB |"
    " load average |",
    "|---|---|---|---|---|---|---|---|---|",
]
_QUERY_HEAD = [
    "| edges | query | engine | tasks | start CPU s | cold CPU s | warm CPU s | cold, warm wall s |"
    " driver, JVM, worker MB | load average |",
    "|---|---|---|---|---|---|---|---|---|---|",
]


def _order(known: Run) -> str:
    return json.dumps([f"{v:>12}" if isinstance(v, int) else v for v in known.values()])


def _peaks(facts: Run) -> str:
    return ", ".join(str(facts[f"{part} MB"]) for part in ("driver", "JVM", "worker"))


def _load_line(known: Run, facts: Run) -> str:
    return (
        f"| {known['edges']:,} | {known['mode']} | {known['exchange']} | {known['workers']} | "
        f"{facts['CPU s']} | {facts['wall s']} | {_peaks(facts)} | "
        f"{facts['exchanged'] / 1e6:.0f} | {facts['load average']} |"
    )


def _query_line(known: Run, facts: Run) -> str:
    return (
        f"| {known['edges']:,} | {known['query']} | {known['engine']} | {known['workers']} | "
        f"{facts['start CPU s']} | {facts['cold CPU s']} | {facts['warm CPU s']} | "
        f"{facts['cold s']}, {facts['warm s']} | {_peaks(facts)} | {facts['load average']} |"
    )


def _load_ratios(runs: list[tuple[Run, Run]]) -> list[str]:
    """Shuffle beside folder, and the largest size beside the smallest."""
    of = {tuple(known.values()): facts["CPU s"] for known, facts in runs}
    lines = ["| load | ratio of CPU | target |", "|---|---|---|"]
    for (edges, mode, exchange, workers), cpu in of.items():
        other = of.get((edges, mode, "folder", workers))
        if exchange == "shuffle" and other:
            name = f"{edges:,} edges, {mode}, {workers} tasks: shuffle ÷ folder"
            lines.append(f"| {name} | {cpu / other:.2f} | 1.4 |")
    return lines + _growth(of, lambda key: f"{key[1]}, {key[2]}, {key[3]} tasks")


def _query_ratios(runs: list[tuple[Run, Run]]) -> list[str]:
    """Spark beside one process, cold beside warm, each also beyond a small graph, and sizes."""
    of = {tuple(known.values()): facts for known, facts in runs}
    lines = ["| query | ratio of CPU | target |", "|---|---|---|"]
    warm: dict[tuple[Any, ...], float] = {}
    for key, facts in of.items():
        edges, name, engine, workers = key
        if edges == SMALL_EDGES:
            continue
        warm[key] = facts["warm CPU s"]
        if engine == "spark":
            alone = of[edges, name, "local", 1]["warm CPU s"]
            small = of[SMALL_EDGES, name, "spark", workers]
            start, own = small["warm CPU s"], of[SMALL_EDGES, name, "local", 1]["warm CPU s"]
            told = f"{edges:,} edges, {name}, {workers} tasks at once"
            ratio = facts["warm CPU s"] / max(alone, 0.01)
            lines.append(f"| {told}: Spark ÷ one process | {ratio:.2f} | |")
            rest, rest_alone = facts["warm CPU s"] - start, alone - own
            ratio = rest / max(rest_alone, 0.01)
            both = f"{rest:.2f} s ÷ {rest_alone:.2f} s"
            lines.append(f"| {told}: both beyond a small graph, {both} | {ratio:.2f} | 1.3 |")
            cold = facts["cold CPU s"] / facts["warm CPU s"]
            lines.append(f"| {told}: cold ÷ warm | {cold:.2f} | |")
            rest_cold = facts["cold CPU s"] - small["cold CPU s"]
            both = f"{rest_cold:.2f} s ÷ {rest:.2f} s"
            ratio = rest_cold / max(rest, 0.01)
            lines.append(f"| {told}: both beyond a small graph, {both} | {ratio:.2f} | 1.5 |")
    return lines + _growth(warm, lambda key: f"{key[1]}, {key[2]}, {key[3]} tasks")


def _growth(of: dict[tuple[Any, ...], float], name: Callable[[tuple[Any, ...]], str]) -> list[str]:
    lines = []
    for key, cpu in of.items():
        larger = of.get((key[0] * 4, *key[1:]))
        if larger is not None:
            ratio = f"{larger / max(cpu, 0.01):.2f}"
            lines.append(f"| {name(key)}: {key[0] * 4:,} ÷ {key[0]:,} edges | {ratio} | 4.4 |")
    return lines


# One load, in a process of its own


def _load(mode: str, edges: int, workers: int, files: Path) -> Run:
    import omnigraph as og  # noqa: PLC0415
    from omnigraph.pipeline.session import session  # noqa: PLC0415

    watch = Watch()
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
    started, before = time.monotonic(), watch.cpu()
    watch.peaks()
    for name, how in (("people", {"type": "Person"}), ("knows", {"edge": "Knows"})):
        file, asked = files / f"{name}.parquet", mode if name == "people" else "append"
        graph.load(file, asked, engine="spark", spark=spark, indexes="later", **how)
    loaded, wall = watch.cpu() - before, time.monotonic() - started
    answer = {"CPU s": round(loaded, 1), "wall s": round(wall, 1), **watch.peaks()}
    watch.stop()
    graph.ensure_indices()
    sizes = {
        "tables": _bytes(folder / "graph.omni", topology=False),
        "topology": _bytes(folder / "graph.omni", topology=True),
    }
    answer |= {"start CPU s": round(before, 1), "exchanged": exchanged[0], "bytes": sizes}
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


if __name__ == "__main__":
    main()
