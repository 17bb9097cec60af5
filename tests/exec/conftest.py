"""Graphs for the exec room's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.graph import Graph
from tests.exec import branching
from tests.exec.town import copy_of, make_template


@pytest.fixture(scope="module", autouse=True)
def _in_one_process() -> Iterator[None]:
    """A load stays here, though a session that other tests started may still be active."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("omnigraph.pipeline.load._session_is_active", lambda: False)
        yield


@pytest.fixture(scope="session")
def people_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_template(tmp_path_factory.mktemp("people") / "graph.omni")


@pytest.fixture
def people(people_template: Path, tmp_path: Path) -> Graph:
    return copy_of(people_template, tmp_path / "graph.omni")


@pytest.fixture(scope="session")
def small_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return branching.make_template(tmp_path_factory.mktemp("small") / "graph.omni")


@pytest.fixture
def small(small_template: Path, tmp_path: Path) -> Graph:
    return branching.copy_of(small_template, tmp_path / "small.omni")
