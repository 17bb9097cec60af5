"""A command that is called wrongly ends with 2 and a reason, before it looks for a graph."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

from omnigraph.cli import scope
from omnigraph.cli.app import app
from tests.cli.program import SCHEMA, first_words, run

READ = ("query", "-e", "query q() { match { $p: Person } return { $p } }")
BLOB = ("blob", "get", "node", "Doc", "a", "file")
LOAD = ("load", "--data", "x.jsonl", "--mode", "merge")

VALUES = {
    "upkeep of a server": (("optimize", "--server", "prod"), "jobs start optimize --wait"),
    "a duration": (("cleanup", "--older-than", "soon"), "'soon' is no duration"),
    "no unit of time": (("cleanup", "--older-than", "7y"), "'7y' is no duration"),
    "a grace": (("cleanup", "--keep", "1", "--grace", "-1s"), "is no duration"),
    "nothing kept": (("cleanup", "--keep", "0"), "'--keep'"),
    "no number": (("cleanup", "--keep", "many"), "valid integer"),
    "parameters": ((*READ, "--params", "{"), "--params is not JSON"),
    "deep parameters": ((*READ, "--params", "[" * 9_999), "nested too deeply"),
    "a page": (("changes", "poll", "--limit", "0"), "'--limit'"),
    "a page of a commit": (("commit", "changes", "01X", "--limit", "-3"), "'--limit'"),
    "a number of commits": (("commit", "list", "--limit", "0"), "'--limit'"),
    "a place": (("changes", "poll", "--start", "then"), "'then' is no place"),
    "a filter": (("commit", "list", "--filter", "who=me"), "actor=NAME"),
    "a kind": (("diff", "a", "b", "--kind", "nodes"), "'nodes' is not one of"),
    "an operation": (("diff", "a", "b", "--op", "drop"), "'drop' is not one of"),
    "a mode": (("load", "--data", "x", "--mode", "upsert"), "'upsert' is not one of"),
    "an engine": ((*LOAD, "--engine", "duck"), "'duck' is not one of"),
    "the engine of the demo": (("demo", "--engine", "duck"), "'duck' is not one of"),
    "an answer": (("branch", "merge", "b", "--resolve", "mine"), "'mine' resolves nothing"),
    "a way to merge": (("branch", "merge", "b", "--by", "row"), "'row' is not one of"),
    "a backfill": (("schema", "plan", "--schema", SCHEMA, "--backfill", "x"), "TYPE.PROPERTY=EXPR"),
    "a selection": (
        ("embed", "--input", "a", "--output", "b", "--spec", "c", "--select", "x"),
        "[Type:]field=value",
    ),
    "a length": ((*BLOB, "--length", "0"), "'--length'"),
    "an offset": ((*BLOB, "--offset", "-1"), "'--offset'"),
    "a shell": (("completion", "tcsh"), "'tcsh' is not one of"),
    "no text": ((*LOAD, "--as", "\udcff"), "'\\udcff' is not UTF-8 text"),
    "a server and its graph": (("graphs", "list", "--graph", "x"), "does not take --graph"),
}
PAIRS = {
    "branch and snapshot": ((*READ, "--branch", "b", "--snapshot", "s"), "--branch and --snapshot"),
    "of an export": (("export", "--branch", "b", "--snapshot", "s"), "--branch and --snapshot"),
    "of a blob": ((*BLOB, "--branch", "b", "--snapshot", "s"), "--branch and --snapshot"),
    "parameters twice": ((*READ, "--params", "{}", "--params-file", "f"), "--params-file"),
    "a query twice": ((*READ, "--query", "f.gq"), "--query and --query-string"),
    "json and a format": ((*READ, "--json", "--format", "csv"), "--json and --format"),
    "json and a look": (("diff", "a", "b", "--json", "--format", "stat"), "--json and --format"),
    "a node and an edge": ((*LOAD, "--node", "A", "--edge", "B"), "--node and --edge"),
    "a cursor and a start": (("changes", "poll", "--cursor", "c", "--start", "now"), "--start"),
    "vectors": (("embed", "--clean", "--reembed-all"), "--clean and --reembed-all"),
    "a plan of a server": (
        ("schema", "plan", "--schema", SCHEMA, "--server", "x"),
        "'omnigraph schema plan' does not take --server",
    ),
    "Parquet to a terminal": (("export", "--format", "parquet"), "--out"),
}


@pytest.mark.parametrize("what", [*VALUES, *PAIRS])
def test_a_wrong_call_is_told_before_anything_is_opened(what: str, tmp_path: Path) -> None:
    words, message = {**VALUES, **PAIRS}[what]
    named = words[:1] in (("demo",), ("embed",), ("completion",), ("graphs",))
    done = run(*words, *(() if named else ("--store", "nowhere.omni")), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.splitlines()[-1].startswith("Error: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", ["query", "mutate"])
def test_a_word_beside_a_text_that_has_no_such_query_is_a_graph(verb: str, tmp_path: Path) -> None:
    text = {"query": READ[2], "mutate": 'query q() { insert Person { name: "x" } }'}[verb]
    done = run(verb, "-e", text, "mydb", cwd=tmp_path)
    assert done.returncode == 1
    assert re.search(r"graph '.*mydb' not found", done.stderr)
    done = run(verb, "-e", text, "q", cwd=tmp_path)
    assert done.returncode == 2
    assert "name a graph" in done.stderr


def test_a_diff_without_its_second_point_says_that_it_is_missing(tmp_path: Path) -> None:
    done = run("diff", "main", "ops.omni", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "AFTER is missing: 'ops.omni' is a graph" in " ".join(done.stderr.split())


def _commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, each in getattr(command, "commands", {}).items():
        yield from _commands(each, (*words, name))
    if not hasattr(command, "commands"):
        yield words, command


def test_every_command_but_those_that_exist_to_talk_takes_quiet() -> None:
    try:
        for words, command in _commands(get_command(app)):
            is_option = any("--quiet" in each.opts for each in command.params)
            is_kept = "--quiet" in scope.take([*words, "--quiet"])
            assert is_kept == (is_option or words[0] in ("demo", "serve", "ui")), words
    finally:
        scope.forget()


@pytest.mark.parametrize(
    "words",
    [
        ("--store", "g.omni", "branch", "list"),
        ("branch", "--store", "g.omni", "list"),
        ("branch", "--store=g.omni", "--quiet", "--yes", "list"),
        ("branch", "list", "--store", "g.omni"),
    ],
    ids=" ".join,
)
def test_a_global_flag_may_stand_anywhere_in_a_command(
    people: Path, words: tuple[str, ...]
) -> None:
    assert first_words(*words, cwd=people) == ["main"]


def test_every_command_of_two_words_is_known_as_one() -> None:
    groups = {name for name, each in get_command(app).commands.items() if hasattr(each, "commands")}  # type: ignore[attr-defined]
    assert groups == scope._GROUPS


def test_a_source_that_is_not_deleted_is_warned_of_in_either_form(people: Path) -> None:
    for name, base in (("x", "main"), ("y", "x")):
        assert run("branch", "create", name, "g.omni", "--from", base, cwd=people).returncode == 0
    for form in ((), ("--json",)):
        done = run("branch", "merge", "x", "g.omni", "--delete-branch", *form, cwd=people)
        assert done.returncode == 0
        assert "warning: branch x was merged but not deleted" in done.stderr


def test_every_command_that_takes_a_graph_takes_its_address_by_uri() -> None:
    """`--uri` is `--store`, or the first word of a command whose graph is one."""
    taking = {}

    def collect(group: Any, path: tuple[str, ...]) -> None:
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                collect(command, (*path, name))
            elif any("--store" in each.opts for each in command.params):
                taking[*path, name] = command

    collect(get_command(app), ())
    assert len(taking) > 50
    for words in taking:
        assert scope.take([*words, "--uri", "g.omni"]) == [*words, "--store", "g.omni"]
        assert scope.take([*words, "--uri=g.omni"]) == [*words, "--store", "g.omni"]
    assert scope.take(["--uri", "g.omni", "branch", "list"]) == [
        "branch",
        "list",
        "--store",
        "g.omni",
    ]
    assert scope.take(["init", "--schema", "s.pg", "--uri", "g"]) == [
        "init",
        "g",
        "--schema",
        "s.pg",
    ]
    assert scope.take(["backup", "to", "--uri", "g.omni"]) == ["backup", "g.omni", "to"]
    assert scope.take(["log", "init", "x", "--uri", "g"]) == ["log", "init", "x", "--store", "g"]
    with pytest.raises(typer.BadParameter, match="named twice, by 'a' and 'b'"):
        scope.take(["query", "--uri", "a", "--store", "b"])
    scope.forget()
