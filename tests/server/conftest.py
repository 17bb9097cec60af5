"""A server that the tests of a file share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.world import Served, new_graph, served


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """An open server of one graph."""
    with served(new_graph(tmp_path_factory.mktemp("served"))) as running:
        yield running


@pytest.fixture(scope="module")
def graph_uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small graph of the file's own."""
    return new_graph(Path(tmp_path_factory.mktemp("graph")))
