"""The program under test: called in this process, started as a process, or as a user starts it.

Every way runs `main` with the same arguments. A process of its own shows what only it can show
(exit status, pipes, what others see); a new interpreter, `PROGRAM`, shows also how it begins and
ends. For the rest a call is a hundred times faster.
"""

import contextlib
import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from omnigraph.cli.app import main
from tests.cli import warm

PEOPLE = Path(__file__).parents[2] / "examples" / "people"
SCHEMA = str(PEOPLE / "schema.pg")
PROGRAM = (sys.executable, "-c", "from omnigraph.cli.start import program; program()")


@dataclass(frozen=True)
class Done:
    """What came of one call."""

    returncode: int
    stdout: str
    stderr: str


def start(*arguments: str, stdin: str = "", cwd: Path | None = None) -> Done:
    """One call, in a process of its own."""
    done = subprocess.run(
        [warm.program(), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def run(*arguments: str, stdin: str = "", cwd: Path | None = None) -> Done:
    """One call, in this process."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8", newline=""), io.StringIO()
    source = io.TextIOWrapper(io.BytesIO(stdin.encode()))
    status: Any = 0
    with (
        contextlib.chdir(cwd or Path.cwd()),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(sys, "argv", ["omnigraph", *arguments]),
        mock.patch.object(sys, "stdin", source),
        mock.patch.dict(os.environ, {"COLUMNS": "80"}),
    ):
        try:
            main()
        except SystemExit as end:
            status = end.code
    out.flush()
    return Done(int(status or 0), _text(out), err.getvalue())


def _text(stream: io.TextIOWrapper) -> str:
    """What was written; bytes that are no text, of Parquet say, are spelled out."""
    buffer: io.BytesIO = stream.buffer  # type: ignore[assignment]
    return buffer.getvalue().decode("utf-8", "backslashreplace")


def lines(*arguments: str, cwd: Path | None = None) -> list[str]:
    """The output of a call that succeeds."""
    done = run(*arguments, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def first_words(*arguments: str, cwd: Path | None = None) -> list[str]:
    """The first word of each line that a call which succeeds prints: names in a list."""
    return [line.split()[0] for line in lines(*arguments, cwd=cwd)]


def document(*arguments: str, cwd: Path | None = None) -> Any:
    """The JSON a call that succeeds prints."""
    return json.loads("\n".join(lines(*arguments, "--json", cwd=cwd)))
