"""Policy files as a command names them: `FILE` for every graph, `ID=FILE` for one of them.

Invariant: a file that cannot be used is refused before a port is opened. Loads no engine.
"""

import os
from collections.abc import Mapping

from omnigraph.errors import BadRequest
from omnigraph.policy import Policy, PolicyKind


def files_by_graph(
    given: list[str], graphs: Mapping[str, object]
) -> tuple[dict[str, str], str | None]:
    """Policy files by graph id, and that of the server. `ID=FILE` is for one graph, a file without
    an id for those that have none; the actions of a file say whether it is the server's."""
    own: dict[str, str] = {}
    shared: str | None = None
    server: str | None = None
    for word in given:
        graph_id, equals, path = word.partition("=")
        if equals and graph_id in graphs:
            if graph_id in own:
                raise BadRequest(f"two policies are for the graph '{graph_id}'", "pass one")
            own[graph_id] = _usable(path, PolicyKind.GRAPH)
        elif _kind(word) is PolicyKind.SERVER:
            if server is not None:
                raise BadRequest("two policies are for the server", "pass one")
            server = _usable(word, PolicyKind.SERVER)
        else:
            if shared is not None:
                raise BadRequest("two policies are for every graph", "write --policy ID=FILE")
            shared = _usable(word, PolicyKind.GRAPH)
    if shared is not None:
        own = {graph_id: own.get(graph_id, shared) for graph_id in graphs}
    return own, server


def _kind(path: str) -> PolicyKind | None:
    return Policy.of_file(path).file.kind


def _usable(path: str, kind: PolicyKind) -> str:
    """The absolute path of a file that can be used: a worker may run elsewhere."""
    Policy.of_file(path, kind)
    return os.path.abspath(path)
