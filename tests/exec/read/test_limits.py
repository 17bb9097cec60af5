"""A query stops at its limits, whatever it is doing, and says where."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.errors import LimitExceeded
from omnigraph.exec.limits import Limits, Watch
from omnigraph.exec.read import batches, guard
from omnigraph.exec.read.reading import Reading
from omnigraph.graph import Graph
from tests.exec.world import graph_of

SCHEMA = """
node Doc { slug: String @key  body: String?  vec: Vector(64)? }
edge Cites: Doc -> Doc
"""
DOCS = 400
BODY_BYTES = 1000

COUNT = "query q() { match { $d: Doc } return { count($d) as n } }"
FILTER = 'query q() { match { $d: Doc  $d.body contains "zz" } return { $d.slug as s } }'
TEXT = """query q() { match { $d: Doc } return { $d.slug as s }
  order { bm25($d.body, "word7") } limit 3 }"""
NEAR = """query q($v: Vector(64)) { match { $d: Doc } return { $d.slug as s }
  order { nearest($d.vec, $v) } limit 3 }"""
WALK = "query q() { match { $d: Doc  $d cites{1,2} $e } return { $d.slug as s, $e.slug as t } }"


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    bodies = [f"word{n % 50} " * (BODY_BYTES // 7) for n in range(DOCS)]
    docs = [
        {"slug": f"d{n:04}", "body": body, "vec": [float(n)] * 64} for n, body in enumerate(bodies)
    ]
    cites = [
        {"id": f"c{n}", "src": f"d{n % DOCS:04}", "dst": f"d{(n * 7) % DOCS:04}"}
        for n in range(4 * DOCS)
    ]
    path = Path(tmp_path_factory.mktemp("limits")) / "g"
    with graph_of(path, SCHEMA, {"Doc": docs}, {"Cites": cites}) as made:
        yield made


def limited(graph: Graph, **limits: int) -> Graph:
    other = Graph(graph._store)
    other._reading = Reading(graph._store, Limits(**limits))
    return other


@pytest.mark.parametrize("mode", ["csr", "indexed"])
@pytest.mark.parametrize(
    ("text", "where"),
    [(FILTER, r"scan node:Doc as \$d where"), (TEXT, "score"), (NEAR, "score")],
)
def test_what_a_query_reads_counts_as_its_memory(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, mode: str, text: str, where: str
) -> None:
    monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", mode)
    given = {"v": [7.0] * 64} if "$v" in text else {}
    ids_fit = limited(graph, memory_bytes_max=60_000)
    if (mode, text) != ("indexed", FILTER):  # Lance filters, and returns nothing
        with pytest.raises(LimitExceeded, match=f"memory in bytes at `{where}"):
            ids_fit.query(text, given)
    assert ids_fit.query(COUNT).rows == [{"n": DOCS}]
    plenty = limited(graph, memory_bytes_max=64 << 20)
    assert len(plenty.query(text, given)) == (0 if text is FILTER else 3)


def test_building_an_adjacency_counts(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", "csr")
    with pytest.raises(LimitExceeded, match=r"memory in bytes at `expand \$d out edge:Cites"):
        limited(graph, memory_bytes_max=50_000).query(WALK)


def test_what_stopped_half_way_leaves_nothing_behind(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", "csr")
    tight = limited(graph, memory_bytes_max=60_000)
    with pytest.raises(LimitExceeded):
        tight.query(TEXT)
    tight._reading.limits = Limits()
    assert tight.query(TEXT).rows == graph.query(TEXT).rows


def test_a_query_ends_at_its_limit_while_an_operator_is_still_busy(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, ended = threading.Event(), threading.Event()
    scan = batches.scan

    def busy(*args: object) -> object:
        goes_on.wait()
        ended.set()
        return scan(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(batches, "scan", busy)
    with pytest.raises(LimitExceeded, match="time in ms at `scan node:Doc"):
        limited(graph, time_ms_max=50).query(FILTER)
    assert not ended.is_set(), "the operator was waited for"
    goes_on.set()
    assert ended.wait(60)
    monkeypatch.undo()
    assert graph.query(FILTER).rows == []


def test_work_that_was_left_stops_at_its_next_look_at_the_watch() -> None:
    goes_on, steps = threading.Event(), []
    watch = Watch(Limits(time_ms_max=20))
    stopped = threading.Event()

    def work() -> None:
        goes_on.wait()
        try:
            for step in range(1000):
                watch.tick()
                steps.append(step)
        finally:
            stopped.set()

    with pytest.raises(LimitExceeded):
        guard.run(watch, work)
    goes_on.set()
    assert stopped.wait(60)
    assert steps == []


CHILD = """
import sys, time
import omnigraph as og
from omnigraph.exec.read import batches

def busy(*_):
    print("busy", flush=True)
    time.sleep(3600)  # no interrupt reaches a thread that is not the first

batches.scan = busy
graph = og.open(sys.argv[1])
try:
    graph.query('query q() { match { $d: Doc  $d.body contains "zz" } return { $d.slug as s } }')
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="sends a POSIX signal")
def test_ctrl_c_stops_a_query_in_the_middle_of_an_operator(graph: Graph) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, graph.uri], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == "busy\n"
        os.kill(child.pid, signal.SIGINT)
        rest, _ = child.communicate(timeout=60)
    finally:
        child.kill()
    assert (rest, child.returncode) == ("interrupted\n", 0)
