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

import omnigraph as og
from tests.cli.program import Done
from tests.cli.program import run as call

ROOT = Path(__file__).parents[2]
PEOPLE = ROOT / "examples" / "people"
DEMO = PEOPLE / "demo.sh"
STEPS = len(re.findall(r"^step ", DEMO.read_text(encoding="utf-8"), re.M))

README = (ROOT / "README.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"^```console\n\$ (.+)\n((?:.+\n)*)```$", README, re.M)
"""Commands in the README, each with the output that is shown for it."""


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a program beside the example, with this interpreter's programs on the path."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        command, cwd=PEOPLE, env={**os.environ, "PATH": path}, capture_output=True, text=True
    )


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


def test_the_demo_runs_to_its_end(tmp_path: Path) -> None:
    done = run(DEMO, tmp_path / "people.omni")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\n== ") == STEPS
    assert "\nZeta    | 2 " in done.stdout, "the merge made the hire visible"
    assert "LONDON   2" in done.stdout


def test_the_readme_session_runs_and_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run from a folder with the examples in it, so that the graph it makes is not left behind."""
    (session,) = re.findall(r"^```python\n(.+?)^```$", README, re.M | re.S)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    exec(compile(session, "README.md", "exec"), {})

    printed = capsys.readouterr().out.splitlines()
    assert printed[:2] == ["update Person Ada", "[{'p.name': 'Ada', 'p.age': 37}]"]
    assert printed[2] == "[{'p.name': 'Ada', 'p.age': None}]"
    graph = og.open("people.omni", read_only=True)
    assert len(graph.query("query n() { match { $p: Person } return { $p } }")) == 3
    for command in re.findall(r"^omnigraph .+$", README, re.M):
        assert run_here(command).returncode == 0, command


def run_here(command: str) -> Done:
    """A command of the README in the current folder."""
    return call(*shlex.split(command)[1:])
