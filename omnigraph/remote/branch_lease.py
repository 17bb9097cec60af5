"""Lease of a transaction's branch on a server: renewed by a thread while the transaction lasts.

Invariant: as long as this process lives and reaches the server, the lease does not lapse; after it
died the server removes the branch within a term and a look. A server that knows no leases keeps it.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph.errors import NotFound, OmnigraphError
from omnigraph.remote.http_connection import HttpConnection

LEASE_SECONDS = 60
_RENEWALS_A_TERM = 4


class BranchLeases:
    """The branches that this client makes for transactions."""

    def __init__(self, http: HttpConnection, seconds: int = LEASE_SECONDS) -> None:
        self._http = http
        self._seconds = seconds
        self._names: set[str] = set()

    @contextmanager
    def owned(self, name: str) -> Iterator[None]:
        """A block in which the branch of this name, made inside, is renewed."""
        over = threading.Event()
        renewing = threading.Thread(target=self._renew, args=(name, over), daemon=True)
        self._names.add(name)
        renewing.start()
        try:
            yield
        finally:
            over.set()
            self._names.discard(name)

    def members(self, name: str) -> dict[str, int]:
        """What the request that makes a branch says about its lease."""
        return {"lease_seconds": self._seconds} if name in self._names else {}

    def _renew(self, name: str, over: threading.Event) -> None:
        while not over.wait(self._seconds / _RENEWALS_A_TERM):
            try:
                asked = {"name": name, "lease_seconds": self._seconds}
                self._http.write("POST", "/branches/lease", asked)
            except NotFound:
                return  # the server knows no leases, or has ended this one
            except OmnigraphError:
                continue  # the next one may come through
