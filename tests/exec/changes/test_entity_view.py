"""One entity with its edges counted: the same with topology files and without."""

import random
from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.costs import COSTS
from omnigraph.storage.lance.reader import TableReader

SCHEMA = """
node Person { name: String @key }
node Company { name: String @key }
edge Knows: Person -> Person { since: I32? }
edge WorksAt: Person -> Company
"""
NAMES = tuple("ABCDE")


def _lines() -> bytes:
    lines = ['{"type":"Company","data":{"name":"Acme"}}']
    lines += [f'{{"type":"Person","data":{{"name":"{name}"}}}}' for name in NAMES]
    lines += [f'{{"edge":"Knows","from":"A","to":"{name}","data":{{}}}}' for name in NAMES]
    lines += [f'{{"edge":"WorksAt","from":"{name}","to":"Acme","data":{{}}}}' for name in NAMES]
    return "\n".join(lines).encode()


def _counts(graph: og.Graph) -> dict[tuple[str, str, str], int]:
    named = [("Person", name) for name in NAMES] + [("Company", "Acme")]
    return {
        (name, each.type, each.direction): each.count
        for kind, name in named
        for each in graph.entity("node", kind, name).edges
    }


def test_edges_are_counted_by_the_topology_as_by_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_TOPOLOGY_ROWS_MIN", "0")
    with og.init(str(tmp_path / "g.omni"), schema=SCHEMA) as graph:
        graph.load(_lines(), "merge")
        graph.optimize()
        graph.mutate('query d() { delete Knows where to = "B" }')
        graph.mutate('query i() { insert Knows { from: "C", to: "A" } }')
        graph.mutate('query u() { update Knows set { since: 7 } where from = "A" }')

        with monkeypatch.context() as patch:
            patch.setattr(TableReader, "count", _scanned)
            by_file = _counts(graph)
        with monkeypatch.context() as patch:
            patch.setattr("omnigraph.exec.changes.entity_view.known_edges", lambda *_: None)
            assert _counts(graph) == by_file
        seen = graph.neighbourhood("Person", "A")
    assert by_file["A", "Knows", "out"] == 4
    assert by_file["A", "Knows", "in"] == 2
    assert by_file["Acme", "WorksAt", "in"] == 5
    assert ("B", "Knows", "in") not in by_file
    offered = {("A", each.type, each.direction): each.total for each in seen.offers}
    assert offered == {key: count for key, count in by_file.items() if key[0] == "A"}


def _scanned(*_: object) -> int:
    raise AssertionError("a table was scanned to count edges")


@pytest.mark.parametrize("is_sorted", [True, False])
def test_an_edge_is_found_by_its_id_whatever_the_order_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_sorted: bool
) -> None:
    monkeypatch.setattr(COSTS, "id_search_rows_min", 0)
    ids = [f"e{n:03}" for n in range(60)]
    if not is_sorted:
        random.Random(1).shuffle(ids)
    uri = str(tmp_path / "g.omni")
    ends = {"from": [NAMES[n % 5] for n in range(60)], "to": ["A"] * 60}
    with og.init(uri, schema=SCHEMA) as graph:
        graph.load(_lines(), "merge")
        graph.mutate('query d() { delete Knows where from = "A" }')
        first = graph.load(pa.table({"id": ids, **ends}), "append", edge="Knows").commit
        graph.mutate('query u() { update Knows set { since: 7 } where from = "B" }')
        graph.mutate('query d() { delete Knows where from = "C" }')
        graph.load(pa.table({"id": ["e100"], "from": ["A"], "to": ["A"]}), "append", edge="Knows")
    assert first is not None
    for each in [*ids[::5], *ids[1:8], "e100"]:
        with og.open(uri) as graph:  # nothing was listed before
            for point in ("main", first.id):
                begins = NAMES[ids.index(each) % 5] if each in ids else "A"
                is_stored = begins != "C" if point == "main" else each in ids
                changes = list(graph.history("edge", "Knows", each, snapshot=point))
                if not is_stored:
                    with pytest.raises(og.NotFound):
                        graph.entity("edge", "Knows", each, snapshot=point)
                    continue
                image = graph.entity("edge", "Knows", each, snapshot=point).image
                assert image.endpoints == (begins, "A")
                since = 7 if begins == "B" and point == "main" else None
                assert image.properties["since"] == since
                assert [c.change.op for c in changes] == (
                    ["update", "insert"] if since else ["insert"]
                )
