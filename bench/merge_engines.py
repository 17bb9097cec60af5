"""The engines that `bench/merge.py` compares: the same branches, diffs and merges in each.

Invariant: one table of people under a text key, everything durable when a method returns, and a
diff read to its end with the values before and after. Every round works on a branch and on rows of
its own, so nothing measured has been computed before; the process and its caches are warm.
"""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

import omnigraph as og
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.types import TableKey

SCHEMA = """
node Person {
    name: String @key
    age: I64?
    city: String?
}
"""


def name_of(number: int) -> str:
    return f"p{number:08}"


@dataclass(frozen=True)
class Changed:
    """What one large commit does: rows written, new ones among them, and rows deleted."""

    written: Sequence[int]
    ages: int
    deleted: Sequence[int] = ()


class Engine(Protocol):
    """People are numbers. A branch is created at main's head."""

    name: str

    def fill(self, size: int) -> None: ...

    def create_branch(self, branch: str) -> None: ...

    def switch(self, branch: str) -> None:
        """What an engine needs before it works on a branch; not measured."""

    def change_one(self, branch: str, person: int, age: int) -> None:
        """One row changed and committed."""

    def change_many(self, branch: str, changed: Changed) -> None:
        """Many rows in one commit, not measured."""

    def diff(self, before: str, after: str) -> int:
        """Read every row that differs; how many."""

    def merge(self, source: str, target: str) -> None: ...


class OmniGraph:
    """This project, through its public door."""

    name = "omnigraph"

    def __init__(self, folder: Path) -> None:
        self.graph = og.init(folder / "omnigraph", SCHEMA)

    def fill(self, size: int) -> None:
        write = self.graph._store.begin(kind=WriterKind.LOAD)
        write.append(TableKey("node:Person"), self._rows(range(size), 0))
        self.graph._store.commit(write)
        self.graph.ensure_indices()

    def create_branch(self, branch: str) -> None:
        self.graph.branches.create(branch)

    def switch(self, branch: str) -> None:
        pass

    def change_one(self, branch: str, person: int, age: int) -> None:
        text = "query q($n: String, $a: I64) { update Person set { age: $a } where name = $n }"
        self.graph.mutate(text, {"n": name_of(person), "a": age}, branch=branch)

    def change_many(self, branch: str, changed: Changed) -> None:
        rows = self._rows(changed.written, changed.ages)
        self.graph.load(rows, mode="merge", type="Person", branch=branch, engine="local")
        if changed.deleted:
            gone = " ".join(f'delete Person where name = "{name_of(n)}"' for n in changed.deleted)
            self.graph.mutate(f"query q() {{ {gone} }}", branch=branch)

    def diff(self, before: str, after: str) -> int:
        return sum(1 for _ in self.graph.diff(before, after))

    def merge(self, source: str, target: str) -> None:
        assert self.graph.branches.merge(source, into=target).kind == "merged"

    def _rows(self, people: Sequence[int], ages: int) -> pa.Table:
        numbers = np.asarray(people)
        names = pa.array([name_of(number) for number in people])
        columns = {
            "id": names,
            "name": names,
            "age": pa.array(numbers % 100 + ages),
            "city": pa.array([f"city {number % 50}" for number in people]),
        }
        reader = self.graph._store.reader(self.graph.snapshot(), TableKey("node:Person"))
        return pa.table({name: columns[name] for name in reader.schema.names}).cast(reader.schema)


class DoltLite:
    """SQLite's interface over Dolt's store, which has branches, diffs and merges too."""

    name = "doltlite"

    def __init__(self, folder: Path) -> None:
        importlib.import_module("doltlite")
        sqlite = importlib.import_module("sqlite3")
        self._connection = sqlite.connect(str(folder / "dolt.db"), isolation_level=None)
        self._run("CREATE TABLE person(name TEXT PRIMARY KEY, age INTEGER, city TEXT)")

    def _run(self, text: str, *values: object) -> list[Any]:
        found: list[Any] = self._connection.execute(text, values).fetchall()
        return found

    def _commit(self) -> None:
        self._run("COMMIT")
        self._run("SELECT dolt_commit('-A', '-m', 'write')")

    def _insert(self, people: Sequence[int], ages: int) -> None:
        rows = ((name_of(n), n % 100 + ages, f"city {n % 50}") for n in people)
        self._connection.executemany("INSERT OR REPLACE INTO person VALUES (?, ?, ?)", rows)

    def fill(self, size: int) -> None:
        self._run("BEGIN")
        self._insert(range(size), 0)
        self._commit()

    def create_branch(self, branch: str) -> None:
        self._run("SELECT dolt_branch(?)", branch)

    def switch(self, branch: str) -> None:
        self._run("SELECT dolt_checkout(?)", branch)

    def change_one(self, branch: str, person: int, age: int) -> None:
        self._run("BEGIN")
        self._run("UPDATE person SET age = ? WHERE name = ?", age, name_of(person))
        self._commit()

    def change_many(self, branch: str, changed: Changed) -> None:
        self.switch(branch)
        self._run("BEGIN")
        self._insert(changed.written, changed.ages)
        gone = ((name_of(number),) for number in changed.deleted)
        self._connection.executemany("DELETE FROM person WHERE name = ?", gone)
        self._commit()

    def diff(self, before: str, after: str) -> int:
        return len(self._run("SELECT * FROM dolt_diff_person(?, ?)", before, after))

    def merge(self, source: str, target: str) -> None:
        self._run("SELECT dolt_merge(?)", source)


ENGINES: tuple[type[Any], ...] = (OmniGraph, DoltLite)
