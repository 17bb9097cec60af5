"""Private memory of a process that asks for all of a graph stays within the budget of a query."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import omnigraph as og

PEOPLE = 200_000
EDGES = 3_000_000
HUB = 1_000_000
BUDGET_MB = 160
"""What the queries may take beside what the process has after a first small query: less than the
adjacency of either way has, were it in the heap as numbers of eight bytes with its edges."""

SCHEMA = "node P { name: String @key  age: I32? }\nedge E: P -> P"

CHILD = """
import json, sys, threading, time
import omnigraph as og

def private_mb():
    with open("/proc/self/status") as status:
        [line] = [line for line in status if line.startswith("RssAnon")]
    return int(line.split()[1]) / 1024

peak = 0.0
def watch():
    global peak
    while True:
        peak = max(peak, private_mb())
        time.sleep(0.01)

graph = og.open(sys.argv[1])
graph.query('query q() { match { $a: P { name: "p0000007" } $a e $b } return { $b.age } }')
threading.Thread(target=watch, daemon=True).start()
idle, results = private_mb(), {}
for name, text in json.loads(sys.argv[2]).items():
    peak = 0.0
    rows = graph.query("query q() { " + text + " }").rows
    results[name] = [rows[0]["n"], peak - idle]
print(json.dumps(results))
"""

QUERIES = {
    "2 hops": "match { $a: P $a e $b $b.age > 10 $b e $c } return { count(*) as n }",
    "grouped": "match { $a: P $a e $b $b e $c $c.age > 80 } "
    "return { $b.age as age, count(*) as n, avg($a.age) as mean } order { n desc }",
    "hops": "match { $a: P $a.age = 5 $a e{1,2} $b $b.age > 60 } return { count(*) as n }",
    "anti-join": "match { $a: P $a e $b not { $b e $a } } return { count(*) as n }",
}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_SQ2_private_memory_stays_within_the_budget(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    source = random.integers(0, PEOPLE, EDGES)
    source[:HUB] = 0
    target = random.integers(0, PEOPLE, EDGES)
    age = (np.arange(PEOPLE) * 7919 % 90).astype(np.int32)
    names = pa.array([f"p{n:07}" for n in range(PEOPLE)])
    graph = og.init(str(tmp_path / "g"), SCHEMA)
    graph.load(pa.table({"name": names, "age": age}), "append", type="P", engine="local")
    ends = {"src": names.take(pa.array(source)), "dst": names.take(pa.array(target))}
    graph.load(pa.table(ends), "append", edge="E", engine="local")
    del graph

    settings = {
        "OMNIGRAPH_QUERY_MEMORY_BYTES_MAX": str(BUDGET_MB << 20),
        "OMNIGRAPH_QUERY_TIME_MS_MAX": str(10**9),
    }
    command = [sys.executable, "-c", CHILD, str(tmp_path / "g"), json.dumps(QUERIES)]
    ran = subprocess.run(
        command, env=os.environ | settings, capture_output=True, text=True, check=True
    )
    results = json.loads(ran.stdout)
    pairs = np.unique(source * PEOPLE + target)
    near, far = np.divmod(pairs, PEOPLE)
    degrees = np.bincount(near, minlength=PEOPLE)
    assert results["2 hops"][0] == int(degrees[far[age[far] > 10]].sum())
    back = np.isin(pairs, far * PEOPLE + near)
    assert results["anti-join"][0] == int(np.count_nonzero(~back))
    assert {name: mb for name, (_, mb) in results.items() if mb > BUDGET_MB} == {}
