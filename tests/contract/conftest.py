"""The places the suite runs over."""

from collections.abc import Iterator

import pytest

from omnigraph.storage import failpoints
from omnigraph.storage.store import Store
from tests.storage.conftest import local, s3, s3_server
from tests.storage.world import Where

__all__ = ["local", "s3", "s3_server"]


@pytest.fixture(params=["local", "s3"])
def where(request: pytest.FixtureRequest) -> Where:
    """Each place in turn."""
    found: Where = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def store(where: Where) -> Store:
    """An empty graph at the place."""
    return where.create()


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()
