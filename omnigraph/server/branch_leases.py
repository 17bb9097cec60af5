"""Leases of branches: the branch of a transaction lives as long as the client that made it.

    __beside/leases/<name>         which branch, whose, for how long, and the last sign of life

Invariant: only a branch below `tx/` has a lease, from before it exists until after it is gone. It
goes once its lease stayed as it was for a whole term, on the clock of the worker that looks, so
clocks of different machines are never compared.
"""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
from ulid import ULID

from omnigraph.errors import AlreadyExists, BadRequest, NotFound, OmnigraphError
from omnigraph.exec.load.files import is_remote
from omnigraph.graph import Graph
from omnigraph.storage.records import TRANSACTIONS

SECONDS_MAX = 3_600
_FOLDER = "leases"
_NAME = re.compile(re.escape(TRANSACTIONS) + r"([A-Za-z0-9]{1,64})")
_LOOK_S, _LOOK_REMOTE_S = 2.0, 60.0


class LeaseRecord(msgspec.Struct, frozen=True):
    """One lease, as it is stored. `sign` is another one after each renewal."""

    branch: str
    seconds: int
    actor: str | None
    sign: str


_decoder = msgspec.json.Decoder(LeaseRecord)


@contextmanager
def leased(graph: Graph, branch: str, seconds: int, actor: str | None) -> Iterator[None]:
    """A block that makes a branch, which has a lease from before on; none if the block fails."""
    _require_seconds(seconds)
    name = _object_name(branch)
    if name is None:
        raise BadRequest(
            f"the branch '{branch}' cannot have a lease", f"only {TRANSACTIONS}NAME can"
        )
    record = LeaseRecord(branch, seconds, actor, str(ULID()))
    if not graph.beside.create(_FOLDER, name, msgspec.json.encode(record)):
        raise AlreadyExists("branch", branch, "choose another name")
    try:
        yield
    except BaseException:
        graph.beside.delete(_FOLDER, name)
        raise


def renew(graph: Graph, branch: str, seconds: int, actor: str | None) -> None:
    """One more term for a lease of this actor, or `NotFound`."""
    _require_seconds(seconds)
    name = _object_name(branch)
    stored = None if name is None else graph.beside.get(_FOLDER, name)
    if name is None or stored is None or _decoder.decode(stored).actor != actor:
        raise NotFound("lease of the branch", branch)
    record = LeaseRecord(branch, seconds, actor, str(ULID()))
    if not graph.beside.swap(_FOLDER, name, msgspec.json.encode(record), stored):
        raise NotFound("lease of the branch", branch)


def forget(graph: Graph, branch: str) -> None:
    """Nothing is kept of a branch that is gone."""
    name = _object_name(branch)
    if name is not None:
        graph.beside.delete(_FOLDER, name)


def _object_name(branch: str) -> str | None:
    match = _NAME.fullmatch(branch)
    return None if match is None else match[1]


def _require_seconds(seconds: int) -> None:
    if not 1 <= seconds <= SECONDS_MAX:
        raise BadRequest(f"a lease of {seconds} seconds", f"give 1 to {SECONDS_MAX}")


class LeaseWatch:
    """Removes the branches whose clients gave no sign of life for a term."""

    def __init__(
        self, report: Callable[..., None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._report = report
        self._clock = clock
        self._seen: dict[tuple[str, str], tuple[bytes, float]] = {}
        self._looked: dict[str, float] = {}

    def look(self, graphs: list[Graph]) -> int:
        """Remove what has lapsed; how many branches."""
        removed = 0
        for graph in graphs:
            now = self._clock()
            every = _LOOK_REMOTE_S if is_remote(graph.uri) else _LOOK_S
            if now - self._looked.get(graph.uri, -every) < every:
                continue
            self._looked[graph.uri] = now
            try:
                removed += self._look_at(graph, now)
            except OmnigraphError as cause:
                self._report("leases_not_read", graph=graph.uri, cause=str(cause))
        return removed

    def _look_at(self, graph: Graph, now: float) -> int:
        names = set(graph.beside.names(_FOLDER))
        for uri, name in [key for key in self._seen if key[0] == graph.uri]:
            if name not in names:
                del self._seen[uri, name]
        return sum(self._has_lapsed(graph, name, now) for name in names)

    def _has_lapsed(self, graph: Graph, name: str, now: float) -> bool:
        """Whether a branch was removed."""
        stored = graph.beside.get(_FOLDER, name)
        if stored is None:
            return False
        known, since = self._seen.get((graph.uri, name), (b"", now))
        if known != stored:
            self._seen[graph.uri, name] = stored, now
            return False
        lease = _decoder.decode(stored)
        if now - since < lease.seconds:
            return False
        try:
            graph.branches.delete(lease.branch)
        except NotFound:
            graph.beside.delete(_FOLDER, name)
            return False
        except OmnigraphError as cause:  # one that cannot be removed now is left for the next time
            self._report("lease_not_ended", branch=lease.branch, cause=str(cause))
            return False
        graph.beside.delete(_FOLDER, name)
        self._report("lease_ended", branch=lease.branch, actor=lease.actor)
        return True
