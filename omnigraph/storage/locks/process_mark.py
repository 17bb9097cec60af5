"""Process marks: whether the process that holds a lease is dead, as far as this machine can tell.

A process that takes leases keeps an `flock` on an empty file of its own in the temporary folder and
names the file, and the boot of its kernel, in each lease. The kernel frees the `flock` when the
process ends, kill -9 included, and gives it to nobody else: a process number that is used again, or
a container with numbers of its own, deceives nobody.

Invariant: `is_dead` is certain. Another machine, another boot, a container with another temporary
folder, a file that was cleaned away: all of these are unknown, and the lease is waited for.
"""

import fcntl
import os
import stat
import tempfile
import threading
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_SWEPT_AGE_S = 86_400.0

Mark = dict[str, str]
"""What a lease says about its holder: the boot of the kernel, and the name of the file."""


class _Own:
    """The mark of this process. A forked child makes its own."""

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self.process = 0
        self.mark: Mark | None = None
        self.descriptor = -1  # never closed: the `flock` lives as long as the process


_own = _Own()


def own_mark() -> Mark | None:
    """The mark of this process, or None where it cannot have one."""
    with _own.turn:
        if _own.process != os.getpid():
            _own.process = os.getpid()
            try:
                _own.mark, _own.descriptor = _made()
            except OSError:
                _own.mark = None
        return _own.mark


def current_boot() -> str | None:
    """The boot of this machine's kernel, or None where it has no name."""
    try:
        return _boot()
    except OSError:
        return None


def is_dead(mark: Any) -> bool:
    """Whether the process of a mark ran on this machine and has ended. False when unknown."""
    try:
        if mark["boot"] != _boot():
            return False
        descriptor = os.open(_folder() / _file_name(mark["file"]), os.O_RDWR | os.O_CLOEXEC)
    except (OSError, KeyError, TypeError, ValueError):
        return False
    try:
        return _flocked(descriptor)
    finally:
        os.close(descriptor)


def _made() -> tuple[Mark, int]:
    folder = _folder()
    folder.mkdir(mode=0o700, exist_ok=True)
    # Anyone may have made a folder of this name in the shared temporary directory first.
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to somebody else")
    _sweep(folder)
    mark = {"boot": _boot(), "file": uuid.uuid4().hex}
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(folder / _file_name(mark["file"]), flags, 0o600)
    if not _flocked(descriptor):
        raise BlockingIOError("a file system without flock")
    return mark, descriptor


def _sweep(folder: Path) -> None:
    """Remove the files of processes that are long gone. Their leases ran out by themselves."""
    oldest = time.time() - _SWEPT_AGE_S
    for path in folder.iterdir():
        with suppress(OSError):
            if path.stat().st_mtime < oldest and is_dead({"boot": _boot(), "file": path.name}):
                path.unlink()


def _flocked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _boot() -> str:
    """The boot of this kernel: of two machines that share a folder, only one has it."""
    return _BOOT_ID.read_text(encoding="ascii").strip()


def _folder() -> Path:
    return Path(tempfile.gettempdir()) / f"omnigraph-processes-{os.getuid()}"


def _file_name(text: str) -> str:
    """The name as it is written in a lease, which anyone may write: hex digits and no path."""
    return uuid.UUID(hex=text).hex
