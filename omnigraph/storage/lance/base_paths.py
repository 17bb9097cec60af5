"""Base paths of Lance branches: the absolute addresses by which a branch names its parents' files.

A version's file ends with its manifest: a length, a protobuf message, the offset of that length,
and a magic word. What lies before the manifest (an index section, a transaction) is named by
offsets from the beginning, so the manifest can be replaced and nothing else moves.

    … sections … | length | message | offset of length | 2 numbers | LANC

Invariant: a base path is `<root>/<location>` or `<root>/<location>/tree/<branch>`, so what follows
the root stays when the root is another one. A file that is not understood to the last byte is
refused, never changed by a guess.
"""

import os
import struct
from collections.abc import Iterable
from urllib.parse import unquote

from lance import DatasetBasePath

from omnigraph.errors import GraphMoved, StorageFailed
from omnigraph.storage.lance.protobuf import Message, decoded, encoded
from omnigraph.storage.objects import LOCAL_SCHEME, Root

_MAGIC = b"LANC"
_FOOTER = struct.Struct("<QHH4s")
_LENGTH = struct.Struct("<I")
_BASE_PATHS = 18  # the field of a manifest
_SECTOR = 512
_PATH = 4  # the field of a base path
_TRANSACTION = 23  # the field of a manifest: where its transaction lies
_CLONE, _CLONED_PATH = 113, 4  # the fields of a transaction and of a clone


def rebased(data: bytes, location: str, root: Root) -> bytes:
    """The file of a version whose base paths lie below another root."""
    start, message = _manifest(data)
    changed = [
        (number, encoded(_base(value, location, root)) if number == _BASE_PATHS else value)
        for number, value in message
    ]
    if changed == message:
        return data
    body = encoded(changed)
    footer = data[-_FOOTER.size :]
    return data[:start] + _LENGTH.pack(len(body)) + body + footer


def cloned(data: bytes, location: str, root: Root) -> bytes:
    """The first version of a branch as it would have been made below another root: its base paths,
    and what its transaction says it is a clone of. That lies right before the manifest."""
    data = rebased(data, location, root)
    start, message = _manifest(data)
    offset = next((value for number, value in message if number == _TRANSACTION), None)
    if not isinstance(offset, int):
        raise _strange("it has no transaction")
    (length,) = _LENGTH.unpack_from(data, offset)
    body = data[offset + _LENGTH.size : start]
    if len(body) != length:
        raise _strange("its transaction does not end where the manifest begins")
    described = encoded(
        [
            (number, encoded(_clone(value, location, root)) if number == _CLONE else value)
            for number, value in decoded(body)
        ]
    )
    begins = offset + _LENGTH.size + len(described)
    _, major, minor, magic = _FOOTER.unpack(data[-_FOOTER.size :])
    footer = _FOOTER.pack(begins, major, minor, magic)
    return (
        data[:offset]
        + _LENGTH.pack(len(described))
        + described
        + data[start : -_FOOTER.size]
        + footer
    )


def _clone(value: int | bytes, location: str, root: Root) -> Message:
    if not isinstance(value, bytes):
        raise _strange("its clone is a number")
    return [
        (number, _moved(part, location, root) if number == _CLONED_PATH else part)
        for number, part in decoded(value)
    ]


def version_file(version: int) -> str:
    """The name of a version's file: numbers count down, so that the newest is listed first."""
    return f"{2**64 - 1 - version:020d}.manifest"


def is_whole(data: bytes) -> bool:
    """Whether the file of a version ends as its writer ended it and has no sector of zeros: a power
    cut may leave a name, and even a size, without the content."""
    if len(data) < _FOOTER.size + _LENGTH.size:
        return False
    start, _, _, magic = _FOOTER.unpack(data[-_FOOTER.size :])
    if magic != _MAGIC or start > len(data) - _FOOTER.size - _LENGTH.size:
        return False
    (length,) = _LENGTH.unpack_from(data, start)
    if start + _LENGTH.size + length + _FOOTER.size != len(data):
        return False
    return all(any(data[start : start + _SECTOR]) for start in range(0, len(data), _SECTOR))


def _manifest(data: bytes) -> tuple[int, Message]:
    """Where the manifest's length stands in a version's file, and the manifest."""
    if len(data) < _FOOTER.size + _LENGTH.size:
        raise _strange("it is too short")
    start, _, _, magic = _FOOTER.unpack(data[-_FOOTER.size :])
    if magic != _MAGIC or start > len(data) - _FOOTER.size - _LENGTH.size:
        raise _strange("its end is another one")
    (length,) = _LENGTH.unpack_from(data, start)
    body = data[start + _LENGTH.size : len(data) - _FOOTER.size]
    if len(body) != length:
        raise _strange("its manifest does not end where the file does")
    message = decoded(body)
    if encoded(message) != body:
        raise _strange("its manifest is encoded in another way")
    return start, message


def _base(value: int | bytes, location: str, root: Root) -> Message:
    if not isinstance(value, bytes):
        raise _strange("a base path is a number")
    return [
        (number, _moved(part, location, root) if number == _PATH else part)
        for number, part in decoded(value)
    ]


def _moved(path: int | bytes, location: str, root: Root) -> bytes:
    if not isinstance(path, bytes):
        raise _strange("the address of a base path is a number")
    _, tail = split(path.decode(), location)
    return f"{root.branching(location)}{tail}".encode()


def split(path: str, location: str) -> tuple[str, str]:
    """A base path as the root it lies below, and what follows the dataset's own folder."""
    head, separator, tail = path.rpartition(f"/{location}")
    if not separator or (tail and not tail.startswith("/tree/")):
        raise _strange(f"its base path '{path}' lies in no table of this graph")
    return head, tail


class Homes:
    """The roots below which branches of one graph name files: all must be its own."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._known: set[str] = set()

    def require(self, location: str, bases: Iterable[DatasetBasePath]) -> None:
        """Refuse a branch that names files below another root: its graph was moved or copied as
        files, and it would read the old folder."""
        for base in bases:
            recorded, _ = split(base.path, location)
            if recorded in self._known:
                continue
            if not is_root(recorded, self._root):
                raise GraphMoved(self._root.uri, recorded)
            self._known.add(recorded)

    def clear(self) -> None:
        """Forget the roots that were compared."""
        self._known.clear()


def is_root(recorded: str, root: Root) -> bool:
    """Whether the root of a base path is this root, also by another name of the same folder."""
    if recorded == root.branching("x")[:-2] or recorded == root.uri:
        return True
    if root.path is None:
        return False
    raw = recorded.removeprefix(LOCAL_SCHEME).removeprefix("file://")
    for path in (raw, unquote(raw)):
        try:
            if os.path.samefile(path, root.path):
                return True
        except OSError:
            continue
    return False


def _strange(why: str) -> StorageFailed:
    return StorageFailed("read the file of a Lance version", f"{why}; nothing was changed")
