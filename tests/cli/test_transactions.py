"""Transactions as the command line does them: the worked examples, each command a process.

The schema, the mutations and the queries are those of docs/transactions.md.
"""

import json
import shlex
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.cli import warm
from tests.cli.program import PROGRAM, Done, run

SCHEMA = """
node Person { name: String @key, age: I32? }
node Team { name: String @key }
edge WorksAt: Person -> Team
"""
MUTATIONS = """
query register_employee_with_team($name: String, $age: I32, $team: String) {
  insert Person { name: $name, age: $age }
  insert WorksAt { from: $name, to: $team }
}
query register_employee($name: String, $age: I32) {
  insert Person { name: $name, age: $age }
}
query link_to_team($name: String, $team: String) {
  insert WorksAt { from: $name, to: $team }
}
query add_team($name: String) { insert Team { name: $name } }
query set_age($name: String, $age: I32) { update Person set { age: $age } where name = $name }
"""
QUERIES = """
query list_employees() {
  match { $p: Person }
  return { $p.name as name, $p.age as age }
  order { name }
}
query teams() {
  match { $p: Person  $p worksAt $t }
  return { $p.name as name, $t.name as team }
  order { name }
}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in {
        "schema.pg": SCHEMA,
        "mutations.gq": MUTATIONS,
        "queries.gq": QUERIES,
    }.items():
        (tmp_path / name).write_text(text)
    assert run("init", "--schema", "schema.pg", "./graph.omni", cwd=tmp_path).returncode == 0
    change = ("change", "--query", "./mutations.gq", "--name", "add_team")
    assert run(*change, "--params", '{"name":"Acme"}', "./graph.omni", cwd=tmp_path).returncode == 0
    return tmp_path


def sh(folder: Path, command: str) -> Done:
    """One command as it is written in the examples, as a process."""
    words = shlex.split(command.replace("\\\n", " "))
    assert words[0] == "omnigraph"
    done = subprocess.run([warm.program(), *words[1:]], cwd=folder, capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    return Done(done.returncode, done.stdout, done.stderr)


def rows(folder: Path, query: str, *options: str) -> list[dict[str, object]]:
    read = ("read", "--query", "./queries.gq", "--name", query, *options, "./graph.omni", "--json")
    found: list[dict[str, object]] = json.loads(run(*read, cwd=folder).stdout)["rows"]
    return found


def test_one_query_of_several_statements_is_atomic(folder: Path) -> None:
    done = sh(
        folder,
        """omnigraph change --query ./mutations.gq --name register_employee_with_team \\
  --params '{"name":"Alice","age":30,"team":"Acme"}' ./graph.omni""",
    )
    assert (done.returncode, done.stdout) == (
        0,
        "changed main via register_employee_with_team: 1 nodes, 1 edges\n",
    )
    assert rows(folder, "teams") == [{"name": "Alice", "team": "Acme"}]

    failed = sh(
        folder,
        """omnigraph change --query ./mutations.gq --name register_employee_with_team \\
  --params '{"name":"Bea","age":31,"team":"Nowhere"}' ./graph.omni""",
    )
    assert failed.returncode == 1
    assert "'Nowhere' not found in Team" in failed.stderr
    assert [row["name"] for row in rows(folder, "list_employees")] == ["Alice"]


def test_two_queries_on_main_are_two_commits(folder: Path) -> None:
    first = sh(
        folder,
        "omnigraph change --query ./mutations.gq --name register_employee "
        """--params '{"name":"Alice","age":30}' ./graph.omni""",
    )
    second = sh(
        folder,
        "omnigraph change --query ./mutations.gq --name link_to_team "
        """--params '{"name":"Alice","team":"Nowhere"}' ./graph.omni""",
    )
    assert (first.returncode, second.returncode) == (0, 1)
    assert [row["name"] for row in rows(folder, "list_employees")] == ["Alice"]


BRANCH = "onboarding/2026-04-25"


def call(folder: Path, command: str) -> Done:
    """The same in this process, for what another test showed as processes."""
    return run(*shlex.split(command.replace("\\\n", " "))[1:], cwd=folder)


def onboard(folder: Path, sh: Callable[[Path, str], Done]) -> None:
    done = sh(folder, f"omnigraph branch create --from main {BRANCH} ./graph.omni")
    assert done.stdout == f"created branch {BRANCH} from main\n"
    for query, params in (
        ("register_employee", '{"name":"Alice","age":30}'),
        ("register_employee", '{"name":"Bob","age":25}'),
        ("link_to_team", '{"name":"Alice","team":"Acme"}'),
    ):
        done = sh(
            folder,
            f"omnigraph change --branch {BRANCH} \\\n"
            f"  --query ./mutations.gq --name {query} \\\n"
            f"  --params '{params}' ./graph.omni",
        )
        assert done.returncode == 0, done.stderr


def test_many_queries_become_one_commit_by_a_branch(folder: Path) -> None:
    onboard(folder, sh)
    assert rows(folder, "list_employees") == []
    inspected = sh(
        folder,
        f"omnigraph read --branch {BRANCH} \\\n"
        "  --query ./queries.gq --name list_employees ./graph.omni",
    )
    assert inspected.stdout == (
        f"2 rows from branch {BRANCH} via list_employees\n"
        "name  | age\n------+----\nAlice | 30 \nBob   | 25 \n"
    )

    merged = sh(folder, f"omnigraph branch merge {BRANCH} --into main ./graph.omni")
    assert merged.stdout == f"merged {BRANCH} into main: fast_forward\n"
    assert [row["name"] for row in rows(folder, "list_employees")] == ["Alice", "Bob"]
    assert rows(folder, "teams") == [{"name": "Alice", "team": "Acme"}]


def test_a_branch_that_is_not_wanted_leaves_main_as_it_was(folder: Path) -> None:
    onboard(folder, call)
    done = sh(folder, f"omnigraph branch delete {BRANCH} ./graph.omni")
    assert (done.returncode, done.stdout) == (0, f"deleted branch {BRANCH}\n")
    assert rows(folder, "list_employees") == []
    assert run("branch", "list", "./graph.omni", cwd=folder).stdout.split()[0] == "main"


AGENT = """
set -e
omnigraph branch create --from main {agent}/work ./graph.omni
for n in 1 2 3; do
  omnigraph change --branch {agent}/work \\
    --query ./mutations.gq --name register_employee_with_team \\
    --params '{{"name":"{agent}-'$n'","age":3'$n',"team":"Acme"}}' --as {agent} ./graph.omni
