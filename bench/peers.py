"""Every engine on the graph that people have: embeddings, texts, friendships, one interleaved run.

    python bench/peers.py                              100,000 people, a million friendships
    python bench/peers.py --people 10000 --edges 100000 --keep /var/tmp/peers --save
    python bench/peers.py --cpu                        processor time, for a busy machine

Engines take turns within each line, so that a busy machine is busy for all; a figure is a median,
and the ratio is ours over the best of the others, bare Lance apart. A read that takes a minute is
asked for once, and mutual friends not at all of an engine that counts walks for five seconds.
Answers are compared: a line whose answers differ is marked. Loads, and the first question of a new
process, are processes of their own, with their peak memory. What an engine lacks is a dash. Peers
come from PyPI: the group `bench`.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import peers_data
from own_memory import memory_mib
from peers_engines import BRANCHING, ENGINES

RESULTS = Path(__file__).parent / "results" / "peers.json"
BARE = "bare Lance"
READS = {"hops", "walks", "mutual", "top", "anti_join"}
WALKS, WALKS_MS = "count 2-hop walks, whole graph", 5_000
LONG_MS = 60_000  # an engine that takes as long is asked once
_DICE = np.random.default_rng(23)


@dataclass(frozen=True)
class Line:
    """One row of the table: a method called in rounds, each with arguments of its own."""

    name: str
    method: str
    arguments: Callable[[int], tuple[Any, ...]] = lambda nth: ()
    rounds: int = 3
    calls: int = 1  # of one round; a figure is the time of one call
    branches: bool = False


@dataclass
class Figures:
    """The times of one line by engine, and whether every answer was the same."""

    times: dict[str, list[float]] = field(default_factory=dict)
    agree: bool = True


def lines(people: int) -> Iterator[Line]:
    """Reads first, then deletes: writes change the answers, and not every engine has all of
    them."""

    def anybody(nth: int) -> str:
        return f"p{(nth * 7919) % people}"

    def some(count: int, nth: int) -> Any:
        dice = np.random.default_rng(100 + nth)
        return peers_data.people_table(dice, dice.choice(people, count, replace=False), nth + 1)

    yield Line("point lookup", "point", lambda n: (anybody(n),), 5, 100)
    yield Line("1 hop", "hops", lambda n: (anybody(n), 1), 5, 50)
    yield Line("2 hops", "hops", lambda n: (anybody(n), 2), 5)
    yield Line("3 hops", "hops", lambda n: (anybody(n), 3))
    yield Line("filter scan", "scan", lambda n: (40 + n, "city7"), 5)
    yield Line(WALKS, "walks")
    yield Line("mutual friends, whole graph", "mutual")
    yield Line("top companies", "top")
    yield Line("anti-join", "anti_join")
    vector = np.random.default_rng(5).standard_normal(64, np.float32).tolist()
    yield Line("vector top-10", "nearest", lambda n: (vector,))
    yield Line("vector and hop", "near_and_hop", lambda n: (vector,))
    first = date(1970, 1, 1) + timedelta(days=15_000)
    yield Line("delete edges by date", "delete_edges", lambda n: (first + timedelta(days=n),))
    yield Line("delete people by city and age", "delete_people", lambda n: (90 + n, "city9"))
    yield Line("upsert 10,000 with embeddings", "upsert", lambda n: (some(people // 10, n),), 3)
    yield Line(
        "upsert 1,000 on a branch",
        "upsert",
        lambda n: (some(people // 100, n), f"b{n}"),
        branches=True,
    )
    yield Line("diff of 1,000 changed people", "diff", lambda n: (f"b{n}",), branches=True)
    yield Line(
        "one-node commit on a branch", "add_node", lambda n: (f"x{n}", "b0"), 9, branches=True
    )
    yield Line("one-node commit", "add_node", lambda n: (f"y{n}",), 9)
    yield Line("one-edge commit", "add_edge", lambda n: (f"p{n}", f"p{n + 1}"), 9)
    yield Line("optimize", "optimize", rounds=1)
    yield Line("300 one-node commits", "small_commits", rounds=1)
    yield Line("optimize after 300 commits", "optimize", rounds=1)


def main() -> None:
    """Make the files, load every engine, ask every line."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--people", type=int, default=100_000)
    words.add_argument("--edges", type=int, default=1_000_000)
    words.add_argument("--keep", help="a folder for the input, used again")
    words.add_argument("--save", action="store_true", help="keep the figures in results/peers.json")
    words.add_argument("--cpu", action="store_true", help="processor time, not wall time")
    words.add_argument("--only", nargs="*", default=[], help="lines, by how they begin")
    words.add_argument("--child", nargs="*", help=argparse.SUPPRESS)
    asked = words.parse_args()
    if asked.child:
        _child(*asked.child)
        return
    base = Path(asked.keep or tempfile.mkdtemp())
    files = peers_data.make(base, asked.people, asked.edges)
    with tempfile.TemporaryDirectory(dir=base) as own:
        table = run(files, Path(own), asked.people, asked.only, is_cpu=asked.cpu)
    if asked.save:
        kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        kept[f"{asked.people}-{asked.edges}{'-cpu' if asked.cpu else ''}"] = table
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n")


