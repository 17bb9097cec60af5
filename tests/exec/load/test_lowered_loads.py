"""Loads of a dozen rows, with thresholds lowered so that they take the paths of large loads."""

import random
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.graph import Graph
from omnigraph.testing import LoweredThresholds

SCHEMA = """
node P { name: String @key, age: I32?, tag: String? @index }
edge K: P -> P { weight: I32? }
"""
ALL = "query q() { match { $p: P } return { $p.name as name, $p.age as age, $p.tag as tag } }"
ENDS = "query q() { match { $p: P  $p k $q } return { $p.name as source, $q.name as target } }"
COUNT = "query q() { match { $p: P } return { count($p) as n } }"
ONE = "query q($n: String) { match { $p: P { name: $n } } return { $p.age as age } }"
UPDATE = 'query q($n: I32) { update P set { tag: "u" } where age < $n }'
DELETE = "query q($n: I32) { delete P where age = $n }"

Row = tuple[int | None, str | None]


class Model:
    """A graph of two types and the dictionaries that it should hold."""

    def __init__(self, graph: Graph, chance: random.Random) -> None:
        self.graph, self.chance = graph, chance
        self.nodes: dict[str, Row] = {}
        self.edges: set[tuple[str, str]] = set()

    def step(self, verb: str) -> None:
        match verb:
            case "append":
                names = [
                    f"a{self.chance.randrange(10**6)}" for _ in range(self.chance.randrange(20))
                ]
                self._load(set(names) - self.nodes.keys(), "append")
            case "merge":
                names = [
                    f"m{self.chance.randrange(40)}" for _ in range(self.chance.randrange(1, 25))
                ]
                self._load(set(names), "merge")
            case "patch":
                chosen = self._some(15)
                data = [{"type": "P", "data": {"name": name, "age": 7}} for name in chosen]
                self.graph.load(data, "patch")
                self.nodes |= {name: (7, self.nodes[name][1]) for name in chosen}
            case "edges":
                pairs = list(zip(self._some(25), self._some(25), strict=True))
                self.graph.load(
                    [{"edge": "K", "from": one, "to": two, "data": {}} for one, two in pairs],
                    "append",
                )
                self.edges |= set(pairs)
            case "update":
                least = self.chance.randrange(30)
                self.graph.mutate(UPDATE, {"n": least})
                aged = {n: age for n, (age, _) in self.nodes.items() if age is not None}
                self.nodes |= {n: (age, "u") for n, age in aged.items() if age < least}
            case "delete":
                age = self.chance.randrange(30)
                self.graph.mutate(DELETE, {"n": age})
                gone = {name for name, row in self.nodes.items() if row[0] == age}
                self.nodes = {n: row for n, row in self.nodes.items() if n not in gone}
                self.edges = {ends for ends in self.edges if gone.isdisjoint(ends)}
            case "optimize":
                self.graph.optimize()
            case "reopen":
                uri = self.graph.uri
                self.graph.close()
                self.graph = og.open(uri)

    def holds(self, graph: Graph) -> None:
        rows = graph.query(ALL).rows
        assert {row["name"]: (row["age"], row["tag"]) for row in rows} == self.nodes
        assert len(rows) == graph.query(COUNT).scalar() == len(self.nodes)
        ends = {(row["source"], row["target"]) for row in graph.query(ENDS).rows}
        assert ends == self.edges
        for name in self._some(2):
            assert graph.query(ONE, {"n": name}).rows == [{"age": self.nodes[name][0]}]

    def _load(self, names: set[str], mode: Any) -> None:
        new = {
            name: (self.chance.randrange(30), self.chance.choice("xyz")) for name in sorted(names)
        }
        data = [
            {"type": "P", "data": {"name": name, "age": age, "tag": tag}}
            for name, (age, tag) in new.items()
        ]
        self.graph.load(data, mode)
        self.nodes |= new

    def _some(self, most: int) -> list[str]:
        return self.chance.sample(sorted(self.nodes), min(most, len(self.nodes)))


VERBS = (
    "append",
    "merge",
    "merge",
    "patch",
    "edges",
    "edges",
    "update",
    "delete",
    "optimize",
    "reopen",
)


@pytest.mark.parametrize("lowered", range(4), indirect=True)
def test_loads_leave_what_dictionaries_hold(lowered: LoweredThresholds, tmp_path: Path) -> None:
    chance = random.Random(lowered.seed)
    model = Model(og.init(tmp_path / "g", SCHEMA), chance)
    model.step("merge")
    for _ in range(12):
        model.step(chance.choice(VERBS))
        model.holds(model.graph)
    with og.open(tmp_path / "g", read_only=True) as reader:
        model.holds(reader)
    assert model.graph.check().findings == ()
    model.graph.close()
