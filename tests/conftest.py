"""What every test may ask for."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from omnigraph.graph import Graph
from omnigraph.pipeline.session import session
from omnigraph.testing import LoweredThresholds, lower_thresholds
from tests import consistent

# Thousands of commits that nobody will miss after a power cut: those that test flushing ask for it.
os.environ.setdefault("OMNIGRAPH_DURABILITY", "os")

# Files go to workers whole and in this order. One that takes long must not be the last: the other
# workers would have nothing left to do.
_FIRST = (
    "test_soak.py",
    "pipeline",
    "exec/read/test_random_queries.py",
    "exec/mutate/test_mutate_model.py",
    "storage/protocol/test_stress.py",
    "storage/protocol/test_crashes.py",
    "test_",
    "remote",
    "server",
    "shape/test_examples.py",
    "exec/upkeep/test_optimize_crashes.py",
    "exec/schema/test_migrate_crashes.py",
    "cli/test_processes.py",
    "cli/test_transactions.py",
    "cli/test_streams.py",
    "exec",
    "storage",
)


# What one commit does in CI it does again: the short forms draw the same examples each time. The
# slow forms search, as everything does with `--hypothesis-profile=search`. There are no deadlines:
# the first example of a process loads an engine, and a busy machine is no fault.
settings.register_profile("search", derandomize=False, deadline=None)
settings.register_profile("same", derandomize=True, deadline=None)


def pytest_configure(config: pytest.Config) -> None:
    """Choose how random tests draw, unless the command line did."""
    if config.getoption("--hypothesis-profile", None) is None:
        settings.load_profile("search" if config.getoption("-m") == "slow" else "same")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long comes first."""
    root = Path(__file__).parent
    places: dict[Path, int] = {}
    for item in items:
        if item.path not in places:
            name = item.path.relative_to(root).as_posix()
            ranks = [n for n, first in enumerate(_FIRST) if name.startswith(first)]
            places[item.path] = min(ranks, default=len(_FIRST))
    items.sort(key=lambda item: places[item.path])


_OPENED = pytest.StashKey[ExitStack]()
_GRAPHS = pytest.StashKey[list[Graph]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Collect the graphs that a test marked `consistent` opens, its fixtures included."""
    marker = item.get_closest_marker("consistent")
    if marker is not None and marker.args != (False,):
        stack = item.stash[_OPENED] = ExitStack()
        item.stash[_GRAPHS] = stack.enter_context(consistent.recorded())
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """End a test marked `consistent` with the check of its graphs."""
    result = yield
    if _GRAPHS in item.stash:
        item.stash[_OPENED].close()
        consistent.check_graphs(list(item.stash[_GRAPHS]))
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Stop to collect graphs, whatever became of the test."""
    if _OPENED in item.stash:
        item.stash[_OPENED].close()
    return (yield)


@pytest.fixture
def lowered(request: pytest.FixtureRequest) -> Iterator[LoweredThresholds]:
    """Every threshold of the engine at a low value, so that a dozen rows take the paths of many:
    `@pytest.mark.parametrize("lowered", range(3), indirect=True)` names the seeds. With hypothesis
    use `tests.lowered`."""
    with lower_thresholds(getattr(request, "param", 0)) as values:
        print(values)  # noqa: T201  # pytest shows it where the test fails
        yield values


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One Spark session for the whole run: starting one costs seconds."""
    config = {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    made = session(master="local[2]", app_name="omnigraph-tests", config=config)
    yield made
    made.stop()
