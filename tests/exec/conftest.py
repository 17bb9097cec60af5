"""Graphs for the exec room's tests."""

from pathlib import Path

import pytest

from omnigraph.graph import Graph
from tests.exec.town import copy_of, make_template


@pytest.fixture(scope="session")
def people_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_template(tmp_path_factory.mktemp("people") / "graph.omni")


@pytest.fixture
def people(people_template: Path, tmp_path: Path) -> Graph:
    return copy_of(people_template, tmp_path / "graph.omni")
