"""A graph of the example's people, made once and copied for each test."""

import shutil
from pathlib import Path

import pytest

from tests.cli.program import PEOPLE, SCHEMA, lines


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example's files and a loaded graph, to be read only."""
    folder = tmp_path_factory.mktemp("prepared")
    for file in filter(Path.is_file, PEOPLE.iterdir()):
        shutil.copy(file, folder)
    lines("init", "--schema", SCHEMA, "g.omni", cwd=folder)
    lines("load", "g.omni", "--data", "people.jsonl", "--mode", "merge", cwd=folder)
    return folder


@pytest.fixture
def people(prepared: Path, tmp_path: Path) -> Path:
    """The same, to be written."""
    return Path(shutil.copytree(prepared, tmp_path / "people"))


@pytest.fixture(autouse=True)
def no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The settings of whoever runs the tests have no say in them."""
    home = tmp_path / "home"
    monkeypatch.setenv("OMNIGRAPH_HOME", str(home))
    monkeypatch.delenv("OMNIGRAPH_PROFILE", raising=False)
    return home
