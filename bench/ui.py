"""The pages on a large graph: server time of each page, p50 and p95, and the rows that it read.

    python bench/ui.py [--nodes 100000] [--edges 1000000] [--commits 1000] [--folder FOLDER]

The full size is `--nodes 1000000 --edges 10000000 --commits 10000`. A page is asked for without a
connection, so what is measured is the work of the graph and the template. Rows read are those
that scans of tables gave back, bytes those that Lance read from files for them, so a filter that
looks at a whole column shows. A table that many commits changed is optimized now and then.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from starlette.datastructures import QueryParams

import omnigraph as og
from omnigraph.server.access import Gate, ServedPolicies
from omnigraph.server.bearer import Tokens
from omnigraph.server.call import Answer, RouteCall
from omnigraph.server.request_headers import RequestHeaders
from omnigraph.server.serve_settings import Access, ServerSettings
from omnigraph.server.served import ServedGraphs
from omnigraph.server.ui import (
    commit_pages,
    compare_pages,
    entity_pages,
    merge_pages,
    overview_pages,
    query_pages,
    review_pages,
    schema_pages,
    type_pages,
    upkeep_pages,
)
from omnigraph.server.ui.ui_front import ServerPages

SCHEMA = """
node Person { name: String @key  age: I32?  city: String? @index }
edge Knows: Person -> Person { since: I32? }
"""
MOVE = "query m($n: String, $c: String) { update Person set { city: $c } where name = $n }"
ASK = (
    "query friends($n: String) { match { $p: Person { name: $n }  $p knows $f } "
    "return { $f, $f.age as age } limit 100 }"
)
COMMITS_AN_UPKEEP, REVIEWS = 250, 200


def main() -> None:
    """Make the graph, ask for every page, print a table."""
    parser = argparse.ArgumentParser()
    for name, default in (("nodes", 100_000), ("edges", 1_000_000), ("commits", 1_000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--folder")
    given = parser.parse_args()
    folder = Path(given.folder or tempfile.mkdtemp(prefix="bench-ui-"))
    try:
        uri = str(folder / "people.omni")
        if not Path(uri).exists():
            made = time.process_time()
            _make(uri, given.nodes, given.edges, given.commits)
            print(f"made in {time.process_time() - made:.0f} s of processor time")
        _measure(uri, given.turns)
    finally:
        if given.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


def _make(uri: str, nodes: int, edges: int, commits: int) -> None:
    draw = np.random.default_rng(1)
    with og.init(uri, schema=SCHEMA, durability="os") as graph:
        names = np.char.add("p", np.arange(nodes).astype(str))
        cities = np.array(["Oslo", "Rome", "Lima", "Cairo"])[draw.integers(0, 4, nodes)]
        people = pa.table(
            {"name": names, "age": draw.integers(0, 99, nodes, dtype="int32"), "city": cities}
        )
        graph.load(people, "append", type="Person", actor="act-load")
        source = draw.integers(0, nodes, edges)
        source[: edges // 100] = 0  # a hub
        links = pa.table(
            {
                "from": names[source],
                "to": names[draw.integers(0, nodes, edges)],
                "since": draw.integers(1990, 2026, edges, dtype="int32"),
            }
        )
        graph.load(links, "append", edge="Knows", actor="act-load")
        graph.branches.create("review/bench")
        for number in range(commits):
            branch = "review/bench" if number % 5 == 0 else "main"
            given = {"n": f"p{number % nodes}", "c": "Oslo" if number % 2 else "Rome"}
            graph.mutate(MOVE, given, branch=branch, actor=f"act-{number % 7}")
            if number % COMMITS_AN_UPKEEP == 0:
                graph.optimize()
        graph.optimize()
        _review(graph)


def _review(graph: og.Graph) -> None:
    """Reviews, of which a page shows some."""
    for number in range(REVIEWS):
        made = graph.reviews.open("review/bench", title=f"Moves {number}", actor="act-1")
        graph.reviews.comment(made.id, "Why?", actor="act-2")
        if number % 3:
            graph.reviews.close(made.id, actor="act-2")


class Visitor:
    """Asks for pages without a connection."""

    def __init__(self, uri: str) -> None:
        settings = ServerSettings(graphs={"people": uri}, access=Access.OPEN)
        graphs = ServedGraphs(settings.graphs)
        graphs.open_all(require_all=True)
        self.gate = Gate(Access.OPEN, Tokens({}), ServedPolicies())
        self.pages = ServerPages(settings, graphs, self.gate)
        self.graph = graphs.get("people")

    def ask(
        self, route: Callable[[RouteCall], Answer], path: dict[str, str], query: dict[str, str]
    ) -> Answer:
        """The answer of a page."""
        headers = RequestHeaders([])
        call = RouteCall(
            "people",
            self.graph,
            None,
            path,
            QueryParams(query),
            headers,
            visit=self.pages.visit(headers, "people", None),
        )
        return route(call)


class ReadCounter:
    """Counts, in Lance, the rows that scans give and the bytes that they read from files."""

    def __init__(self) -> None:
        self.rows = self.bytes = 0
        scanner, to_reader = lance.LanceDataset.scanner, lance.LanceScanner.to_reader

        def noted(statistics: Any) -> None:
            self.bytes += statistics.bytes_read

        def counted_scanner(handle: Any, *args: Any, **options: Any) -> Any:
            return scanner(handle, *args, scan_stats_callback=noted, **options)

        def counted_reader(of: Any) -> pa.RecordBatchReader:
            reader = to_reader(of)

            def batches() -> Iterator[pa.RecordBatch]:
                for batch in reader:
                    self.rows += batch.num_rows
                    yield batch

            return pa.RecordBatchReader.from_batches(reader.schema, batches())

        lance.LanceDataset.scanner = counted_scanner
        lance.LanceScanner.to_reader = counted_reader  # what else reads a scan goes through it


def _measure(uri: str, turns: int) -> None:
    counter, visitor = ReadCounter(), Visitor(uri)
    head = visitor.graph.commits.list(limit=1)[0].id
    node, hub = (
        {"kind": "node", "type": "Person", "id": "p7"},
        {"kind": "node", "type": "Person", "id": "p0"},
    )
    people = {"kind": "node", "type": "Person"}
    (listed,) = visitor.graph.page("edge", "Knows", limit=1).entities
    edge = {"kind": "edge", "type": "Knows", "id": listed.id}
    (review,) = visitor.graph.reviews.list(state="open", limit=1)
    pages: list[tuple[str, Callable[[RouteCall], Answer], dict[str, str], dict[str, str]]] = [
        ("overview", overview_pages.overview, {}, {}),
        ("commits", commit_pages.commits, {}, {}),
        ("commits of a branch", commit_pages.commits, {}, {"branch": "review/bench"}),
        ("commits of an actor", commit_pages.commits, {}, {"actor": "act-3"}),
        ("commit", commit_pages.commit, {"commit_id": head}, {}),
        ("compare", compare_pages.compare, {}, {"from": "main~20", "to": "main"}),
        ("merge review", merge_pages.merge_review, {}, {"source": "review/bench"}),
        ("reviews", review_pages.reviews, {}, {}),
        ("review", review_pages.review, {"review": review.id}, {}),
        ("query", query_pages.query, {}, {"q": ASK, "p.n": "p7"}),
        ("type", type_pages.type_rows, people, {}),
        ("type, edges", type_pages.type_rows, {"kind": "edge", "type": "Knows"}, {}),
        ("type, condition", type_pages.type_rows, people, {"where": 'city = "Lima"'}),
        ("entity", entity_pages.entity, node, {}),
        ("entity, a hub", entity_pages.entity, hub, {}),
        ("entity, an edge", entity_pages.entity, edge, {}),
        ("schema", schema_pages.schema, {}, {}),
        ("upkeep", upkeep_pages.upkeep, {}, {}),
    ]
    print(
        "| page | first, ms | p50, ms | p95, ms | CPU, ms | rows read | kB read |\n"
        "|---|--:|--:|--:|--:|--:|--:|"
    )
    for name, route, path, query in pages:
        begun = time.perf_counter()
        visitor.ask(route, path, query)
        first = (time.perf_counter() - begun) * 1000
        walls, counter.rows, counter.bytes, cpu = [], 0, 0, time.process_time()
        for _ in range(turns):
            begun = time.perf_counter()
            answer = visitor.ask(route, path, query)
            walls.append((time.perf_counter() - begun) * 1000)
            assert answer.status == 200, answer.body[:300]
        used = (time.process_time() - cpu) * 1000 / turns
        p95 = sorted(walls)[int(turns * 0.95) - 1]
        print(
            f"| {name} | {first:.0f} | {statistics.median(walls):.0f} | {p95:.0f} | {used:.0f} | "
            f"{counter.rows // turns:,} | {counter.bytes // turns // 1000:,} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