def run(
    files: Path, folder: Path, people: int, only: list[str], *, is_cpu: bool = False
) -> dict[str, Any]:
    """Every line over every engine that is installed; printed as it comes."""
    clock = time.process_time if is_cpu else time.perf_counter
    present = [engine for engine in ENGINES if _is_installed(engine, folder)]
    names = [engine.name for engine in present]
    of_cpu = " of processor time" if is_cpu else ""
    print(f"load average {os.getloadavg()[0]:.1f}; milliseconds{of_cpu}, medians\n")
    print("| line | " + " | ".join(names) + " | ours / best | ours / bare |")
    print("|---|" + "---|" * (len(names) + 2))
    table: dict[str, Any] = {}
    for ending in ("jsonl", "parquet"):  # the second is what the lines below are asked of
        _loads(present, files, folder, ending, table)
    engines = {engine.name: engine(folder / engine.name) for engine in present}
    _ask(engines, Line("indexes", "indexes", rounds=1), table, clock)
    for line in lines(people):
        if line.branches and "b0" not in table.get("branches", ()):
            for name in BRANCHING & engines.keys():
                for nth in range(3):
                    engines[name].create_branch(f"b{nth}")
            table["branches"] = ["b0"]
        if not only or any(line.name.startswith(each) for each in only):
            _ask(engines, line, table, clock)
    engines.clear()
    _first_hops(present, folder, table)
    table.pop("branches", None)
    return table


def _ask(
    engines: dict[str, Any], line: Line, table: dict[str, Any], clock: Callable[[], float]
) -> None:
    figures = Figures()
    for nth in range(line.rounds):
        answers: dict[str, Any] = {}
        order = list(engines)
        _DICE.shuffle(order)
        for name in order:
            method = getattr(engines[name], line.method, None)
            if method is None or (line.branches and name not in BRANCHING):
                continue
            if line.method in READS and max(figures.times.get(name, [0])) > LONG_MS:
                continue
            if line.method == "mutual" and table.get(WALKS, {}).get(name, 0) > WALKS_MS:
                continue
            given = [line.arguments(nth * line.calls + call) for call in range(line.calls)]
            began = clock()
            try:
                found = [method(*each) for each in given]
            except OSError as cause:  # bare Lance joins in memory, and has a bound for it
                print(f"{name}, {line.name}: {str(cause).splitlines()[0]}", file=sys.stderr)
                continue
            taken = (clock() - began) / line.calls
            figures.times.setdefault(name, []).append(taken * 1_000)
            answers[name] = found
        told = [answer for answer in answers.values() if answer != [None] * line.calls]
        figures.agree &= all(answer == told[0] for answer in told)
    medians = {name: round(statistics.median(t), 3) for name, t in figures.times.items()}
    _show(line.name, medians, list(engines), table, agree=figures.agree)


