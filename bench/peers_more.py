"""Further lines of `bench/peers.py`: friends of each other, neighbours of what is near, upkeep.

Invariant: as in `peers_engines`: answers of a method are alike in every engine that has it. Each
class is the part of one engine, or of two that speak the same language.
"""

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

SMALL_COMMITS = 300

_MUTUAL = "query q() { match { $a: Person $a knows $b $b knows $a } return { count($b) as n } }"
_NEAR_AND_HOP = (
    "query q($v: Vector(64)) { match { $p: Person $p worksAt $c } "
    "return { $p.name as p, $c.name as c } order { nearest($p.emb, $v) } limit 10 }"
)


class MoreOmniGraph:
    """The lines of this project."""

    graph: Any

    def mutual(self) -> Any:
        return self.graph.query(_MUTUAL).rows[0]["n"]

    def near_and_hop(self, vector: list[float]) -> Any:
        rows = self.graph.query(_NEAR_AND_HOP, {"v": vector}).rows
        return [(row["p"], row["c"]) for row in rows]

    def small_commits(self) -> None:
        text = "query q($n: String) { insert Person { name: $n, age: 1 } }"
        for number in range(SMALL_COMMITS):
            self.graph.mutate(text, {"n": f"small{number}"})


class MoreBare:
    """The lines of bare Lance: appends of one row."""

    _folder: Path

    def small_commits(self) -> None:
        for number in range(SMALL_COMMITS):
            row = pa.table({"name": [f"small{number}"], "age": pa.array([1], pa.int32())})
            lance.write_dataset(row, str(self._folder / "people.lance"), mode="append")


class MoreSql:
    """The lines of DuckDB and doltlite."""

    def _all(self, text: str, *values: Any) -> list[Any]:
        raise NotImplementedError

    def mutual(self) -> Any:
        text = "SELECT count(*) FROM knows a JOIN knows b ON a.dst = b.src AND a.src = b.dst"
        return self._all(text)[0][0]


class MoreDuckDB:
    """The lines of DuckDB alone."""

    def _all(self, text: str, *values: Any) -> list[Any]:
        raise NotImplementedError

    def near_and_hop(self, vector: list[float]) -> Any:
        text = (
            "SELECT p.name, w.dst FROM people p JOIN works w ON w.src = p.name "
            "ORDER BY array_distance(p.emb, ?::FLOAT[64]) LIMIT 10"
        )
        return [tuple(row) for row in self._all(text, vector)]


class MoreLadybug:
    """The lines of Ladybug."""

    def _all(self, text: str, **given: Any) -> list[Any]:
        raise NotImplementedError

    def mutual(self) -> Any:
        text = "MATCH (a:Person)-[:Knows]->(b:Person)-[:Knows]->(a) RETURN count(*)"
        return self._all(text)[0][0]

    def near_and_hop(self, vector: list[float]) -> Any:
        text = (
            "MATCH (p:Person)-[:WorksAt]->(c:Company) RETURN p.name, c.name "
            "ORDER BY array_distance(p.emb, CAST($v AS FLOAT[64])) LIMIT 10"
        )
        return self._all(text, v=vector)
