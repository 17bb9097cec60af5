"""Claims of registered feed consumers: small JSON objects that keep commits from cleanup.

    __consumers/<encoded name>.json      one object a consumer, replaced by compare-and-swap

Invariant: a claim is no part of any commit. A change of a claim names the claim it was decided
from, so of two that change it at once one decides again; a reader sees a whole claim or none.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import orjson

from omnigraph.errors import AlreadyExists, BadRequest, NotFound, StorageFailed
from omnigraph.light_dataclass import dataclass
from omnigraph.storage.locks.locks import Locks, hold
from omnigraph.storage.manifest.branches import RETENTION_LOCK
from omnigraph.storage.names import encode, lock_name
from omnigraph.storage.objects import Objects, Root, Stored
from omnigraph.storage.records import CommitId

FOLDER = "__consumers"
_FORMAT = 1
_ENCODED_MAX = 180
_ATTEMPTS = 32


@dataclass(frozen=True, slots=True)
class Lapse:
    """The end of a claim: since when, and what cleanup removed that was not acknowledged."""

    moment: int  # microseconds since the epoch
    first_lost: CommitId
    lost_commits: int


@dataclass(frozen=True, slots=True)
class FeedClaim:
    """One registered consumer: the branch and filters of its feed, the last commit that it
    acknowledged, and how far it may fall behind. Moments count microseconds."""

    name: str
    branch: str
    identity: str | None  # of the branch, which may be deleted and made again
    commit: CommitId
    max_commits: int | None
    max_seconds: int | None
    kinds: tuple[str, ...]
    types: tuple[str, ...]
    ops: tuple[str, ...]
    registered_at: int
    acknowledged_at: int
    lapse: Lapse | None = None

    @property
    def max_lag(self) -> str:
        """The largest lag in words."""
        commits = None if self.max_commits is None else f"{self.max_commits} commit(s)"
        seconds = None if self.max_seconds is None else f"{self.max_seconds} s"
        return " or ".join(each for each in (commits, seconds) if each is not None)


class FeedClaims:
    """The claims of one graph."""

    def __init__(
        self, where: Root, objects: Objects, locks: Locks, require_writable: Callable[[], None]
    ) -> None:
        self._where = where
        self._objects = objects
        self._locks = locks
        self._require_writable = require_writable

    @contextmanager
    def on_the_past(self) -> Iterator[None]:
        """A block that may claim commits older than a head: no cleanup removes them meanwhile."""
        self._require_writable()
        with hold(self._locks, [RETENTION_LOCK]):
            yield

    def list(self) -> tuple[FeedClaim, ...]:
        """Every claim, sorted by name."""
        stored = ((path, self._objects.get(path)) for path in self._objects.list(FOLDER))
        claims = (_decoded(path, each.data) for path, each in stored if each is not None)
        return tuple(sorted(claims, key=lambda claim: claim.name))

    def get(self, name: str) -> FeedClaim:
        """One claim."""
        return self._read(name)[0]

    def add(self, claim: FeedClaim) -> None:
        """Store a new claim; of two of one name the second is `AlreadyExists`."""
        self._require_writable()
        if self._objects.put_if_absent(_path(claim.name), _encoded(claim)) is None:
            raise AlreadyExists(
                "feed consumer", claim.name, "remove it first, or choose another name"
            )

    def change(self, name: str, decide: Callable[[FeedClaim], FeedClaim]) -> FeedClaim:
        """Replace a claim by what `decide` makes of it, decided again when another came first."""
        self._require_writable()
        for _ in range(_ATTEMPTS):
            claim, stored = self._read(name)
            changed = decide(claim)
            if changed == claim or self._swap(name, stored, changed):
                return changed
        raise StorageFailed(f"changed the feed consumer '{name}'", "others change it all the time")

    def remove(self, name: str) -> FeedClaim:
        """Delete a claim; the one that went."""
        self._require_writable()
        claim = self.get(name)
        self._objects.delete(_path(name))
        return claim

    def _read(self, name: str) -> tuple[FeedClaim, Stored]:
        stored = self._objects.get(_path(name))
        if stored is None:
            known = ", ".join(f"'{claim.name}'" for claim in self.list()[:5])
            hint = f"there is {known}" if known else "register it first"
            raise NotFound("feed consumer", name, hint)
        return _decoded(_path(name), stored.data), stored

    def _swap(self, name: str, seen: Stored, claim: FeedClaim) -> bool:
        path, data = _path(name), _encoded(claim)
        if not self._where.is_local:
            return self._objects.put_if_match(path, data, seen.tag) is not None
        # A local disk has no conditional put over what is there: a lock makes it one.
        with hold(self._locks, [lock_name("consumers", "")]):
            now = self._objects.get(path)
            if now is None or now.data != seen.data:
                return False
            self._objects.put(path, data)
        return True


def checked_consumer(name: str) -> str:
    """A name that a consumer may have, trimmed, or `BadRequest`."""
    name = name.strip()
    if not name or not name.isprintable():
        raise BadRequest("a feed consumer needs a name", "use visible characters")
    if len(encode(name)) > _ENCODED_MAX:
        raise BadRequest("the name of the feed consumer is too long", "use a shorter one")
    return name


def _path(name: str) -> str:
    return f"{FOLDER}/{encode(name)}.json"


def _encoded(claim: FeedClaim) -> bytes:
    return orjson.dumps({"format": _FORMAT, **asdict(claim)}, option=orjson.OPT_INDENT_2)


def _decoded(path: str, data: bytes) -> FeedClaim:
    try:
        facts: dict[str, Any] = orjson.loads(data)
        if facts.pop("format") != _FORMAT:
            raise ValueError("it has a format of a newer program")
        lapse = facts.pop("lapse")
        facts |= {name: tuple(facts[name]) for name in ("kinds", "types", "ops")}
        claim = FeedClaim(**facts)
        return claim if lapse is None else replace(claim, lapse=Lapse(**lapse))
    except (ValueError, KeyError, TypeError) as cause:
        raise StorageFailed(
            f"read the feed consumer in {path}", f"{cause}; look at the file, or remove it"
        ) from cause
