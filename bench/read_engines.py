"""The engines that `bench/read.py` compares: the same questions, each asked as its engine likes it.

Invariant: an engine answers a question with the same value as every other that answers it exactly,
or does not answer it. What is missing where is said in `ABSENT`.
"""

import os
import shutil
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from read_data import DIMENSION, SCHEMA, Data, Numbers, names
from ulid import ULID

import omnigraph as og
from omnigraph.types import TableKey

Ask = Callable[[Mapping[str, Any]], Any]
"""A question with its parameters, already bound to an engine. Answers in Python values."""

ABSENT = {
    "ladybug": "full text and vector indexes are extensions, downloaded from its own site",
    "duckdb": "full text and vector indexes are extensions, downloaded from its own site",
    "lancedb": "has no joins",
    "numpy": "bare arrays: no names, no text, no result rows",
}

TOP = 10


class OmniGraph:
    """This project, through its public door."""

    name = "omnigraph"

    def __init__(self, folder: Path, data: Data) -> None:
        self.folder = folder / "omnigraph"
        if self.folder.exists():
            self.graph = og.open(self.folder)
            return
        self.graph = og.init(self.folder, SCHEMA)
        write = self.graph._store.begin(kind="bench")
        for kind, table in (("Person", data.persons), ("Company", data.companies)):
            write.append(TableKey(f"node:{kind}"), _keyed(table))
        write.append(TableKey("node:Doc"), _keyed(data.docs))
        persons, companies = data.persons["name"], data.companies["name"]
        for kind, ends, to in (
            ("Knows", data.knows, persons),
            ("WorksAt", data.works_at, companies),
            ("Wrote", data.wrote, data.docs["slug"]),
        ):
            write.append(TableKey(f"edge:{kind}"), _edges(ends, persons, to))
        self.graph._store.commit(write)
        self.graph.ensure_indices()

    def questions(self) -> dict[str, Ask]:
        return {name: self._ask(text) for name, text in QUERIES.items()}

    def warm(self, given: Mapping[str, Any]) -> None:
        """Have in memory what the questions need, as a process that is asked often has."""
        os.environ["OMNIGRAPH_TRAVERSAL_MODE"] = "csr"
        for ask in self.questions().values():
            for _ in range(2):
                ask(given)
        del os.environ["OMNIGRAPH_TRAVERSAL_MODE"]

    def _ask(self, text: str) -> Ask:
        graph = self.graph

        def ask(given: Mapping[str, Any]) -> list[tuple[Any, ...]]:
            wanted = {key: value for key, value in given.items() if f"${key}:" in text}
            return [tuple(row.values()) for row in graph.query(text, wanted).rows]

        return ask

    def close(self) -> None:
        self.graph.close()


_HOPS = (
    "query q($name: String) {{ match {{ $p: Person {{ name: $name }} $p knows{{1,{n}}} $f }} "
    "return {{ count($f) as n }} }}"
)
QUERIES = {
    "point lookup": "query q($name: String) { match { $p: Person { name: $name } } "
    "return { $p.age as a, $p.city as c } }",
    "filter scan": "query q($age: I32, $city: String) { match { $p: Person $p.age > $age "
    "$p.city = $city } return { $p.name as n, $p.age as a } }",
    "1 hop": _HOPS.format(n=1),
    "2 hops": _HOPS.format(n=2),
    "3 hops": _HOPS.format(n=3),
    "friends at a company": "query q($name: String, $company: String) { match { "
    "$p: Person { name: $name } $p knows $f $f worksAt $c $c.name = $company } "
    "return { $f.name as n } }",
    "top companies": "query q() { match { $c: Company $p worksAt $c } "
    "return { $c.name as c, count($p) as n } order { n desc, c } limit 10 }",
    "anti-join": "query q() { match { $p: Person not { $p worksAt $_ } } "
    "return { count($p) as n } }",
    "text top-10": "query q($text: String) { match { $d: Doc } return { $d.slug as s } "
    "order { bm25($d.body, $text) } limit 10 }",
    "vector top-10": "query q($vector: Vector(64)) { match { $d: Doc } return { $d.slug as s } "
    "order { nearest($d.emb, $vector) } limit 10 }",
    "vector + hop": "query q($name: String, $vector: Vector(64)) { match { "
    "$p: Person { name: $name } $p knows $f $f wrote $d } return { $d.slug as s } "
    "order { nearest($d.emb, $vector) } limit 10 }",
}


def _keyed(table: pa.Table) -> pa.Table:
    return table.add_column(0, "id", table.column(0))


