"""`Graph.entity`, `history`, `blob` and `put_blob`: one node or edge, now and through the commits.

Invariant: these methods find the snapshot and the type that are named and ask the changes room,
nothing else.
"""

import contextlib
from base64 import b64encode
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from omnigraph.arguments import checked
from omnigraph.catalog.ids import NamedKey, key_text
from omnigraph.catalog.model import Catalog, Type
from omnigraph.deferred import deferred
from omnigraph.errors import NotFound, PreconditionFailed
from omnigraph.exec.points import Points
from omnigraph.exec.schemas import Schemas
from omnigraph.graph.policy_guard import PolicyGuard
from omnigraph.storage.names import MAIN
from omnigraph.storage.records import Snapshot
from omnigraph.storage.store import Store

if TYPE_CHECKING:
    from omnigraph.exec.changes.blobs import BlobCell, find_blob, require_blob
    from omnigraph.exec.changes.entity_history import EntityHistory
    from omnigraph.exec.changes.entity_view import EntityView, find_entity, require_type
    from omnigraph.exec.mutate.run import MutationResult
    from omnigraph.exec.values.named_ids import named_id
else:
    named_id = deferred("omnigraph.exec.values.named_ids", "named_id")
    MutationResult = deferred("omnigraph.exec.mutate.run", "MutationResult")
    EntityView = deferred("omnigraph.exec.changes.entity_view", "EntityView")
    find_entity = deferred("omnigraph.exec.changes.entity_view", "find_entity")
    require_type = deferred("omnigraph.exec.changes.entity_view", "require_type")
    EntityHistory = deferred("omnigraph.exec.changes.entity_history", "EntityHistory")
    BlobCell = deferred("omnigraph.exec.changes.blobs", "BlobCell")
    find_blob = deferred("omnigraph.exec.changes.blobs", "find_blob")
    require_blob = deferred("omnigraph.exec.changes.blobs", "require_blob")

_PUT = (
    "query put_blob($id: String, $bytes: Blob) {{ update {} set {{ {}: $bytes }} where id = $id }}"
)
_PUT_ATTEMPTS = 8


def _named(catalog: Catalog, owner: Type, id: NamedKey) -> str:
    """The id that is named: it may be the key, or that spelled as its type has it."""
    return named_id(owner, key_text(id), catalog)


class EntityVerbs:
    """The verbs of a graph that are about one entity."""

    _store: Store
    _schemas: Schemas
    _points: Points
    _guard: PolicyGuard
    mutate: Callable[..., MutationResult]

    @checked
    def blob(
        self,
        kind: str,
        type: str,
        id: NamedKey,
        property: str,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
    ) -> BlobCell:
        """One blob: what is known about it, and its bytes when they are asked for.

        >>> graph.blob("node", "Person", "Ada", "photo").size
        4
        """
        pinned = self._guard.pinned(branch, snapshot)
        catalog = self._schemas.of(pinned).catalog
        named = _named(catalog, require_type(catalog, kind, type), id)
        return find_blob(self._store, catalog, pinned, (kind, type, named, property))

    @checked
    def entity(
        self,
        kind: str,
        type: str,
        id: NamedKey,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
    ) -> EntityView:
        """One node or edge with its properties, and of a node how many edges of each type it has;
        `NotFound` if there is none. A node is named by its id or by its key: 42, a date, or a list
        of the several values.

        >>> graph.entity("node", "Person", "Ada").image.properties["born"]
        '1815-12-10'
        """
        pinned = self._guard.pinned(branch, snapshot)
        catalog = self._schemas.of(pinned).catalog
        owner = require_type(catalog, kind, type)
        return find_entity(self._store, catalog, pinned, owner, _named(catalog, owner, id))

    @checked
    def history(
        self,
        kind: str,
        type: str,
        id: NamedKey,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        before: str | None = None,
    ) -> EntityHistory:
        """Every commit that changed a node or edge, newest first, with how it was before and after.

        They are the commits that lead to a branch (`main` by default) or to another point in time,
        a merge as what it changed there; with `before`, only those older than that commit. Read
        while they are iterated over.

        >>> [each.change.op for each in graph.history("node", "Person", "Ada")]
        ['insert']
        """
        pinned = self._guard.pinned(branch, snapshot)
        catalog = self._schemas.of(pinned).catalog
        owner = require_type(catalog, kind, type)
        last = None if before is None else self._points.resolve(before, kind="commit")
        named = _named(catalog, owner, id)
        return EntityHistory(self._store, self._schemas, pinned, owner, named, last)

    @checked
    def put_blob(
        self,
        kind: str,
        type: str,
        id: NamedKey,
        property: str,
        data: bytes,
        *,
        branch: str = MAIN,
        if_match: Collection[str] | None = None,
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
        once: str | None = None,
    ) -> MutationResult:
        r"""Set a blob to these bytes, as one commit; `NotFound` if there is no such entity.

        With `if_match` only while the cell has one of these ETags, or with `*` any value, else
        `PreconditionFailed`.

        >>> graph.put_blob("node", "Person", "Ada", "photo", b"\x89PNG").affected_nodes
        1
        """
        actor = self._guard.changes(branch, actor)
        text = f"base64:{b64encode(data).decode('ascii')}"
        for _ in range(_PUT_ATTEMPTS):
            head = self._store.snapshot(branch)
            if once is not None and self._store.marked(branch, once) is not None:
                if_match = None  # it was put before, and has another tag since
            catalog = self._schemas.of(head).catalog
            owner = require_type(catalog, kind, type)
            require_blob(owner, kind, property)
            named = _named(catalog, owner, id)
            if if_match is not None:
                self._require_tag(head, (kind, type, named, property), if_match)
            try:
                done = self.mutate(
                    _PUT.format(owner.name, property),
                    {"id": named, "bytes": text},
                    branch=branch,
                    if_commit=None if if_match is None else head.commit_id,
                    actor=actor,
                    message=message,
                    metadata=metadata,
                    once=once,
                )
            except PreconditionFailed as moved:
                lost = moved  # by a write to something else, maybe: the tag is looked at again
                continue
            if done.commit is None:
                raise NotFound(f"{kind} {type}", named)
            return done
        raise lost

    def _require_tag(
        self, head: Snapshot, selector: tuple[str, str, str, str], tags: Collection[str]
    ) -> None:
        cell: BlobCell | None = None
        with contextlib.suppress(NotFound):
            cell = find_blob(self._store, self._schemas.of(head).catalog, head, selector)
        if cell is None or ("*" not in tags and cell.etag not in tags):
            actual = None if cell is None else cell.etag
            raise PreconditionFailed(head.branch, ", ".join(tags), actual)