def _show(
    name: str,
    medians: dict[str, float],
    engines: list[str],
    table: dict[str, Any],
    *,
    agree: bool = True,
) -> None:
    ours = medians.get("omnigraph")
    others = [t for each, t in medians.items() if each not in ("omnigraph", BARE)]
    ratio = None if ours is None or not others else round(ours / min(others), 2)
    bare = None if ours is None or BARE not in medians else round(ours / medians[BARE], 2)
    table[name] = {**medians, "ratio": ratio, "ratio_bare": bare, "answers_agree": agree}
    cells = [f"{medians[each]:,.4g}" if each in medians else "–" for each in engines]
    mark = "" if agree else " (answers differ)"
    print(f"| {name}{mark} | {' | '.join(cells)} | {ratio or '–'} | {bare or '–'} |", flush=True)


# Processes of their own


def _is_installed(engine: type[Any], folder: Path) -> bool:
    probe = folder / "probe" / engine.name
    probe.mkdir(parents=True)
    try:
        engine(probe)
    except ImportError:
        print(f"{engine.name} is not installed")
        return False
    finally:
        shutil.rmtree(probe, ignore_errors=True)
    probe.mkdir()
    warm = peers_data.make(folder / "probe", 100, 200)
    _of_child("load", engine.name, str(probe), str(warm), "parquet")  # leaves modules compiled
    return True


def _loads(
    present: list[type[Any]], files: Path, folder: Path, ending: str, table: dict[str, Any]
) -> None:
    walls: dict[str, float] = {}
    cpus: dict[str, float] = {}
    peaks: dict[str, float] = {}
    rows: set[int] = set()
    for engine in present:
        shutil.rmtree(folder / engine.name, ignore_errors=True)
        (folder / engine.name).mkdir()
        into, warm = folder / engine.name, folder / "probe" / "100-200"
        found = _of_child("load", engine.name, str(into), str(files), ending, str(warm))
        if found is not None:
            walls[engine.name], cpus[engine.name] = found["wall"] * 1_000, found["cpu"] * 1_000
            peaks[engine.name] = found["peak_mib"]
            rows.add(found["answer"])
    names = [engine.name for engine in present]
    _show(f"load {ending}", walls, names, table, agree=len(rows) == 1)
    _show(f"load {ending}, CPU", cpus, names, table)
    _show(f"peak MiB of load {ending}", peaks, names, table)


def _first_hops(present: list[type[Any]], folder: Path, table: dict[str, Any]) -> None:
    times: dict[str, list[float]] = {}
    for _ in range(3):
        for engine in present:
            if hasattr(engine, "hops"):
                found = _of_child("hop", engine.name, str(folder / engine.name))
                if found is not None:
                    times.setdefault(engine.name, []).append(found["wall"] * 1_000)
    medians = {name: round(statistics.median(t), 2) for name, t in times.items()}
    _show("new process: open and 1 hop", medians, [e.name for e in present], table)


def _of_child(*words: str) -> dict[str, Any] | None:
    command = [sys.executable, __file__, "--child", *words]
    # An installed program has its modules compiled.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["?"])[-1]
        if "NotImplementedError" not in last:
            print(f"{' '.join(words[:2])}: {last}", file=sys.stderr)
        return None
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _child(what: str, name: str, folder: str, *rest: str) -> None:
    """One load, or one question: its wall time without that of imports, and peak memory. Before a
    load that is measured comes one of few rows, because engines import what it needs by then."""
    engine = next(each for each in ENGINES if each.name == name)
    if what == "load" and len(rest) == 3:
        with tempfile.TemporaryDirectory() as other:
            engine(Path(other)).load(Path(rest[2]), rest[1])
    os.sync()
    began, cpu = time.perf_counter(), time.process_time()
    opened = engine(Path(folder))
    answer = opened.load(Path(rest[0]), rest[1]) if what == "load" else opened.hops("p1", 1)
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    print(
        json.dumps(
            {"wall": wall, "cpu": cpu, "peak_mib": int(memory_mib("VmHWM")), "answer": answer}
        )
    )


if __name__ == "__main__":
    main()
