"""A server for all tests of the client, and graphs of both kinds."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.remote.both import Maker, SharedServer, maker, shared_server


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedServer]:
    """One server for the whole run."""
    with shared_server(tmp_path_factory.mktemp("shared")) as running:
        yield running


@pytest.fixture(params=["local", "served"])
def new(request: pytest.FixtureRequest, shared: SharedServer, tmp_path: Path) -> Maker:
    """Makes graphs: local ones, and again served ones."""
    return maker(request.param, shared, tmp_path)
