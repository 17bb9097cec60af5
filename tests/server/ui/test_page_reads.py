"""UI4: what a page reads does not grow with the graph.

Two graphs, one of them ten times as large, have a branch, a hub and a history of the same size.
Every page is asked for a few times, for other entities where it has one, and what it reads is
counted in Lance itself: the rows that scans gave, the bytes that they read from files, and counts
by a filter, which look at every row.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import lance
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.server.serve_settings import Access
from tests.server.world import Served, served

SCHEMA = """
node Person { name: String @key  age: I32?  city: String? @index }
node Note { title: String  text: String? }
edge Knows: Person -> Person { since: I32? }
edge Wrote: Person -> Note
"""
MOVE = "query m($n: String, $c: String) { update Person set { city: $c } where name = $n }"
ASK = (
    "query friends($n: String) { match { $p: Person { name: $n }  $p knows $f } "
    "return { $f, $f.age as age } limit 20 }"
)
G = "/ui/graphs/people"
SMALL, LARGE = 4_000, 40_000
HUB_EDGES, COMMITS, VISITS = 200, 12, 4
# A page of Lance's encoding is the least that is read of a column, and is larger in a larger table.
ROWS_MORE, BYTES_MORE = 20, 96 << 10


@dataclass
class Reads:
    """What scans gave, and what they read for it."""

    rows: int = 0
    bytes: int = 0
    counts: int = 0


def _graph(uri: str, people: int) -> str:
    with og.init(uri, schema=SCHEMA, durability="os") as graph:
        names = [f"p{n}" for n in range(people)]
        cities = [("Oslo", "Rome", "Lima", "Cairo")[n % 4] for n in range(people)]
        table = {"name": names, "age": pa.array([n % 90 for n in range(people)], pa.int32())}
        graph.load(pa.table(table | {"city": cities}), "append", type="Person")
        notes = pa.table({"id": [f"n{n}" for n in range(people)], "title": names})
        graph.load(notes, "append", type="Note")
        ring = [(n, (n * 7 + step) % people) for n in range(people) for step in (1, 2, 3)]
        hub = [(0, n + 100) for n in range(HUB_EDGES)]
        ends = {"from": [names[a] for a, _ in ring + hub], "to": [names[b] for _, b in ring + hub]}
        graph.load(pa.table(ends), "append", edge="Knows")
        wrote = {"from": names, "to": [f"n{n}" for n in range(people)]}
        graph.load(pa.table(wrote), "append", edge="Wrote")
        graph.optimize()
        graph.branches.create("review/b")
        for number in range(COMMITS):
            branch = "review/b" if number % 3 == 0 else "main"
            given = {"n": f"p{number % 4}", "c": "Oslo" if number % 2 else "Rome"}
            graph.mutate(MOVE, given, branch=branch, actor=f"act-{number % 2}")
        graph.reviews.open("review/b", title="moves", actor="act-0")
    return uri


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Served]]:
    """The small graph and the large one, each served."""
    folder = tmp_path_factory.mktemp("reads")
    small, large = (_graph(str(folder / str(n) / "people.omni"), n) for n in (SMALL, LARGE))
    with served(small, access=Access.OPEN) as first, served(large, access=Access.OPEN) as second:
        yield first, second


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """Counts what Lance reads from here on."""
    seen = Reads()
    scanner, count_rows = lance.LanceDataset.scanner, lance.LanceDataset.count_rows
    to_reader = lance.LanceScanner.to_reader  # `to_table` and `to_batches` read through it

    def noted(statistics: Any) -> None:
        seen.bytes += statistics.bytes_read

    def counted_scanner(handle: Any, *args: Any, **options: Any) -> Any:
        return scanner(handle, *args, scan_stats_callback=noted, **options)

    def counted_reader(of: Any) -> pa.RecordBatchReader:
        reader = to_reader(of)

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in reader:
                seen.rows += batch.num_rows
                yield batch

        return pa.RecordBatchReader.from_batches(reader.schema, batches())

    def counted_rows(handle: Any, filter: Any = None, **options: Any) -> int:
        seen.counts += filter is not None
        return int(count_rows(handle, filter, **options))

    monkeypatch.setattr(lance.LanceDataset, "scanner", counted_scanner)
    monkeypatch.setattr(lance.LanceDataset, "count_rows", counted_rows)
    monkeypatch.setattr(lance.LanceScanner, "to_reader", counted_reader)
    return seen


def _pages(site: Served) -> dict[str, list[str]]:
    """Every page with the addresses of its visits."""
    newest = [commit.id for commit in site.graph.commits.list(limit=VISITS)]
    review = site.graph.reviews.list()[0].id
    same = {
        "overview": "",
        "commits": "/commits",
        "commits of an actor": "/commits?actor=act-1",
        "compare": "/compare?from=main~3&to=main",
        "compare as a picture": "/compare?from=main~3&to=main&view=picture",
        "merge": "/merge?source=review/b",
        "reviews": "/reviews",
        "review": f"/reviews/{review}",
        "type": "/types/node/Person",
        "type of edges": "/types/edge/Knows",
        "condition": "/types/node/Person?where=city = %22Lima%22",
        "schema": "/schema",
        "upkeep": "/upkeep",
    }
    numbers = range(5, 5 + VISITS)
    return {name: [path] * VISITS for name, path in same.items()} | {
        "commit": [f"/commits/{each}" for each in newest],
        "query": [f"/query?q={ASK}&p.n=p{n}" for n in numbers],
        "node": [f"/entities/node/Person/p{n}" for n in numbers],
        "node with a history": [f"/entities/node/Person/p{n}" for n in (1, 2, 3, 1)],
        "hub": ["/entities/node/Person/p0"] * VISITS,
        "node named by a property": [f"/entities/node/Note/n{n}" for n in numbers],
        "edge": [f"/entities/edge/Knows/{each}" for each in _edges(site)],
        "missing": [f"/entities/node/Person/nobody-{n}" for n in numbers],
    }


def _edges(site: Served) -> list[str]:
    page = site.graph.page("edge", "Knows", limit=VISITS)
    return [each.id for each in page.entities]


def _read(site: Served, addresses: list[str], reads: Reads) -> Reads:
    """What the visit that read least read: what is built once for a process is not counted, what
    every visit reads is."""
    visits = []
    for address in addresses:
        reads.rows, reads.bytes, reads.counts = 0, 0, 0
        answer = site.client.get(f"{G}{address}")
        assert answer.status_code == (404 if "nobody" in address else 200), answer.text[:400]
        visits.append(Reads(reads.rows, reads.bytes, reads.counts))
    return min(visits, key=lambda each: (each.bytes, each.rows))


def test_UI4_what_a_page_reads_does_not_grow_with_the_graph(
    sites: tuple[Served, Served], reads: Reads
) -> None:
    small, large = ({n: _read(s, each, reads) for n, each in _pages(s).items()} for s in sites)
    grown = {
        name: (small[name], read)
        for name, read in large.items()
        if read.rows > small[name].rows + ROWS_MORE
        or read.bytes > small[name].bytes + BYTES_MORE
        or read.counts
    }
    assert not grown
