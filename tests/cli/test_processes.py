"""Every command as a process: what it prints, in each format, and how it ends."""

import csv
import io
import json
import os
import re
import resource
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph.cli.app import app
from tests.cli.program import PROGRAM, Done, lines, run, start

WHO = (
    "query who() { match { $p: Person } return { $p.name as name, $p.age as age } order { name } }"
)
TABLE = """\
3 rows from branch main via who
name | age\x20
-----+-----
Ada  | 36\x20\x20
Bob  | 25\x20\x20
Cy   | null
"""
ULID = r"[0-9A-HJKMNP-TV-Z]{26}"
SHORT = r"[0-9A-Z]{10,}  [-\d]+ [:\d]+Z"


def as_json(text: str) -> Any:
    return json.loads(text)


def as_jsonl(text: str) -> Any:
    return [json.loads(line) for line in text.splitlines()]


def as_csv(text: str) -> Any:
    return list(csv.reader(io.StringIO(text)))


def matching(pattern: str) -> Callable[[str], bool]:
    return lambda text: re.fullmatch(pattern, text, re.S) is not None


READS: dict[str, tuple[tuple[str, ...], Callable[[str], Any]]] = {
    "query table": (("query", "-e", WHO, "g.omni"), lambda t: t == TABLE),
    "query csv": (
        ("query", "-e", WHO, "g.omni", "--format", "csv"),
        lambda t: as_csv(t) == [["name", "age"], ["Ada", "36"], ["Bob", "25"], ["Cy", ""]],
    ),
    "query kv": (
        ("query", "-e", WHO, "g.omni", "--format", "kv"),
        lambda t: t.splitlines()[1:4] == ["row 1", "name: Ada", "age: 36"],
    ),
    "query jsonl": (
        ("query", "-e", WHO, "g.omni", "--format", "jsonl"),
        lambda t: (
            as_jsonl(t)[0]["kind"] == "metadata" and as_jsonl(t)[3] == {"name": "Cy", "age": None}
        ),
    ),
    "query json": (
        ("query", "-e", WHO, "g.omni", "--json"),
        lambda t: as_json(t)["rows"][0] == {"name": "Ada", "age": 36},
    ),
    "export": (("export", "g.omni"), lambda t: len(as_jsonl(t)) == 13),
    "branch list": (
        ("branch", "list", "g.omni", "--json"),
        lambda t: as_json(t)["branches"] == ["main"],
    ),
    "commit list": (
        ("commit", "list", "g.omni"),
        matching(rf"{SHORT}  -  \(main\)  \+2 Company .*\n{SHORT}  -\n"),
    ),
    "commit list --verbose": (
        ("commit", "list", "g.omni", "--verbose"),
        matching(rf"({ULID} graph_branch=main graph_manifest_version=\d\n){{2}}"),
    ),
    "commit list --graph": (
        ("commit", "list", "g.omni", "--graph"),
        matching(rf"\* {SHORT}  -  \(main\)  \+2 Company .*\n\* {SHORT}  -\n"),
    ),
    "snapshot": (
        ("snapshot", "g.omni"),
        lambda t: (
            "node type 'Person' published_dataset_version=2 native_dataset_branch=main "
            "entities=3\n" in t
        ),
    ),
    "recoveries": (("recoveries", "g.omni", "--json"), lambda t: as_json(t) == {"recoveries": []}),
    "schema show": (
        ("schema", "show", "g.omni"),
        lambda t: t.startswith("// People, where they work"),
    ),
    "schema get": (
        ("schema", "get", "g.omni", "--json"),
        lambda t: "node Doc" in as_json(t)["schema_source"],
    ),
    "schema check": (
        ("schema", "check", "schema.pg", "--json"),
        lambda t: as_json(t)["status"] == "ok" and len(as_json(t)["nodes"]) == 3,
    ),
    "schema plan": (
        ("schema", "plan", "g.omni", "--schema", "schema.pg", "--json"),
        lambda t: as_json(t)["supported"] is True and as_json(t)["step_count"] == 0,
    ),
    "lint a graph": (
        ("lint", "g.omni", "--query", "queries.gq", "--json"),
        lambda t: as_json(t)["schema_source"] == {"kind": "graph", "uri": "g.omni"},
    ),
    "explain": (
        ("explain", "headcount", "g.omni", "--query", "queries.gq"),
        lambda t: t.startswith("read headcount()\n"),
    ),
    "completion": (("completion", "bash"), lambda t: "_OMNIGRAPH_COMPLETE=complete_bash" in t),
    "profile show": (("profile", "show", "--json"), lambda t: as_json(t)["name"] == "(defaults)"),
    "version": (("version", "--json"), lambda t: as_json(t)["internal_schema"] == 4),
    "shell": (("shell", "g.omni"), lambda t: t == ""),
}


