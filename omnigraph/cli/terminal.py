"""Standard streams of every command: files read, results shown, failures as one message.

Invariant: standard output carries results and nothing else; a failure is shown on standard error
in one message and ends with status 1, never with a traceback unless `--debug` asks for it. A
result that cannot be written is reported as that: what the command did stands. Colours are for
terminals alone.
"""

import errno
import io
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NoReturn

import typer

from omnigraph import environment
from omnigraph.cli.failure_document import failure_document
from omnigraph.cli.scope import scope
from omnigraph.cli.start import INTERRUPTED
from omnigraph.errors import BadRequest, NotFound, OmnigraphError
from omnigraph.exec.values.json_text import indented_text

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def read_text(path: str) -> str:
    """The text of a UTF-8 file; `-` is standard input."""
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except FileNotFoundError:
        from omnigraph.catalog.near_paths import near_path

        raise NotFound("file", path, near_path(path)) from None
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


class Unwritable(Exception):
    """The result has nowhere to go. Says why."""


def show(text: str) -> None:
    """A result for a person."""
    with _output():
        sys.stdout.write(f"{text}\n")


def flush_output() -> None:
    """Hand everything shown so far to whoever reads it."""
    with _output():
        sys.stdout.flush()


@contextmanager
def _output() -> Iterator[None]:
    """Raise `Unwritable` for a failure of standard output, which is not one of storage."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as cause:
        raise Unwritable(cause.strerror or str(cause)) from cause


def prepare_streams() -> None:
    """Make writing and reading possible: a stream that was closed is empty, and a sign that an
    output has no code for is written out."""
    # In this order each takes the number that is free, so that no file of ours is ever taken for
    # a standard stream.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def leave_output() -> None:
    """Drop buffered output, so that nothing is written at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def show_json(document: object) -> None:
    """A result for a program: one document, two spaces."""
    show(indented_text(document))


def warn(text: str) -> None:
    """A warning on standard error."""
    sys.stderr.write(f"{painted('warning:', 'yellow', sys.stderr)} {text}\n")


def painted(text: str, style: str, stream: IO[str] | None = None) -> str:
    """The text in a colour, where the stream is a terminal that has them."""
    if not colours(sys.stdout if stream is None else stream):
        return text
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"


def colours(stream: IO[str]) -> bool:
    """Whether a stream shows colours."""
    return stream.isatty() and not environment.NO_COLOR.read() and environment.TERM.read() != "dumb"


def fail(text: str, cause: BaseException | None = None) -> NoReturn:
    """End the command: with the message on standard error, and where the result would have been
    JSON, with a document about the failure on standard output."""
    text = text if cause is None else in_options(text)
    if scope().json:
        show_json(failure_document(text, cause))
    sys.stderr.write(f"{painted('error:', 'red', sys.stderr)} {text}\n")
    raise typer.Exit(1)


OPTIONS = {
    "answer with resolve=": "answer with --resolve",
    "name one with name=, at a terminal as the first word: ": "name one as the first word: ",
    "name one: graph=, --graph ID": "name one: --graph ID",
    "pass actor=, or --as": "pass --as",
    "pass from_branch= (`from` in a request)": "pass --from",
    "pass token=, set OMNIGRAPH_BEARER_TOKEN": "set OMNIGRAPH_BEARER_TOKEN",
    "type= or edge=, at a terminal --node or --edge": "--node or --edge",
    "use engine='local'": "use --engine local",
    "use engine='spark'": "use --engine spark",
}
"""What errors call an argument of the library, and the option that takes its place here."""


def in_options(text: str) -> str:
    """The message of an error with the options of commands for the arguments of the library."""
    for argument, option in OPTIONS.items():
        text = text.replace(argument, option)
    return text


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn every failure into one message and status 1."""
    try:
        yield
        with _output():
            sys.stdout.flush()
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except BrokenPipeError:
        leave_output()  # the reader, `head` say, has gone
        raise typer.Exit(0) from None
    except Unwritable as cause:
        _trace()
        leave_output()
        fail(f"cannot write the result: {cause}; make room and look: a commit that was made stands")
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except OmnigraphError as cause:
        _trace()
        fail(str(cause), cause)
    except OSError as cause:
        _trace()
        fail(_storage_text(cause))
    except Exception as cause:  # noqa: BLE001  # a bug ends in one message too
        _trace()
        what = f"{type(cause).__name__}: {cause}".strip().splitlines()[0]
        fail(f"the program failed unexpectedly ({what}); run it again with --debug and report it")


def _trace() -> None:
    if scope().debug:
        traceback.print_exc()


_ADVICE = {
    errno.ENOSPC: "free some space and repeat",
    errno.EDQUOT: "free some space and repeat",
    errno.EFBIG: "choose a file system, or a limit, that allows larger files",
    errno.EACCES: "ask for the permission, or choose another place",
    errno.EPERM: "ask for the permission, or choose another place",
    errno.EROFS: "the file system is read-only; choose another place",
}


def _storage_text(cause: OSError) -> str:
    what = cause.strerror or str(cause)
    where = f"'{cause.filename}': " if cause.filename else ""
    advice = _ADVICE.get(cause.errno or 0, "look at the file system, then repeat")
    return f"{where}{what}; {advice}"
