"""Loads that number the ends of their edges: what they refuse, and the adjacency they leave."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph
from omnigraph.errors import ConstraintViolated
from omnigraph.exec.topology.build import build_topology
from omnigraph.exec.topology.end_numbers import EndNumbers, Ends, LoadedEnds
from omnigraph.graph import Graph
from omnigraph.types import TableKey

SCHEMA = """
node Person { name: String @key  age: I32? }
node City { name: String @key }
edge Knows: Person -> Person @card(0..9)
edge LivesIn: Person -> City
"""
COUNT = 50
LIVES_IN = TableKey("edge:LivesIn")
WHOLE = "query q() { match { $p: Person  $p knows $f } return { $p.name as a, $f.name as b } }"
HOMES = "query q() { match { $p: Person  $p livesIn $c } return { $p.name as a, $c.name as b } }"


@pytest.fixture(autouse=True)
def _every_table_is_large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OMNIGRAPH_TOPOLOGY_ROWS_MIN", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def person(number: int) -> str:
    return f"p{number:03d}"


def edges(pairs: list[tuple[str, str]]) -> pa.Table:
    return pa.table({"src": [a for a, _ in pairs], "dst": [b for _, b in pairs]})


def peopled(path: Path) -> Graph:
    """A graph with node files, and nodes that are gone or new since."""
    graph = omnigraph.init(path, SCHEMA)
    names = [person(n) for n in range(COUNT)]
    graph.load(pa.table({"name": names}), "append", type="Person", engine="local")
    cities = pa.table({"name": [f"town{n}" for n in range(5)]})
    graph.load(cities, "append", type="City", engine="local")
    graph.mutate(f'query q() {{ delete Person where name = "{person(7)}" }}')
    graph.mutate('query q() { insert Person { name: "p900" } }')
    graph.mutate(f'query q() {{ update Person set {{ age: 4 }} where name = "{person(8)}" }}')
    return graph


def outcome(graph: Graph, branch: str, rows: pa.Table, **more: Any) -> Any:
    """What a load says, or the rows it leaves."""
    try:
        graph.load(rows, "append", branch=branch, engine="local", **more)
    except ConstraintViolated as refused:
        return str(refused), refused.violations
    return [
        sorted(tuple(row.values()) for row in graph.query(text, branch=branch).rows)
        for text in (WHOLE, HOMES)
    ]


def drawn(chance: random.Random) -> pa.Table:
    """Edges, most of them good ones."""
    known = [person(n) for n in range(COUNT) if n != 7]
    odd = chance.choice([[], [], ["p900"], [person(7)], ["q001", "p999"], ["é", "x" * 70, ""]])
    few = chance.sample(known, chance.randint(1, len(known)))
    choices = few * 8 + odd
    pairs = [
        (chance.choice(choices), chance.choice(choices)) for _ in range(chance.randint(1, 120))
    ]
    return edges(pairs)


def test_TP2_a_load_that_numbers_ends_refuses_what_the_key_check_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = peopled(tmp_path / "g")
    numbered: list[bool] = []
    of = EndNumbers.of

    def watched(self: EndNumbers, *asked: Any) -> Any:
        loaded = of(self, *asked)
        numbered.append(loaded is not None)
        return loaded

    for seed in range(16):
        rows = drawn(random.Random(seed))
        results = []
        for name, way in (("numbered", watched), ("keys", lambda *_: None)):
            branch = f"{name}{seed}"
            graph.branches.create(branch)
            monkeypatch.setattr(EndNumbers, "of", way)
            results.append(outcome(graph, branch, rows, edge="Knows"))
        assert results[0] == results[1], seed
    assert all(numbered)


def test_TP2_the_numbers_of_a_load_are_the_adjacency_of_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "g"
    graph = peopled(path)
    used: list[bool] = []
    whole = LoadedEnds.whole

    def watched(self: LoadedEnds) -> Ends | None:
        numbers = whole(self)
        used.append(numbers is not None)
        return numbers

    monkeypatch.setattr(LoadedEnds, "whole", watched)
    chance = random.Random(3)
    known = [person(n) for n in range(COUNT) if n not in (7, 8)]
    homes = edges([(chance.choice(known), f"town{chance.randrange(5)}") for _ in range(90)])
    graph.load(homes, "append", edge="LivesIn", engine="local")
    assert used == [True]
    location = graph._store.snapshot("main").tables[LIVES_IN].location
    folder = path / "__derived" / location.replace("/", "-")
    [file] = folder.iterdir()
    before = file.name, file.read_bytes()
    file.unlink()
    # A builder that reads the table makes the same file.
    graph._reading.close()
    graph._store.forget()
    step = (LIVES_IN, TableKey("node:Person"), TableKey("node:City"))
    build_topology(graph._store, graph._store.snapshot("main"), [step])
    [file] = folder.iterdir()
    assert (file.name, file.read_bytes()) == before
    assert used == [True]
    assert graph.check().ok


@pytest.mark.parametrize(
    ("meanwhile", "is_refused"),
    [
        ('delete Person where name = "p003"', True),
        ('delete Person where name = "p049"', False),
        ('insert Person { name: "p901" }', False),
        ('update Person set { age: 5 } where name = "p003"', False),
    ],
)
def test_TP2_nodes_that_change_before_the_commit_are_looked_up_again(
    tmp_path: Path, meanwhile: str, is_refused: bool
) -> None:
    graph = peopled(tmp_path / "g")
    pairs = [(person(n % 5), person(n % 4)) for n in range(40)]

    def batches() -> Iterator[pa.RecordBatch]:
        # A load reads two batches of a stream before it chooses the version it builds on.
        for first in range(0, 30, 10):
            yield from edges(pairs[first : first + 10]).to_batches()
        omnigraph.open(tmp_path / "g").mutate(f"query q() {{ {meanwhile} }}")
        yield from edges(pairs[30:]).to_batches()

    schema = edges(pairs).schema
    stream = pa.RecordBatchReader.from_batches(schema, batches())
    if is_refused:
        with pytest.raises(ConstraintViolated, match="p003"):
            graph.load(stream, "append", edge="Knows", engine="local")
        assert not graph.query(WHOLE).rows
        return
    graph.load(stream, "append", edge="Knows", engine="local")
    rows = sorted(tuple(row.values()) for row in graph.query(WHOLE).rows)
    assert rows == sorted(set(pairs))
    assert graph.check().ok
