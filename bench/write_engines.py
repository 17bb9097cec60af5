"""The engines that `bench/write.py` compares: the same durable writes, each as its engine likes it.

Invariant: when a method returns, the write is committed and a new process would see it. Nobody
batches: one call is one commit. `bare` makes the Lance calls that a commit of ours cannot avoid
(stage and commit each table and one row of a manifest), without checks, locks or recovery.
"""

import importlib
from pathlib import Path
from typing import Any, Protocol

import lance
import pyarrow as pa
import pyarrow.parquet as pq
from lance import LanceDataset
from lance.dataset import LanceOperation, Transaction
from lance.fragment import write_fragments

import omnigraph as og
from omnigraph.catalog.accept import accept
from omnigraph.storage.records import MANIFEST_SCHEMA
from omnigraph.types import TableKey

SCHEMA = """
node Person {
    name: String @key
    age: I32?
}

edge Knows: Person -> Person
"""
START = 1000
"""People that are there before the first measured write."""


def stored_rows(people: pa.Table) -> pa.Table:
    """People as the table of their type holds them."""
    schema = accept(SCHEMA).nodes["Person"].schema
    columns = {"id": people["name"], "name": people["name"], "age": people["age"]}
    return pa.table([columns[name] for name in schema.names], schema=schema)


class Engine(Protocol):
    """One-row writes. Names of people are `p0`, `p1`, …"""

    name: str

    def insert(self, name: str) -> None: ...

    def insert_with_edge(self, name: str, to: str) -> None: ...

    def update(self, name: str, age: int) -> None: ...

    def delete(self, name: str) -> None: ...

    def fill(self, people: pa.Table) -> None:
        """Add many people with name and age, not measured."""

    def update_where(self, age: int, new: int) -> None: ...

    def delete_where(self, age: int) -> None: ...

    def upsert(self, people: pa.Table) -> None:
        """Add people, or replace those of the same name."""


class OmniGraph:
    """This project, through its public door."""

    def __init__(self, folder: Path, durability: str = "fsync", name: str = "omnigraph") -> None:
        self.name = name
        self.graph = og.init(folder / name.replace(" ", "-"), SCHEMA, durability=durability)
        people = " ".join(f'insert Person {{ name: "p{n}", age: 1 }}' for n in range(START))
        self.graph.mutate(f"query start() {{ {people} }}")

    def insert(self, name: str) -> None:
        self.graph.mutate("query q($n: String) { insert Person { name: $n, age: 1 } }", {"n": name})

    def insert_with_edge(self, name: str, to: str) -> None:
        text = """query q($n: String, $t: String) {
            insert Person { name: $n, age: 1 } insert Knows { from: $n, to: $t } }"""
        self.graph.mutate(text, {"n": name, "t": to})

    def update(self, name: str, age: int) -> None:
        text = "query q($n: String, $a: I32) { update Person set { age: $a } where name = $n }"
        self.graph.mutate(text, {"n": name, "a": age})

    def delete(self, name: str) -> None:
        self.graph.mutate("query q($n: String) { delete Person where name = $n }", {"n": name})

    def fill(self, people: pa.Table) -> None:
        write = self.graph._store.begin(kind="bench")
        write.append(TableKey("node:Person"), stored_rows(people))
        self.graph._store.commit(write)
        self.graph.ensure_indices()

    def update_where(self, age: int, new: int) -> None:
        text = "query q($a: I32, $b: I32) { update Person set { age: $b } where age = $a }"
        self.graph.mutate(text, {"a": age, "b": new})

    def delete_where(self, age: int) -> None:
        self.graph.mutate("query q($a: I32) { delete Person where age = $a }", {"a": age})

    def upsert(self, people: pa.Table) -> None:
        self.graph.load(people, "merge", type="Person")


