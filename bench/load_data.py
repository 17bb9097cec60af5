"""Seeded graphs as files: people, and edges between random ones.

Invariant: the same size gives the same bytes, whatever else was made before.
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

SCHEMA = """
node Person { name: String @key  age: I32?  @range(age, 0..150) }
edge Knows: Person -> Person { since: I32? }
"""
_BATCH = 500_000


def timed(work: Callable[[], int]) -> tuple[int, float]:
    """The rows that were loaded and the seconds until they were on the disk: not every engine
    waits for that by itself."""
    os.sync()
    started = time.monotonic()
    rows = work()
    os.sync()
    return rows, time.monotonic() - started


def make(folder: Path, edges: int) -> Path:
    """The files of a size, made once: `in.jsonl`, `people.parquet`, `knows.parquet`."""
    made = folder / f"{edges}"
    if (made / "done").exists():
        return made
    made.mkdir(parents=True, exist_ok=True)
    people = max(1, edges // 5)
    with (made / "in.jsonl").open("wb") as lines:
        _write(made / "people.parquet", _people(people), lines, _person_lines)
        _write(made / "knows.parquet", _knows(people, edges), lines, _edge_lines)
    (made / "done").touch()
    return made


def rows(edges: int) -> int:
    """How many rows a graph of so many edges has."""
    return edges + max(1, edges // 5)


def people_table(first: int, count: int, *, age: int | None = None) -> pa.Table:
    """People by number, all of one age if it is given."""
    numbers = np.arange(first, first + count)
    ages = numbers % 100 if age is None else np.full(count, age)
    return pa.table({"name": _names(numbers), "age": pa.array(ages, pa.int32())})


def scattered_people(count: int, among: int, *, age: int) -> pa.Table:
    """Distinct people from everywhere, of one age."""
    numbers = np.random.default_rng(11).choice(among, count, replace=False)
    return pa.table({"name": _names(numbers), "age": pa.array(np.full(count, age), pa.int32())})


def _people(count: int) -> Iterator[pa.Table]:
    for first in range(0, count, _BATCH):
        yield people_table(first, min(_BATCH, count - first))


def _knows(people: int, count: int) -> Iterator[pa.Table]:
    dice = np.random.default_rng(7)
    for first in range(0, count, _BATCH):
        some = min(_BATCH, count - first)
        ends = dice.integers(0, people, (2, some))
        since = pa.array(np.arange(first, first + some) % 50, pa.int32())
        yield pa.table({"from": _names(ends[0]), "to": _names(ends[1]), "since": since})


def _names(numbers: np.ndarray) -> pa.Array:
    return pc.binary_join_element_wise("p", pa.array(numbers).cast(pa.utf8()), "")


def _write(path, tables, lines, as_lines) -> None:  # type: ignore[no-untyped-def]
    writer = None
    for table in tables:
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table, row_group_size=_BATCH // 4)
        lines.write("".join(as_lines(table).to_pylist()).encode())
    writer.close()


def _person_lines(table: pa.Table) -> pa.ChunkedArray:
    age = table["age"].cast(pa.utf8())
    return pc.binary_join_element_wise(
        '{"type":"Person","data":{"name":"', table["name"], '","age":', age, "}}\n", ""
    )


def _edge_lines(table: pa.Table) -> pa.ChunkedArray:
    since = table["since"].cast(pa.utf8())
    return pc.binary_join_element_wise(
        '{"edge":"Knows","from":"',
        table["from"],
        '","to":"',
        table["to"],
        '","data":{"since":',
        since,
        "}}\n",
        "",
    )
