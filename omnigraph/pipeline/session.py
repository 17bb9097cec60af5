"""Spark session of the pipeline: the active one, or a new one tuned for its use.

Invariant: a session that exists already is used as it is, with its settings. Making one leaves this
process's environment as it was.
"""

import importlib
import logging
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, assert_never

from omnigraph import environment
from omnigraph.costs import VARIABLE
from omnigraph.extras import require_spark
from omnigraph.pipeline.classes import archive_options
from omnigraph.pipeline.connect_session import is_connect
from omnigraph.pipeline.java import Java, find_java
from omnigraph.pipeline.launch_interrupts import later_interrupts
from omnigraph.pipeline.package import executor_settings, require_archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Profile = Literal["interactive", "bulk"]
"""Tuning of a session: for latency or for throughput."""

ARROW_BATCH_ROWS = 65_536
SHUFFLE_PARTITIONS_MAX = 8

_LOOPBACK = "127.0.0.1"
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")

_ALWAYS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_BATCH_ROWS),
}

_making = threading.Lock()


def session(
    profile: Profile = "interactive",
    master: str | None = None,
    app_name: str = "omnigraph",
    config: Mapping[str, str] | None = None,
    archive: str | None = None,
) -> "SparkSession":
    """The active session, or a new one tuned for `profile` on `master` (this machine if None).

    `config` are settings of Spark's that a new session gets beside ours; `archive` is what
    `omnigraph spark package` built, for executors that have no OmniGraph of their own. Either way
    the session knows the format `omnigraph`.
    """
    require_spark()
    if archive is not None:
        require_archive(archive)
    # Spark takes a second to import and most commands never need it.
    spark_session: type[SparkSession] = importlib.import_module("pyspark.sql").SparkSession
    # One at a time: the environment that a launch borrows belongs to the whole process.
    with _making:
        active = _existing(spark_session)
        if active is not None:
            register(active)
            return active
        if environment.GATEWAY_PORT.read() is not None:
            # spark-submit started the JVM and this process, with every setting.
            made = spark_session.builder.appName(app_name).getOrCreate()
        else:
            builder = spark_session.builder.appName(app_name)
            ours = executor_settings(archive) if archive is not None else {}
            made = _make(builder, profile, master or "local[*]", {**ours, **(config or {})})
        register(made)
        return made


def register(spark: "SparkSession") -> None:
    """Make the format `omnigraph` known to a session."""
    source = importlib.import_module("omnigraph.pipeline.source")
    spark.dataSource.register(source.OmnigraphSource)


def carry_thresholds() -> None:
    """Give the Python workers of the running session the thresholds of this process.

    Spark starts other workers for another environment. Workers of a server of Spark Connect keep
    what that server was started with.
    """
    pyspark = sys.modules.get("pyspark")
    context = None if pyspark is None else pyspark.SparkContext._active_spark_context
    if context is None or context._jsc is None:
        return
    # An empty value hides one that the JVM was started with.
    context.environment[VARIABLE] = environment.TEST_THRESHOLDS.read() or ""
    active = sys.modules["pyspark.sql"].SparkSession._instantiatedSession
    if active is not None:
        register(active)  # the format keeps the environment it was registered with


def beside(spark: "SparkSession") -> "SparkSession":
    """A session with all that another one has now, whose later changes are its own."""
    register(spark)
    if is_connect(spark):
        cloned: SparkSession = spark.cloneSession()  # type: ignore[attr-defined]
        register(cloned)
        return cloned
    return type(spark)(spark.sparkContext, spark._jsparkSession.cloneSession())


def _existing(spark_session: "type[SparkSession]") -> "SparkSession | None":
    """The session of this thread, else the one another thread of this process made."""
    active = spark_session.getActiveSession()
    if active is not None:
        return active
    default: SparkSession | None = spark_session._instantiatedSession
    # Stopping the context alone leaves a session behind that can do nothing.
    return default if default is not None and default.sparkContext._jsc is not None else None


def _make(
    builder: "SparkSession.Builder", profile: Profile, master: str, config: Mapping[str, str]
) -> "SparkSession":
    builder = builder.master(master)
    java = find_java()
    for key, value in {**settings(profile, master, java), **config}.items():
        builder = builder.config(key, value)
    with environment.borrowed(_launch_variables(master, java)), later_interrupts():
        made = builder.getOrCreate()
    _quieten()
    return made


def _quieten() -> None:
    """Keep PySpark from printing, as JSON, each exception that it also raises."""
    logger = importlib.import_module("pyspark.logger").PySparkLogger
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logger.getLogger(name).setLevel(logging.CRITICAL)


def settings(profile: Profile, master: str, java: Java | None = None) -> dict[str, str]:
    """Spark settings of a new session. Others keep Spark's own defaults."""
    chosen = dict(_ALWAYS)
    options = _java_options(profile)
    if java is not None:
        options = (*options, *archive_options(java, _jars()))
    chosen["spark.driver.extraJavaOptions"] = " ".join(options)
    if _is_local(master):
        chosen["spark.driver.host"] = _LOOPBACK
        chosen["spark.driver.bindAddress"] = _LOOPBACK
        chosen["spark.sql.shuffle.partitions"] = str(_shuffle_partitions())
    return chosen


def _java_options(profile: Profile) -> tuple[str, ...]:
    quiet = f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}"
    match profile:
        case "interactive":
            # The quick compiler and the plain collector halve the time to a first answer, and
            # cost a long job almost half its speed.
            return (quiet, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        case "bulk":
            return (quiet,)
        case _:
            assert_never(profile)


def _jars() -> Path:
    home = importlib.import_module("pyspark.find_spark_home")._find_spark_home()
    return Path(home) / "jars"


def _is_local(master: str) -> bool:
    return master.startswith("local")


def _shuffle_partitions() -> int:
    return max(2, min(SHUFFLE_PARTITIONS_MAX, os.cpu_count() or 1))


def _launch_variables(master: str, java: Java) -> dict[str, str]:
    """Environment variables for the JVM and the Python workers it starts."""
    variables = {"JAVA_HOME": str(java.home)}
    if _is_local(master):
        variables["SPARK_LOCAL_IP"] = _LOOPBACK
        # Workers must have the packages this process has; Spark would take `python3` on the path.
        variables["PYSPARK_PYTHON"] = environment.PYSPARK_PYTHON.read() or sys.executable
    return variables
