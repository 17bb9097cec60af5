"""User cache folder (`XDG_CACHE_HOME`): files that are cheap to lose and slow to make.

Invariant: the folder belongs to this user alone, so a program kept in it may be run.
"""

import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from omnigraph import environment


def cache_folder(env: Mapping[str, str] | None = None) -> Path:
    """A folder of this user's that files can be written to and run from."""
    return lasting_folder(env) or Path(tempfile.mkdtemp(prefix="omnigraph-"))


def lasting_folder(env: Mapping[str, str] | None = None) -> Path | None:
    """The same, if there is one that the next process finds again."""
    for folder in (_of_user(env), _in_temp()):
        if folder is not None and _usable(folder):
            return folder
    return None


def _of_user(env: Mapping[str, str] | None) -> Path | None:
    caches = environment.CACHE_HOME.read(env) or ""
    if Path(caches).is_absolute():
        return Path(caches) / "omnigraph"
    home = environment.USER_HOME.read(env) or ""
    return Path(home) / ".cache" / "omnigraph" if Path(home).is_absolute() else None


def _in_temp() -> Path | None:
    try:
        return Path(tempfile.gettempdir()) / f"omnigraph-{os.getuid()}"
    except FileNotFoundError:  # every disk is full: there is none that can be written to
        return None


def _usable(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _is_private(folder) and _can_run_from(folder)
    except OSError:
        return False


def _is_private(folder: Path) -> bool:
    # Anyone may have made a folder of this name in the shared temporary directory first.
    facts = folder.lstat()
    others_write = facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid() and not others_write


def _can_run_from(folder: Path) -> bool:
    """Whether a file made here may be executed: a mount can forbid it."""
    with tempfile.NamedTemporaryFile(dir=folder) as probe:
        os.fchmod(probe.fileno(), 0o700)
        return os.access(probe.name, os.X_OK)
