"""The engines of `bench/peers.py`: one graph of people, and the same reads and writes in each.

Invariant: when a method returns, what it wrote is committed and a new process would see it. A
method returns an answer that every engine gives alike, or None; an engine without a method has no
such thing. `bare` are the Lance calls alone: no rules, no graph, one table at a time.
"""

import importlib
from datetime import date
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.parquet as pq
from peers_more import MoreBare, MoreDuckDB, MoreLadybug, MoreOmniGraph, MoreSql

import omnigraph as og

SCHEMA = """
node Person { name: String @key  age: I32?  city: String?  bio: String?  emb: Vector(64)? }
node Company { name: String @key }
edge Knows: Person -> Person { since: Date? }
edge WorksAt: Person -> Company
"""
_ONE = (
    "query q($n: String) { match { $p: Person { name: $n } } return { $p.age as a, $p.city as c } }"
)
_HOPS = (
    "query q($n: String) {{ match {{ $p: Person {{ name: $n }} $p knows{{1,{n}}} $f }} "
    "return {{ count($f) as n }} }}"
)
_SCAN = (
    "query q($a: I32, $c: String) { match { $p: Person $p.age > $a $p.city = $c } "
    "return { count($p) as n } }"
)
_WALKS = "query q() { match { $a: Person $a knows $b $b knows $c } return { count($c) as n } }"
_TOP = (
    "query q() { match { $c: Company $p worksAt $c } return { $c.name as c, count($p) as n } "
    "order { n desc, c } limit 10 }"
)
_ANTI = "query q() { match { $p: Person not { $p worksAt $_ } } return { count($p) as n } }"
_NEAR = (
    "query q($v: Vector(64)) { match { $p: Person } return { $p.name as n } "
    "order { nearest($p.emb, $v) } limit 10 }"
)


class OmniGraph(MoreOmniGraph):
    """This project, through its public door."""

    name = "omnigraph"

    def __init__(self, folder: Path) -> None:
        path = folder / "omnigraph"
        self.graph = og.open(path) if path.exists() else og.init(path, SCHEMA)

    def load(self, files: Path, ending: str) -> int:
        total = 0
        for name, owner in (
            *(("people", {"type": "Person"}), ("companies", {"type": "Company"})),
            *(("knows", {"edge": "Knows"}), ("works", {"edge": "WorksAt"})),
        ):
            # Indexes are a line of their own. Beyond 64 MiB a load would start Spark, of which this
            # process would count neither time nor memory.
            file = files / f"{name}.{ending}"
            done = self.graph.load(file, "append", indexes="later", engine="local", **owner)
            total += done.total_entities
        return total

    def indexes(self) -> None:
        self.graph.ensure_indices()

    def optimize(self) -> None:
        self.graph.optimize()

    def point(self, name: str) -> Any:
        return [tuple(row.values()) for row in self.graph.query(_ONE, {"n": name}).rows]

    def hops(self, name: str, count: int) -> Any:
        return self.graph.query(_HOPS.format(n=count), {"n": name}).rows[0]["n"]

    def scan(self, age: int, city: str) -> Any:
        return self.graph.query(_SCAN, {"a": age, "c": city}).rows[0]["n"]

    def walks(self) -> Any:
        return self.graph.query(_WALKS).rows[0]["n"]

    def top(self) -> Any:
        return [tuple(row.values()) for row in self.graph.query(_TOP).rows]

    def anti_join(self) -> Any:
        return self.graph.query(_ANTI).rows[0]["n"]

    def nearest(self, vector: list[float]) -> Any:
        return [row["n"] for row in self.graph.query(_NEAR, {"v": vector}).rows]

    def upsert(self, people: pa.Table, branch: str = "main") -> None:
        self.graph.load(people, "merge", type="Person", branch=branch, indexes="later")

    def create_branch(self, branch: str) -> None:
        self.graph.branches.create(branch)

    def diff(self, branch: str) -> Any:
        return sum(1 for _ in self.graph.diff("main", branch))

    def add_node(self, name: str, branch: str = "main") -> None:
        text = "query q($n: String) { insert Person { name: $n, age: 1 } }"
        self.graph.mutate(text, {"n": name}, branch=branch)

    def add_edge(self, name: str, to: str) -> None:
        text = "query q($a: String, $b: String) { insert Knows { from: $a, to: $b } }"
        self.graph.mutate(text, {"a": name, "b": to})

    def delete_edges(self, since: date) -> Any:
        text = "query q($d: Date) { delete Knows where since = $d }"
        return self.graph.mutate(text, {"d": since}).affected_edges

    def delete_people(self, age: int, city: str) -> Any:
        text = "query q($a: I32, $c: String) { delete Person where age = $a and city = $c }"
        return self.graph.mutate(text, {"a": age, "c": city}).affected_nodes


