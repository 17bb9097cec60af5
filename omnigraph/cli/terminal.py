"""What every command needs of a terminal: reading files, showing results, failing plainly.

Invariant: standard output carries results and nothing else; a failure is told on standard error
and ends with status 1, never with a traceback.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import typer

from omnigraph.errors import BadRequest, NotFound, OmnigraphError


def read_text(path: str) -> str:
    """The text of a UTF-8 file; `-` is standard input."""
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except FileNotFoundError:
        raise NotFound("file", path) from None
    except OSError as cause:
        raise BadRequest(f"cannot read '{path}': {cause.strerror or cause}") from None
    except ValueError as cause:  # a NUL byte in the name
        raise BadRequest(f"cannot read {path!r}: {cause}") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as cause:
        raise BadRequest(
            f"'{path}' is not UTF-8 text (byte {cause.start})", "save it as UTF-8"
        ) from None


def show(text: str) -> None:
    """A result for a person."""
    sys.stdout.write(f"{text}\n")


def show_json(document: object) -> None:
    """A result for a program: one document, two spaces."""
    show(json.dumps(document, indent=2, ensure_ascii=False))


def warn(text: str) -> None:
    """Something beside the result."""
    sys.stderr.write(f"warning: {text}\n")


def fail(text: str) -> NoReturn:
    """End the command."""
    sys.stderr.write(f"error: {text}\n")
    raise typer.Exit(1)


@contextmanager
def told_plainly() -> Iterator[None]:
    """Turn every failure a user can cause into one message and status 1."""
    try:
        yield
        sys.stdout.flush()
    except OmnigraphError as cause:
        fail(str(cause))
    except BrokenPipeError:
        # The reader, `head` say, has gone. What is still buffered must not be written at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
