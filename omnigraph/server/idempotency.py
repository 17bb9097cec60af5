"""Idempotency keys: a write that is sent again answers what the first one did, and writes nothing.

Invariant: a key is the mark of the commit that it made (`once=`), so it holds in every worker,
after a crash and for as long as the commit is known. It belongs to an actor and to one body: the
digest of the request stands in the commit's metadata, under a name that answers leave out.
"""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import quote

from omnigraph.errors import BadRequest
from omnigraph.server.call import Answer, RouteCall
from omnigraph.server.refusals import HttpRefusal
from omnigraph.storage.records import Commit

HEADER = "Idempotency-Key"
REPLAY = {"Idempotent-Replay": "true"}
_CHARS_MAX = 255
OWN = "omnigraph:"
_DIGEST = f"{OWN}request"

_running: set[tuple[str, str, str]] = set()
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class WriteOnce:
    """What makes a write happen once: its mark, and the digest of its request."""

    mark: str | None
    digest: str

    def metadata(self, given: dict[str, str] | None) -> dict[str, str] | None:
        """The metadata of the commit, with the digest."""
        for name in given or ():
            if name.startswith(OWN):
                raise BadRequest(f"metadata '{name}': names with '{OWN}' are the program's own")
        return given if self.mark is None else {**(given or {}), _DIGEST: self.digest}

    def replayed(self, answer: Answer, commit: Commit | None, *, repeated: bool) -> Answer:
        """The answer, which says if it is that of an earlier request; 422 if that was another."""
        if repeated:
            if commit is not None and commit.metadata.get(_DIGEST) != self.digest:
                raise HttpRefusal(422, f"{HEADER} was used before, with another request")
            answer.headers.update(REPLAY)
        return answer


def key_of(call: RouteCall) -> str | None:
    """The idempotency key of a request, or 400."""
    values = call.headers.getlist(HEADER)
    if not values:
        return None
    key = values[0].strip()
    if len(values) > 1 or not key or len(key) > _CHARS_MAX or not key.isprintable():
        raise HttpRefusal(400, f"{HEADER} must be one text of up to {_CHARS_MAX} characters")
    return key


def mark_of(call: RouteCall, key: str) -> str:
    """The mark of an actor's key. An actor's name is encoded, so that no two share a mark."""
    return f"http:{quote(call.actor or '', safe='')}:{key}"


@contextmanager
def write_once(call: RouteCall, branch: str) -> Iterator[WriteOnce]:
    """A write while it runs; 409 for one whose key runs already in this worker."""
    key = key_of(call)
    if key is None:
        yield WriteOnce(None, "")
        return
    mark = mark_of(call, key)
    name = call.graph_id, branch, mark
    with _lock:
        if name in _running:
            raise HttpRefusal(409, "this write is running", {"Retry-After": "1"})
        _running.add(name)
    try:
        yield WriteOnce(mark, _digest(call))
    finally:
        with _lock:
            _running.discard(name)


def _digest(call: RouteCall) -> str:
    digest = hashlib.sha256(str(call.query).encode())
    digest.update(call.path.get("name", "").encode())  # of a stored query, whose text is not sent
    with call.body_stream() as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()[:32]


def is_running(call: RouteCall, branch: str, key: str) -> bool:
    """Whether a write with this key runs in this worker."""
    return (call.graph_id, branch, mark_of(call, key)) in _running


def shown_metadata(commit: Commit) -> dict[str, str]:
    """The metadata of a commit that its writer gave."""
    return {name: text for name, text in commit.metadata.items() if not name.startswith(OWN)}
