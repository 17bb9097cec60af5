"""Places for graphs: a temporary folder, and a bucket on a server the tests start."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.storage import failpoints
from omnigraph.storage.store import Store
from tests.storage.s3 import Server, serve
from tests.storage.world import Where


@pytest.fixture(scope="session")
def s3_server() -> Iterator[Server]:
    """An S3 server for the whole run."""
    with serve() as server:
        yield server


@pytest.fixture
def local(tmp_path: Path) -> Where:
    """A place on local disk."""
    return Where(str(tmp_path / "graph.omni"))


@pytest.fixture
def s3(s3_server: Server) -> Where:
    """A place in the bucket."""
    return s3_server.place()


@pytest.fixture
def store(local: Where) -> Store:
    """An empty graph on local disk."""
    return local.create()


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()
