"""How long reads take, side by side with other engines on the same graph in the same run.

    uv sync --group bench
    uv run python bench/read.py              # 100k people
    uv run python bench/read.py --million    # 1M people
    uv run python bench/read.py --people 5000 --engines omnigraph,numpy
    uv run python bench/read.py --million --folder /big/disk --build-only   # measure it later

Prints the median of each question for each engine, how ours compares with the fastest of the others
that answers exactly, what our time is made of and how much memory a question took; writes
bench/results/read.json (or read-<people>.json). Every engine gets the same parameters in the same
order and answers in Python values; answers are compared before anything is measured. What a folder
holds already is not built again.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from own_memory import figures
from read_data import Data, generate
from read_engines import ABSENT, ENGINES, QUERIES, Ask, fresh

import omnigraph as og
from omnigraph.plan.compile import compile_query
from omnigraph.plan.params import bind_parameters

RESULTS = Path(__file__).parent / "results"
EXACT_PEERS = ("ladybug", "duckdb", "lancedb")
UNORDERED = ("filter scan", "friends at a company")
APPROXIMATE = ("lancedb IVF",)
OWN_SCORES = ("text top-10",)  # scores differ in their last bits, so ties fall differently

Params = dict[str, Any]


def parameters(data: Data, count: int, seed: int = 7) -> list[Params]:
    """What the questions are asked with."""
    chance = np.random.default_rng(seed)
    people = data.persons.num_rows
    job = np.full(people, -1)
    job[data.works_at[0]] = data.works_at[1]
    friends = data.knows[1][np.argsort(data.knows[0], kind="stable")]
    starts = np.concatenate([[0], np.cumsum(np.bincount(data.knows[0], minlength=people))])
    made = []
    for person in chance.integers(0, people, count):
        employers = job[friends[starts[person] : starts[person + 1]]]
        employer = int(max(employers, default=0))
        near = data.vectors[chance.integers(0, len(data.vectors))]
        vector = near + 0.1 * chance.normal(size=len(near)).astype(np.float32)
        words = chance.integers(len(data.words) // 100, len(data.words) // 2, 2)
        made.append(
            {
                "name": f"person-{person:07}",
                "age": 70,
                "city": f"city-{chance.integers(0, 100):07}",
                "company": f"company-{max(employer, 0):07}",
                "text": " ".join(data.words[word] for word in words),
                "vector": [float(number) for number in vector],
            }
        )
    return made


def timed(ask: Ask, given: Sequence[Params], *, seconds: float) -> tuple[float, float]:
    """The median and the least time of one question in milliseconds, warm."""
    for params in given[:5]:
        ask(params)
    taken: list[float] = []
    ends = time.perf_counter() + seconds
    while len(taken) < 5 or (time.perf_counter() < ends and len(taken) < 2000):
        params = given[len(taken) % len(given)]
        start = time.perf_counter()
        ask(params)
        taken.append(time.perf_counter() - start)
    return median(taken) * 1000, min(taken) * 1000


def compared(answers: Mapping[str, Mapping[str, list[Any]]]) -> list[str]:
    """Where an engine that answers exactly says something else than ours."""
    wrong = []
    for question in QUERIES:
        ours = answers["omnigraph"][question]
        for engine, given in answers.items():
            if question not in given or engine in APPROXIMATE or question in OWN_SCORES:
                continue
            pairs = zip(ours, given[question], strict=True)
            if any(_shape(question, a) != _shape(question, b) for a, b in pairs):
                wrong.append(f"{engine}: {question}")
    return wrong


def _shape(question: str, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows) if question in UNORDERED else rows


def agreement(answers: Mapping[str, Mapping[str, list[Any]]]) -> dict[str, float]:
    """The share of our text results that LanceDB has, and of neighbours that its index has."""
    shares = {}
    for question, engine in (("text top-10", "lancedb"), ("vector top-10", "lancedb IVF")):
        if engine in answers:
            pairs = zip(answers["omnigraph"][question], answers[engine][question], strict=True)
            shares[f"{engine}: {question}"] = float(
                np.mean([len(set(a) & set(b)) / max(len(a), 1) for a, b in pairs])
            )
    return shares


COLD = """
import sys, time
began = time.perf_counter()
import omnigraph as og
og.Graph
loaded = time.perf_counter()
graph = og.open(sys.argv[1])
opened = time.perf_counter()
rows = graph.query(sys.argv[2], {"name": sys.argv[3]}).rows
done = time.perf_counter()
assert len(rows) == 1
print(loaded - began, opened - loaded, done - opened)
"""
PEAK = """
import json, os, pathlib, sys, tracemalloc
import pyarrow as pa
import omnigraph as og

