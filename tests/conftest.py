"""What every test may ask for."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from omnigraph.pipeline.session import session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark session for the whole run: starting one costs seconds."""
    made = session(master="local[2]", app_name="omnigraph-tests")
    yield made
    made.stop()
