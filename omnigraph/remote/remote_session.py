"""Remote session: the connection of a served graph and what its caller may ask of it.

Invariant: a write says who wrote it by its token alone, so a name that a caller gives is refused,
never sent; a handle that was opened read-only sends no write.
"""

import hashlib
from dataclasses import dataclass

from omnigraph.errors import BadRequest, NotFound, NotServed
from omnigraph.remote.http_connection import HttpConnection

_KEY_CHARS_MAX = 200


@dataclass(frozen=True, slots=True)
class RemoteSession:
    """A connection, and how it may be used. `operator` is a name that every write may carry and
    the server replaces by that of the token."""

    http: HttpConnection
    read_only: bool = False
    operator: str | None = None

    def require_writable(self) -> None:
        """Pass unless the graph was opened read-only."""
        if self.read_only:
            raise BadRequest("the graph is open read-only", "open it without read_only to write")

    def require_own_actor(self, actor: str | None) -> None:
        """Pass unless a write names an actor."""
        if actor not in (None, self.operator):
            raise BadRequest(
                f"a served write carries the actor of its token, not '{actor}'",
                "leave the actor out, or connect with the token of that actor",
            )

    def require_branch(self, *names: str | None) -> None:
        """Pass unless a name is empty, which a server would take for main."""
        if "" in names:
            raise NotFound("branch", "")

    def require_local_engine(self, engine: str, spark: object) -> None:
        """Pass unless Spark is asked for."""
        if engine not in ("auto", "local", "spark"):
            raise BadRequest(f"'{engine}' is no engine", "use auto, local, spark")
        if engine == "spark" or spark is not None:
            raise NotServed("Spark", self.http.uri, "use engine='local', or the files of the graph")


def key_of(once: str) -> str:
    """The idempotency key of a write `once`; a name that no header can hold is hashed."""
    is_plain = once.isascii() and once.isprintable() and once == once.strip()
    if is_plain and 0 < len(once) <= _KEY_CHARS_MAX:
        return once
    return f"sha256-{hashlib.sha256(once.encode('utf-8', 'replace')).hexdigest()}"
