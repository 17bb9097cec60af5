"""Lock of a cluster's ledger: an object that a state-changing command creates and removes.

    <storage>/__cluster/lock.json

Invariant: at most one command has the lock. It never expires; `force-unlock` with its exact id
removes it. A lock whose process ran on this machine and is known to have ended is taken over, which
needs certainty and no clock.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson
from ulid import ULID

from omnigraph.cluster.diagnostics import ClusterRefusal
from omnigraph.cluster.ledger import FOLDER
from omnigraph.errors import StorageFailed
from omnigraph.storage.beside import has_ended, own_process
from omnigraph.storage.cluster_objects import ClusterObjects, step

LOCK = f"{FOLDER}/lock.json"
_VERSION = 1
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class StateLock:
    """A lock as it is stored."""

    id: str
    operation: str
    created_at: str
    pid: int
    process: dict[str, str] | None = None
    data: bytes = b""

    @property
    def age_seconds(self) -> int:
        """How long ago it was taken, by this machine's clock."""
        taken = datetime.fromisoformat(self.created_at)
        return max(0, int((datetime.now(UTC) - taken).total_seconds()))

    def to_json(self) -> dict[str, Any]:
        return {
            "version": _VERSION,
            "lock_id": self.id,
            "operation": self.operation,
            "created_at": self.created_at,
            "pid": self.pid,
            "process": self.process,
        }


def moment() -> str:
    """Now, as records write it."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def read_lock(objects: ClusterObjects) -> StateLock | None:
    """The lock that somebody has, or None."""
    path = objects.join(LOCK)
    try:
        data = objects.read(LOCK)
    except StorageFailed as cause:
        raise ClusterRefusal("state_lock_read_error", path, str(cause)) from None
    return None if data is None else _decoded(data, path)


def _decoded(data: bytes, path: str) -> StateLock:
    invalid = "it cannot be read: look at it, and remove the file once no command runs"
    try:
        document = orjson.loads(data)
        version = document["version"]
        if version != _VERSION:
            text = f"version {version} is of another program; this one reads {_VERSION}"
            raise ClusterRefusal("unsupported_state_lock_version", path, text)
        process = document.get("process")
        lock = StateLock(
            str(document["lock_id"]),
            str(document["operation"]),
            str(document["created_at"]),
            int(document["pid"]),
            process if isinstance(process, dict) else None,
            data,
        )
        assert lock.age_seconds >= 0
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError):
        raise ClusterRefusal("invalid_state_lock", path, invalid) from None
    return lock


@contextmanager
def locked(objects: ClusterObjects, operation: str) -> Iterator[StateLock]:
    """Have the lock for the length of a block, or `ClusterRefusal` at once."""
    lock = _taken(objects, operation)
    step("cluster.locked")
    try:
        yield lock
    finally:
        step("cluster.unlocking")
        _released(objects, lock)


def _taken(objects: ClusterObjects, operation: str) -> StateLock:
    lock = StateLock(str(ULID()), operation, moment(), os.getpid(), own_process())
    data = orjson.dumps(lock.to_json(), option=orjson.OPT_INDENT_2)
    for _ in range(_ATTEMPTS):
        other = read_lock(objects)
        if other is not None and not has_ended(other.process):
            raise _is_held(objects, other)
        try:
            if objects.swap(LOCK, data, None if other is None else other.data):
                return StateLock(lock.id, operation, lock.created_at, lock.pid, lock.process, data)
        except StorageFailed as cause:
            raise ClusterRefusal("state_lock_error", objects.join(LOCK), str(cause)) from None
    other = read_lock(objects)
    if other is not None:
        raise _is_held(objects, other)
    text = "others take it all the time: try again"
    raise ClusterRefusal("state_lock_error", objects.join(LOCK), text)


def _is_held(objects: ClusterObjects, lock: StateLock) -> ClusterRefusal:
    text = (
        f"'{lock.operation}' (process {lock.pid}) has the lock {lock.id} since {lock.created_at}; "
        f"wait for it, or if it is dead: omnigraph cluster force-unlock {lock.id}"
    )
    return ClusterRefusal("state_lock_held", objects.join(LOCK), text)


def _released(objects: ClusterObjects, lock: StateLock) -> None:
    try:
        objects.remove(LOCK, lock.data)  # if it was broken, it is another's by now
    except StorageFailed as cause:
        raise ClusterRefusal("state_lock_error", objects.join(LOCK), str(cause)) from None


def force_unlock(objects: ClusterObjects, lock_id: str) -> None:
    """Remove the lock of exactly this id, or `ClusterRefusal`."""
    path = objects.join(LOCK)
    lock = read_lock(objects)
    if lock is None:
        raise ClusterRefusal("state_lock_missing", path, "nobody has the lock")
    if lock.id != lock_id:
        text = f"the lock is {lock.id}, not {lock_id}: give the exact id"
        raise ClusterRefusal("state_lock_id_mismatch", path, text)
    try:
        is_removed = objects.remove(LOCK, lock.data)
    except StorageFailed as cause:
        raise ClusterRefusal("state_lock_error", path, str(cause)) from None
    if not is_removed:
        raise ClusterRefusal("state_lock_missing", path, "it was released meanwhile")
