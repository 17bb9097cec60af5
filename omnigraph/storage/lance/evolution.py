"""The columns of a table after some came, went or got another name.

Lance keeps data by field id and names apart from it, so one `Project` does all three and writes no
data file. Only the ids have to be right: building a schema from Arrow would number them anew, and a
column would be bound to another one's data.

Invariant: a column that stays keeps its field id. One that comes gets an id above every id that the
table's columns or data files know, so it reads as null until it is written.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from lance.schema import LanceSchema

from omnigraph.errors import StorageFailed
from omnigraph.storage.lance.datasets import Handle

_NAME, _ID, _PARENT = 2, 3, 4  # of a field in Lance's file format
_NO_PARENT = (1 << 64) - 1

Parts = list[tuple[int, int | bytes]]
"""A protobuf message as its numbered parts, in order."""


@dataclass(frozen=True, slots=True)
class Evolution:
    """What happens to a table's columns. Those that come are null in every row there is.

    `order` names all columns of the table afterwards; empty: as they are, the new ones last.
    """

    renames: Mapping[str, str] = field(default_factory=dict)
    drops: frozenset[str] = frozenset()
    adds: tuple[pa.Field, ...] = ()
    order: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.renames or self.drops or self.adds)


def evolved(handle: Handle, evolution: Evolution) -> LanceSchema:
    """The schema of a table afterwards."""
    build, (metadata, *fields) = _taken_apart(handle.lance_schema)
    columns = list(_kept(map(_decoded, fields), evolution))
    if evolution.adds:
        _, (_, *new) = _taken_apart(LanceSchema.from_pyarrow(pa.schema(evolution.adds)))
        columns += _numbered(map(_decoded, new), _first_free_id(handle, fields))
    if evolution.order:
        columns = _ordered(columns, evolution.order)
    return build(metadata, *map(_encoded, columns))


def _taken_apart(schema: LanceSchema) -> tuple[Callable[..., LanceSchema], tuple[Any, ...]]:
    """How a schema is built, and from what: its metadata and a message a field."""
    made: Any = schema.__reduce__()
    return made[0], made[1]


def _kept(columns: Iterator[Parts], evolution: Evolution) -> Iterator[Parts]:
    """The columns that stay, with their names. A nested one follows the column it is part of."""
    dropped: set[int] = set()
    for parts in columns:
        number, parent = _number(parts, _ID), _number(parts, _PARENT)
        if parent in dropped:
            dropped.add(number)
        elif parent != _NO_PARENT:
            yield parts
        elif (name := _name(parts)) in evolution.drops:
            dropped.add(number)
        else:
            yield _with(parts, _NAME, evolution.renames.get(name, name).encode())


def _numbered(columns: Iterator[Parts], first: int) -> Iterator[Parts]:
    for parts in columns:
        parent = _number(parts, _PARENT)
        if parent != _NO_PARENT:
            parts = _with(parts, _PARENT, parent + first)
        yield _with(parts, _ID, _number(parts, _ID) + first)


def _ordered(columns: list[Parts], order: tuple[str, ...]) -> list[Parts]:
    """The columns in this order, each followed by what is nested in it."""
    groups: list[list[Parts]] = []
    for parts in columns:
        if _number(parts, _PARENT) == _NO_PARENT:
            groups.append([])
        groups[-1].append(parts)
    groups.sort(key=lambda group: order.index(_name(group[0])))
    return [parts for group in groups for parts in group]


def _first_free_id(handle: Handle, fields: list[bytes]) -> int:
    known = [_number(_decoded(each), _ID) for each in fields]
    for fragment in handle.get_fragments():
        for file in fragment.metadata.files:
            known += file.fields
    return max(known) + 1


# The few rules of protobuf that a field's message uses


def _decoded(data: bytes) -> Parts:
    parts: Parts = []
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        value, at = _varint(data, at)
        if key & 7 == 0:
            parts.append((key >> 3, value))
        elif key & 7 == 2:
            parts.append((key >> 3, data[at : at + value]))
            at += value
        else:
            raise StorageFailed("read the columns of a table", "Lance writes them in another way")
    return parts


def _encoded(parts: Parts) -> bytes:
    data = bytearray()
    for number, value in parts:
        if isinstance(value, bytes):
            data += _as_varint(number << 3 | 2) + _as_varint(len(value)) + value
        else:
            data += _as_varint(number << 3) + _as_varint(value)
    return bytes(data)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _as_varint(value: int) -> bytes:
    data = bytearray()
    while value > 127:
        data.append(value & 127 | 128)
        value >>= 7
    data.append(value)
    return bytes(data)


def _number(parts: Parts, number: int) -> int:
    """A part that is not written is zero."""
    return next((int(value) for key, value in parts if key == number), 0)


def _name(parts: Parts) -> str:
    return next(value.decode() for key, value in parts if key == _NAME and isinstance(value, bytes))


def _with(parts: Parts, number: int, value: int | bytes) -> Parts:
    return [part for part in parts if part[0] != number] + [(number, value)]
