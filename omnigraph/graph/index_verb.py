"""`Graph.indexes`: the state of every index that the schema asks for.

Invariant: this method finds the snapshot that is named and asks the upkeep room, nothing else.
"""

from typing import TYPE_CHECKING

from omnigraph.arguments import checked
from omnigraph.deferred import deferred
from omnigraph.exec.schemas import Schemas
from omnigraph.graph.policy_guard import PolicyGuard
from omnigraph.storage.store import Store

if TYPE_CHECKING:
    from omnigraph.exec.upkeep.index_states import IndexState, index_states
else:
    IndexState = deferred("omnigraph.exec.upkeep.index_states", "IndexState")
    index_states = deferred("omnigraph.exec.upkeep.index_states", "index_states")


class IndexVerb:
    """The verb of a graph that shows its indexes."""

    _store: Store
    _schemas: Schemas
    _guard: PolicyGuard

    @checked
    def indexes(
        self, *, branch: str | None = None, snapshot: str | None = None
    ) -> tuple[IndexState, ...]:
        """Every index that the schema asks for: how many rows it covers, and whether it is current,
        behind, missing or pending. `ensure_indices` and `optimize` build what is not current.

        >>> {(each.table, each.state) for each in graph.indexes()} >= {("node:Person", "missing")}
        True
        """
        pinned = self._guard.pinned(branch, snapshot)
        catalog = self._schemas.of(pinned).catalog
        with self._store.history.lost.reading(pinned):
            return tuple(index_states(self._store, catalog, pinned))
