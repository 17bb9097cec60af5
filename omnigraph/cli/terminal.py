"""What every command needs of a terminal: reading files, showing results, failing plainly.

Invariant: standard output carries results and nothing else; a failure is told on standard error
in one message and ends with status 1, never with a traceback unless `--debug` asks for it. Colours
are for terminals alone.
"""

import errno
import json
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NoReturn

import typer

from omnigraph.cli.scope import scope
from omnigraph.errors import BadRequest, NotFound, OmnigraphError

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
INTERRUPTED = 130


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
    sys.stderr.write(f"{painted('warning:', 'yellow', sys.stderr)} {text}\n")


def painted(text: str, style: str, stream: IO[str] | None = None) -> str:
    """The text in a colour, where the stream is a terminal that has them."""
    if not colours(sys.stdout if stream is None else stream):
        return text
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"


def colours(stream: IO[str]) -> bool:
    """Whether a stream shows colours."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def fail(text: str) -> NoReturn:
    """End the command."""
    sys.stderr.write(f"{painted('error:', 'red', sys.stderr)} {text}\n")
    raise typer.Exit(1)


@contextmanager
def told_plainly() -> Iterator[None]:
    """Turn every failure into one message and status 1."""
    try:
        yield
        sys.stdout.flush()
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except BrokenPipeError:
        # The reader, `head` say, has gone. What is still buffered must not be written at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        raise typer.Exit(INTERRUPTED) from None
    except OmnigraphError as cause:
        _trace()
        fail(str(cause))
    except OSError as cause:
        _trace()
        fail(_storage_text(cause))
    except Exception as cause:  # noqa: BLE001  # a fault of ours is told as plainly as a user's
        _trace()
        what = f"{type(cause).__name__}: {cause}".strip().splitlines()[0]
        fail(f"the program failed unexpectedly ({what}); run it again with --debug and report it")


def _trace() -> None:
    if scope().debug:
        traceback.print_exc()


_ADVICE = {
    errno.ENOSPC: "free some space and repeat; nothing was published",
    errno.EDQUOT: "free some space and repeat; nothing was published",
    errno.EFBIG: "the file system allows no larger file; nothing was published",
    errno.EACCES: "ask for the permission, or choose another place",
    errno.EPERM: "ask for the permission, or choose another place",
    errno.EROFS: "the file system is read-only; choose another place",
}


def _storage_text(cause: OSError) -> str:
    what = cause.strerror or str(cause)
    where = f"'{cause.filename}': " if cause.filename else ""
    advice = _ADVICE.get(cause.errno or 0, "look at the file system, then repeat")
    return f"{where}{what}; {advice}"
