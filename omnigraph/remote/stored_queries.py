"""Stored queries of a served graph: their catalog, and a query run by its name.

Invariant: the verb must match the query: a read that is asked for never runs a mutation.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import orjson

from omnigraph.arguments import checked
from omnigraph.catalog.near_names import did_you_mean
from omnigraph.errors import NotFound, OmnigraphError
from omnigraph.exec.mutate.run import MutationResult
from omnigraph.exec.read.result import QueryResult
from omnigraph.remote.from_wire import mutation_of
from omnigraph.remote.http_connection import IF_COMMIT, JSON, REPLAY, encoded, segment
from omnigraph.remote.remote_session import RemoteSession, key_of
from omnigraph.remote.sent_params import sent_params
from omnigraph.remote.served_rows import ARROW, result_of
from omnigraph.storage.names import MAIN

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ListedQuery:
    """A stored query as the catalog lists it. `params` are as the server writes them."""

    name: str
    mutation: bool
    params: tuple[Mapping[str, Any], ...]
    description: str | None = None
    instruction: str | None = None


class RemoteStoredQueries:
    """The stored queries of a served graph."""

    def __init__(self, session: RemoteSession) -> None:
        self._session = session
        self._http = session.http

    def list(self) -> tuple[ListedQuery, ...]:
        """Every stored query, by name."""
        return tuple(
            ListedQuery(
                each["name"],
                each["mutation"],
                tuple(each["params"]),
                each.get("description"),
                each.get("instruction"),
            )
            for each in self._http.document("/queries")["queries"]
        )

    @contextmanager
    def _named(self, name: str) -> Iterator[None]:
        """Say of a query that is not there which one resembles it, as far as the actor may know."""
        try:
            yield
        except NotFound as missing:
            if missing.kind != "stored query":
                raise
            known: tuple[str, ...] = ()
            with suppress(OmnigraphError):
                known = tuple(each.name for each in self.list())
            hint = did_you_mean(name, known) if known else ""
            raise NotFound("stored query", name, hint) from missing

    @checked
    def query(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
    ) -> QueryResult:
        """The rows of a stored read."""
        self._session.require_branch(branch, snapshot)
        body = _read_body(params, branch, snapshot)
        with self._named(name):
            answer = self._http.ask(f"/queries/{segment(name)}", body, Accept=ARROW)
        return result_of(answer, self._http.uri)

    def document(
        self,
        name: str,
        params: Mapping[str, Any] | None,
        branch: str | None,
        snapshot: str | None,
    ) -> Document:
        """The answer of a stored read as the server writes it."""
        body = _read_body(params, branch, snapshot)
        with self._named(name):
            answer = self._http.ask(f"/queries/{segment(name)}", body)
        document: Document = orjson.loads(answer.content)
        return document

    @checked
    def mutate(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        *,
        branch: str = MAIN,
        actor: str | None = None,
        if_commit: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
        once: str | None = None,
    ) -> MutationResult:
        """Run a stored mutation as one commit; with `if_commit` only on that head of the branch."""
        self._session.require_writable()
        self._session.require_own_actor(actor)
        self._session.require_branch(branch)
        body = {
            "params": sent_params(params),
            "branch": branch,
            "expect_mutation": True,
            "message": message,
            "metadata": metadata,
        }
        path, headers = f"/queries/{segment(name)}", dict(JSON)
        if if_commit is not None:
            path, headers = f"{path}/if-graph-commit", {**JSON, IF_COMMIT: if_commit}
        key = None if once is None else key_of(once)
        with self._named(name):
            answer = self._http.write_once(path, encoded(body), headers, key=key)
        return mutation_of(orjson.loads(answer.content), repeated=REPLAY in answer.headers)


def _read_body(
    params: Mapping[str, Any] | None, branch: str | None, snapshot: str | None
) -> Document:
    return {
        "params": sent_params(params),
        "branch": branch,
        "snapshot": snapshot,
        "expect_mutation": False,
    }
