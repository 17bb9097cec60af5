"""Addresses that jobs may read from and write to: those below an allowed base (path traversal).

Invariant: nothing outside a base is named, also through `..`, an encoded dot, a pattern or a
symbolic link. Without bases nothing is allowed.
"""

import glob
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import unquote

from omnigraph.errors import BadRequest

_S3, _FILE = "s3://", "file://"
_PATTERN = frozenset("*?[")


def checked_base(base: str) -> str:
    """A base as addresses are compared with it, or `BadRequest`."""
    if base.startswith(_S3):
        if len(base.removeprefix(_S3).strip("/")) == 0 or not _is_plain(base.removeprefix(_S3)):
            raise BadRequest(f"'{base}' is no base for jobs", "write s3://bucket/prefix/")
        return base if base.endswith("/") else f"{base}/"
    path = base.removeprefix(_FILE)
    if "://" in path or not os.path.isdir(path):
        raise BadRequest(f"'{base}' is no base for jobs", "give a folder or s3://bucket/prefix/")
    return os.path.join(os.path.realpath(path), "")


def require_below(address: str, bases: Sequence[str], what: str) -> str:
    """The address, if it lies below one of the bases; else `BadRequest`."""
    denied = BadRequest(
        f"the {what} '{address[:200]}' lies below no base that this server allows",
        "start it with --job-source for loads, --job-target for exports",
    )
    if address.startswith(_S3):
        below = any(address.startswith(base) and address != base for base in bases)
        if not below or not _is_plain(address.removeprefix(_S3)):
            raise denied
        return address
    path = address.removeprefix(_FILE)
    if "://" in path or "\0" in path or not os.path.isabs(path) or not _is_plain(path[1:]):
        raise denied
    local = [base for base in bases if not base.startswith(_S3)]
    if not all(_is_inside(each, local) for each in (_fixed(path), *_matches(path))):
        raise denied
    return path


def _is_plain(path: str) -> bool:
    """Whether a path means what it spells: no dots, no empty steps, nothing encoded."""
    steps = path.rstrip("/").split("/")
    return unquote(path) == path and "\\" not in path and not {"", ".", ".."} & set(steps)


def _is_inside(path: str, bases: Iterable[str]) -> bool:
    real = os.path.realpath(path)
    return any(real.startswith(base) or f"{real}/" == base for base in bases)


def _fixed(path: str) -> str:
    """The part of a path before a pattern begins."""
    steps = Path(path).parts
    plain = [n for n, step in enumerate(steps) if _PATTERN & set(step)]
    return str(Path(*steps[: plain[0]])) if plain else path


def _matches(path: str) -> Iterable[str]:
    """The files that a pattern or a folder stands for."""
    matches = glob.glob(path, recursive=True) if _PATTERN & set(path) else [path]
    for each in matches:
        yield each
        if os.path.isdir(each):
            yield from (str(below) for below in Path(each).rglob("*"))
