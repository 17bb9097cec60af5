"""What executors need, from the command line."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from omnigraph.pipeline.package import archive_name, executor_settings
from tests.cli.program import lines, run


def test_CL1_the_command_builds_it_and_says_how_to_submit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph.pipeline.package._files", lambda: iter(()))
    done = run("spark", "package", "--out", str(tmp_path))
    assert done.stdout.splitlines()[0].startswith(f"wrote {tmp_path / archive_name()} ")
    assert f"spark-submit --archives {tmp_path / archive_name()}#omnigraph" in done.stdout
    told = json.loads(run("spark", "package", "--out", str(tmp_path / "a.tar.gz"), "--json").stdout)
    assert told["settings"] == executor_settings(str(tmp_path / "a.tar.gz"))


def test_a_query_runs_on_spark(spark: SparkSession, prepared: Path) -> None:
    ask = "query n() { match { $p: Person } return { $p.name as name } order { name } }"
    words = ("query", "-e", ask, "g.omni", "--format", "csv")
    assert lines(*words, "--engine", "spark", cwd=prepared) == lines(*words, cwd=prepared)