@pytest.mark.parametrize("what", READS)
def test_a_command_that_reads_prints_its_result_and_nothing_else(what: str, prepared: Path) -> None:
    words, fits = READS[what]
    done = start(*words, cwd=prepared)
    assert (done.returncode, done.stderr) == (0, "")
    assert fits(done.stdout), done.stdout
    assert "\x1b" not in done.stdout, "colours are for terminals"


def test_every_command_is_driven_by_a_test_of_this_room() -> None:
    texts = "\n".join(p.read_text("utf-8") for p in Path(__file__).parent.glob("test_*.py"))
    names = [c.name or c.callback.__name__ for c in app.registered_commands if c.callback]
    for group in app.registered_groups:
        inner = group.typer_instance
        assert inner is not None
        commands = [c.name or c.callback.__name__ for c in inner.registered_commands if c.callback]
        names += [f'{inner.info.name}", "{command}' for command in commands]
    assert len(names) > 30
    assert [name for name in names if f'"{name}"' not in texts] == []


def test_commands_that_write_one_after_the_other(people: Path) -> None:
    def did(*words: str) -> Done:
        done = start(*words, cwd=people)
        assert done.returncode == 0, done.stderr
        return done

    made = did("init", "--schema", "schema.pg", "new.omni")
    assert (made.stdout, made.stderr) == ("initialized new.omni\n", "")
    loaded = did("load", "new.omni", "--data", "people.jsonl", "--mode", "append", "--json")
    assert as_json(loaded.stdout)["total_entities"] == 13
    assert loaded.stderr.startswith("omnigraph load → new.omni (direct, local)\n")
    created = did("branch", "create", "b", "new.omni", "--json")
    assert as_json(created.stdout) == {
        "uri": "new.omni", "from": "main", "name": "b", "actor_id": None,
    }  # fmt: skip
    add = 'query m() { insert Company { name: "Nu" } }'
    changed = did("mutate", "-e", add, "new.omni", "--branch", "b", "--as", "act-x", "--quiet")
    assert (changed.stdout, changed.stderr) == (
        "changed b via m: 1 nodes, 0 edges\nactor_id: act-x\n",
        "",
    )
    merged = did("branch", "merge", "b", "new.omni", "--delete-branch", "--json", "--quiet")
    assert as_json(merged.stdout) == {
        "source": "b", "target": "main", "outcome": "fast_forward", "actor_id": None,
        "branch_deleted": True,
    }  # fmt: skip
    head = as_json(did("commit", "list", "new.omni", "--json").stdout)["commits"][0]
    shown = did("commit", "show", head["graph_commit_id"], "new.omni", "--json")
    assert as_json(shown.stdout) == head


def test_ingest_is_load_that_makes_its_branch(people: Path) -> None:
    line = '{"type":"Company","data":{"name":"Nu"}}\n'
    done = run(
        "ingest",
        "g.omni",
        "--data",
        "-",
        "--branch",
        "x",
        "--as",
        "a",
        "--json",
        stdin=line,
        cwd=people,
    )
    assert done.returncode == 0, done.stderr
    found = as_json(done.stdout)
    assert list(found) == [
        "uri", "branch", "base_branch", "branch_created", "mode", "nodes", "edges",
        "total_entities", "actor_id", "commit",
    ]  # fmt: skip
    assert (found["branch_created"], found["mode"], found["actor_id"]) == (True, "merge", "a")
    assert "is now 'omnigraph load'" in done.stderr
    again = run("ingest", "g.omni", "--data", "-", "--branch", "x", stdin=line, cwd=people)
    assert again.stdout == (
        "ingested 1 entities from g.omni into branch x from main with merge (branch exists)\n"
        "node type 'Company': 1\n"
    )


