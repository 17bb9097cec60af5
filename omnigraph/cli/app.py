"""The `omnigraph` command: every subcommand, registered with typer, and `main`.

Invariant: starting it loads the command line alone. Languages, storage and Spark are each loaded
by the command that needs them, so `omnigraph --help` answers at once.
"""

import sys
from itertools import takewhile
from typing import Annotated

import typer

from omnigraph import __version__
from omnigraph.cli import (
    agents,
    backup,
    blob,
    branch,
    bulk,
    changes,
    cleanup,
    cluster,
    compat,
    completion,
    data,
    demo,
    diff,
    draw,
    embed,
    entity_log,
    feed_consumers,
    fmt,
    help_pages,
    history,
    job_commands,
    policy_commands,
    profile,
    queries,
    review,
    schema,
    scope,
    serve,
    server_commands,
    settings,
    shell,
    spark,
    stored_query_commands,
    tag,
    token_commands,
    ui,
    undo_commands,
    upkeep,
)
from omnigraph.cli.options import Json
from omnigraph.cli.terminal import (
    leave_output,
    plain_errors,
    prepare_streams,
    show,
    show_json,
)

_EPILOG = (
    "Everywhere: --profile NAME takes the graph from your config.yaml, --server NAME|URL with "
    "--graph ID from a server, --debug shows where a failure came from, --yes answers questions. "
    "--durability fsync|os says whether a commit is flushed to disk; init keeps the choice with "
    "the graph."
)

app = typer.Typer(
    name="omnigraph",
    help="A typed property-graph database with branches, commits and merges.",
    epilog=_EPILOG,
    cls=help_pages.GroupedHelp,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo.demo)
app.command()(data.init)
app.command()(data.query)
app.command()(data.mutate)
app.command()(shell.shell)
app.command()(bulk.load)
app.command()(bulk.export)
app.add_typer(branch.app)
app.add_typer(review.app)
app.add_typer(tag.app)
app.command()(diff.diff)
app.add_typer(draw.app)
app.command()(undo_commands.revert)
app.command()(undo_commands.restore)
app.add_typer(history.commit_app)
app.command()(entity_log.log)
changes.app.add_typer(feed_consumers.app)
app.add_typer(changes.app)
app.command()(history.snapshot)
app.command()(history.recoveries)
app.add_typer(schema.app)
app.command()(upkeep.optimize)
app.command()(upkeep.repair)
app.command()(cleanup.cleanup)
app.command()(upkeep.check)
app.command()(backup.backup)
app.add_typer(spark.app)
app.command()(queries.lint)
app.command()(queries.explain)
app.command()(fmt.fmt)
app.add_typer(stored_query_commands.app)
app.add_typer(blob.app)
app.command()(embed.embed)
app.add_typer(cluster.app)
app.command()(serve.serve)
app.command("mcp")(agents.mcp)
app.add_typer(token_commands.app)
app.add_typer(policy_commands.app)
app.command()(ui.ui)
app.command()(server_commands.login)
app.command()(server_commands.logout)
app.command()(server_commands.whoami)
app.add_typer(server_commands.graphs_app)
app.add_typer(job_commands.app)
app.command()(server_commands.alias)
app.add_typer(profile.app)
app.command()(settings.config)
app.command()(completion.completion)
compat.add_to(app)


def _version_flag(given: bool) -> None:
    if given:
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
def version(json: Json = False) -> None:
    """Print the program's version and the storage format it reads."""
    from omnigraph.storage.stamp import INTERNAL_SCHEMA_VERSION

    if json:
        show_json({"version": __version__, "internal_schema": INTERNAL_SCHEMA_VERSION})
        return
    show(f"omnigraph {__version__}")
    show(f"internal-schema {INTERNAL_SCHEMA_VERSION}")


help_pages.add_to(app)
_VERSION = frozenset({"-v", "--version"})


def main() -> None:
    """The entry point. Whatever happens, the caller sees a message and a status."""
    prepare_streams()
    try:
        with plain_errors():
            _main(sys.argv[1:])
    except typer.Exit as end:
        sys.exit(end.exit_code)
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # the reader of a help text has gone
            leave_output()
            sys.exit(0)
        raise
    finally:
        scope.forget()


def _main(words: list[str]) -> None:
    completion.prepare()
    try:
        arguments = scope.take(words)
    except typer.BadParameter as cause:
        sys.stderr.write(f"Error: {cause.message}\n")
        sys.exit(2)
    if _VERSION.intersection(takewhile(lambda word: word != "--", arguments)):
        arguments = ["--version"]
    arguments = compat.current_spelling(arguments)
    app(args=arguments, prog_name="omnigraph")
