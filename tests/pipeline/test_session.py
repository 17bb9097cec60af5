"""The session: tuned when it is new, untouched when it is not."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from omnigraph import environment
from omnigraph.errors import NotInstalled
from omnigraph.pipeline.session import Profile, session, settings
from tests.pipeline import jobs

AT_START = dict(os.environ)
PARTITIONS = "spark.sql.shuffle.partitions"


def test_a_new_session_is_tuned(spark: SparkSession) -> None:
    conf = spark.sparkContext.getConf()
    for key, value in settings("interactive", "local[2]").items():
        # Spark and the class archive put options of their own beside ours.
        assert value in str(conf.get(key))
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == "65536"
    assert spark.sparkContext.uiWebUrl is None


def test_the_java_options_reach_the_jvm(spark: SparkSession) -> None:
    factory = spark.sparkContext._jvm.java.lang.management.ManagementFactory  # type: ignore[union-attr]
    options = list(factory.getRuntimeMXBean().getInputArguments())
    assert "-XX:+UseSerialGC" in options
    assert "-XX:TieredStopAtLevel=1" in options


def test_it_shuffles_and_runs_python_workers(spark: SparkSession) -> None:
    assert jobs.doubled_sum_by_parity(spark) == jobs.SUM_BY_PARITY


@pytest.fixture
def set_by_its_owner(spark: SparkSession) -> Iterator[SparkSession]:
    """The active session, with a setting that its owner changed and nobody else may."""
    before = spark.sparkContext.getConf().getAll()
    ours = str(spark.conf.get(PARTITIONS))
    spark.conf.set(PARTITIONS, "5")
    yield spark
    left = spark.conf.get(PARTITIONS)
    spark.conf.set(PARTITIONS, ours)
    assert left == "5"
    assert spark.sparkContext.getConf().getAll() == before


def test_the_active_session_is_returned_as_it_is(set_by_its_owner: SparkSession) -> None:
    assert session("bulk", master="local[1]", app_name="another") is set_by_its_owner


def test_another_thread_gets_it_as_it_is(set_by_its_owner: SparkSession) -> None:
    got: list[SparkSession] = []
    thread = threading.Thread(target=lambda: got.append(session()))
    thread.start()
    thread.join()
    assert got == [set_by_its_owner]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("name", ["JAVA_HOME", "PYSPARK_PYTHON", "SPARK_LOCAL_IP"])
def test_the_environment_is_left_as_it_was(name: str) -> None:
    assert os.environ.get(name) == AT_START.get(name)


def test_variables_are_restored_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_A", "before")
    monkeypatch.delenv("OMNIGRAPH_B", raising=False)

    def fail() -> None:
        with environment.borrowed({"OMNIGRAPH_A": "during", "OMNIGRAPH_B": "during"}):
            assert os.environ["OMNIGRAPH_B"] == "during"
            raise NotInstalled("a", "b", "c")

    with pytest.raises(NotInstalled):
        fail()
    assert os.environ["OMNIGRAPH_A"] == "before"
    assert "OMNIGRAPH_B" not in os.environ


def test_a_bulk_session_keeps_the_optimizing_compiler() -> None:
    assert "TieredStopAtLevel" not in settings("bulk", "local[2]")["spark.driver.extraJavaOptions"]


@pytest.mark.parametrize("profile", ["interactive", "bulk"])
def test_a_cluster_can_reach_the_driver(profile: Profile) -> None:
    told = settings(profile, "spark://master:7077")
    assert "spark.driver.host" not in told
    assert "spark.driver.bindAddress" not in told


STOPPED_AND_STARTED = """
from omnigraph.pipeline.session import session
first = session(master="local[1]")
first.sparkContext.stop()
second = session(master="local[1]")
assert second is not first
assert second.range(3).count() == 3
second.stop()
third = session(master="local[1]")
assert third.range(3).count() == 3
third.stop()
"""


@pytest.mark.slow
def test_a_stopped_session_is_replaced() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STOPPED_AND_STARTED], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