done
omnigraph branch merge {agent}/work --into main --as {agent} ./graph.omni
"""


def agent(
    folder: Path, name: str, script: str, program: Sequence[str] = PROGRAM
) -> subprocess.Popen[str]:
    """An agent: a shell of its own that calls the program again and again."""
    program = " ".join(map(shlex.quote, program))
    text = f'omnigraph() {{ {program} "$@"; }}\n{script.format(agent=name)}'
    return subprocess.Popen(
        ["bash", "-c", text],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_two_agents_work_at_once_and_both_are_merged(folder: Path) -> None:
    agents = [agent(folder, name, AGENT) for name in ("agent-a", "agent-b")]
    outputs = [process.communicate() for process in agents]
    assert [process.returncode for process in agents] == [0, 0], outputs

    assert [row["name"] for row in rows(folder, "list_employees")] == [
        f"{name}-{n}" for name in ("agent-a", "agent-b") for n in (1, 2, 3)
    ]
    kinds = sorted(out.splitlines()[-1].rpartition(": ")[2] for out, _ in outputs)
    assert kinds in (["fast_forward", "merged"], ["merged", "merged"])
    for name in ("agent-a", "agent-b"):
        by = run("commit", "list", "./graph.omni", "--filter", f"actor={name}", cwd=folder)
        assert f"  {name}  " in by.stdout


CLASH = """
set -e
omnigraph branch create --from main {agent}/work ./graph.omni
omnigraph change --branch {agent}/work --query ./mutations.gq --name set_age \\
  --params '{{"name":"Alice","age":'$AGE'}}' ./graph.omni
"""


def test_two_agents_that_disagree_get_a_conflict_and_main_keeps_the_first(folder: Path) -> None:
    register = ("change", "--query", "mutations.gq", "--name", "register_employee")
    run(*register, "--params", '{"name":"Alice","age":30}', "./graph.omni", cwd=folder)
    agents = [
        agent(folder, name, f"AGE={age}\n{CLASH}", [warm.program()])
        for name, age in (("a", 31), ("b", 32))
    ]
    assert [(p.communicate(), p.returncode)[1] for p in agents] == [0, 0]

    assert sh(folder, "omnigraph branch merge a/work --into main ./graph.omni").returncode == 0
    lost = sh(folder, "omnigraph branch merge b/work --into main ./graph.omni")
    assert lost.returncode == 1
    assert "merge conflicts: node type 'Person', entity id 'Alice'" in lost.stderr
    assert rows(folder, "list_employees") == [{"name": "Alice", "age": 31}]
    assert rows(folder, "list_employees", "--branch", "b/work") == [{"name": "Alice", "age": 32}]