class Bare:
    """Lance by itself."""

    name = "bare Lance"

    def __init__(self, folder: Path) -> None:
        catalog = accept(SCHEMA)
        self._person_schema = catalog.nodes["Person"].schema
        self._knows_schema = catalog.edges["Knows"].schema
        people = [self._person(f"p{n}") for n in range(START)]
        self._people = self._create(
            folder / "people", pa.Table.from_pylist(people, schema=self._person_schema)
        )
        self._knows = self._create(folder / "knows", self._knows_schema.empty_table())
        head = pa.Table.from_pylist(
            [{"object_id": "head", "object_type": "bench"}], schema=MANIFEST_SCHEMA
        )
        self._manifest = self._create(folder / "manifest", head)
        self._head_fragment = 0
        self._commits = 0

    def _create(self, folder: Path, rows: pa.Table) -> LanceDataset:
        return lance.write_dataset(rows, str(folder), enable_stable_row_ids=True)

    def _person(self, name: str, age: int = 1) -> dict[str, Any]:
        return {"id": name, "name": name, "age": age}

    def _appended(self, handle: LanceDataset, row: dict[str, Any]) -> LanceDataset:
        rows = pa.Table.from_pylist([row], schema=handle.schema)
        staged = write_fragments(rows, handle, mode="append", return_transaction=True)
        return LanceDataset.commit(handle, staged, max_retries=0)

    def _publish(self, tables: int = 1) -> None:
        """Swap the head row for a new one, beside a row a table and one for the commit."""
        self._commits += 1
        names = ["head", *(f"{self._commits}/{part}" for part in range(tables + 1))]
        rows = [{"object_id": name, "object_type": "bench"} for name in names]
        handle = self._manifest
        added = write_fragments(
            pa.Table.from_pylist(rows, schema=MANIFEST_SCHEMA), handle, mode="append"
        )
        left = handle.get_fragment(self._head_fragment).delete("object_id = 'head'")
        update = LanceOperation.Update(
            removed_fragment_ids=[self._head_fragment] if left is None else [],
            updated_fragments=[] if left is None else [left],
            new_fragments=added,
            fields_for_preserving_frag_bitmap=list(range(len(MANIFEST_SCHEMA) + 1)),
            update_mode="rewrite_rows",
        )
        staged = Transaction(handle.version, update)
        self._manifest = LanceDataset.commit(handle, staged, max_retries=0)
        self._head_fragment = max(f.fragment_id for f in self._manifest.get_fragments())

    def insert(self, name: str) -> None:
        self._people = self._appended(self._people, self._person(name))
        self._publish()

    def insert_with_edge(self, name: str, to: str) -> None:
        self._people = self._appended(self._people, self._person(name))
        self._knows = self._appended(self._knows, {"id": name, "src": name, "dst": to})
        self._publish(tables=2)

    def update(self, name: str, age: int) -> None:
        self._upsert(pa.Table.from_pylist([self._person(name, age)], schema=self._person_schema))

    def _upsert(self, rows: pa.Table) -> None:
        upsert = self._people.merge_insert("id").when_matched_update_all()
        staged, _ = upsert.when_not_matched_insert_all().execute_uncommitted(rows)
        self._people = LanceDataset.commit(self._people, staged, max_retries=0)
        self._publish()

    def delete(self, name: str) -> None:
        self._delete(f"id = '{name}'")

    def fill(self, people: pa.Table) -> None:
        rows = stored_rows(people)
        staged = write_fragments(rows, self._people, mode="append", return_transaction=True)
        self._people = LanceDataset.commit(self._people, staged, max_retries=0)
        self._people.create_scalar_index("id", "BTREE")
        self._people = lance.dataset(self._people.uri)

    def update_where(self, age: int, new: int) -> None:
        rows = self._people.to_table(filter=f"age = {age}")
        ages = pa.array([new] * rows.num_rows, pa.int32())
        rows = rows.set_column(rows.schema.get_field_index("age"), rows.schema.field("age"), ages)
        self._upsert(rows)

    def delete_where(self, age: int) -> None:
        self._delete(f"age = {age}")

    def upsert(self, people: pa.Table) -> None:
        self._upsert(stored_rows(people))

    def _delete(self, predicate: str) -> None:
        changed, gone = [], []
        for fragment in self._people.get_fragments():
            after = fragment.delete(predicate)
            if after is None:
                gone.append(fragment.fragment_id)
            elif after.num_deletions != fragment.num_deletions:
                changed.append(after)
        operation = LanceOperation.Delete(changed, gone, predicate)
        staged = Transaction(self._people.version, operation)
        self._people = LanceDataset.commit(self._people, staged, max_retries=0)
        self._publish()


