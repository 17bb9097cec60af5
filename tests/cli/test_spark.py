"""What executors need, from the command line."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from omnigraph.pipeline.package import archive_name, executor_settings
from tests.cli.program import PROGRAM, lines, run


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


@pytest.mark.slow
@pytest.mark.parametrize("after_s", [1, 4, 7])
def test_an_interrupt_of_a_load_on_spark_is_one_word(people: Path, after_s: int) -> None:
    rows = ({"type": "Company", "data": {"name": f"c{n}"}} for n in range(300_000))
    (people / "many.jsonl").write_text("\n".join(map(json.dumps, rows)))
    before = lines("commit", "list", "g.omni", cwd=people)
    words = ("load", "g.omni", "--data", "many.jsonl", "--mode", "append", "--engine", "spark")
    load = subprocess.Popen(
        [*PROGRAM, *words], cwd=people, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    time.sleep(after_s)
    os.killpg(load.pid, signal.SIGINT)  # as a terminal does: Java hears it too
    _, told = load.communicate(timeout=60)
    assert load.returncode == 130
    assert "interrupted" in told.splitlines(), "Java may have the last word"
    assert "Traceback" not in told
    assert lines("commit", "list", "g.omni", cwd=people) == before
