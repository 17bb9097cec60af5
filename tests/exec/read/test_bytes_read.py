"""Bytes that a query reads from disk, counted by the system: only the columns that it needs."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.graph import Graph
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.types import TableKey
from tests.exec.world import graph_of

SCHEMA = "node Doc { slug: String @key  n: I64  body: String  vec: Vector(256) }"
DOCS = 20_000

COUNT = "query q() { match { $d: Doc } return { count($d) as n } }"
COUNT_SOME = "query q() { match { $d: Doc  $d.n < 10 } return { count($d) as n } }"
LOOKUP = 'query q() { match { $d: Doc { slug: "d0012345" } } return { $d.n as n } }'
SUM = "query q() { match { $d: Doc } return { max($d.n) as n } }"

CHILD = """
import importlib, pathlib, pkgutil, sys
import omnigraph as og
import omnigraph.exec, omnigraph.storage

# Code is read when it is first used, which is not what a query reads.
for room in (omnigraph.exec, omnigraph.storage):
    for module in pkgutil.walk_packages(room.__path__, room.__name__ + "."):
        importlib.import_module(module.name)

def read():
    lines = pathlib.Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("rchar"))

graph = og.open(sys.argv[1])
graph.query("query q() { match { $d: Doc } return { $d } limit 0 }")  # the language is loaded
before = read()
rows = graph.query(sys.argv[2]).rows
print(read() - before, rows[0]["n"])
"""

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/io").exists(), reason="the system does not count what a process reads"
)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    slugs = pa.array([f"d{n:07}" for n in range(DOCS)])
    numbers = np.random.default_rng(1).random(DOCS * 256, dtype=np.float32)
    rows = pa.table(
        {
            "id": slugs,
            "slug": slugs,
            "n": np.arange(DOCS),
            "body": pa.array([f"{n} " * 60 for n in range(DOCS)]),
            "vec": pa.FixedSizeListArray.from_arrays(pa.array(numbers), 256),
        }
    )
    with graph_of(Path(tmp_path_factory.mktemp("bytes")) / "g", SCHEMA) as made:
        writing = made._store.begin(kind=WriterKind.LOAD)
        writing.append(TableKey("node:Doc"), rows)
        made._store.commit(writing)
        made.ensure_indices()
        yield made


def read_by(graph: Graph, text: str) -> tuple[int, int]:
    """How many bytes a new process reads for a query, and the number it returns."""
    run = [sys.executable, "-c", CHILD, graph.uri, text]
    told = subprocess.run(run, check=True, capture_output=True, text=True).stdout.split()
    return int(told[0]), int(told[1])


@pytest.mark.parametrize(
    ("text", "answer", "share"),
    [(COUNT, DOCS, 0.01), (COUNT_SOME, 10, 0.02), (SUM, DOCS - 1, 0.05), (LOOKUP, 12_345, 0.02)],
)
def test_a_query_reads_a_small_share_of_a_table_with_vectors(
    graph: Graph, text: str, answer: int, share: float
) -> None:
    data = [path for path in Path(graph.uri).rglob("nodes/**/data/*") if path.is_file()]
    held = sum(path.stat().st_size for path in data)
    assert held > 20_000_000
    read, found = read_by(graph, text)
    assert found == answer
    assert read <= share * held, f"{read} of {held} bytes"
