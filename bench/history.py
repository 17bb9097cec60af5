"""What going back costs: a revert and a restore of 1,000 rows, beside doltlite.

    python bench/history.py [--sizes 10000,1000000] [--rounds 7] [--only omnigraph|doltlite]

A table of people with text, a list, a vector of 32 numbers, and nulls, at two sizes. Each round, in
one warm process an engine, on rows of its own:

    revert          1,000 rows are written (800 updated, 100 inserted, 100 deleted) and ten others
                    after them; the first commit is reverted                          dolt_revert
    revert newest   the same without the ten others: the newest commit is reverted    dolt_revert
    restore         the same; the branch goes back to the commit before               dolt_reset

`dolt_reset --hard` moves the branch and drops the commit from its history, where a restore is a
commit of its own; it is what doltlite has. Of the newest commit, doltlite's revert is such a move
too: the tree before it is there already.

Prints medians of time and of processor time, which other programs disturb less, ratios and growth;
writes bench/results/history.json.
"""

import argparse
import importlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

import omnigraph as og
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.types import TableKey

RESULTS = Path(__file__).parent / "results" / "history.json"
PERSON = TableKey("node:Person")
WIDTH = 32
BATCH = 100_000
CHANGES, OTHERS = 1_000, 10
UNITS = {"ms": "time", "cpu_ms": "processor time"}
VERBS = ("revert", "revert newest", "restore")
SCHEMA = f"""
node Person {{
    name: String @key
    age: I64?
    city: String?
    note: String?
    tags: [String]?
    face: Vector({WIDTH})?
}}
"""


@dataclass(frozen=True)
class Written:
    """One commit: rows written, new ones among them, and rows deleted."""

    people: Sequence[int]
    ages: int
    deleted: Sequence[int] = ()


Times = dict[str, list[tuple[float, float]]]
"""Of each verb, milliseconds and milliseconds of the processor, round by round."""


class Engine(Protocol):
    """People are numbers; a commit is named by what the engine calls it."""

    def fill(self, size: int) -> None: ...

    def write(self, written: Written) -> str: ...

    def revert(self, commit: str) -> None: ...

    def restore(self, commit: str) -> None: ...

    def head(self) -> str: ...

    def ages(self, people: Sequence[int]) -> list[int]:
        """The ages of those of these people that exist."""


def name_of(number: int) -> str:
    return f"p{number:08}"


def note_of(number: int, ages: int) -> str | None:
    return None if number % 7 == 0 else f"note {ages} of {name_of(number)}: " + "text " * 8


class OmniGraph:
    """This project, through its public door."""

    def __init__(self, folder: Path) -> None:
        self.graph = og.init(folder / "omnigraph", SCHEMA)

    def fill(self, size: int) -> None:
        for start in range(0, size, BATCH):
            write = self.graph._store.begin(kind=WriterKind.LOAD)
            write.append(PERSON, self._rows(range(start, min(start + BATCH, size)), 0))
            self.graph._store.commit(write)
        self.graph.optimize()

    def write(self, written: Written) -> str:
        """One commit, through storage: a query only inserts and updates, or only deletes."""
        write = self.graph._store.begin(kind=WriterKind.MUTATION)
        reader = write.read(PERSON)
        known = [*written.people, *written.deleted]
        names = ", ".join(f"'{name_of(number)}'" for number in known)
        removed = reader.row_ids(f"id IN ({names})").combine_chunks()
        updated = len(removed) - len(written.deleted)
        added = self._rows(written.people, written.ages)
        write.patch(PERSON, removed=removed, added=added, updated=updated)
        return str(self.graph._store.commit(write).id)

    def revert(self, commit: str) -> None:
        assert self.graph.revert(commit).kind == "reverted"

    def restore(self, commit: str) -> None:
        assert self.graph.restore(commit).kind == "restored"

    def head(self) -> str:
        return str(self.graph.snapshot().commit_id)

    def ages(self, people: Sequence[int]) -> list[int]:
        reader = self.graph._store.reader(self.graph.snapshot(), PERSON)
        names = ", ".join(f"'{name_of(number)}'" for number in people)
        return [
            int(age) for age in reader.rows(["age"], filter=f"id IN ({names})")["age"].to_pylist()
        ]

    def _rows(self, people: Sequence[int], ages: int) -> pa.Table:
        numbers = np.asarray(people)
        names = pa.array([name_of(number) for number in people])
        flat = np.random.default_rng(ages).random(len(numbers) * WIDTH, dtype=np.float32)
        columns = {
            "id": names,
            "name": names,
            "age": pa.array(numbers % 100 + ages),
            "city": pa.array([f"city {number % 50}" for number in people]),
            "note": pa.array([note_of(number, ages) for number in people]),
            "tags": pa.array([[f"t{number % 3}", f"t{number % 5}"] for number in people]),
            "face": pa.FixedSizeListArray.from_arrays(pa.array(flat), WIDTH),
        }
        schema = self.graph._store.reader(self.graph.snapshot(), PERSON).schema
        return pa.table({name: columns[name] for name in schema.names}).cast(schema)


