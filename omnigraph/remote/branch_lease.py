"""Lease of a transaction's branch on a server: renewed by a thread while the transaction lasts.

Invariant: as long as this process lives and reaches the server, the lease does not lapse; after it
died the server removes the branch within a term and a look. A server that knows no leases keeps it.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph.errors import GraphClosed, NotFound, OmnigraphError
from omnigraph.remote.http_connection import HttpConnection

LEASE_SECONDS = 60
_RENEWALS_A_TERM = 4


class BranchLeases:
    """The branches that this client makes for transactions."""

    def __init__(self, http: HttpConnection, seconds: int = LEASE_SECONDS) -> None:
        self._http = http
        self._seconds = seconds
        self._over: dict[str, threading.Event] = {}

    @contextmanager
    def owned(self, name: str) -> Iterator[None]:
        """A block in which the branch of this name, made inside, is renewed."""
        over = self._over[name] = threading.Event()
        try:
            yield
        finally:
            over.set()
            del self._over[name]

    def create(self, name: str, base: str) -> str:
        """Make a branch, with a lease if it is owned; its name."""
        over = self._over.get(name)
        lease = {} if over is None else {"lease_seconds": self._seconds}
        made = self._http.write("POST", "/branches", {"name": name, "from": base, **lease})
        if over is not None and "lease_seconds" in made:
            threading.Thread(target=self._renew, args=(name, over), daemon=True).start()
        return str(made["name"])

    def _renew(self, name: str, over: threading.Event) -> None:
        asked = {"name": name, "lease_seconds": self._seconds, "renew": True}
        while not over.wait(self._seconds / _RENEWALS_A_TERM):
            try:
                self._http.write("POST", "/branches", asked)
            except (NotFound, GraphClosed):
                return  # the lease has ended
            except OmnigraphError:
                continue  # the next one may come through
