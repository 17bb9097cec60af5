"""Ingest Parquet on Spark: clean it, load it on a branch, look at it, merge it.

    python examples/ingest/ingest.py graph.omni            makes a little Parquet of its own first
    python examples/ingest/ingest.py graph.omni FOLDER     FOLDER/people/*.parquet, FOLDER/knows/…

Files that need no cleaning are loaded by their name: tasks read them, and no row passes through the
JVM. What is cleaned with DataFrames is loaded where Spark computed it. Every load is one commit.
"""

import datetime as dt
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, initcap, trim

import omnigraph as og
from omnigraph import spark as ogs

HERE = Path(__file__).parent


def ingest(spark: SparkSession, files: Path, graph: og.Graph) -> og.LoadResult:
    """Load a folder of Parquet into a branch and merge it into main."""
    people = cleaned(spark.read.parquet(str(files / "people")))
    graph.load(people, "merge", type="Person", branch="import", from_branch="main", spark=spark)
    done = graph.load(
        files / "knows",
        "append",
        edge="Knows",
        branch="import",
        columns={"who": "from", "whom": "to"},
        engine="spark",
        spark=spark,
    )
    graph.branches.merge("import", delete_source=True)
    return done


def cleaned(people: DataFrame) -> DataFrame:
    """Names without spaces around them, one row a name."""
    named = people.withColumn("name", trim(col("full_name"))).withColumn("city", initcap("city"))
    return named.where("name != ''").dropDuplicates(["name"]).select("name", "age", "city")


def by_city(spark: SparkSession, graph: og.Graph) -> DataFrame:
    """How many people of a city know somebody."""
    return graph.spark.sql(
        """
        select p.city, count(distinct p.id) as people, count(*) as acquaintances
        from Person p join Knows k on k.src = p.id
        group by p.city order by p.city
        """,
        spark=spark,
    )


def sample(files: Path) -> Path:
    """A little Parquet, with the blemishes that real files have."""
    people = {
        "full_name": ["Ada", "Bob ", " Cy", "Ada", ""],
        "age": [36, 7, 80, 36, None],
        "city": ["london", "PARIS", "oslo", "london", None],
    }
    since = [dt.date(2020, 1, 1), None, dt.date(2021, 5, 5)]
    knows = {"who": ["Ada", "Bob", "Ada"], "whom": ["Bob", "Cy", "Cy"], "since": since}
    for name, columns in (("people", people), ("knows", knows)):
        (files / name).mkdir(parents=True)
        pq.write_table(pa.table(columns), files / name / "part-0.parquet")
    return files


def main() -> None:
    where = sys.argv[1]
    files = Path(sys.argv[2]) if len(sys.argv) > 2 else sample(Path(tempfile.mkdtemp()))
    graph = og.init(where, HERE / "schema.pg")
    spark = ogs.session("bulk")
    done = ingest(spark, files, graph)
    print(f"loaded {done.total_entities} edges on {done.engine}, commit {done.commit.id}")
    by_city(spark, graph).show()
    spark.stop()


if __name__ == "__main__":
    main()
