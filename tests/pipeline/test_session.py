"""The session: tuned when it is new, untouched when it is not."""

import os
import threading

import pytest
from pyspark.sql import SparkSession

from omnigraph.errors import NotInstalled
from omnigraph.pipeline import session as module
from omnigraph.pipeline.session import Profile, session, settings
from tests.pipeline import jobs


def test_a_new_session_is_tuned(spark: SparkSession) -> None:
    conf = spark.sparkContext.getConf()
    for key, value in settings("interactive", "local[2]").items():
        # Spark puts options of its own before ours.
        assert str(conf.get(key)).endswith(value)
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


def test_the_active_session_is_returned_as_it_is(spark: SparkSession) -> None:
    before = spark.sparkContext.getConf().getAll()
    assert session("bulk", master="local[1]", app_name="another") is spark
    assert spark.sparkContext.getConf().getAll() == before


def test_another_thread_gets_the_same_session(spark: SparkSession) -> None:
    got: list[SparkSession] = []
    thread = threading.Thread(target=lambda: got.append(session()))
    thread.start()
    thread.join()
    assert got == [spark]


@pytest.mark.usefixtures("spark")
def test_the_environment_is_left_as_it_was() -> None:
    assert os.environ.get("PYSPARK_PYTHON") is None
    assert os.environ.get("SPARK_LOCAL_IP") is None


def test_variables_are_restored_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_A", "before")
    monkeypatch.delenv("OMNIGRAPH_B", raising=False)

    def fail() -> None:
        with module._environment({"OMNIGRAPH_A": "during", "OMNIGRAPH_B": "during"}):
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
