"""Verbs of a served graph about one entity, its blobs and its indexes: entity, history, put_blob.

Invariant: these methods make one request and one value of its answer; a history is read a page at a
time while it is iterated over.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import orjson

from omnigraph.arguments import checked
from omnigraph.catalog.ids import NamedKey, key_text
from omnigraph.errors import BadRequest, NotFound, NotServed, PreconditionFailed
from omnigraph.exec.changes.entity_history import EntityHistory, EntityRevision
from omnigraph.exec.changes.entity_view import EdgeCount, EntityView
from omnigraph.exec.changes.images import image
from omnigraph.exec.mutate.run import MutationResult
from omnigraph.exec.upkeep.index_states import IndexState
from omnigraph.graph import Graph
from omnigraph.remote.from_wire import Document, cause_of, change_of, moments_named, mutation_of
from omnigraph.remote.http_connection import REPLAY, HttpConnection, Params, given, segment
from omnigraph.remote.remote_session import RemoteSession, key_of
from omnigraph.storage.names import MAIN, require_text
from omnigraph.storage.records import CommitId
from omnigraph.types import Kind, table_key

_BYTES = {"Content-Type": "application/octet-stream"}


class RemoteEntityVerbs(Graph):
    """The verbs of a served graph that are about one entity."""

    session: RemoteSession

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
        """One node or edge with its properties, and of a node how many edges of each type it
        has; `NotFound` if there is none."""
        path, params = self._entity(kind, type, id, branch, snapshot)
        document = self.session.http.document(path, params)
        ends, stored = document.get("endpoints"), document["properties"]
        moments = moments_named(document, document["type"]["id"])
        ids = () if ends is None else (ends["from"], ends["to"])
        return EntityView(
            document["kind"],
            document["type"]["name"],
            document["type"]["id"],
            document["id"],
            image(tuple(stored), (*stored.values(), *ids), moments),
            tuple(EdgeCount(e["type_name"], e["direction"], e["count"]) for e in document["edges"]),
            document["graph_commit_id"],
            moments,
        )

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
        """Every commit that changed a node or edge, newest first, with how it was before and
        after; with `before`, only those older than that commit."""
        if before is not None:
            branch, snapshot = None, f"{before}~1"
        path, params = self._entity(kind, type, id, branch, snapshot)
        return ServedHistory(self.session.http, f"{path}/history", params)

    def _entity(
        self, kind: str, type_name: str, id: NamedKey, branch: str | None, snapshot: str | None
    ) -> tuple[str, Params]:
        self.session.require_branch(branch, snapshot)
        if not (kind and type_name):  # no path holds them
            raise BadRequest("an entity has a kind and a type", "name each")
        path = "/".join(map(segment, (kind, type_name, key_text(id))))
        return f"/entities/{path}", given(branch=branch, snapshot=snapshot)

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
        """Set a blob to these bytes, as one commit; `NotFound` if there is no such entity. With
        `if_match` only while the cell has one of these ETags, else `PreconditionFailed`."""
        self.session.require_writable()
        self.session.require_own_actor(actor)
        self.session.require_branch(branch)
        if not isinstance(data, bytes):
            raise BadRequest("a blob is put as bytes", "encode a text first")
        if metadata:
            raise NotServed("put_blob(metadata=)", self.uri, "leave it out, or say it in message=")
        if once is not None:
            require_text("the name of a write `once`", once)
        params = given(
            entity=kind,
            type=type,
            id=key_text(id),
            property=property,
            branch=branch,
            message=message,
        )
        tags = {} if if_match is None else {"If-Match": ", ".join(if_match)}
        key = None if once is None else key_of(once)
        try:
            answer = self.session.http.write_once(
                "/blob", data, {**_BYTES, **tags}, params, key=key, method="PUT"
            )
        except PreconditionFailed as moved:
            raise PreconditionFailed(branch, tags.get("If-Match", ""), moved.actual) from None
        return mutation_of(orjson.loads(answer.content), repeated=REPLAY in answer.headers)

    @checked
    def indexes(
        self, *, branch: str | None = None, snapshot: str | None = None
    ) -> tuple[IndexState, ...]:
        """Every index that the schema asks for: how many rows it covers, and whether it is
        current, behind, missing or pending."""
        self.session.require_branch(branch, snapshot)
        params = given(branch=branch, snapshot=snapshot)
        listed = self.session.http.document("/indexes", params)["indexes"]
        return tuple(map(_index_of, listed))


def _index_of(document: Document) -> IndexState:
    return IndexState(
        table_key(Kind(document["entity_kind"]), document["type_name"]),
        document["property"],
        document["kind"],
        document["state"],
        document["rows"],
        document["rows_covered"],
        document.get("reason", ""),
    )


class ServedHistory(EntityHistory):
    """The revisions of one entity, a page at a time."""

    def __init__(self, http: HttpConnection, path: str, params: Params) -> None:
        self._http = http
        self._path = path
        self._params = list(params)
        self.unreadable: CommitId | None = None
        self._first = self._page(None)  # which refuses what cannot be asked

    def __repr__(self) -> str:
        kind, name, entity = map(unquote, self._path.split("/")[2:5])
        return f"EntityHistory({kind} {name} {entity!r})"

    def __iter__(self) -> Iterator[EntityRevision]:
        self.unreadable = None
        page = self._first
        while True:
            for each in page["revisions"]:
                yield EntityRevision(cause_of(each["cause"]), change_of(each["change"], each))
            token = page.get("next_page_token")
            if token is None:
                self.unreadable = page.get("first_unreadable_commit_id")
                return
            page = self._page(token)

    def _page(self, token: str | None) -> Any:
        try:
            return self._http.document(self._path, [*self._params, *given(page_token=token)])
        except NotFound as missing:
            if "no commit has or had it" not in missing.hint:
                raise
            return {"revisions": []}
