"""The class-data archive: made once for a Java and its jars, then used."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from omnigraph.pipeline.classes import archive_options
from omnigraph.pipeline.java import Java


@pytest.fixture
def java(tmp_path: Path) -> Java:
    (tmp_path / "java").mkdir()
    (tmp_path / "java" / "release").write_text("17")
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "a.jar").write_text("a")
    return Java(tmp_path / "java", 17, "here")


def test_the_first_session_makes_it_and_the_second_uses_it(java: Java, tmp_path: Path) -> None:
    env, jars = {"XDG_CACHE_HOME": str(tmp_path / "cache")}, tmp_path / "jars"
    (made,) = [o for o in archive_options(java, jars, env) if "ArchiveClassesAtExit" in o]
    archive = Path(made.partition("=")[2])
    archive.write_bytes(b"classes")
    assert f"-XX:SharedArchiveFile={archive}" in archive_options(java, jars, env)
    (jars / "b.jar").write_text("another")
    assert any("ArchiveClassesAtExit" in o for o in archive_options(java, jars, env))


def test_it_can_be_left_out(java: Java, tmp_path: Path) -> None:
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "OMNIGRAPH_CLASS_ARCHIVE": "off"}
    assert archive_options(java, tmp_path / "jars", env) == ()
    env = {"XDG_CACHE_HOME": str(tmp_path / "with space")}
    assert archive_options(java, tmp_path / "jars", env) == ()
    assert archive_options(java, tmp_path / "none", env) == ()


def test_the_jvm_is_told(spark: SparkSession) -> None:
    factory = spark.sparkContext._jvm.java.lang.management.ManagementFactory  # type: ignore[union-attr]
    options = " ".join(factory.getRuntimeMXBean().getInputArguments())
    assert "-XX:SharedArchiveFile=" in options or "-XX:ArchiveClassesAtExit=" in options
