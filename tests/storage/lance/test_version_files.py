"""Versions found by their names on disk."""

from pathlib import Path

import pytest

from omnigraph.storage.lance.base_paths import version_file
from omnigraph.storage.lance.version_files import version_paths, versions_since


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 7, 8, 9, 100])
def test_versions_after_a_known_one_are_counted_up(tmp_path: Path, count: int) -> None:
    (tmp_path / "_versions").mkdir()
    for number in range(5, 6 + count):
        (tmp_path / "_versions" / version_file(number)).touch()
    assert versions_since(tmp_path, 5) == count


def test_versions_are_listed_the_newest_first(tmp_path: Path) -> None:
    assert version_paths(tmp_path) == []
    (tmp_path / "_versions").mkdir()
    for number in (9, 10, 11):
        (tmp_path / "_versions" / version_file(number)).touch()
    (tmp_path / "_versions" / "latest_version_hint.json").touch()
    assert [path.name for path in version_paths(tmp_path)] == list(map(version_file, (11, 10, 9)))