class Bare(MoreBare):
    """Lance by itself: what no engine on it can be faster than without doing less."""

    name = "bare Lance"

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "bare"

    def _open(self, name: str) -> Any:
        return lance.dataset(str(self._folder / f"{name}.lance"))

    def load(self, files: Path, ending: str) -> int:
        total = 0
        for name in ("people", "companies", "knows", "works"):
            file = files / f"{name}.{ending}"
            table = pq.read_table(file) if ending == "parquet" else self._lines(file, name)
            lance.write_dataset(table, str(self._folder / f"{name}.lance"))
            total += table.num_rows
        return total

    def _lines(self, file: Path, name: str) -> pa.Table:
        table = pj.read_json(file)
        if name == "people":
            place = table.column_names.index("emb")
            vectors = table["emb"].cast(pa.list_(pa.float32(), 64))
            table = table.set_column(place, "emb", vectors)
        return table

    def indexes(self) -> None:
        """Those that ours has. A name is an id there too, and edges have ids: here a second index
        on the same column stands for that of the ids."""
        for name, column, *kinds in (
            *((node, "name", "INVERTED", "BTREE", "BTREE") for node in ("people", "companies")),
            *((edge, "from", "BTREE", "BTREE") for edge in ("knows", "works")),
            *((edge, "to", "BTREE") for edge in ("knows", "works")),
        ):
            for number, kind in enumerate(kinds):
                self._open(name).create_scalar_index(column, kind, name=f"{column}-{number}")

    def optimize(self) -> None:
        for name in ("people", "companies", "knows", "works"):
            table = self._open(name)
            table.optimize.compact_files()
            table.optimize.optimize_indices()

    def scan(self, age: int, city: str) -> Any:
        return self._open("people").count_rows(f"age > {age} AND city = '{city}'")

    def nearest(self, vector: list[float]) -> Any:
        near = {"column": "emb", "q": np.array(vector, np.float32), "k": 10}
        return (
            self._open("people")
            .to_table(columns=["name", "_distance"], nearest=near)["name"]
            .to_pylist()
        )

    def upsert(self, people: pa.Table, branch: str = "main") -> None:
        merge = self._open("people").merge_insert("name")
        merge.when_matched_update_all().when_not_matched_insert_all().execute(people)

    def add_node(self, name: str, branch: str = "main") -> None:
        row = pa.table({"name": [name], "age": pa.array([1], pa.int32())})
        lance.write_dataset(row, str(self._folder / "people.lance"), mode="append")

    def delete_edges(self, since: date) -> Any:
        self._open("knows").delete(f"since = date '{since}'")

    def delete_people(self, age: int, city: str) -> Any:
        people = self._open("people")
        gone = people.to_table(columns=["name"], filter=f"age = {age} AND city = '{city}'")
        people.delete(f"age = {age} AND city = '{city}'")
        for name in ("knows", "works"):
            edges = self._open(name).to_table(columns=["from", "to"], with_row_id=True)
            known = gone["name"].combine_chunks()
            touched = pc.or_(
                pc.is_in(edges["from"], value_set=known), pc.is_in(edges["to"], value_set=known)
            )
            ids = edges["_rowid"].filter(touched).to_pylist()
            if ids:
                self._open(name).delete(f"_rowid IN ({', '.join(map(str, ids))})")
        return gone.num_rows


