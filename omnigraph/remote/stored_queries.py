"""Stored queries of a server: a query by its name, and what the server answers.

Invariant: the verb must match the query: a read that is asked for never runs a mutation.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from omnigraph.exec.mutate.run import MutationResult
from omnigraph.remote.from_wire import mutation_of
from omnigraph.remote.http_connection import JSON, REPLAY, encoded, segment
from omnigraph.remote.remote_graph import IF_COMMIT, RemoteGraph


def invoke(
    graph: RemoteGraph,
    name: str,
    params: Mapping[str, Any] | None,
    *,
    branch: str | None = None,
    snapshot: str | None = None,
    expect_mutation: bool,
) -> Any:
    """The document of a stored read query."""
    body = {
        "params": params,
        "branch": branch,
        "snapshot": snapshot,
        "expect_mutation": expect_mutation,
    }
    http = graph.session.http
    return orjson.loads(http.ask(f"/queries/{segment(name)}", body).content)


def invoke_mutation(
    graph: RemoteGraph,
    name: str,
    params: Mapping[str, Any] | None,
    *,
    branch: str,
    if_commit: str | None = None,
) -> MutationResult:
    """The result of a stored mutation."""
    body = encoded({"params": params, "branch": branch, "expect_mutation": True})
    path, headers = f"/queries/{segment(name)}", dict(JSON)
    if if_commit is not None:
        path, headers = f"{path}/if-graph-commit", {**JSON, IF_COMMIT: if_commit}
    answer = graph.session.http.write_once(path, body, headers)
    return mutation_of(orjson.loads(answer.content), repeated=REPLAY in answer.headers)
