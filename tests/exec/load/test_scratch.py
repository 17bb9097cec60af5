"""Scratch folders go with their owner, however it ends."""

import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import omnigraph as og
from omnigraph.exec.load import finish, scratch
from omnigraph.exec.load.scratch import OWNED, SHARED, forget_dead, scratch_folder
from tests.exec.bulk import lines, new_graph, person
from tests.forked import KILLED, run


def folders(where: Path) -> set[str]:
    return {path.name for path in where.iterdir() if path.name.startswith((OWNED, SHARED))}


def load_and_die(uri: str, where: str) -> None:
    """A load that is killed with its folder in use."""
    tempfile.tempdir = where

    def dying(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    finish.Finish._check = dying  # type: ignore[method-assign]
    og.open(uri).load(lines(person("Ada")), "append", engine="local")


def test_LD6_the_folder_of_a_killed_load_is_removed_by_the_next_one(
    tmp_path: Path, monkeypatch: Any
) -> None:
    graph = new_graph(tmp_path)
    where = tmp_path / "temporary"
    where.mkdir()
    assert run(load_and_die, graph.uri, str(where)) == KILLED
    assert len(folders(where)) == 1
    monkeypatch.setattr(tempfile, "tempdir", str(where))
    graph.load(lines(person("Ada")), "append", engine="local")
    assert not folders(where)


def test_a_folder_in_use_stays(tmp_path: Path) -> None:
    with scratch_folder(tmp_path) as one, scratch_folder(tmp_path) as other:
        forget_dead(tmp_path)
        assert one.is_dir()
        assert other.is_dir()
    assert not folders(tmp_path)


def test_folders_without_an_owner_go_when_they_are_old(tmp_path: Path) -> None:
    for name in (f"{OWNED}new", f"{OWNED}old", f"{SHARED}new", f"{SHARED}old"):
        (tmp_path / name).mkdir()
    long_ago = time.time() - scratch.SHARED_AGE_S_MAX - 60
    for name in (f"{OWNED}old", f"{SHARED}old"):
        os.utime(tmp_path / name, (long_ago, long_ago))
    (tmp_path / "theirs").mkdir()
    forget_dead(tmp_path)
    assert folders(tmp_path) == {f"{OWNED}new", f"{SHARED}new"}
    assert (tmp_path / "theirs").is_dir()
