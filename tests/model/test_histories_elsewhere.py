"""Random histories whose loads run on Spark, and histories of a graph in an S3 bucket."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from tests.model.history import Setting, run_history
from tests.storage.s3 import Server, serve


@pytest.fixture(scope="module")
def bucket() -> Iterator[Server]:
    """An S3 server for this file."""
    with serve() as server:
        yield server


@pytest.mark.parametrize("seed", [21, 22])
def test_a_random_history_with_loads_on_spark_agrees_with_the_model(
    seed: int, spark: SparkSession
) -> None:
    setting = replace(Setting.drawn(seed), engine="spark", has_other_process=False)
    _, failure = run_history(setting, 18, spark=spark)
    assert failure is None, failure.script()


@pytest.mark.parametrize("seed", [31, 32])
def test_a_random_history_in_a_bucket_agrees_with_the_model(seed: int, bucket: Server) -> None:
    place = bucket.place()
    setting = replace(Setting.drawn(seed), uri=place.uri, options=place.options)
    _, failure = run_history(setting, 15)
    assert failure is None, failure.script()
