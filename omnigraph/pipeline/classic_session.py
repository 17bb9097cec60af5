"""Spark Connect: which sessions can start tasks of ours, and which are refused."""

from typing import TYPE_CHECKING

from omnigraph.errors import BadRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def require_classic(spark: "SparkSession", doing: str) -> None:
    """Refuse a session of Spark Connect: its client sends plans and cannot start tasks."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise BadRequest(
            f"what {doing} starts tasks of its own, and a session of Spark Connect cannot",
            'use spark.read, df.write and streams of the format "omnigraph" there, or a session of '
            "the program's own: ogs.session(master=…)",
        )
