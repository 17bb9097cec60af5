"""Conditions that name nodes or ends of edges: files select the rows that Lance selects."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph
from omnigraph.costs import COSTS
from omnigraph.exec.mutate import staging
from omnigraph.exec.values import selection
from omnigraph.exec.values.constants import Given
from omnigraph.graph import Graph
from omnigraph.plan import ir
from omnigraph.storage.lance.columns import ADDRESS
from omnigraph.storage.lance.reader import TableReader

SCHEMA = """
node P { name: String @key  i: I32? }
edge Knows: P -> P { w: I32? }
"""
COUNT = 60


class BothWays:
    """Selects with topology files and without, and compares; the filters that Lance was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.filters: list[str] = []
        monkeypatch.setattr(staging, "select_committed", self.selected)

    def selected(
        self,
        reader: TableReader,
        schema: pa.Schema,
        where: ir.Expr,
        given: Given,
        columns: Sequence[str],
    ) -> pa.Table:
        asked = schema, where, given, columns
        with pytest.MonkeyPatch.context() as patch:
            read = selection._read
            patch.setattr(
                selection, "_read", lambda *args: (self.filters.append(args[3]), read(*args))[1]
            )
            rows = selection.select_committed(reader, *asked)
        expected = selection.select_committed(replace(reader, finder=None), *asked)
        assert rows.schema == expected.schema
        assert rows.sort_by(ADDRESS).to_pylist() == expected.sort_by(ADDRESS).to_pylist()
        return rows


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Graph]:
    monkeypatch.setenv("OMNIGRAPH_TOPOLOGY_ROWS_MIN", "0")
    chance = random.Random(5)
    with omnigraph.init(tmp_path / "g", SCHEMA) as made:
        people = [{"name": f"p{number}", "i": number % 7} for number in range(COUNT)]
        made.load(people, "append", type="P", engine="local")
        edges = [
            {"src": f"p{chance.randrange(COUNT)}", "dst": f"p{chance.randrange(COUNT)}", "w": n % 5}
            for n in range(COUNT * 5)
        ]
        made.load(edges, "append", edge="Knows", engine="local")
        yield made


CONDITIONS = (
    "from = $a",
    "$a = to",
    "from = $a and w = 3",
    "w > 1 and to = $a",
    "from = $a and to = $b",
    'from in ["p3", "p4"]',
    "to in $l and w != 2",
)


def test_conditions_on_ends_select_what_lance_selects(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, chance = BothWays(monkeypatch), random.Random(7)
    turns = 5 * len(CONDITIONS)
    for turn in range(turns):
        where = CONDITIONS[turn % len(CONDITIONS)]
        a, b, c = (f"p{chance.randrange(COUNT + 3)}" for _ in range(3))
        given = {"a": a, "b": b, "l": [a, b, c]}
        declared = {"a": "String", "b": "String", "l": "[String]"}
        names = ", ".join(f"${n}: {kind}" for n, kind in declared.items() if f"${n}" in where)
        used = {name: value for name, value in given.items() if f"${name}" in where}
        verb = ("delete Knows", "update Knows set { w: 9 }")[turn % 2]
        graph.mutate(f"query q({names}) {{ {verb} where {where} }}", used)
        if turn % 4 == 0:  # edges written since the file
            graph.mutate(
                "query q($a: String, $b: String) { insert Knows { from: $a, to: $b, w: 3 } }",
                {"a": f"p{turn}", "b": f"p{turn + 1}"},
            )
        if turn % 6 == 5:  # nodes and their edges that are gone since
            graph.mutate("query q($a: String) { delete P where name = $a }", {"a": b})
    assert len(both.filters) >= turns
    assert all(each == "false" or each.startswith("_rowid IN") for each in both.filters)
    assert graph.check().ok


def test_other_conditions_on_ends_are_left_to_lance(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = BothWays(monkeypatch)
    for where in ('from != "p1" and w = 4', 'from = "p1" or w = 3', 'not (to = "p2") and w = 2'):
        graph.mutate(f"query q() {{ delete Knows where {where} }}")
    assert not any("_rowid" in each for each in both.filters)
    monkeypatch.setattr(COSTS, "filter_keys_max", 1)
    graph.mutate('query q() { update Knows set { w: 1 } where from = "p5" }')
    assert "_rowid" not in both.filters[-1]  # too many edges to be named