def _edges(ends: tuple[Numbers, Numbers], sources: pa.Array, targets: pa.Array) -> pa.Table:
    # Ids that look like ours and grow with time, without asking a clock for each.
    first = int(ULID())
    ids = [_crockford(first + n) for n in range(len(ends[0]))]
    src, dst = (array.take(pa.array(at)) for array, at in ((sources, ends[0]), (targets, ends[1])))
    return pa.table({"id": pa.array(ids), "src": src, "dst": dst})


_LETTERS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_SHORT = [a + b for a in _LETTERS for b in _LETTERS]


def _crockford(number: int) -> str:
    parts = []
    for _ in range(13):
        number, low = divmod(number, 1024)
        parts.append(_SHORT[low])
    return "".join(reversed(parts))


class Ladybug:
    """The living fork of Kuzu."""

    name = "ladybug"

    def __init__(self, folder: Path, data: Data) -> None:
        import ladybug  # noqa: PLC0415  a peer, only there with the group `bench`

        warnings.filterwarnings("ignore", category=DeprecationWarning)
        self._files = folder / "ladybug-files"
        known = self._files.exists()
        self._connection = ladybug.Connection(ladybug.Database(str(folder / "ladybug")))
        if known:
            return
        self._files.mkdir()
        for statement in (
            "CREATE NODE TABLE Person(name STRING, age INT32, city STRING, score DOUBLE, "
            "PRIMARY KEY(name))",
            "CREATE NODE TABLE Company(name STRING, sector STRING, PRIMARY KEY(name))",
            f"CREATE NODE TABLE Doc(slug STRING, body STRING, emb FLOAT[{DIMENSION}], "
            "PRIMARY KEY(slug))",
            "CREATE REL TABLE Knows(FROM Person TO Person)",
            "CREATE REL TABLE WorksAt(FROM Person TO Company)",
            "CREATE REL TABLE Wrote(FROM Person TO Doc)",
        ):
            self._connection.execute(statement)
        for name, table in _tables(data).items():
            path = self._files / f"{name}.parquet"
            pq.write_table(table, path)
            self._connection.execute(f"COPY {name} FROM '{path}'")

    def questions(self) -> dict[str, Ask]:
        hops = (
            "MATCH (p:Person {{name: $name}})-[:Knows*1..{n}]->(f:Person) "
            "WHERE f.name <> $name RETURN count(DISTINCT f)"
        )
        near = f"array_distance(d.emb, CAST($vector AS FLOAT[{DIMENSION}]))"
        texts = {
            "point lookup": "MATCH (p:Person {name: $name}) RETURN p.age, p.city",
            "filter scan": "MATCH (p:Person) WHERE p.age > $age AND p.city = $city "
            "RETURN p.name, p.age",
            "1 hop": "MATCH (p:Person {name: $name})-[:Knows]->(f:Person) RETURN count(DISTINCT f)",
            "2 hops": hops.format(n=2),
            "3 hops": hops.format(n=3),
            "friends at a company": "MATCH (p:Person {name: $name})-[:Knows]->(f:Person)"
            "-[:WorksAt]->(c:Company {name: $company}) RETURN f.name",
            "top companies": "MATCH (p:Person)-[:WorksAt]->(c:Company) "
            "RETURN c.name, count(p) AS n ORDER BY n DESC, c.name LIMIT 10",
            "anti-join": "MATCH (p:Person) WHERE NOT EXISTS { MATCH (p)-[:WorksAt]->(:Company) } "
            "RETURN count(p)",
            "vector top-10": f"MATCH (d:Doc) RETURN d.slug ORDER BY {near}, d.slug LIMIT 10",
            "vector + hop": "MATCH (p:Person {name: $name})-[:Knows]->(f:Person)-[:Wrote]->(d:Doc) "
            f"RETURN d.slug ORDER BY {near}, d.slug LIMIT 10",
        }
        return {name: self._ask(text) for name, text in texts.items()}

    def _ask(self, text: str) -> Ask:
        prepared = self._connection.prepare(text)

        def ask(given: Mapping[str, Any]) -> list[tuple[Any, ...]]:
            wanted = {key: value for key, value in given.items() if f"${key}" in text}
            result = self._connection.execute(prepared, wanted)
            return [tuple(row) for row in result.get_all()]

        return ask

    def close(self) -> None:
        self._connection.close()


