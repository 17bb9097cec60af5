"""Queries over all nodes, in one process and on Spark: one run, in a process of its own.

    python bench/spark_queries.py GRAPH ENGINE TASKS TIMES QUERY    (bench/spark.py starts these)

The graph follows a power law, and a quarter of its edges leave one node. Cold is the first time in
a new process, after a query of one node has started what an engine has to start; warm is the least
of the times after it.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from spark_watch import Watch

SCHEMA = """
node Person { name: String @key  age: I32? }
edge Knows: Person -> Person { since: I32? }
"""
EDGES_A_NODE = 10
HUB_SHARE = 4

TINY = 'query q() { match { $p: Person { name: "p00000001" } } return { $p.age } }'
QUERIES = {
    "2-hop count": "match { $a: Person $a knows $b $b knows $c } return { count(*) as n }",
    "2-hop aggregate": "match { $a: Person $a.age < 30 $a knows $b $b.age > 60 $b knows $c } "
    "return { $c.age as age, count(*) as n, avg($a.age) as mean }",
    "hops {1,3}": "match { $a: Person $a.age = 33 $a knows{1,3} $b $b.age > 60 } "
    "return { count(*) as n }",
    "anti-join": "match { $a: Person $a knows $b not { $b knows $a } } return { count(*) as n }",
}


def tables(edges: int) -> tuple[pa.Table, pa.Table]:
    """People, and who knows whom: most know few, one knows very many."""
    people = edges // EDGES_A_NODE
    random = np.random.default_rng(7)
    names = pa.array([f"p{n:08}" for n in range(people)])
    ages = pa.array((np.arange(people) * 7919 % 90).astype(np.int32))
    hub = edges // HUB_SHARE
    source = (people * random.power(3, edges - hub)).astype(np.int64)
    source = np.concatenate((np.zeros(hub, np.int64), source))
    target = (people * random.random(edges)).astype(np.int64)
    since = pa.array((np.arange(edges) % 100).astype(np.int32))
    ends = {"src": names.take(pa.array(source)), "dst": names.take(pa.array(target))}
    return pa.table({"name": names, "age": ages}), pa.table({**ends, "since": since})


def build(path: Path, edges: int) -> None:
    """Load the graph, and ask each query once: the files that they map are made."""
    import omnigraph as og  # noqa: PLC0415

    people, knows = tables(edges)
    with og.init(path, SCHEMA) as graph:
        graph.load(people, "append", type="Person", engine="local")
        graph.load(knows, "append", edge="Knows", engine="local")
        for text in QUERIES.values():
            graph.query(f"query q() {{ {text} }}")


def measure(path: str, engine: str, workers: int, times: int, name: str) -> dict[str, Any]:
    """The figures of one query with one engine, in this process."""
    import omnigraph as og  # noqa: PLC0415

    watch, graph = Watch(), og.open(path)
    options: dict[str, Any] = {"engine": engine}
    if engine == "spark":
        from omnigraph.pipeline.session import session  # noqa: PLC0415

        options["spark"] = session("bulk", master=f"local[{workers}]")
    graph.query(TINY, **options)
    figures: dict[str, Any] = {"start CPU s": round(watch.cpu(), 2)}
    figures |= {f"idle {part}": size for part, size in watch.peaks().items()}
    runs = []
    for _ in range(1 + times):
        before, since = watch.cpu(), time.perf_counter()
        rows = graph.query(f"query q() {{ {QUERIES[name]} }}", **options).rows
        runs.append((round(watch.cpu() - before, 3), round(time.perf_counter() - since, 3)))
    figures["cold CPU s"], figures["cold s"] = runs[0]
    figures["warm CPU s"], figures["warm s"] = min(runs[1:])
    figures |= watch.peaks()
    figures["answer"] = answer_of(rows)
    if engine == "spark":
        options["spark"].stop()
    return figures


def answer_of(rows: list[dict[str, Any]]) -> str:
    """Rows as a short text: equal rows have equal ones; means are rounded."""
    kept = [{k: round(v, 6) if isinstance(v, float) else v for k, v in r.items()} for r in rows]
    return json.dumps(kept)[:60] + f" ({len(kept)} rows)"


if __name__ == "__main__":
    graph_path, asked_engine, tasks, count, query = sys.argv[1:]
    print(json.dumps(measure(graph_path, asked_engine, int(tasks), int(count), query)))
