"""One graph twice: opened from its files, and over HTTP. A server that all tests share."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import omnigraph as og
from tests.server.world import Served, served

_numbers = itertools.count()


class SharedServer:
    """A running server to which graphs are added as tests need them."""

    def __init__(self, server: Served) -> None:
        self.server = server

    def add(self, uri: str | Path) -> str:
        """Serve one more graph; its id."""
        name = f"g{next(_numbers)}"
        self.server.graphs._uris[name] = str(uri)
        self.server.graphs._try(name)
        return name

    def connect(self, uri: str | Path, **options: object) -> og.Graph:
        """A graph over HTTP."""
        return og.connect(self.server.url, graph=self.add(uri), **options)  # type: ignore[arg-type]


@contextmanager
def shared_server(folder: Path) -> Iterator[SharedServer]:
    """A server with one graph of its own, so that there is one."""
    og.init(folder / "first.omni", schema="node First { name: String @key }").close()
    with served(str(folder / "first.omni")) as server:
        yield SharedServer(server)


Maker = Callable[..., og.Graph]
"""Makes a graph of a schema, with some data."""


def maker(kind: str, shared: SharedServer, folder: Path) -> Maker:
    """How a test gets a graph of one kind: `local` or `served`."""

    def make(schema: str, data: str = "") -> og.Graph:
        uri = folder / f"graph{next(_numbers)}.omni"
        graph = og.init(uri, schema=schema)
        if data:
            graph.load(data.encode(), "merge")
        if kind == "local":
            return graph
        graph.close()
        return shared.connect(uri)

    return make