class DoltLite:
    """SQLite's interface over Dolt's store."""

    def __init__(self, folder: Path) -> None:
        importlib.import_module("doltlite")
        sqlite = importlib.import_module("sqlite3")
        self._connection = sqlite.connect(str(folder / "dolt.db"), isolation_level=None)
        self._run(
            "CREATE TABLE person(name TEXT PRIMARY KEY, age INTEGER, city TEXT, note TEXT, "
            "tags TEXT, face BLOB)"
        )

    def _run(self, text: str, *values: object) -> list[Any]:
        rows: list[Any] = self._connection.execute(text, values).fetchall()
        return rows

    def fill(self, size: int) -> None:
        self.write(Written(range(size), 0))

    def write(self, written: Written) -> str:
        self._run("BEGIN")
        faces = np.random.default_rng(written.ages).random((256, WIDTH), dtype=np.float32)
        rows = (
            (
                name_of(n),
                n % 100 + written.ages,
                f"city {n % 50}",
                note_of(n, written.ages),
                f'["t{n % 3}", "t{n % 5}"]',
                faces[n % 256].tobytes(),
            )
            for n in written.people
        )
        self._connection.executemany("INSERT OR REPLACE INTO person VALUES (?,?,?,?,?,?)", rows)
        gone = ((name_of(number),) for number in written.deleted)
        self._connection.executemany("DELETE FROM person WHERE name = ?", gone)
        self._run("COMMIT")
        return str(self._run("SELECT dolt_commit('-A', '-m', 'write')")[0][0])

    def revert(self, commit: str) -> None:
        self._run("SELECT dolt_revert(?)", commit)

    def restore(self, commit: str) -> None:
        self._run("SELECT dolt_reset('--hard', ?)", commit)

    def head(self) -> str:
        return str(self._run("SELECT commit_hash FROM dolt_log LIMIT 1")[0][0])

    def ages(self, people: Sequence[int]) -> list[int]:
        names = ", ".join(f"'{name_of(number)}'" for number in people)
        return [row[0] for row in self._run(f"SELECT age FROM person WHERE name IN ({names})")]


ENGINES: dict[str, Callable[[Path], Engine]] = {"omnigraph": OmniGraph, "doltlite": DoltLite}


