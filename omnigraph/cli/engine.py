"""The engine behind the command line: graphs opened and made, warnings on standard error.

Invariant: the engine is imported by the command that opens a graph, never when the program starts.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from omnigraph.arguments import as_given
from omnigraph.cli.config import config
from omnigraph.cli.scope import scope
from omnigraph.cli.servers import connected_graph, is_served
from omnigraph.errors import BadRequest, NotFound, OmnigraphError

if TYPE_CHECKING:
    from omnigraph.graph import Graph


@contextmanager
def open_graph(uri: str, *, read_only: bool = False) -> Iterator[Graph]:
    """The graph at an address, of files or of a server. A branch that it does not have is refused
    with the name that is nearest."""
    with _opened(uri, read_only=read_only) as graph:
        try:
            yield graph
        except NotFound as missing:
            if missing.kind == "branch" and not missing.hint:
                from omnigraph.catalog.near_names import did_you_mean

                near = did_you_mean(missing.name, _branches(graph), listed=False)
                raise NotFound("branch", missing.name, near) from missing
            raise


def _branches(graph: Graph) -> tuple[str, ...]:
    try:
        return graph.branches.list()
    except OmnigraphError:
        return ()  # the first failure is what counts


def _opened(uri: str, *, read_only: bool) -> Graph:
    if is_served(uri):
        if scope().policy is not None:
            raise BadRequest("a server asks its own policy", "leave --policy out")
        return connected_graph(uri, read_only=read_only)
    _prepare()
    from omnigraph.graph import open as open_

    flags = scope()
    actor = None if flags.policy is None else flags.actor or config().actor
    return open_(
        uri,
        read_only=read_only,
        durability=as_given(flags.durability),
        policy=flags.policy,
        actor=actor,
    )


def init_graph(uri: str, schema: str) -> Graph:
    """A new graph at an address."""
    _prepare()
    from omnigraph.graph import init

    return init(uri, schema, durability=as_given(scope().durability))


def _warnings() -> logging.Handler:
    """Log handler for warnings on standard error. Spark's bridge (py4j) is filtered out: it logs,
    to the root logger, the tracebacks of errors that it also raises."""
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    if not scope().debug:
        handler.addFilter(lambda record: record.name.partition(".")[0] not in ("root", "py4j"))
    return handler


def _prepare() -> None:
    # Spark's launcher forks and at once runs another program, which is safe.
    warnings.filterwarnings("ignore", "lance is not fork-safe", UserWarning)
    if not logging.root.handlers:
        logging.root.addHandler(_warnings())
