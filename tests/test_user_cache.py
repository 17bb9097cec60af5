"""Where things are kept, and where they are not."""

import os
import tempfile
from pathlib import Path

import pytest

from omnigraph.user_cache import cache_folder, lasting_folder


@pytest.fixture
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary directory that nothing else uses."""
    folder = tmp_path / "temp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_the_cache_folder_of_the_desktop_comes_first(tmp_path: Path) -> None:
    env = {"XDG_CACHE_HOME": str(tmp_path / "xdg"), "HOME": str(tmp_path / "home")}
    assert cache_folder(env) == tmp_path / "xdg" / "omnigraph"


@pytest.mark.parametrize("xdg", ["", "relative/cache"])
def test_the_home_folder_serves_without_it(xdg: str, tmp_path: Path) -> None:
    env = {"XDG_CACHE_HOME": xdg, "HOME": str(tmp_path)}
    assert cache_folder(env) == tmp_path / ".cache" / "omnigraph"


def test_a_home_that_cannot_be_written_is_left_alone(tmp_path: Path, temp: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("a file where the folder should be")
    assert cache_folder({"HOME": str(blocked)}) == temp / f"omnigraph-{os.getuid()}"


def test_a_folder_that_others_can_write_is_not_trusted(temp: Path) -> None:
    planted = temp / f"omnigraph-{os.getuid()}"
    planted.mkdir()
    planted.chmod(0o777)
    folder = cache_folder({})
    assert folder != planted
    assert folder.stat().st_mode & 0o077 == 0


def test_a_link_is_not_trusted(tmp_path: Path, temp: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    planted = temp / f"omnigraph-{os.getuid()}"
    planted.symlink_to(tmp_path / "elsewhere")
    assert cache_folder({}) != planted


def test_a_machine_whose_disks_are_all_full_has_no_lasting_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    assert lasting_folder({"HOME": "/proc/no/such/home"}) is None
