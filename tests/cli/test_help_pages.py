"""Help: commands in groups, each with a whole sentence and an example that can be called."""

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from omnigraph.cli import scope
from omnigraph.cli.app import app
from omnigraph.cli.help_pages import EXAMPLES, GROUPS
from omnigraph.cli.suggestions import _LINES, _OPTION_LINES
from tests.cli.program import run


def commands(group: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if command.hidden:
            continue
        if hasattr(command, "commands"):
            yield from commands(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


COMMANDS = dict(commands(typer.main.get_command(app)))


def test_a_word_that_is_no_command_is_answered_with_the_near_one_if_there_is_one() -> None:
    assert "No such command 'brnch'. Did you mean 'branch'?" in run("brnch").stderr
    assert "No such command 'lst'. Did you mean 'list'?" in run("branch", "lst").stderr
    assert "No such command 'stats'. 'omnigraph snapshot' counts" in run("stats").stderr
    lines = [*_LINES.values(), *_OPTION_LINES.values()]
    named = {line.split("'")[1].split()[1] for line in lines if "'" in line}
    assert named <= {name.split()[0] for name in COMMANDS}
    assert run("entity").stderr.rstrip().endswith("No such command 'entity'.")


def test_every_command_is_in_one_group_and_has_an_example() -> None:
    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted({path.split()[0] for path in COMMANDS})
    assert EXAMPLES.keys() == COMMANDS.keys()


@pytest.mark.parametrize("path", COMMANDS)
def test_an_example_is_a_call_that_is_understood(path: str) -> None:
    words = shlex.split(EXAMPLES[path].removeprefix('eval "$(').removesuffix(')"'))
    words = words[: next((n for n, word in enumerate(words) if word in "<>"), len(words))]
    assert words[0] == "omnigraph"
    try:
        rest = scope.take(words[1:])
    finally:
        scope.forget()
    depth = len(path.split())
    assert rest[:depth] == path.split()
    COMMANDS[path].make_context(path, rest[depth:])


def test_help_cuts_no_sentence() -> None:
    shown = run("--help").stdout
    assert "..." not in shown.replace("[ARGS]...", "")
    assert [title for title in GROUPS if f"{title}:" not in shown] == []
    assert "Example:\n    omnigraph load kg.omni --data" in run("load", "--help").stdout


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("query --alias who", "'omnigraph alias NAME' runs a query that config.yaml names"),
        ("query --parameters {}", "Did you mean --params?"),
        ("query --parms {}", "Did you mean --params?"),
        ("load --file x --mode merge", "Did you mean --data?"),
        ("mutate --author ada", "Did you mean --as?"),
        ("branch merge x --preview", "Did you mean --dry-run?"),
        ("log Person Ada --since x", "No such option: --since"),
        ("qeury x", "Did you mean 'query'?"),
        ("branch remove x", "Did you mean 'delete'?"),
        ("branch new x", "Did you mean 'create'?"),
        ("commit log", "Did you mean 'list'?"),
        ("delete x", "'omnigraph mutate' runs a query that inserts, updates or deletes"),
        ("undo", "'omnigraph revert' undoes a commit"),
    ],
)
def test_a_slip_is_answered_by_meaning_or_by_edit_distance(words: str, hint: str) -> None:
    done = run(*words.split())
    assert done.returncode == 2
    assert done.stderr.rstrip().endswith(hint)
