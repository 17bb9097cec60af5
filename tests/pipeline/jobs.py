"""A small real job: a shuffle inside the JVM and Arrow batches through Python workers.

Run as a program it prints what it computed and which Java ran it.
"""

import json
import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.functions import col

from omnigraph.pipeline.session import session

ROWS = 1_000
SUM_BY_PARITY = {0: 1000 * 998 // 4 * 2, 1: (1000 * 998 // 4 + 500) * 2}


def _doubled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        twice = [value * 2 for value in batch.column(1).to_pylist()]
        yield pa.RecordBatch.from_arrays([batch.column(0), pa.array(twice)], ["parity", "sum"])


def doubled_sum_by_parity(spark: SparkSession) -> dict[int, int]:
    """Group in the JVM, double in Python."""
    grouped = spark.range(ROWS).groupBy((col("id") % 2).alias("parity")).sum("id")
    rows = grouped.mapInArrow(_doubled, "parity long, sum long").collect()
    return {row["parity"]: row["sum"] for row in rows}


def java_home(spark: SparkSession) -> str:
    """The home of the Java that runs the session."""
    home: str = spark.sparkContext._jvm.System.getProperty("java.home")  # type: ignore[union-attr]
    return home


def main() -> None:
    spark = session(master="local[2]")
    answer = {"sums": doubled_sum_by_parity(spark), "java_home": java_home(spark)}
    sys.stdout.write(json.dumps(answer))
    spark.stop()


if __name__ == "__main__":
    main()