def status(name):
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024

text, asked = sys.argv[2], json.loads(sys.argv[3])
graph = og.open(sys.argv[1])
graph.query("query q() { match { $c: Company } return { count($c) as n } }").rows
graph.query('query q() { match { $c: Company { name: "company-0" } } return { $c } }').rows
before = status("VmRSS")
pathlib.Path("/proc/self/clear_refs").write_text("5")
graph.query(text, asked[0]).rows
first = status("VmHWM") - before
os.environ["OMNIGRAPH_TRAVERSAL_MODE"] = "csr"
for params in asked[1:]:
    graph.query(text, params).rows
held = graph._reading.holdings.cache.bytes_kept / 2**20
arrow = pa.system_memory_pool()  # nothing used it so far, so its peak is that of one query
pa.set_memory_pool(arrow)
tracemalloc.start()
rows = graph.query(text, asked[0]).rows
print(first, held, (tracemalloc.get_traced_memory()[1] + arrow.max_memory()) / 2**20)
"""
COUNT = """
import sys, pathlib
import omnigraph as og
def read():
    lines = pathlib.Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("rchar"))
graph = og.open(sys.argv[1])
before = read()
graph.query("query q() { match { $d: Doc } return { count($d) as n } }").rows
print(read() - before)
"""


def peaks(folder: Path, given: Sequence[Params]) -> dict[str, dict[str, float]]:
    """In a process of its own for each question, in megabytes.

    `first` is how far the process grew while it answered for the first time, `held` what it keeps
    for later once the question was asked often, `warm` what one more answer takes at its peak:
    Python, numpy and Arrow, not counting what is kept.
    """
    found = {}
    for question, text in QUERIES.items():
        asked = [{k: v for k, v in p.items() if f"${k}:" in text} for p in given[:12]]
        run = [sys.executable, "-c", PEAK, str(folder), text, json.dumps(asked)]
        told = subprocess.run(run, check=True, capture_output=True, text=True).stdout
        numbers = map(float, told.split())
        found[question] = dict(zip(("first", "held", "warm"), numbers, strict=True))
    return found


def parts(graph: og.Graph, given: Sequence[Params], count: int = 300) -> dict[str, Any]:
    """What our time for a warm question is made of, in milliseconds, each part a median."""
    found = {}
    for question, text in QUERIES.items():
        asked = [{k: v for k, v in p.items() if f"${k}:" in text} for p in given]
        taken = [_parted(graph, text, asked[n % len(asked)]) for n in range(count)][20:]
        found[question] = {name: median(each[name] for each in taken) for name in taken[0]}
    return found


def _parted(graph: og.Graph, text: str, params: Params) -> dict[str, float]:
    clock = time.perf_counter
    times = [clock()]
    plan = compile_query(text, graph.schema.catalog)
    times.append(clock())
    bind_parameters(plan.parameters, params)
    times.append(clock())
    graph._store.snapshot()
    times.append(clock())
    result = graph.query(text, params)
    times.append(clock())
    _ = [tuple(row.values()) for row in result.rows]
    times.append(clock())
    plan_ms, bind_ms, head_ms, query_ms, rows_ms = (np.diff(times) * 1000).tolist()
    operators_ms = result._profile.seconds * 1000
    return {
        "find the plan": plan_ms,
        "bind parameters": bind_ms,
        "look for a newer head": head_ms,
        "operators": operators_ms,
        "rows": rows_ms,
        "the rest": query_ms - plan_ms - bind_ms - head_ms - operators_ms,
    }


def cold(folder: Path) -> dict[str, float]:
    """A new process: loading the package, opening the graph, one point lookup, in milliseconds."""
    runs = []
    for person in ("person-0000017", "person-0000071", "person-0000007"):
        query = QUERIES["point lookup"]
        found = subprocess.run(
            [sys.executable, "-c", COLD, str(folder), query, person],
            check=True,
            capture_output=True,
            text=True,
        )
        runs.append([float(part) * 1000 for part in found.stdout.split()])
    middle = sorted(runs, key=sum)[1]
    return dict(zip(("import_ms", "open_ms", "first_row_ms"), middle, strict=True))


def count_bytes(folder: Path) -> dict[str, float]:
    """What a count over the documents reads, and what their table holds."""
    found = subprocess.run(
        [sys.executable, "-c", COUNT, str(folder)], check=True, capture_output=True, text=True
    )
    tables = [path for path in folder.rglob("data") if "Doc" in str(path)] or [folder]
    held = sum(f.stat().st_size for path in tables for f in path.rglob("*") if f.is_file())
    return {"bytes_read": int(found.stdout), "bytes_held": held}


def build(people: int, wanted: Sequence[str], folder: Path) -> None:
    """Every engine's own form of the graph, to be measured later."""
    folder.mkdir(parents=True, exist_ok=True)
    data = generate(people)
    for engine in (each for each in ENGINES if each.name in wanted):
        start = time.perf_counter()
        engine(folder, data).close()
        print(f"{engine.name}: built in {time.perf_counter() - start:.1f} s", flush=True)