class _Sql(MoreSql):
    """Reads that DuckDB and doltlite ask in the same words."""

    def _all(self, text: str, *values: Any) -> list[Any]:
        raise NotImplementedError

    def point(self, name: str) -> Any:
        return [tuple(r) for r in self._all("SELECT age, city FROM people WHERE name = ?", name)]

    def hops(self, name: str, count: int) -> Any:
        step = "SELECT dst FROM knows WHERE src = ?"
        steps = [step]
        for _ in range(count - 1):
            steps.append(f"SELECT k.dst FROM knows k WHERE k.src IN ({steps[-1]})")
        text = f"SELECT count(DISTINCT dst) FROM ({' UNION ALL '.join(steps)}) AS f WHERE dst <> ?"
        return self._all(text, *[name] * (count + 1))[0][0]

    def scan(self, age: int, city: str) -> Any:
        text = "SELECT count(*) FROM people WHERE age > ? AND city = ?"
        return self._all(text, age, city)[0][0]

    def walks(self) -> Any:
        return self._all("SELECT count(*) FROM knows a JOIN knows b ON a.dst = b.src")[0][0]

    def top(self) -> Any:
        text = "SELECT dst, count(*) AS n FROM works GROUP BY dst ORDER BY n DESC, dst LIMIT 10"
        return [tuple(row) for row in self._all(text)]

    def anti_join(self) -> Any:
        text = "SELECT count(*) FROM people p WHERE NOT EXISTS "
        return self._all(text + "(SELECT 1 FROM works w WHERE w.src = p.name)")[0][0]


class DuckDB(MoreDuckDB, _Sql):
    """A column store with joins; the edges are tables, their ends compared after the load."""

    name = "duckdb"

    def __init__(self, folder: Path) -> None:
        duckdb: Any = importlib.import_module("duckdb")
        known = (folder / "duck.db").exists()
        self._connection = duckdb.connect(str(folder / "duck.db"))
        if not known:
            for text in (
                "people(name VARCHAR PRIMARY KEY, age INT, city VARCHAR, bio VARCHAR, "
                "emb FLOAT[64])",
                "companies(name VARCHAR PRIMARY KEY)",
                "knows(src VARCHAR, dst VARCHAR, since DATE)",
                "works(src VARCHAR, dst VARCHAR)",
            ):
                self._connection.execute(f"CREATE TABLE {text}")

    def _all(self, text: str, *values: Any) -> list[Any]:
        found: list[Any] = self._connection.execute(text, values).fetchall()
        return found

    def load(self, files: Path, ending: str) -> int:
        columns = {
            "people": "name, age, city, bio, emb::FLOAT[64]",
            "companies": "name",
            "knows": '"from", "to", since',
            "works": '"from", "to"',
        }
        for name, chosen in columns.items():
            self._all(f"INSERT INTO {name} SELECT {chosen} FROM '{files}/{name}.{ending}'")
        for edge, node, end in (
            *(("knows", "people", "src"), ("knows", "people", "dst")),
            *(("works", "people", "src"), ("works", "companies", "dst")),
        ):
            missing = f"SELECT count(*) FROM {edge} ANTI JOIN {node} ON {end} = name"
            assert self._all(missing) == [(0,)]
        self._all("CHECKPOINT")
        counts = (self._all(f"SELECT count(*) FROM {name}")[0][0] for name in columns)
        return sum(counts)

    def indexes(self) -> None:
        for edge in ("knows", "works"):
            for end in ("src", "dst"):
                self._all(f"CREATE INDEX {edge}_{end} ON {edge}({end})")

    def nearest(self, vector: list[float]) -> Any:
        text = "SELECT name FROM people ORDER BY array_distance(emb, ?::FLOAT[64]) LIMIT 10"
        return [row[0] for row in self._all(text, vector)]

    def upsert(self, people: pa.Table, branch: str = "main") -> None:
        self._connection.register("incoming", people)
        self._all("INSERT OR REPLACE INTO people SELECT * FROM incoming")
        self._connection.unregister("incoming")

    def add_node(self, name: str, branch: str = "main") -> None:
        self._all("INSERT INTO people(name, age) VALUES (?, 1)", name)

    def add_edge(self, name: str, to: str) -> None:
        self._all("INSERT INTO knows(src, dst) VALUES (?, ?)", name, to)

    def delete_edges(self, since: date) -> Any:
        return self._all("DELETE FROM knows WHERE since = ?", since)[0][0]

    def delete_people(self, age: int, city: str) -> Any:
        gone = "SELECT name FROM people WHERE age = ? AND city = ?"
        self._all("BEGIN")
        for edge in ("knows", "works"):
            self._all(f"DELETE FROM {edge} WHERE src IN ({gone})", age, city)
        self._all(f"DELETE FROM knows WHERE dst IN ({gone})", age, city)
        count = self._all("DELETE FROM people WHERE age = ? AND city = ?", age, city)[0][0]
        self._all("COMMIT")
        return count


