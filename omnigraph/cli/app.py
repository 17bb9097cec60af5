"""The `omnigraph` command.

Invariant: starting it loads the command line alone. Languages, storage and Spark are each loaded
by the command that needs them, so `omnigraph --help` answers at once.
"""

import sys
from typing import Annotated

import typer

from omnigraph import __version__
from omnigraph.cli import branch, bulk, data, history, queries, schema, upkeep
from omnigraph.cli.terminal import show, warn

app = typer.Typer(
    name="omnigraph",
    help="A typed property-graph database with branches, commits and merges.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(data.init)
app.command()(data.query)
app.command()(data.mutate)
app.command()(bulk.load)
app.command()(bulk.export)
app.add_typer(branch.app)
app.add_typer(history.commit_app)
app.command()(history.snapshot)
app.command()(history.recoveries)
app.add_typer(schema.app)
app.command()(upkeep.optimize)
app.command()(upkeep.repair)
app.command()(upkeep.cleanup)
app.command()(upkeep.check)
app.command()(queries.lint)
app.command()(queries.explain)


def _version_flag(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", "-v", callback=_version_flag, is_eager=True, help="As version."),
    ] = False,
) -> None:
    """A typed property-graph database with branches, commits and merges."""


@app.command()
def version() -> None:
    """Print the program's version and the storage format it reads."""
    from omnigraph.storage.stamp import INTERNAL_SCHEMA_VERSION

    show(f"omnigraph {__version__}")
    show(f"internal-schema {INTERNAL_SCHEMA_VERSION}")


_OLDER_SPELLINGS = {
    ("check",): ("lint",),
    ("query", "lint"): ("lint",),
    ("query", "check"): ("lint",),
    ("read",): ("query",),
    ("change",): ("mutate",),
}
_GLOBAL_OPTIONS = frozenset({"--store", "--as", "--uri"})
_GLOBAL_FLAGS = frozenset({"--quiet", "--yes"})


def main() -> None:
    """The entry point: spellings of older releases still work, with a warning."""
    arguments = _globals_last(sys.argv[1:])
    for old, new in _OLDER_SPELLINGS.items():
        if tuple(arguments[: len(old)]) == old and not _is_upkeep(arguments):
            warn(f"'omnigraph {' '.join(old)}' is now 'omnigraph {' '.join(new)}'")
            arguments = [*new, *arguments[len(old) :]]
            break
    app(args=arguments, prog_name="omnigraph")


def _is_upkeep(arguments: list[str]) -> bool:
    """Whether `check` means the graph: queries were checked with --query."""
    return arguments[:1] == ["check"] and not any(a.startswith("--query") for a in arguments)


def _globals_last(arguments: list[str]) -> list[str]:
    """Options that may stand before the command, moved behind it, where the command takes them."""
    leading = 0
    while leading < len(arguments):
        word = arguments[leading]
        if word in _GLOBAL_OPTIONS:
            leading += 2
        elif word in _GLOBAL_FLAGS or word.partition("=")[0] in _GLOBAL_OPTIONS:
            leading += 1
        else:
            break
    return [*arguments[leading:], *arguments[:leading]]
