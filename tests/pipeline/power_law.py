"""A graph of a power law with a hub of a million edges, and what queries over it must answer.

Edges lead from a twentieth of the nodes, most of them to nodes that lead nowhere, and never back:
a walk from all nodes ends. The answers come from arrays of numpy, by the definition of a query.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import omnigraph as og

SCHEMA = "node P { name: String @key  age: I32? }\nedge E: P -> P"
HUB_EDGES = 1_000_000
EDGES_A_NODE, NODES_A_SOURCE = 5, 20
_ONWARD = 0.005
"""Share of the edges that end at a node with edges of its own."""

_TO_THE_HUB = 12
_STARTS_AT_ONCE = 20_000

QUERIES = {
    "2 hops": "match { $a: P $a e $b $b e $c } return { count(*) as n }",
    "grouped": "match { $a: P $a.age < 30 $a e $b $b.age > 20 $b e $c } "
    "return { $c.age as age, count(*) as n, avg($a.age) as mean } order { age }",
    "hop range": "match { $a: P $a e{1,3} $b $b.age > 60 } return { count(*) as n }",
    "anti-join": "match { $a: P $a e $b not { $c e $b $c.age < 10 } } return { count(*) as n }",
}


@dataclass(frozen=True, slots=True)
class PowerLaw:
    """Nodes by number, with an age each, and edges between them, each pair once."""

    nodes: int
    source: "np.ndarray[Any, np.dtype[np.int64]]"
    target: "np.ndarray[Any, np.dtype[np.int64]]"

    @staticmethod
    def drawn(edges: int) -> "PowerLaw":
        """A graph of about so many edges."""
        dice = np.random.default_rng(5)
        nodes = edges // EDGES_A_NODE
        sources = nodes // NODES_A_SOURCE
        hub = sources // 2
        near = (sources * dice.random(edges - HUB_EDGES) ** 3).astype(np.int64)
        source = np.concatenate((np.full(HUB_EDGES, hub), near, np.arange(_TO_THE_HUB) * 7))
        target = sources + ((nodes - sources) * dice.random(len(source))).astype(np.int64)
        onward = (dice.random(len(source)) < _ONWARD) & (source < sources - 1)
        further = source + 1 + ((sources - 1 - source) * dice.random(len(source))).astype(np.int64)
        target[onward] = further[onward]
        target[-_TO_THE_HUB:] = hub
        pairs = np.unique(source * nodes + target)
        return PowerLaw(nodes, *np.divmod(pairs, nodes))

    @property
    def age(self) -> "np.ndarray[Any, np.dtype[np.int64]]":
        return np.arange(self.nodes) * 7919 % 90

    def load(self, path: Path) -> None:
        """Make a graph of it."""
        names = pa.array([f"p{number:07}" for number in range(self.nodes)])
        people = pa.table({"name": names, "age": pa.array(self.age, pa.int32())})
        ends = {"src": names.take(pa.array(self.source)), "dst": names.take(pa.array(self.target))}
        with og.init(path, SCHEMA) as graph:
            graph.load(people, "append", type="P", engine="local")
            graph.load(pa.table(ends), "append", edge="E", engine="local")

    def answers(self) -> dict[str, Any]:
        """The rows of every query: a number, or `[age, rows, mean]` of each group."""
        age, source, target = self.age, self.source, self.target
        degree = np.bincount(source, minlength=self.nodes)
        of_young = np.zeros(self.nodes, bool)
        of_young[target[age[source] < 10]] = True
        return {
            "2 hops": int(degree[target].sum()),
            "grouped": self._grouped(),
            "hop range": self._hop_range(degree),
            "anti-join": int(np.count_nonzero(~of_young[target])),
        }

    def _grouped(self) -> list[list[float]]:
        """First hops that count, added up by their end, then by the age that the second reaches."""
        age = self.age
        counts = (age[self.source] < 30) & (age[self.target] > 20)
        first = np.bincount(self.target[counts], minlength=self.nodes)
        weights = age[self.source[counts]]
        years = np.bincount(self.target[counts], weights=weights, minlength=self.nodes)
        reached = age[self.target]
        rows = np.bincount(reached, weights=first[self.source], minlength=90)
        totals = np.bincount(reached, weights=years[self.source], minlength=90)
        return [
            [each, int(rows[each]), totals[each] / rows[each]] for each in range(90) if rows[each]
        ]

    def _hop_range(self, degree: "np.ndarray[Any, Any]") -> int:
        begins = np.concatenate(([0], np.cumsum(degree)))
        is_old = self.age > 60
        total = 0
        for first in range(0, self.nodes // NODES_A_SOURCE, _STARTS_AT_ONCE):
            chosen = (self.source >= first) & (self.source < first + _STARTS_AT_ONCE)
            start, end = self.source[chosen], self.target[chosen]
            reached = [start * self.nodes + end]
            for _ in range(2):
                counts = degree[end]
                offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
                start = np.repeat(start, counts)
                end = self.target[np.repeat(begins[end], counts) + offsets]
                reached.append(start * self.nodes + end)
            pairs = np.unique(np.concatenate(reached))
            total += int(np.count_nonzero(is_old[pairs % self.nodes]))
        return total