class DoltLite(_Sql):
    """SQLite with commits, branches and diffs; vectors are bytes."""

    name = "doltlite"

    def __init__(self, folder: Path) -> None:
        importlib.import_module("doltlite")
        sqlite: Any = importlib.import_module("sqlite3")
        known = (folder / "dolt.db").exists()
        self._connection = sqlite.connect(str(folder / "dolt.db"), isolation_level=None)
        if not known:
            for text in (
                "people(name TEXT PRIMARY KEY, age INTEGER, city TEXT, bio TEXT, emb BLOB)",
                "companies(name TEXT PRIMARY KEY)",
                "knows(id INTEGER PRIMARY KEY, src TEXT, dst TEXT, since TEXT)",
                "works(src TEXT, dst TEXT, PRIMARY KEY (src, dst))",
            ):
                self._all(f"CREATE TABLE {text}")

    def _all(self, text: str, *values: Any) -> list[Any]:
        found: list[Any] = self._connection.execute(text, values).fetchall()
        return found

    def _commit(self) -> None:
        self._all("COMMIT")
        self._all("SELECT dolt_commit('-A', '-m', 'write')")

    def load(self, files: Path, ending: str) -> int | None:
        if ending != "parquet":
            raise NotImplementedError
        self._all("BEGIN")
        total = 0
        for name in ("people", "companies", "knows", "works"):
            table = pq.read_table(files / f"{name}.parquet")
            total += table.num_rows
            if name == "people":
                self._put(table)
            elif name == "knows":
                table = table.set_column(2, "since", table["since"].cast(pa.utf8()))
                self._many("INSERT INTO knows(src, dst, since) VALUES (?, ?, ?)", table)
            else:
                marks = ", ".join("?" * table.num_columns)
                self._many(f"INSERT INTO {name} VALUES ({marks})", table)
        self._commit()
        return total

    def _many(self, text: str, table: pa.Table) -> None:
        columns = (column.to_pylist() for column in table.columns)
        self._connection.executemany(text, zip(*columns, strict=True))

    def _put(self, people: pa.Table) -> None:
        vectors = people["emb"].combine_chunks().flatten().to_numpy().reshape(-1, 64)
        texts = (people[name].to_pylist() for name in ("name", "age", "city", "bio"))
        rows = zip(*texts, (vector.tobytes() for vector in vectors), strict=True)
        self._connection.executemany("INSERT OR REPLACE INTO people VALUES (?, ?, ?, ?, ?)", rows)

    def indexes(self) -> None:
        for end in ("src", "dst"):
            self._all(f"CREATE INDEX knows_{end} ON knows({end})")
        self._all("CREATE INDEX works_dst ON works(dst)")
        self._all("SELECT dolt_commit('-A', '-m', 'indexes')")

    def upsert(self, people: pa.Table, branch: str = "main") -> None:
        self._on(branch)
        self._all("BEGIN")
        self._put(people)
        self._commit()
        self._on("main")

    def _on(self, branch: str) -> None:
        self._all("SELECT dolt_checkout(?)", branch)

    def create_branch(self, branch: str) -> None:
        self._all("SELECT dolt_branch(?)", branch)

    def diff(self, branch: str) -> Any:
        return len(self._all("SELECT * FROM dolt_diff_people('main', ?)", branch))

    def add_node(self, name: str, branch: str = "main") -> None:
        if branch != "main":
            self._on(branch)
        self._all("BEGIN")
        self._all("INSERT INTO people(name, age) VALUES (?, 1)", name)
        self._commit()
        if branch != "main":
            self._on("main")

    def add_edge(self, name: str, to: str) -> None:
        self._all("BEGIN")
        self._all("INSERT INTO knows(src, dst) VALUES (?, ?)", name, to)
        self._commit()


