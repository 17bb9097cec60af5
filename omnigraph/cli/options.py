"""Shared command-line options, as typer annotations.

Invariant: an option that is spelled the same means the same everywhere. One whose value cannot be
read ends the command with the status of a wrong call, before anything is opened.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from omnigraph.cli import completing
from omnigraph.cli.config import config
from omnigraph.cli.terminal import plain_errors

MAIN = "main"


class Engine(StrEnum):
    """Engine that does the work."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


def exclusive(**given: object) -> None:
    """Refuse options that contradict each other."""
    flags = [f"--{name}" for name, value in given.items() if value not in (None, False)]
    if len(flags) > 1:
        raise typer.BadParameter(f"{' and '.join(flags)} are mutually exclusive: pass one")


def _actor(given: str | None) -> str | None:
    """The actor of a write: as given, else of the configuration."""
    with plain_errors():
        return given if given is not None else config().actor


def metadata(given: list[str] | None) -> dict[str, str]:
    """The texts of `--meta`, by their keys."""
    texts: dict[str, str] = {}
    for word in given or ():
        key, equals, text = word.partition("=")
        if not equals or not key.strip():
            raise typer.BadParameter(f"--meta '{word}' is not KEY=TEXT")
        if key.strip() in texts:
            raise typer.BadParameter(f"--meta gives '{key.strip()}' twice")
        texts[key.strip()] = text
    return texts


def _duration(given: str | None) -> str | None:
    if given is not None:
        from omnigraph.errors import BadRequest
        from omnigraph.exec.durations import seconds

        try:
            seconds(given)
        except BadRequest as cause:
            raise typer.BadParameter(str(cause)) from None
    return given


# Which graph, and where in it.
GraphPath = Annotated[
    str | None,
    typer.Argument(metavar="URI", help="The graph: a path, s3://bucket/prefix or a server's URL."),
]
Store = Annotated[
    str | None, typer.Option("--store", metavar="URI", help="The graph, instead of the last word.")
]
Branch = Annotated[
    str,
    typer.Option(
        "--branch", metavar="NAME", help="Which branch.", autocompletion=completing.branches
    ),
]
BranchOrMain = Annotated[
    str | None,
    typer.Option(
        "--branch",
        metavar="POINT",
        help="A branch or point (main~3), else main.",
        autocompletion=completing.points,
    ),
]
Snapshot = Annotated[
    str | None,
    typer.Option(
        "--snapshot",
        metavar="POINT",
        help="As it was: a commit, tag, main~3, main@{t}.",
        autocompletion=completing.points,
    ),
]
CommitId = Annotated[
    str,
    typer.Argument(
        metavar="COMMIT",
        help="Its id, or a point: a tag, main~3, main@{t}.",
        autocompletion=completing.points,
    ),
]

# How a command behaves.
Actor = Annotated[
    str | None, typer.Option("--as", metavar="ACTOR", help="Who writes.", callback=_actor)
]
Message = Annotated[
    str | None, typer.Option("-m", "--message", metavar="TEXT", help="What the commit is for.")
]
Meta = Annotated[
    list[str] | None,
    typer.Option("--meta", metavar="KEY=TEXT", help="A text kept with the commit; repeatable."),
]
Retry = Annotated[
    int | None,
    typer.Option(
        "--retry", metavar="N", min=0, help="Prepare it again when another writer came first."
    ),
]


class Timing(StrEnum):
    """When vectors of texts are made: with the write, or by `omnigraph embed`."""

    NOW = "now"
    LATER = "later"


EmbedTiming = Annotated[
    Timing, typer.Option("--embed", help="Make vectors of texts now, or by embed later.")
]


class DatesForm(StrEnum):
    """Form of dates and moments in JSON."""

    NUMBERS = "numbers"
    ISO = "iso"


Dates = Annotated[
    DatesForm,
    typer.Option("--dates", help="Dates in JSON: days and milliseconds since 1970, or ISO text."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="As the storage has it.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Do not say where a write goes.")]
EngineOption = Annotated[Engine, typer.Option("--engine", help="Where the work is done.")]
Confirm = Annotated[bool, typer.Option("--confirm", help="Do it; without, only tell.")]

# Queries.
Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[NAME] [URI]",
        help="Which query of the file, and the graph.",
        autocompletion=completing.queries,
    ),
]
QueryFile = Annotated[
    str | None, typer.Option("--query", metavar="FILE", help="The query file (.gq); - for input.")
]
QueryText = Annotated[
    str | None, typer.Option("-e", "--query-string", metavar="GQ", help="The query itself.")
]
Params = Annotated[str | None, typer.Option("--params", metavar="JSON", help="Its parameters.")]
ParamsFile = Annotated[
    str | None, typer.Option("--params-file", metavar="FILE", help="A file with them.")
]

# Data and schemas.
Data = Annotated[
    str, typer.Option("--data", metavar="FILE", help="A file, folder or pattern; - for input.")
]
Types = Annotated[
    list[str] | None,
    typer.Option(
        "--type",
        metavar="TYPE",
        help="Only this type; may be repeated.",
        autocompletion=completing.types,
    ),
]
NextSchema = Annotated[str, typer.Option("--schema", metavar="FILE", help="The next schema (.pg).")]
OlderThan = Annotated[
    str | None,
    typer.Option(
        "--older-than",
        metavar="DUR",
        help="Commits replaced longer ago: 7d, 12h.",
        callback=_duration,
    ),
]
Grace = Annotated[
    str,
    typer.Option(
        "--grace", metavar="DUR", help="For readers of replaced commits.", callback=_duration
    ),
]
MaxLag = Annotated[
    str | None,
    typer.Option(
        "--max-lag",
        metavar="DUR",
        help="The oldest a commit may get unread: 7d.",
        callback=_duration,
    ),
]
