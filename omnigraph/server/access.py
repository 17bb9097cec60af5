"""Authorization: which actor may do which action, in the states of a server without a policy.

Invariant: asked before a body is read. In the open state nobody is asked who they are and writes
carry no actor; in the trusted state every known actor may do everything; else every known actor
may read and nothing more.
"""

from omnigraph.errors import Forbidden
from omnigraph.server.bearer import Tokens
from omnigraph.server.serve_settings import Access


class Gate:
    """Knows actors by their tokens and decides what they may do."""

    def __init__(self, access: Access, tokens: Tokens) -> None:
        self.access = access
        self.tokens = tokens

    def actor(self, header: str | None) -> str | None:
        """Who sends a request, or 401."""
        return None if self.access is Access.OPEN else self.tokens.actor(header)

    def require(self, actor: str | None, action: str) -> None:
        """Pass if the actor may do the action, else `Forbidden`."""
        if self.access is Access.READ_ONLY and action != "read":
            raise Forbidden(action, actor)
