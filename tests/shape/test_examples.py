"""Everything in `examples/` runs."""

import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import omnigraph as og
from tests.cli import warm
from tests.cli.program import run as call

ROOT = Path(__file__).parents[2]
PEOPLE = ROOT / "examples" / "people"
DEMO = PEOPLE / "demo.sh"
STEPS = len(re.findall(r"^step ", DEMO.read_text(encoding="utf-8"), re.M))

README = (ROOT / "README.md").read_text(encoding="utf-8")


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a program beside the example, with this interpreter's programs on the path."""
    folders = [str(Path(warm.program()).parent), str(Path(sys.executable).parent)]
    path = os.pathsep.join([*folders, os.environ["PATH"]])
    return subprocess.run(
        command, cwd=PEOPLE, env={**os.environ, "PATH": path}, capture_output=True, text=True
    )


@pytest.mark.parametrize("queries", ["queries.gq", "mutations.gq"])
def test_the_example_gives_lint_nothing_to_say(queries: str) -> None:
    done = run("omnigraph", "lint", "--schema", "schema.pg", "--query", queries)
    assert "0 error(s), 0 warning(s)" in done.stdout, done.stdout


def test_the_spark_job_counts_people_by_city(spark: SparkSession) -> None:
    job = runpy.run_path(str(PEOPLE / "spark_job.py"))
    rows = {row["city"]: row["people"] for row in job["people_by_city"](spark).collect()}
    assert rows == {"LONDON": 2, "PARIS": 1, "OSLO": 1}


def test_parquet_is_ingested_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    job = runpy.run_path(str(ROOT / "examples" / "ingest" / "ingest.py"))
    graph = og.init(tmp_path / "graph.omni", ROOT / "examples" / "ingest" / "schema.pg")
    done = job["ingest"](spark, job["sample"](tmp_path / "files"), graph)
    assert (done.engine, done.edges) == ("spark", {"Knows": 3})
    assert graph.branches.list() == ("main",)
    rows = [tuple(row) for row in job["by_city"](spark, graph).collect()]
    assert rows == [("London", 1, 2), ("Paris", 1, 1)]


@pytest.mark.slow
def test_the_demo_runs_to_its_end(tmp_path: Path) -> None:
    done = run(DEMO, tmp_path / "people.omni")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\n== ") == STEPS
    assert "\nZeta    | 2 " in done.stdout, "the merge made the hire visible"
    assert "LONDON   2" in done.stdout


def test_the_readme_session_runs_and_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run in a copy of the folder it names, so that the graph it makes is not left behind."""
    (session,) = re.findall(r"^```python\n(.+?)^```$", README, re.M | re.S)
    monkeypatch.chdir(shutil.copytree(PEOPLE, tmp_path / "people"))
    exec(compile(session, "README.md", "exec"), {})

    printed = capsys.readouterr().out.splitlines()
    assert printed[:2] == ["update Person Ada", "[{'p.name': 'Ada', 'p.age': 37}]"]
    assert printed[2] == "[{'p.name': 'Ada', 'p.age': None}]"
    graph = og.open("staff.omni", read_only=True)
    assert len(graph.query("query n() { match { $p: Person } return { $p } }")) == 3


def test_agents_research_on_branches_and_a_reviewer_settles_their_conflict(tmp_path: Path) -> None:
    script = ROOT / "examples" / "agents" / "agents.py"
    done = run(sys.executable, script, tmp_path / "memory.omni")
    assert done.returncode == 0, done.stdout + done.stderr
    shown = done.stdout.splitlines()
    outcomes = [line.partition(": ")[2].partition(" ")[0] for line in shown[:3]]
    assert sorted(outcomes) == ["left", "merged", "merged"]
    assert shown[2] == "agent-c: merged"
    assert shown[3:5] == ["conflict: Fact start: [0.2, 0.9]", "reviewer: merged what was left"]
    merged = {"agent-a", "agent-b"} & {
        line.partition(":")[0] for line in shown[:3] if "merg" in line
    }
    for agent, line in zip(("agent-a", "agent-b"), shown[5:7], strict=True):
        own = f"{agent}: a fact, judged"
        assert line == (f"{own}, merged by {agent}" if agent in merged else own)
    assert shown[7:] == [
        "agent-c: a fact, merged by agent-c",
        "reviewer: between the two",
        "changes of the shared fact: 3",
        "sure of it now: 0.55",
        "branches: agent-a/pump, agent-b/pump, agent-c/pump, main",
    ]


def test_a_memory_recalls_what_held_forgets_and_remembers_again(tmp_path: Path) -> None:
    script = ROOT / "examples" / "memory" / "memory.py"
    done = run(sys.executable, script, tmp_path / "memory.omni")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        "spring: The pump leaks oil in the cold. (bob)",
        "spring: The spare pump is in bay two. (ada)",
        "autumn: The pump leaks oil in the cold. (bob)",
        "autumn: The spare pump is in bay five. (ada, beside bay five)",
        "forgotten: 0 facts recalled",
        "undone: 2 facts recalled",
        "pat: that was too much",
        "agent: asked to forget",
    ]


def test_two_agents_and_a_person_share_a_server(tmp_path: Path) -> None:
    script = ROOT / "examples" / "served" / "served.py"
    done = run(sys.executable, script, tmp_path / "memory.omni")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        "pat looks at agent-a/work: fast_forward, 3 differences",
        "pat merges agent-a/work: fast_forward",
        "pat looks at agent-b/work: conflicts, 5 differences",
        "conflict: Fact pump: 0.9 or 0.1",
        "pat merges agent-b/work: merged",
        "agent-a: 0.5",
        "agent-b: 0.5",
        "pump: 0.5",
        "after the revert pump: 0.9",
        "pat: ask again",
        "pat: the truth lies between",
        "pat: work of agent-a",
        "nobody: invalid bearer token",
    ]


def test_a_company_is_searched_by_words_and_by_meaning(tmp_path: Path) -> None:
    done = run(ROOT / "examples" / "company" / "build.sh", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "embedded 4 records (selected 4, cleaned 0)" in done.stdout
    assert "Search over branches            | Ada    | Beacon" in done.stdout
    assert "\nd1   | Search over branches" in done.stdout
    assert "\nHarbour" in done.stdout


@pytest.mark.parametrize("name", ["agents/memory.gq", "company/queries.gq", "memory/memory.gq"])
def test_queries_of_the_other_examples_give_lint_nothing_to_say(name: str) -> None:
    queries = ROOT / "examples" / name
    done = call("lint", "--schema", str(queries.parent / "schema.pg"), "--query", str(queries))
    assert "0 error(s), 0 warning(s)" in done.stdout, done.stdout
