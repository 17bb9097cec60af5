"""Spark Connect: sessions whose client sends plans to a server, and what they lack.

Invariant: a client of Connect has no context: no RDDs, no accumulators, no local properties. Tasks
of ours run there by way of DataFrames, and meet in block files where the graph is.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TASKS_AT_ONCE = 8


def is_connect(spark: "SparkSession") -> bool:
    """Whether a session is a client of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def parallelism(spark: "SparkSession") -> int:
    """How many tasks run at once, or with Spark Connect, which does not say, a few."""
    if is_connect(spark):
        return int(spark.conf.get("spark.sql.shuffle.partitions") or _TASKS_AT_ONCE)
    return int(spark.sparkContext.defaultParallelism)
