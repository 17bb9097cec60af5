"""`Graph.entity` and `Graph.history`: one node or edge, now and through the commits.

Invariant: these methods find the snapshot and the type that are named and ask the changes room,
nothing else.
"""

from omnigraph.arguments import checked
from omnigraph.exec.changes.entity_history import EntityHistory
from omnigraph.exec.changes.entity_view import EntityView, find_entity, require_type
from omnigraph.exec.points import Points
from omnigraph.exec.schemas import Schemas
from omnigraph.storage.store import Store


class EntityVerbs:
    """The verbs of a graph that are about one entity."""

    _store: Store
    _schemas: Schemas
    _points: Points

    @checked
    def entity(
        self,
        kind: str,
        type: str,
        id: str,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
    ) -> EntityView:
        """One node or edge with its properties, and of a node how many edges of each type it has;
        `NotFound` if there is none."""
        pinned = self._points.pinned(branch, snapshot)
        catalog = self._schemas.of(pinned).catalog
        return find_entity(self._store, catalog, pinned, require_type(catalog, kind, type), id)

    @checked
    def history(
        self,
        kind: str,
        type: str,
        id: str,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        before: str | None = None,
    ) -> EntityHistory:
        """Every commit that changed a node or edge, newest first, with how it was before and after.

        They are the commits that lead to a branch (`main` by default) or to another point in time,
        a merge as what it changed there; with `before`, only those older than that commit. Read
        while they are iterated over.
        """
        pinned = self._points.pinned(branch, snapshot)
        owner = require_type(self._schemas.of(pinned).catalog, kind, type)
        last = None if before is None else self._points.resolve(before, kind="commit")
        return EntityHistory(self._store, self._schemas, pinned, owner, id, last)
