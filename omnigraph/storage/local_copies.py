"""Local copies of immutable documents of a graph on an object store: a content cache on disk.

Invariant: a document has a key that no other content can have, a hash or a name that is given once,
and a copy counts only whole: its digest comes first. A graph on local disk has no copies. What
cannot be read or written changes no answer.
"""

import hashlib
import os
import secrets
from contextlib import suppress
from pathlib import Path

from omnigraph import user_cache
from omnigraph.costs import COSTS
from omnigraph.storage.names import fnv1a64
from omnigraph.storage.objects import Root

_DIGEST = 16

SCHEMAS = "schemas"
"""The kind of schema documents, by their ids."""


class LocalCopies:
    """The copies of one graph's documents on this machine."""

    def __init__(self, where: Root) -> None:
        self._where = where

    @property
    def is_off(self) -> bool:
        """Whether the graph lies on local disk."""
        return self._where.is_local

    def _folder(self, kind: str) -> Path | None:
        folder = None if self.is_off else user_cache.lasting_folder()
        return None if folder is None else folder / "documents" / fnv1a64(self._where.uri) / kind

    def get(self, kind: str, key: str) -> bytes | None:
        """A document, if there is a whole copy of it."""
        folder = self._folder(kind)
        if folder is None:
            return None
        try:
            data = (folder / key).read_bytes()
        except OSError:
            return None
        body = data[_DIGEST:]
        return body if data[:_DIGEST] == _digest(body) else None

    def put(self, kind: str, key: str, body: bytes) -> None:
        """Keep a document, whole or not at all."""
        folder = self._folder(kind)
        if folder is None or len(body) > COSTS.local_copy_bytes_max:
            return
        with suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            aside = folder.parent / f"aside-{os.getpid()}-{secrets.token_hex(4)}"
            try:
                aside.write_bytes(_digest(body) + body)
                aside.rename(folder / key)
            except OSError:
                aside.unlink(missing_ok=True)
                raise
            _prune(folder)


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_DIGEST).digest()


def _prune(folder: Path) -> None:
    with os.scandir(folder) as listing:
        entries = sorted((each.stat().st_mtime, each.path) for each in listing)
    for _, path in entries[: -COSTS.local_copies_kept]:
        os.unlink(path)