class Sql:
    """A database that takes SQL statements, one transaction a write."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        connection.execute("CREATE TABLE person(name VARCHAR PRIMARY KEY, age INTEGER)")
        connection.execute(
            "CREATE TABLE knows(src VARCHAR REFERENCES person, dst VARCHAR REFERENCES person)"
        )
        connection.executemany(
            "INSERT INTO person VALUES (?, 1)", [(f"p{n}",) for n in range(START)]
        )
        self._commit()

    def _commit(self) -> None:
        raise NotImplementedError

    def _run(self, *statements: tuple[str, tuple[object, ...]]) -> None:
        self._connection.execute("BEGIN")
        for text, values in statements:
            self._connection.execute(text, values)
        self._commit()

    def insert(self, name: str) -> None:
        self._run(("INSERT INTO person VALUES (?, 1)", (name,)))

    def insert_with_edge(self, name: str, to: str) -> None:
        self._run(
            ("INSERT INTO person VALUES (?, 1)", (name,)),
            ("INSERT INTO knows VALUES (?, ?)", (name, to)),
        )

    def update(self, name: str, age: int) -> None:
        self._run(("UPDATE person SET age = ? WHERE name = ?", (age, name)))

    def delete(self, name: str) -> None:
        self._run(
            ("DELETE FROM knows WHERE src = ? OR dst = ?", (name, name)),
            ("DELETE FROM person WHERE name = ?", (name,)),
        )

    def fill(self, people: pa.Table) -> None:
        names, ages = people["name"].to_pylist(), people["age"].to_pylist()
        self._connection.execute("BEGIN")
        self._connection.executemany(
            "INSERT INTO person VALUES (?, ?)", list(zip(names, ages, strict=True))
        )
        self._commit()

    def update_where(self, age: int, new: int) -> None:
        self._run(("UPDATE person SET age = ? WHERE age = ?", (new, age)))

    def delete_where(self, age: int) -> None:
        chosen = "(SELECT name FROM person WHERE age = ?)"
        self._run(
            (f"DELETE FROM knows WHERE src IN {chosen} OR dst IN {chosen}", (age, age)),
            ("DELETE FROM person WHERE age = ?", (age,)),
        )

    def upsert(self, people: pa.Table) -> None:
        names, ages = people["name"].to_pylist(), people["age"].to_pylist()
        self._connection.execute("BEGIN")
        self._connection.executemany(
            "INSERT INTO person VALUES (?, ?) ON CONFLICT(name) DO UPDATE SET age = excluded.age",
            list(zip(names, ages, strict=True)),
        )
        self._commit()


class DuckDb(Sql):
    """A column store with foreign keys. It syncs its log on commit."""

    name = "duckdb"

    def __init__(self, folder: Path) -> None:
        connection = importlib.import_module("duckdb").connect(str(folder / "duckdb.db"))
        connection.execute("BEGIN")
        super().__init__(connection)

    def fill(self, people: pa.Table) -> None:
        self._connection.register("people", people)
        self._connection.execute("INSERT INTO person SELECT name, age FROM people")

    def upsert(self, people: pa.Table) -> None:
        self._connection.register("people", people)
        text = "INSERT INTO person SELECT name, age FROM people"
        self._run((f"{text} ON CONFLICT(name) DO UPDATE SET age = excluded.age", ()))

    def _commit(self) -> None:
        self._connection.execute("COMMIT")


class DoltLite(Sql):
    """SQLite's interface over Dolt's store: the peer that has commits and branches too."""

    name = "doltlite"

    def __init__(self, folder: Path) -> None:
        importlib.import_module("doltlite")
        sqlite = importlib.import_module("sqlite3")
        connection = sqlite.connect(str(folder / "dolt.db"), isolation_level=None)
        connection.execute("BEGIN")
        super().__init__(connection)

    def _commit(self) -> None:
        self._connection.execute("COMMIT")
        self._connection.execute("SELECT dolt_commit('-A', '-m', 'write')").fetchall()


class Ladybug:
    """The living fork of Kuzu: a property graph in one file."""

    name = "ladybug"

    def __init__(self, folder: Path) -> None:
        ladybug = importlib.import_module("ladybug")
        self._files = folder
        self._connection = ladybug.Connection(ladybug.Database(str(folder / "ladybug")))
        self._run("CREATE NODE TABLE Person(name STRING, age INT32, PRIMARY KEY(name))")
        self._run("CREATE REL TABLE Knows(FROM Person TO Person)")
        start = (
            f"UNWIND range(0, {START - 1}) AS n CREATE (:Person {{name: 'p' + string(n), age: 1}})"
        )
        self._run(start)

    def _run(self, text: str, values: dict[str, object] | None = None) -> None:
        self._connection.execute(text, values or {})

    def insert(self, name: str) -> None:
        self._run("CREATE (:Person {name: $n, age: 1})", {"n": name})

    def insert_with_edge(self, name: str, to: str) -> None:
        text = "MATCH (t:Person {name: $t}) CREATE (:Person {name: $n, age: 1})-[:Knows]->(t)"
        self._run(text, {"n": name, "t": to})

    def update(self, name: str, age: int) -> None:
        self._run("MATCH (p:Person {name: $n}) SET p.age = $a", {"n": name, "a": age})

    def delete(self, name: str) -> None:
        self._run("MATCH (p:Person {name: $n}) DETACH DELETE p", {"n": name})

    def fill(self, people: pa.Table) -> None:
        file = self._files / "people.parquet"
        pq.write_table(people, file)
        self._run(f"COPY Person FROM '{file}'")

    def update_where(self, age: int, new: int) -> None:
        self._run("MATCH (p:Person) WHERE p.age = $a SET p.age = $b", {"a": age, "b": new})

    def delete_where(self, age: int) -> None:
        self._run("MATCH (p:Person) WHERE p.age = $a DETACH DELETE p", {"a": age})

    def upsert(self, people: pa.Table) -> None:
        file = self._files / "upsert.parquet"
        pq.write_table(people, file)
        text = f"LOAD FROM '{file}' MERGE (p:Person {{name: name}}) "
        self._run(f"{text} ON CREATE SET p.age = age ON MATCH SET p.age = age")


PEERS: tuple[type[Any], ...] = (DuckDb, Ladybug, DoltLite)
