"""Seeded graph of people with embeddings and texts, companies and friendships, as files.

Invariant: the same size gives the same rows. `people.parquet`, `companies.parquet`, `knows.parquet`
and `works.parquet`, each also as flat JSON lines.
"""

from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

DIMENSION = 64
CITIES = [f"city{n}" for n in range(50)]
COMPANIES = 1_000
NAMES = ("people", "companies", "knows", "works")
_BATCH = 50_000


def make(folder: Path, people: int, edges: int) -> Path:
    """The files of a size, made once."""
    made = folder / f"{people}-{edges}"
    if (made / "done").exists():
        return made
    made.mkdir(parents=True, exist_ok=True)
    dice = np.random.default_rng(17)
    tables = {
        "people": people_table(dice, np.arange(people)),
        "companies": pa.table({"name": names("c", np.arange(COMPANIES))}),
        "knows": _knows(dice, people, edges),
        "works": pa.table(
            {
                "from": names("p", np.arange(0, people, 2)),
                "to": names("c", dice.integers(0, COMPANIES, (people + 1) // 2)),
            }
        ),
    }
    for name, table in tables.items():
        pq.write_table(table, made / f"{name}.parquet", row_group_size=100_000)
        with (made / f"{name}.jsonl").open("wb") as lines:
            for start in range(0, table.num_rows, _BATCH):
                _write_lines(lines, table.slice(start, _BATCH))
    (made / "done").touch()
    return made


def people_table(
    dice: np.random.Generator, numbers: np.ndarray, age: int | None = None
) -> pa.Table:
    """People by number, all of one age if it is given."""
    count = len(numbers)
    words = np.array([f"word{n}" for n in range(2_000)])
    ages = dice.integers(0, 100, count) if age is None else np.full(count, age)
    vectors = dice.standard_normal(count * DIMENSION, np.float32)
    return pa.table(
        {
            "name": names("p", numbers),
            "age": pa.array(ages, pa.int32()),
            "city": pa.array([CITIES[n % len(CITIES)] for n in numbers.tolist()]),
            "bio": pa.array([" ".join(row) for row in words[dice.integers(0, 2_000, (count, 20))]]),
            "emb": pa.FixedSizeListArray.from_arrays(pa.array(vectors), DIMENSION),
        }
    )


def names(letter: str, numbers: np.ndarray) -> pa.Array:
    """Names of entities by number."""
    return pc.binary_join_element_wise(letter, pa.array(numbers).cast(pa.utf8()), "")


def _knows(dice: np.random.Generator, people: int, edges: int) -> pa.Table:
    # Engines differ in what parallel edges and loops count, so there are none.
    drawn = dice.integers(0, people, (2, edges + edges // 10))
    pairs = np.unique(drawn[0, drawn[0] != drawn[1]] * people + drawn[1, drawn[0] != drawn[1]])
    ends = np.divmod(dice.permutation(pairs)[:edges], people)
    edges = len(ends[0])
    days = pa.array(dice.integers(10_000, 20_000, edges).astype(np.int32)).cast(pa.date32())
    return pa.table({"from": names("p", ends[0]), "to": names("p", ends[1]), "since": days})


def _write_lines(lines, table: pa.Table) -> None:  # type: ignore[no-untyped-def]
    option = orjson.OPT_SERIALIZE_NUMPY
    vectors = None
    if "emb" in table.column_names:
        flat = table["emb"].combine_chunks().flatten().to_numpy()
        vectors = flat.reshape(-1, DIMENSION)
        table = table.drop_columns(["emb"])
    for number, row in enumerate(table.to_pylist()):
        if vectors is not None:
            row["emb"] = np.ascontiguousarray(vectors[number])
        lines.write(orjson.dumps(row, option=option) + b"\n")
