"""Output files: atomic replacement of a plain file, write-through to a device, pipe or FIFO.

Invariant: a plain file appears when it is whole, with the mode of the one it replaces; a link stays
and its target is written; anything else stays what it is. A path that cannot name a file is
`BadRequest` before a byte is written.
"""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import IO
from urllib.parse import unquote, urlsplit

from omnigraph.errors import BadRequest, way_out

_OPEN_FILES = ("/dev/", "/proc/")
"""Links below these lead to open files, which a path alone does not name."""


def file_path(target: object, what: str = "the output") -> Path:
    """The path of a file to write, or `BadRequest`."""
    path = local_path(target, what)
    if str(target).endswith("/") or os.path.isdir(path):
        raise BadRequest(f"{what} '{path}' is a folder", "name a file")
    return path


def folder_path(target: object, what: str = "the output") -> Path:
    """The path of a folder to write to, there or not, or `BadRequest`."""
    path = local_path(target, what)
    if os.path.exists(path) and not os.path.isdir(path):
        raise BadRequest(f"{what} '{path}' is not a folder", "name a folder")
    return path


def local_path(target: object, what: str) -> Path:
    """A path on this machine that can be used, given as a path or as `file://…`."""
    if not isinstance(target, str | os.PathLike) or not isinstance(os.fspath(target), str):
        raise BadRequest(f"{what} is a path, not {type(target).__name__}", "give a path")
    text = str(os.fspath(target))
    if text.startswith("file://"):
        text = unquote(urlsplit(text).path)
    if not text:
        raise BadRequest(f"the path of {what} is empty", "name a file or a folder")
    if "\0" in text:
        raise BadRequest(f"{text!r} cannot be a path", "take the NUL out of it")
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise BadRequest(f"{text!r} cannot be a path", "take half a sign out of it") from None
    if "://" in text:
        raise BadRequest(f"'{text}' is not a path on this machine", f"give a path for {what}")
    return Path(text)


def ending(target: object) -> str:
    """What stands after the last dot of a path's name, in small letters; empty without a path."""
    return PurePath(target).suffix[1:].lower() if isinstance(target, str | os.PathLike) else ""


@contextmanager
def whole_file(target: object, what: str = "the output") -> Iterator[IO[bytes]]:
    """Write a file that appears when the block ends well, and is left as it was otherwise."""
    path = file_path(target, what)
    with writing(path):
        if _is_written_through(path):
            with path.open("wb") as stream:
                yield stream
        else:
            with _replaced(path.resolve()) as stream:
                yield stream


def _is_written_through(path: Path) -> bool:
    try:
        return str(path.absolute()).startswith(_OPEN_FILES) or not stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return False


@contextmanager
def _replaced(path: Path) -> Iterator[IO[bytes]]:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{secrets.token_hex(8)}.part")
    try:
        with unfinished.open("xb") as stream:
            yield stream
            stream.flush()
            if path.exists():
                os.fchmod(stream.fileno(), stat.S_IMODE(path.stat().st_mode))
            os.fsync(stream.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise `BadRequest` for what the operating system refuses."""
    try:
        yield
    except BrokenPipeError:
        raise  # the reader of a pipe has gone
    except OSError as cause:
        why = cause.strerror or str(cause)
        hint = way_out(why) or "choose another place"
        raise BadRequest(f"cannot write '{path}': {why}", hint) from cause
    except RuntimeError as cause:  # a link that leads to itself
        if "loop" not in str(cause):
            raise
        raise BadRequest(f"cannot write '{path}': {cause}", "name a file") from cause
