"""Kept answers of transactions: what a request that is sent again is answered with.

Invariant: an answer is written before its commit is published, under a name that the commit keeps
in its metadata. So a commit that is there has its answer, for as long as answers are kept.
"""

import threading
import time

from ulid import ULID

from omnigraph.graph import Graph
from omnigraph.server.idempotency import OWN

ANSWER = f"{OWN}answer"
_FOLDER = "answers"
_KEPT_S = 7 * 86_400
_SWEEP_EVERY_S = 3_600.0

_lock = threading.Lock()
_swept: dict[str, float] = {}


def keep_answer(graph: Graph, data: bytes) -> str:
    """Write an answer; the name under which it is kept."""
    _sweep(graph)
    name = str(ULID())
    graph.beside.put(_FOLDER, name, data)
    return name


def kept_answer(graph: Graph, name: str) -> bytes | None:
    """An answer that is still kept."""
    return graph.beside.get(_FOLDER, name) if name else None


def _sweep(graph: Graph) -> None:
    """Remove old answers now and then."""
    now = time.monotonic()
    with _lock:
        if now - _swept.get(graph.uri, -_SWEEP_EVERY_S) < _SWEEP_EVERY_S:
            return
        _swept[graph.uri] = now
    graph.beside.delete_older(_FOLDER, _KEPT_S)