def run(
    people: int, wanted: Sequence[str], folder: Path, seconds: float, *, with_memory: bool
) -> Iterator[dict[str, Any]]:
    """The results so far after each engine, so that a run that is cut short leaves some."""
    data = generate(people)
    given = parameters(data, 200)
    edges = len(data.knows[0])
    print(f"{people} people, {edges} friendships ({edges / people:.1f} a person)", flush=True)
    answers: dict[str, dict[str, list[Any]]] = {}
    times: dict[str, dict[str, float]] = {}
    least: dict[str, dict[str, float]] = {}
    built: dict[str, float] = {}
    facts: dict[str, Any] = {}
    for engine in (each for each in ENGINES if each.name in wanted):
        start = time.perf_counter()
        opened = engine(folder, data)
        built[engine.name] = time.perf_counter() - start
        print(f"{engine.name}: built in {built[engine.name]:.1f} s", flush=True)
        questions = opened.questions()
        if engine.name == "omnigraph":
            start = time.perf_counter()
            opened.warm(given[0])
            facts["warm_s"] = time.perf_counter() - start
        answers[engine.name] = {q: [ask(p) for p in given[:8]] for q, ask in questions.items()}
        taken = {q: timed(ask, given, seconds=seconds) for q, ask in questions.items()}
        times[engine.name] = {question: middle for question, (middle, _) in taken.items()}
        least[engine.name] = {question: fastest for question, (_, fastest) in taken.items()}
        if engine.name == "omnigraph":
            facts["parts_ms"] = parts(opened.graph, given)
        opened.close()
        if engine.name == "omnigraph":
            facts |= {"cold": cold(opened.folder), "count over Doc": count_bytes(opened.folder)}
            facts["peak_mb"] = peaks(opened.folder, given) if with_memory else {}
        yield {
            "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
            "python": platform.python_version(),
            "versions": {
                name: _version(name) for name in ("ladybug", "duckdb", "lancedb", "pylance")
            },
            "people": people,
            "friendships": edges,
            "build_s": built,
            "median_ms": times,
            "least_ms": least,
            "ratio_to_fastest_peer": ratios(times),
            "ratio_of_least": ratios(least),
            "load": os.getloadavg(),
            "answers_differ": compared(answers),
            "agreement": agreement(answers),
            "absent": ABSENT,
            "process": figures(),
            **facts,
        }


