"""Scratch of loads: a folder of this machine, or one beside the graph, where its writers reach it.

Invariant: a folder lies beside the graph, unless that is in an object store or the caller names
another. What the data source exchanges lies where the graph lies, whatever that is: every process
that writes a graph reaches its storage, and perhaps no other.
"""

import os
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pyarrow.fs as pfs

from omnigraph import environment
from omnigraph.exec.load.files import Options, is_remote, opened
from omnigraph.exec.load.scratch import SHARED, SHARED_AGE_S_MAX, discard, forget_dead
from omnigraph.storage.store import Store

_SCRATCH = "__scratch"


def scratch_parent(store: Store) -> str:
    """The folder for scratch folders of one machine, made when this returns."""
    folder = environment.SCRATCH.read()
    if folder:
        os.makedirs(folder, exist_ok=True)
        return folder
    if store.where.path is None:
        return tempfile.gettempdir()
    parent = store.where.path / _SCRATCH
    parent.mkdir(exist_ok=True)
    return str(parent)


@dataclass(frozen=True, slots=True)
class SharedFolder:
    """A folder beside a graph that several processes use in turn: none knows whether it is the
    last, so one that nobody discarded goes after a week."""

    uri: str
    options: Options = ()

    @staticmethod
    def beside(store: Store) -> "SharedFolder":
        """A new folder, with old ones removed."""
        if store.where.path is not None:
            parent = store.where.path / _SCRATCH
            parent.mkdir(exist_ok=True)
            forget_dead(parent)
            folder = parent / f"{SHARED}{uuid4().hex}"
            folder.mkdir()
            return SharedFolder(str(folder))
        _forget_old(store.where.join(_SCRATCH), store.where.options)
        return SharedFolder(
            store.where.join(f"{_SCRATCH}/{SHARED}{uuid4().hex}"), store.where.options
        )

    def discard(self) -> None:
        """Remove the folder. One that cannot be reached is left to the next week."""
        if not is_remote(self.uri):
            discard(Path(self.uri))
            return
        files, path = opened(self.uri, self.options)
        with suppress(OSError):
            files.delete_dir_contents(path, missing_dir_ok=True)
        with suppress(OSError):
            files.delete_dir(path)


def _forget_old(uri: str, options: Options) -> None:
    """Remove objects of writes that nobody ended."""
    files, path = opened(uri, options)
    oldest = datetime.fromtimestamp(time.time() - SHARED_AGE_S_MAX, UTC)
    with suppress(OSError):
        listed = files.get_file_info(pfs.FileSelector(path, allow_not_found=True, recursive=True))
        for each in listed:
            if each.type == pfs.FileType.File and each.mtime is not None and each.mtime < oldest:
                files.delete_file(each.path)
