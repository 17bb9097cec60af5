"""Everything in `examples/` runs."""

import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
PEOPLE = ROOT / "examples" / "people"
DEMO = PEOPLE / "demo.sh"
COMMANDS = re.findall(r"^ +(omnigraph .+)$", DEMO.read_text(encoding="utf-8"), re.M)

SHOWN = re.findall(
    r"^```console\n\$ (.+)\n((?:.+\n)*)```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.M
)
"""Commands in the README, each with the output that is shown for it."""


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a program beside the example, with this interpreter's programs on the path."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        command, cwd=PEOPLE, env={**os.environ, "PATH": path}, capture_output=True, text=True
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_demo_succeeds(command: str) -> None:
    done = run(*shlex.split(command))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize("queries", ["queries.gq", "mutations.gq"])
def test_the_example_gives_lint_nothing_to_say(queries: str) -> None:
    done = run("omnigraph", "lint", "--schema", "schema.pg", "--query", queries)
    assert "0 error(s), 0 warning(s)" in done.stdout, done.stdout


@pytest.mark.parametrize(("command", "output"), SHOWN)
def test_the_readme_shows_what_a_command_prints(command: str, output: str) -> None:
    assert run(*shlex.split(command)).stdout == output


def test_the_readme_shows_commands() -> None:
    assert len(SHOWN) >= 3


def test_the_spark_job_counts_people_by_city(spark: SparkSession) -> None:
    job = runpy.run_path(str(PEOPLE / "spark_job.py"))
    rows = {row["city"]: row["people"] for row in job["people_by_city"](spark).collect()}
    assert rows == {"LONDON": 2, "PARIS": 1, "OSLO": 1}


@pytest.mark.slow
def test_the_demo_runs_to_its_end() -> None:
    done = run(DEMO)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\n== ") == len(COMMANDS) + 1
    assert "LONDON   2" in done.stdout
