"""`omnigraph fmt`: format schema (`.pg`) and query (`.gq`) files in place.

Invariant: a file is replaced as a whole or left as it is, and only when its text changes. With
`--check` nothing is written. A file that cannot be formatted does not keep the others from it.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from omnigraph.cli.options import Json
from omnigraph.cli.shapes import source_error_document
from omnigraph.cli.terminal import painted, plain_errors, read_text, show, show_json
from omnigraph.errors import BadRequest, OmnigraphError, ParseError
from omnigraph.output_file import whole_file

_STANDARD_INPUT = "-"
_FIRST_WORD = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*(\w*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Formatted:
    """One file: its text before and after, or why it has none."""

    path: str
    before: str = ""
    after: str = ""
    error: OmnigraphError | None = None

    @property
    def changed(self) -> bool:
        return self.before != self.after

    def to_json(self, *, check: bool) -> dict[str, object]:
        """The file's outcome for a program."""
        if self.error is not None:
            return {"path": self.path, "status": "error", "error": _error_document(self.error)}
        status = ("would_change" if check else "changed") if self.changed else "unchanged"
        text = {"text": self.after} if self.path == _STANDARD_INPUT and not check else {}
        return {"path": self.path, "status": status, **text}


def fmt(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE", help="Schemas (.pg) and queries (.gq); - for input."),
    ],
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit with 1 if a file would change.")
    ] = False,
    json: Json = False,
) -> None:
    """Format schema and query files in place. Comments stay; only spaces and lines change."""
    with plain_errors():
        done = [_formatted(path) for path in dict.fromkeys(files)]
        if not check:
            done = [_written(file) for file in done]
        if json:
            show_json(_document(done, check=check))
        else:
            for file in done:
                _show(file, check=check)
    if any(file.error is not None or (check and file.changed) for file in done):
        raise typer.Exit(1)


def _formatted(path: str) -> Formatted:
    try:
        before = read_text(path)
        return Formatted(path, before, _laid_out(path, before))
    except OmnigraphError as cause:
        return Formatted(path, error=cause)


def _laid_out(path: str, text: str) -> str:
    """The text formatted. The suffix of the file, else its first word, decides the language."""
    from omnigraph.language.query.format import format_query_text
    from omnigraph.language.schema.format import format_schema_text

    suffix = Path(path).suffix
    if path != _STANDARD_INPUT and suffix not in (".pg", ".gq"):
        raise BadRequest("not a .pg or .gq file", "rename it, or pass its text as -")
    match = _FIRST_WORD.match(text)
    is_query = suffix == ".gq" or (not suffix and match is not None and match[1] == "query")
    return format_query_text(text) if is_query else format_schema_text(text)


def _written(file: Formatted) -> Formatted:
    """Replace a file whose text changed; the new one appears whole and with the old one's mode."""
    if file.error is not None or not file.changed or file.path == _STANDARD_INPUT:
        return file
    try:
        with whole_file(file.path) as stream:
            stream.write(file.after.encode())
    except BadRequest as cause:
        return Formatted(file.path, error=cause)
    return file


def _show(file: Formatted, *, check: bool) -> None:
    if file.error is not None:
        sys.stderr.write(f"{painted('error:', 'red', sys.stderr)} {file.path}: {file.error}\n")
    elif file.path == _STANDARD_INPUT and not check:
        if file.after:
            show(file.after.removesuffix("\n"))
    elif file.changed:
        name = "standard input" if file.path == _STANDARD_INPUT else file.path
        show(f"{'would format' if check else 'formatted'} {name}")


def _document(done: list[Formatted], *, check: bool) -> dict[str, object]:
    return {
        "files": [file.to_json(check=check) for file in done],
        "changed": sum(file.changed for file in done),
        "errors": sum(file.error is not None for file in done),
    }


def _error_document(cause: OmnigraphError) -> dict[str, object]:
    if not isinstance(cause, ParseError):
        return {"message": str(cause)}
    return source_error_document(cause)
