"""`page`, `listed`, `neighbourhood` and `draw` of a served graph: refused, with where to look.

Invariant: each refuses with `NotServed` before anything is sent.
"""

from collections.abc import Collection, Sequence
from typing import Any, NoReturn

from omnigraph.errors import NotServed
from omnigraph.graph.door import Graph
from omnigraph.remote.remote_session import RemoteSession


class RemoteLookVerbs(Graph):
    """The verbs of a graph that its server shows on pages."""

    session: RemoteSession

    def draw(
        self,
        what: str = "commits",
        *points: str,
        branch: str | None = None,
        types: Collection[str] = (),
        limit: int | None = None,
    ) -> NoReturn:
        """Refused: the server draws on its pages."""
        self._look("draw")

    def page(
        self,
        kind: str,
        type: str,
        *,
        offset: int = 0,
        limit: int = 50,
        branch: str | None = None,
        snapshot: str | None = None,
    ) -> NoReturn:
        """Refused: a query with `limit` and `offset` does the same."""
        self._look("page")

    def listed(
        self,
        kind: str,
        type: str,
        ids: Sequence[str],
        *,
        branch: str | None = None,
        snapshot: str | None = None,
    ) -> NoReturn:
        """Refused: a query with `in` does the same."""
        self._look("listed")

    def neighbourhood(
        self,
        type: str,
        id: str,
        expand: Any = None,
        *,
        offers_of: tuple[str, str] | None = None,
        branch: str | None = None,
        snapshot: str | None = None,
    ) -> NoReturn:
        """Refused: the server draws on its pages."""
        self._look("neighbourhood")

    def _look(self, verb: str) -> NoReturn:
        raise NotServed(
            verb, self.session.http.uri, f"look at {self.session.http.url}/ui/ in a browser"
        )