class Ladybug(MoreLadybug):
    """A property graph in one file."""

    name = "ladybug"

    def __init__(self, folder: Path) -> None:
        ladybug: Any = importlib.import_module("ladybug")
        known = (folder / "ladybug").exists()
        self._connection = ladybug.Connection(ladybug.Database(str(folder / "ladybug")))
        if not known:
            for text in (
                "NODE TABLE Person(name STRING, age INT32, city STRING, bio STRING, "
                "emb FLOAT[64], PRIMARY KEY(name))",
                "NODE TABLE Company(name STRING, PRIMARY KEY(name))",
                "REL TABLE Knows(FROM Person TO Person, since DATE)",
                "REL TABLE WorksAt(FROM Person TO Company)",
            ):
                self._all(f"CREATE {text}")

    def _all(self, text: str, **given: Any) -> list[Any]:
        return [tuple(row) for row in self._connection.execute(text, given).get_all()]

    def load(self, files: Path, ending: str) -> int:
        if ending != "parquet":
            raise NotImplementedError
        for kind, name in (
            *(("Person", "people"), ("Company", "companies")),
            *(("Knows", "knows"), ("WorksAt", "works")),
        ):
            self._all(f"COPY {kind} FROM '{files}/{name}.parquet'")
        self._all("CHECKPOINT")
        counted = (
            "MATCH (n) RETURN count(*)",
            "MATCH ()-[k:Knows]->() RETURN count(*)",
            "MATCH ()-[k:WorksAt]->() RETURN count(*)",
        )
        return sum(self._all(text)[0][0] for text in counted)

    def point(self, name: str) -> Any:
        return self._all("MATCH (p:Person {name: $n}) RETURN p.age, p.city", n=name)

    def hops(self, name: str, count: int) -> Any:
        text = (
            f"MATCH (p:Person {{name: $n}})-[:Knows*1..{count}]->(f:Person) "
            "WHERE f.name <> $n RETURN count(DISTINCT f)"
        )
        if count == 1:
            text = text.replace("*1..1", "")
        return self._all(text, n=name)[0][0]

    def scan(self, age: int, city: str) -> Any:
        text = "MATCH (p:Person) WHERE p.age > $a AND p.city = $c RETURN count(*)"
        return self._all(text, a=age, c=city)[0][0]

    def walks(self) -> Any:
        text = "MATCH (a:Person)-[:Knows]->(b:Person)-[:Knows]->(c:Person) RETURN count(*)"
        return self._all(text)[0][0]

    def top(self) -> Any:
        text = "MATCH (p:Person)-[:WorksAt]->(c:Company) RETURN c.name, count(p) AS n "
        return self._all(text + "ORDER BY n DESC, c.name LIMIT 10")

    def anti_join(self) -> Any:
        text = "MATCH (p:Person) WHERE NOT EXISTS { MATCH (p)-[:WorksAt]->(:Company) } "
        return self._all(text + "RETURN count(p)")[0][0]

    def nearest(self, vector: list[float]) -> Any:
        text = "MATCH (p:Person) RETURN p.name ORDER BY array_distance(p.emb, "
        rows = self._all(text + "CAST($v AS FLOAT[64])) LIMIT 10", v=vector)
        return [row[0] for row in rows]

    def add_node(self, name: str, branch: str = "main") -> None:
        self._all("CREATE (:Person {name: $n, age: 1})", n=name)

    def add_edge(self, name: str, to: str) -> None:
        text = "MATCH (a:Person {name: $a}), (b:Person {name: $b}) CREATE (a)-[:Knows]->(b)"
        self._all(text, a=name, b=to)

    def delete_edges(self, since: date) -> Any:
        self._all("MATCH ()-[k:Knows]->() WHERE k.since = $d DELETE k", d=since)

    def delete_people(self, age: int, city: str) -> Any:
        text = "MATCH (p:Person) WHERE p.age = $a AND p.city = $c "
        count = self._all(text + "RETURN count(*)", a=age, c=city)[0][0]
        self._all(text + "DETACH DELETE p", a=age, c=city)
        return count


ENGINES: tuple[type[Any], ...] = (OmniGraph, Bare, DuckDB, Ladybug, DoltLite)
BRANCHING = frozenset({"omnigraph", "doltlite"})