class DuckDB:
    """A column store with joins; the edges are tables with an index on their source."""

    name = "duckdb"

    def __init__(self, folder: Path, data: Data) -> None:
        import duckdb  # noqa: PLC0415

        known = (folder / "duck.db").exists()
        self._connection = duckdb.connect(str(folder / "duck.db"))
        if known:
            return
        for name, table in _tables(data).items():
            self._connection.register("incoming", table)
            self._connection.execute(f"CREATE TABLE {name} AS SELECT * FROM incoming")
            self._connection.unregister("incoming")
        for index in (
            "UNIQUE INDEX person_name ON Person(name)",
            "UNIQUE INDEX doc_slug ON Doc(slug)",
            "INDEX knows_src ON Knows(src)",
            "INDEX works_src ON WorksAt(src)",
            "INDEX wrote_src ON Wrote(src)",
        ):
            self._connection.execute(f"CREATE {index}")

    def questions(self) -> dict[str, Ask]:
        near = f"array_distance(d.emb, $vector::FLOAT[{DIMENSION}])"
        first = "SELECT dst FROM Knows WHERE src = $name"
        second = f"SELECT k.dst FROM Knows k WHERE k.src IN ({first})"
        third = f"SELECT k.dst FROM Knows k WHERE k.src IN ({second})"
        count = "SELECT count(DISTINCT dst) FROM ({}) WHERE dst <> $name"
        texts = {
            "point lookup": "SELECT age, city FROM Person WHERE name = $name",
            "filter scan": "SELECT name, age FROM Person WHERE age > $age AND city = $city",
            "1 hop": count.format(first),
            "2 hops": count.format(f"{first} UNION ALL {second}"),
            "3 hops": count.format(f"{first} UNION ALL {second} UNION ALL {third}"),
            "friends at a company": "SELECT k.dst FROM Knows k JOIN WorksAt w ON w.src = k.dst "
            "WHERE k.src = $name AND w.dst = $company",
            "top companies": "SELECT dst, count(*) AS n FROM WorksAt GROUP BY dst "
            "ORDER BY n DESC, dst LIMIT 10",
            "anti-join": "SELECT count(*) FROM Person p WHERE NOT EXISTS "
            "(SELECT 1 FROM WorksAt w WHERE w.src = p.name)",
            "vector top-10": f"SELECT slug FROM Doc d ORDER BY {near}, slug LIMIT 10",
            "vector + hop": "SELECT d.slug FROM Knows k JOIN Wrote w ON w.src = k.dst "
            f"JOIN Doc d ON d.slug = w.dst WHERE k.src = $name ORDER BY {near}, d.slug LIMIT 10",
        }
        return {name: self._ask(text) for name, text in texts.items()}

    def _ask(self, text: str) -> Ask:
        def ask(given: Mapping[str, Any]) -> Any:
            wanted = {key: value for key, value in given.items() if f"${key}" in text}
            return self._connection.execute(text, wanted).fetchall()

        return ask

    def close(self) -> None:
        self._connection.close()


class LanceDB:
    """Search on Lance tables: exact vectors, full text with the analyser we use."""

    name = "lancedb"

    def __init__(self, folder: Path, data: Data) -> None:
        import lancedb  # noqa: PLC0415

        known = (folder / "lancedb").exists()
        connection = lancedb.connect(str(folder / "lancedb"))
        if known:
            self._persons, self._docs = map(connection.open_table, ("person", "doc"))
            return
        self._persons = connection.create_table("person", data.persons)
        self._persons.create_scalar_index("name")
        self._persons.create_scalar_index("city")
        self._docs = connection.create_table("doc", data.docs)
        self._docs.create_fts_index("body")

    def questions(self) -> dict[str, Ask]:
        return {
            "point lookup": lambda given: _values(
                self._persons.search()
                .where(f"name = '{given['name']}'")
                .select(["age", "city"])
                .to_arrow()
            ),
            "filter scan": lambda given: _values(
                self._persons.search()
                .where(f"age > {given['age']} AND city = '{given['city']}'")
                .select(["name", "age"])
                .limit(1_000_000)
                .to_arrow()
            ),
            "text top-10": lambda given: _values(
                self._docs.search(given["text"], query_type="fts")
                .select(["slug", "_score"])
                .limit(TOP)
                .to_arrow()
                .select(["slug"])
            ),
            "vector top-10": lambda given: _values(
                self._docs.search(given["vector"], vector_column_name="emb")
                .select(["slug", "_distance"])
                .limit(TOP)
                .to_arrow()
                .select(["slug"])
            ),
        }

    def close(self) -> None:
        """Nothing is held open."""