def rounds(engine: Engine, size: int, count: int) -> Times:
    """Milliseconds by verb, and those of the processor. A first round loads the engine and does not
    count."""
    engine.fill(size)
    people = np.random.default_rng(1).permutation(size).tolist()
    times: dict[str, list[tuple[float, float]]] = {verb: [] for verb in VERBS}
    step = CHANGES - 100 + OTHERS
    for number in range((count + 1) * len(VERBS)):
        verb = VERBS[number % len(VERBS)]
        mine = people[(number * step) % (size - step) :][:step]
        before = engine.head()
        new = list(range(size + number * 100, size + number * 100 + 100))
        ages = 1_000 * (number + 1)
        bad = engine.write(Written(mine[:800] + new, ages, mine[800:900]))
        if verb == "revert":
            engine.write(Written(mine[900:], ages + 500))
        start, cpu = time.perf_counter(), time.process_time()
        if verb == "restore":
            engine.restore(before)
        else:
            engine.revert(bad)
        took, busy = time.perf_counter() - start, time.process_time() - cpu
        times[verb].append((took * 1000, busy * 1000))
        assert len(engine.ages(mine[:900] + new)) == 900
        assert all(age < ages for age in engine.ages(mine[:900])), verb
        assert verb != "revert" or min(engine.ages(mine[900:])) >= ages + 500
    return {verb: each[1:] for verb, each in times.items()}


def measured(name: str, size: int, count: int) -> Times:
    """The rounds of one engine, in a process of its own."""
    words = [sys.executable, __file__, "--engine", name, str(size), str(count)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    times: Times = json.loads(done.stdout.splitlines()[-1])
    return times


def report(cases: list[dict[str, Any]]) -> list[str]:
    """Ratios beside doltlite and growth with the table."""
    lines = []
    by_name = {(c["engine"], c["rows"]): c for c in cases}
    sizes = sorted({c["rows"] for c in cases})
    for verb in VERBS:
        key = verb.replace(" ", "_")
        for size in sizes:
            pair = [by_name[engine, size] for engine in ENGINES if (engine, size) in by_name]
            if len(pair) == len(ENGINES):
                ratios = " and ".join(
                    f"× {pair[0][f'{key}_{unit}'] / pair[1][f'{key}_{unit}']:.2f} in {word}"
                    for unit, word in UNITS.items()
                )
                lines.append(f"{verb}, {size:,} rows, beside doltlite: {ratios}")
        for engine in ENGINES:
            outer = (sizes[0], sizes[-1])
            ends = [by_name[engine, size] for size in outer if (engine, size) in by_name]
            if len(sizes) > 1 and len(ends) == 2:
                growth = " and ".join(
                    f"× {ends[1][f'{key}_{unit}'] / ends[0][f'{key}_{unit}']:.2f} in {word}"
                    for unit, word in UNITS.items()
                )
                span = f"{sizes[0]:,} → {sizes[-1]:,} rows"
                lines.append(f"{verb}, {engine}, {span}: {growth}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", default="10000,1000000")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", choices=list(ENGINES))
    parser.add_argument("--engine", nargs=3)
    asked = parser.parse_args()
    if asked.engine:
        name, size, count = asked.engine
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(rounds(ENGINES[name](Path(folder)), int(size), int(count))))
        return
    before = json.loads(RESULTS.read_text())["cases"] if RESULTS.exists() else []
    known = {(case["engine"], case["rows"]): case for case in before}
    for size in map(int, asked.sizes.split(",")):
        for name in [asked.only] if asked.only else list(ENGINES):
            case: dict[str, Any] = {"engine": name, "rows": size, "changes": CHANGES}
            for verb, times in measured(name, size, asked.rounds).items():
                key = verb.replace(" ", "_")
                case[f"{key}_ms"] = round(statistics.median(took for took, _ in times), 2)
                case[f"{key}_least_ms"] = round(min(took for took, _ in times), 2)
                case[f"{key}_cpu_ms"] = round(statistics.median(busy for _, busy in times), 2)
            known[name, size] = case
            print("  ".join(f"{key} {value}" for key, value in case.items()), flush=True)
    cases = [known[key] for key in sorted(known)]
    lines = report(cases)
    print("\n".join(lines))
    RESULTS.write_text(json.dumps({"cases": cases, "ratios": lines}, indent=2) + "\n")


if __name__ == "__main__":
    main()
