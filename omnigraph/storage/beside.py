"""Small objects beside a graph: records of servers, which are no part of any commit.

    __beside/<folder>/<name>      jobs, answers that are kept for a repeated request, reviews

Invariant: nothing that is read or committed depends on them: they may be deleted at any time, and a
backup leaves them out. A reader sees a whole object or none. Of two processes that swap one object
for what they made of the same content, one succeeds.
"""

import re
import time
from collections.abc import Callable

from omnigraph.errors import BadRequest
from omnigraph.storage.locks.locks import Locks, hold
from omnigraph.storage.locks.process_mark import is_dead, own_mark
from omnigraph.storage.names import lock_name
from omnigraph.storage.objects import Objects, Root

FOLDER = "__beside"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,120}")


Process = dict[str, str]
"""The mark of a process, for a record that says who works at it."""


def own_process() -> Process | None:
    """The mark of this process, or None where it cannot have one."""
    return own_mark()


def has_ended(process: Process | None) -> bool:
    """Whether the process of a mark ran on this machine and has ended; False when unknown."""
    return is_dead(process)


class BesideObjects:
    """The small objects beside one graph, in folders."""

    def __init__(
        self, where: Root, objects: Objects, locks: Locks, require_writable: Callable[[], None]
    ) -> None:
        self._where = where
        self._objects = objects
        self._locks = locks
        self._require_writable = require_writable

    def get(self, folder: str, name: str) -> bytes | None:
        """An object, or None."""
        stored = self._objects.get(_path(folder, name))
        return None if stored is None else stored.data

    def put(self, folder: str, name: str, data: bytes) -> None:
        """Write an object, over what was there."""
        self._require_writable()
        self._objects.put(_path(folder, name), data)

    def create(self, folder: str, name: str, data: bytes) -> bool:
        """Write an object unless there is one; whether it was written."""
        self._require_writable()
        return self._objects.put_if_absent(_path(folder, name), data) is not None

    def swap(self, folder: str, name: str, data: bytes, expected: bytes) -> bool:
        """Replace the content that the caller has read (compare-and-swap); whether it was."""
        self._require_writable()
        path = _path(folder, name)
        if not self._where.is_local:
            stored = self._objects.get(path)
            if stored is None or stored.data != expected:
                return False
            return self._objects.put_if_match(path, data, stored.tag) is not None
        # A local disk has no conditional put over what is there: a lock makes it one.
        with hold(self._locks, [lock_name("beside", folder)]):
            stored = self._objects.get(path)
            if stored is None or stored.data != expected:
                return False
            self._objects.put(path, data)
        return True

    def delete(self, folder: str, name: str) -> None:
        """Remove an object; one that is gone already is no failure."""
        self._require_writable()
        self._objects.delete(_path(folder, name))

    def names(self, folder: str) -> tuple[str, ...]:
        """The names of a folder's objects, those first that were last written."""
        listed = self._objects.listed(f"{FOLDER}/{folder}")
        newest = sorted(listed, key=lambda each: each.modified, reverse=True)
        return tuple(each.path.rpartition("/")[2] for each in newest)

    def delete_older(self, folder: str, seconds: float) -> None:
        """Remove the objects of a folder that were last written longer ago."""
        self._require_writable()
        oldest = time.time() - seconds
        for each in self._objects.listed(f"{FOLDER}/{folder}"):
            if each.modified < oldest:
                self._objects.delete(each.path)


def _path(folder: str, name: str) -> str:
    for each in (folder, name):
        if not _NAME.fullmatch(each) or set(each) == {"."}:
            raise BadRequest(f"'{each[:80]}' is no name for an object", "use letters and digits")
    return f"{FOLDER}/{folder}/{name}"