def test_an_export_goes_to_a_file_a_folder_or_a_past_commit(people: Path) -> None:
    head = as_json(run("commit", "list", "g.omni", "--json", cwd=people).stdout)["commits"][0]
    before = run("export", "g.omni", cwd=people).stdout
    assert len(before.splitlines()) == 13
    lines("mutate", "-e", 'query m() { insert Company { name: "Nu" } }', "g.omni", cwd=people)
    lines("export", "g.omni", "--out", "now.jsonl", cwd=people)
    assert len((people / "now.jsonl").read_text().splitlines()) == 14
    then = run("export", "g.omni", "--snapshot", head["graph_commit_id"], cwd=people)
    assert then.stdout == before
    older = run("export", "g.omni", "--table", "Company", cwd=people)
    keyed = run("export", "g.omni", "--table", "node:Company", cwd=people)
    assert keyed.stdout == older.stdout != ""
    assert older.stdout == run("export", "g.omni", "--type", "Company", cwd=people).stdout
    assert "'--table' is now '--type'" in older.stderr
    written = run("export", "g.omni", "--out", "dump", "--format", "parquet", cwd=people)
    assert (people / "dump" / "nodes" / "Person").is_dir()
    said = "exported to dump: 14 entities across 3 node types and 3 edge types\n"
    assert (written.stdout, written.stderr) == ("", said)
    quiet = run("export", "g.omni", "--out", "dump.jsonl", "--quiet", cwd=people)
    assert (quiet.stdout, quiet.stderr) == ("", "")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("omnigraph sna", ["snapshot"]),
        ("omnigraph branch m", ["merge"]),
        ("omnigraph query --format j", ["jsonl", "json"]),
    ],
)
def test_a_shell_completes_commands(words: str, found: list[str]) -> None:
    env = {"_OMNIGRAPH_COMPLETE": "complete_bash", "COMP_WORDS": words}
    env["COMP_CWORD"] = str(words.count(" "))
    done = subprocess.run(PROGRAM, env={**os.environ, **env}, capture_output=True, text=True)
    assert done.stdout.split() == found, done.stderr


def test_init_refuses_a_folder_that_is_not_empty(people: Path) -> None:
    full = people / "full"
    full.mkdir()
    (full / "file").touch()
    words = ("init", "--schema", "schema.pg")
    refused = run(*words, "full", cwd=people)
    assert refused.returncode == 1
    assert "is not empty and holds no graph" in refused.stderr
    assert run(*words, "full", "--force", cwd=people).returncode == 0
    taken = run(*words, "full", "--force", cwd=people)
    assert taken.returncode == 1
    assert "already exists" in taken.stderr


ONE = "query one($n: String, $a: I32) { match { $p: Person { name: $n, age: $a } } return { $p } }"

