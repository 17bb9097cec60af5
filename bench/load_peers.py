"""The same graphs by other means: Ladybug's COPY, DuckDB with the same checks, plain Spark SQL.

Each returns the rows it loaded and the seconds it took, without the time to start.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from load_data import timed


def ladybug_parquet(files: Path, edges: int) -> tuple[int, float]:
    """COPY checks the primary key and that both ends exist; ranges are not its business."""
    import ladybug  # noqa: PLC0415  a peer, only there with the group `bench`

    base = ladybug.Connection(ladybug.Database(str(Path(tempfile.mkdtemp()) / "base")))
    base.execute("CREATE NODE TABLE Person(name STRING, age INT32, PRIMARY KEY(name))")
    base.execute("CREATE REL TABLE Knows(FROM Person TO Person, since INT32)")

    def both() -> int:
        base.execute(f"COPY Person FROM '{files}/people.parquet'")
        base.execute(f"COPY Knows FROM '{files}/knows.parquet'")
        base.execute("CHECKPOINT")
        return 0

    _, wall = timed(both)
    counted: Any = base.execute("MATCH (p:Person) RETURN count(*)")
    people = counted.get_next()[0]
    counted = base.execute("MATCH ()-[k:Knows]->() RETURN count(*)")
    return people + counted.get_next()[0], wall


_PERSON = "CREATE TABLE person(name VARCHAR PRIMARY KEY, age INT CHECK (age BETWEEN 0 AND 150))"
_KNOWS = "CREATE TABLE knows(src VARCHAR, dst VARCHAR, since INT)"


def duckdb_parquet(files: Path, edges: int) -> tuple[int, float]:
    """Keys and ranges by constraints, ends by anti joins."""
    people = f"SELECT name, age FROM '{files}/people.parquet'"
    knows = f"""SELECT "from", "to", since FROM '{files}/knows.parquet'"""
    return _duckdb(people, knows)


def duckdb_jsonl(files: Path, edges: int) -> tuple[int, float]:
    """The same from one file of lines, which is read once for each type."""
    columns = (
        "{type: 'VARCHAR', edge: 'VARCHAR', 'from': 'VARCHAR', 'to': 'VARCHAR', "
        "data: 'STRUCT(name VARCHAR, age INT, since INT)'}"
    )
    read = f"read_json('{files}/in.jsonl', format='newline_delimited', columns={columns})"
    people = f"SELECT data.name, data.age FROM {read} WHERE type = 'Person'"
    knows = f'SELECT "from", "to", data.since FROM {read} WHERE edge IS NOT NULL'
    return _duckdb(people, knows)


def _duckdb(people: str, knows: str) -> tuple[int, float]:
    import duckdb  # noqa: PLC0415  a peer

    base = duckdb.connect(str(Path(tempfile.mkdtemp()) / "duck.db"))
    base.execute(_PERSON)
    base.execute(_KNOWS)

    def both() -> int:
        base.execute(f"INSERT INTO person {people}")
        base.execute(f"INSERT INTO knows {knows}")
        for end in ("src", "dst"):
            missing = f"SELECT count(*) FROM knows ANTI JOIN person ON {end} = name"
            assert base.execute(missing).fetchone() == (0,)
        base.execute("CHECKPOINT")
        return 0

    _, wall = timed(both)
    counts = "SELECT (SELECT count(*) FROM person) + (SELECT count(*) FROM knows)"
    (rows,) = base.execute(counts).fetchone() or (0,)
    return rows, wall


def plain_spark(files: Path, edges: int) -> tuple[int, float]:
    """The plain way on Spark: its JSON reader, its joins, and rows through the JVM to the files."""
    from omnigraph.pipeline.session import session  # noqa: PLC0415

    spark = session("bulk")
    spark.range(10).selectExpr("sum(id)").collect()
    target = tempfile.mkdtemp()

    def whole() -> int:
        return _plain_spark(spark, str(files / "in.jsonl"), target)

    return timed(whole)


def _plain_spark(spark: Any, lines: str, target: str) -> int:
    schema = "type string, edge string, `from` string, `to` string, "
    schema += "data struct<name: string, age: int, since: int>"
    every = spark.read.schema(schema).json(lines).persist()
    people = every.where("type = 'Person'").selectExpr("data.name as id", "data.age")
    knows = every.where("edge is not null").selectExpr(
        "uuid() as id", "`from` as src", "`to` as dst", "data.since"
    )
    assert people.groupBy("id").count().where("count > 1").limit(1).count() == 0
    assert people.where("age not between 0 and 150").limit(1).count() == 0
    for end in ("src", "dst"):
        missing = knows.join(people, knows[end] == people["id"], "left_anti")
        assert missing.limit(1).count() == 0
    rows = 0
    for name, frame in (("people", people), ("knows", knows)):
        write = _writer(f"{target}/{name}.lance")
        written = frame.mapInArrow(write, "rows long").groupBy().sum("rows").collect()
        rows += written[0][0]
    return rows


def _writer(target: str) -> Any:
    def write(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa  # noqa: PLC0415  (in a worker)
        from lance.fragment import write_fragments  # noqa: PLC0415

        first = next(batches, None)
        if first is None:
            return

        def every() -> Iterator[Any]:
            yield first
            yield from batches

        reader = pa.RecordBatchReader.from_batches(first.schema, every())
        done = write_fragments(reader, target)
        count = sum(fragment.physical_rows for fragment in done)
        yield pa.RecordBatch.from_pydict({"rows": pa.array([count], pa.int64())})

    return write