def ratios(times: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Our time over the fastest exact peer's; below 1 ours is faster."""
    found = {}
    for question, ours in times["omnigraph"].items():
        others = [times[p][question] for p in EXACT_PEERS if question in times.get(p, {})]
        if others:
            found[question] = ours / min(others)
    return found


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def show(result: Mapping[str, Any]) -> None:
    times, memory = result["median_ms"], result["peak_mb"]
    engines = list(times)
    print("\nmedians in ms; ratios are ours to the fastest exact peer: of medians, of least times")
    print(
        "MB: growth at the first answer, kept for later, peak of a warm one; load", result["load"]
    )
    heads = f"{'ratio':>9}{'least':>9}{'first':>9}{'kept':>9}{'warm':>9}"
    print(f"{'':24}" + "".join(f"{name:>13}" for name in engines) + heads)
    for question in QUERIES:
        cells = [times[engine].get(question) for engine in engines]
        shown = "".join(f"{'–' if ms is None else format(ms, '.3f'):>13}" for ms in cells)
        found = [result[name].get(question) for name in ("ratio_to_fastest_peer", "ratio_of_least")]
        tail = "".join(f"{'–' if ratio is None else format(ratio, '.2f'):>9}" for ratio in found)
        used = "".join(f"{megabytes:>9.3f}" for megabytes in memory.get(question, {}).values())
        print(f"{question:24}{shown}{tail}{used}")
    print("\nwhat our time is made of, in microseconds")
    print(f"{'':24}" + "".join(f"{name:>24}" for name in result["parts_ms"]["point lookup"]))
    for question, made in result["parts_ms"].items():
        print(f"{question:24}" + "".join(f"{1000 * ms:>24.1f}" for ms in made.values()))
    print(f"answers that differ: {result['answers_differ'] or 'none'}")
    for name in ("agreement", "cold", "count over Doc", "build_s"):
        print(f"{name}: " + ", ".join(f"{k} {v:,.3g}" for k, v in result[name].items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--people", type=int, default=100_000)
    parser.add_argument("--million", action="store_true", help="the same as --people 1000000")
    parser.add_argument("--engines", default=",".join(each.name for each in ENGINES))
    parser.add_argument("--seconds", type=float, default=3.0, help="for each question and engine")
    parser.add_argument("--folder", type=Path, help="where to build; a temporary one by default")
    parser.add_argument("--build-only", action="store_true", help="fill the folder, and no more")
    parser.add_argument("--no-memory", action="store_true", help="leave out how much is taken")
    parser.add_argument(
        "--memory-only", action="store_true", help="add that to the results, from the folder"
    )
    given = parser.parse_args()
    people = 1_000_000 if given.million else given.people
    wanted = ["omnigraph", *given.engines.split(",")]
    place = RESULTS / ("read.json" if people == 100_000 else f"read-{people}.json")
    if given.build_only:
        build(people, wanted, given.folder)
        return
    if given.memory_only:
        known = json.loads(place.read_text())
        known["peak_mb"] = peaks(given.folder / "omnigraph", parameters(generate(people), 200))
        place.write_text(json.dumps(known, indent=2) + "\n")
        show(known)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or fresh(Path(temporary) / "read")
        RESULTS.mkdir(exist_ok=True)
        for result in run(people, wanted, folder, given.seconds, with_memory=not given.no_memory):
            place.write_text(json.dumps(result, indent=2) + "\n")
    show(result)


if __name__ == "__main__":
    main()