BAD: dict[str, tuple[tuple[str, ...], int, str]] = {
    "missing query file": (
        ("query", "--query", "none.gq", "g.omni"),
        1,
        "file 'none.gq' not found",
    ),
    "missing data file": (
        ("load", "g.omni", "--data", "none.jsonl", "--mode", "merge"),
        1,
        "input file 'none.jsonl' not found",
    ),
    "bad JSON line": (
        ("load", "g.omni", "--data", "bad.jsonl", "--mode", "merge"),
        1,
        "bad.jsonl:2: malformed JSON",
    ),
    "unknown type": (
        ("load", "g.omni", "--data", "robot.jsonl", "--mode", "merge"),
        1,
        "robot.jsonl:1: unknown node type 'Robot'",
    ),
    "wrong parameter": (
        ("query", "-e", ONE, "g.omni", "--params", '{"n": "Ada", "a": "old"}'),
        1,
        "param 'a'",
    ),
    "missing parameter": (
        ("query", "-e", ONE, "g.omni", "--params", '{"n": "Ada"}'),
        1,
        "parameter 'a' not provided",
    ),
    "no graph": (
        ("query", "-e", WHO, "nowhere.omni"),
        1,
        "nowhere.omni' not found; create it with init",
    ),
    "a file for a graph": (("query", "-e", WHO, "--store", "people.jsonl"), 1, "not found"),
    "a folder for a file": (("query", "--query", ".", "g.omni"), 1, "cannot read '.'"),
    "no commit": (("commit", "show", "01X", "g.omni"), 1, "commit '01X' not found"),
    "no permission": (("init", "--schema", "schema.pg", "/sys/graph.omni"), 1, "/sys/graph.omni"),
    "unknown flag": (("branch", "list", "g.omni", "--frob"), 2, "--frob"),
    "no arguments": (("branch", "merge"), 2, "SOURCE"),
    "precondition": (
        (
            "mutate",
            "-e",
            'query m() { insert Company { name: "x" } }',
            "g.omni",
            "--if-commit",
            "01X",
        ),
        4,
        "precondition failed on branch 'main': expected head '01X'",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_one_message_and_a_status(what: str, prepared: Path, tmp_path: Path) -> None:
    words, status, message = BAD[what]
    (prepared / "bad.jsonl").write_text('{"type":"Company","data":{"name":"x"}}\n{oops\n')
    (prepared / "robot.jsonl").write_text('{"type":"Robot","data":{"name":"x"}}\n')
    done = start(*words, cwd=prepared)
    assert (done.returncode, done.stdout) == (status, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    rows = run("query", "-e", WHO, "g.omni", "--json", cwd=prepared)
    assert as_json(rows.stdout)["row_count"] == 3, "nothing was written"


def _small_files() -> None:
    """As a full disk does, a write beyond this many bytes fails."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))


def test_a_disk_that_takes_no_more_leaves_the_graph_as_it_was(people: Path) -> None:
    with (people / "many.jsonl").open("w") as file:
        for n in range(5_000):
            data = {"slug": f"d{n}", "title": f"A title of its own, number {n}"}
            file.write(json.dumps({"type": "Doc", "data": data}) + "\n")
    words = ("load", "g.omni", "--data", "many.jsonl", "--mode", "append", "--engine", "local")
    done = subprocess.run(
        [*PROGRAM, *words], cwd=people, capture_output=True, text=True, preexec_fn=_small_files
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
    message = done.stderr.splitlines()[-1]
    assert message.startswith("error: ")
    assert "File too large" in message
    assert "nothing was published" in message

    assert lines(*words, cwd=people)[0].startswith("loaded g.omni")
    docs = run(
        "query",
        "-e",
        "query n() { match { $d: Doc } return { count($d) as n } }",
        "g.omni",
        "--json",
        cwd=people,
    )
    assert as_json(docs.stdout)["rows"] == [{"n": 5_002}]


@pytest.mark.parametrize(
    "words", ["export g.omni", "query -e '" + WHO + "' g.omni", "schema show g.omni"]
)
def test_a_reader_that_leaves_early_is_no_failure(words: str, prepared: Path) -> None:
    program = f"{PROGRAM[0]} -c '{PROGRAM[2]}'"
    script = f"{program} {words} | head -c 1 >/dev/null; echo ${{PIPESTATUS[0]}}"
    # The pipe holds 64 KiB, so the reader must be gone before anything is written.
    gone = f"{program} {words} | true; echo ${{PIPESTATUS[0]}}"
    for text in (script, gone):
        done = subprocess.run(
            ["bash", "-c", text], cwd=prepared, capture_output=True, text=True, env={**os.environ}
        )
        assert (done.stdout, done.stderr) == ("0\n", "")


def test_an_interrupt_ends_a_load_with_nothing_written(people: Path) -> None:
    load = subprocess.Popen(
        [*PROGRAM, "load", "g.omni", "--data", "-", "--mode", "append"],
        cwd=people,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert load.stderr is not None
    assert load.stdin is not None
    assert load.stderr.readline().startswith("omnigraph load →")
    load.stdin.write('{"type":"Company","data":{"name":"Nu"}}\n')
    load.stdin.flush()
    load.send_signal(signal.SIGINT)
    out, err = load.communicate(timeout=60)
    assert (load.returncode, out, err) == (130, "", "interrupted\n")
    rows = run(
        "query",
        "-e",
        "query c() { match { $c: Company } return { $c } }",
        "g.omni",
        "--json",
        cwd=people,
    )
    assert as_json(rows.stdout)["row_count"] == 2