class LanceDBApproximate(LanceDB):
    """The same with an index over vectors, which may miss neighbours."""

    name = "lancedb IVF"

    def __init__(self, folder: Path, data: Data) -> None:
        import lancedb  # noqa: PLC0415

        known = (folder / "lancedb-ivf").exists()
        connection = lancedb.connect(str(folder / "lancedb-ivf"))
        if known:
            self._docs = connection.open_table("doc")
            return
        self._docs = connection.create_table("doc", data.docs)
        self._docs.create_index(metric="l2", vector_column_name="emb")

    def questions(self) -> dict[str, Ask]:
        return {"vector top-10": super().questions()["vector top-10"]}


class Numpy:
    """Arrays without a database around them: the limit of what one core can do."""

    name = "numpy"

    def __init__(self, folder: Path, data: Data) -> None:
        people = data.persons.num_rows
        self._number = {name: n for n, name in enumerate(data.persons["name"].to_pylist())}
        self._age, self._city = data.persons["age"].to_numpy(), data.persons["city"].to_pylist()
        self._starts, self._targets = _csr(data.knows, people)
        self._jobs = _csr(data.works_at, people)
        self._docs = _csr(data.wrote, people)
        self._works, self._companies = data.works_at, data.companies.num_rows
        self._company = {name: n for n, name in enumerate(data.companies["name"].to_pylist())}
        self._vectors = data.vectors
        self._squares = np.einsum("ij,ij->i", data.vectors, data.vectors)
        self._seen = np.zeros(people, np.bool_)

    def questions(self) -> dict[str, Ask]:
        return {
            "point lookup": lambda given: [
                (int(self._age[n]), self._city[n]) for n in [self._number[given["name"]]]
            ],
            "1 hop": lambda given: [(self._reached(given, 1),)],
            "2 hops": lambda given: [(self._reached(given, 2),)],
            "3 hops": lambda given: [(self._reached(given, 3),)],
            "top companies": lambda given: self._top_companies(),
            "anti-join": lambda given: [(self._jobless(),)],
            "vector top-10": lambda given: self._nearest(given["vector"]),
        }

    def _reached(self, given: Mapping[str, Any], hops: int) -> int:
        frontier = np.array([self._number[given["name"]]])
        seen, touched = self._seen, [frontier]
        seen[frontier] = True
        for _ in range(hops):
            found = _neighbours(self._starts, self._targets, frontier)
            found = found[~seen[found]]
            seen[found] = True
            frontier = np.unique(found)
            touched.append(frontier)
        for some in touched:
            seen[some] = False
        return sum(map(len, touched[1:]))

    def _top_companies(self) -> list[tuple[str, int]]:
        counts = np.bincount(self._works[1], minlength=self._companies)
        best = np.argsort(-counts, kind="stable")[:TOP]
        return [(f"company-{n:07}", int(counts[n])) for n in best]

    def _jobless(self) -> int:
        return int(np.count_nonzero(np.diff(self._jobs[0]) == 0))

    def _nearest(self, vector: list[float]) -> list[tuple[str]]:
        near = self._squares - 2 * (self._vectors @ np.asarray(vector, np.float32))
        best = np.argpartition(near, TOP)[:TOP]
        return [(f"doc-{n:07}",) for n in best[np.argsort(near[best])]]

    def close(self) -> None:
        """Nothing is held open."""


def _csr(ends: tuple[Numbers, Numbers], count: int) -> tuple[Numbers, Numbers]:
    order = np.argsort(ends[0], kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(ends[0], minlength=count))])
    return starts, ends[1][order]


def _neighbours(starts: Numbers, targets: Numbers, frontier: Numbers) -> Numbers:
    counts = starts[frontier + 1] - starts[frontier]
    shift = np.repeat(starts[frontier] - np.cumsum(counts) + counts, counts)
    found: Numbers = targets[shift + np.arange(len(shift))]
    return found


def _tables(data: Data) -> dict[str, pa.Table]:
    persons, companies = data.persons["name"], data.companies["name"]
    edges = {
        "Knows": (data.knows, persons, persons),
        "WorksAt": (data.works_at, persons, companies),
        "Wrote": (data.wrote, persons, data.docs["slug"]),
    }
    made = {"Person": data.persons, "Company": data.companies, "Doc": data.docs}
    for name, (ends, sources, targets) in edges.items():
        made[name] = pa.table(
            {"src": sources.take(pa.array(ends[0])), "dst": targets.take(pa.array(ends[1]))}
        )
    return made


def _values(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


ENGINES: tuple[type[Any], ...] = (OmniGraph, Ladybug, DuckDB, LanceDB, LanceDBApproximate, Numpy)


def fresh(folder: Path) -> Path:
    """An empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


__all__ = ["ABSENT", "ENGINES", "QUERIES", "TOP", "Ask", "Data", "fresh", "names"]
