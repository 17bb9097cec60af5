"""Schema evolution of a table: columns added, dropped and renamed by one metadata commit.

Lance keeps data by field id and names apart from it, so one `Project` does all three and writes no
data file. Only the field ids have to be right: building a schema from Arrow would number them anew,
and a column would be bound to another one's data.

Invariant: a column that stays keeps its field id. An added column gets an id above every id that
the table's columns or data files know, so it reads as null until it is written.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any

import pyarrow as pa
from lance.schema import LanceSchema

from omnigraph.light_dataclass import dataclass
from omnigraph.storage.lance.datasets import Handle
from omnigraph.storage.lance.protobuf import Message, decoded, encoded

_NAME, _ID, _PARENT, _NULLABLE = 2, 3, 4, 6  # of a field in Lance's file format
_NO_PARENT = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Evolution:
    """Columns to rename, drop and add, and those that may hold null from now on. An added column is
    null in every existing row.

    `order` names all columns of the table afterwards; empty: as they are, the new ones last.
    """

    renames: Mapping[str, str] = field(default_factory=dict)
    drops: frozenset[str] = frozenset()
    adds: tuple[pa.Field, ...] = ()
    order: tuple[str, ...] = ()
    nullable: frozenset[str] = frozenset()  # by their names before

    def __bool__(self) -> bool:
        return bool(self.renames or self.drops or self.adds or self.nullable)


def evolved(handle: Handle, evolution: Evolution) -> LanceSchema:
    """The schema of a table afterwards."""
    build, (metadata, *fields) = _taken_apart(handle.lance_schema)
    columns = list(_kept(map(decoded, fields), evolution))
    if evolution.adds:
        _, (_, *new) = _taken_apart(LanceSchema.from_pyarrow(pa.schema(evolution.adds)))
        columns += _numbered(map(decoded, new), _first_free_id(handle, fields))
    if evolution.order:
        columns = _ordered(columns, evolution.order)
    return build(metadata, *map(encoded, columns))


def _taken_apart(schema: LanceSchema) -> tuple[Callable[..., LanceSchema], tuple[Any, ...]]:
    """The function that builds a schema, and its arguments: the metadata and a message a field."""
    made: Any = schema.__reduce__()
    return made[0], made[1]


def _kept(columns: Iterator[Message], evolution: Evolution) -> Iterator[Message]:
    """The columns that stay, under their new names. A nested one follows its parent."""
    dropped: set[int] = set()
    for column in columns:
        number, parent = _number(column, _ID), _number(column, _PARENT)
        if parent in dropped:
            dropped.add(number)
        elif parent != _NO_PARENT:
            yield column
        elif (name := _name(column)) in evolution.drops:
            dropped.add(number)
        else:
            kept = _with(column, _NULLABLE, 1) if name in evolution.nullable else column
            yield _with(kept, _NAME, evolution.renames.get(name, name).encode())


def _numbered(columns: Iterator[Message], first: int) -> Iterator[Message]:
    for column in columns:
        parent = _number(column, _PARENT)
        if parent != _NO_PARENT:
            column = _with(column, _PARENT, parent + first)
        yield _with(column, _ID, _number(column, _ID) + first)


def _ordered(columns: list[Message], order: tuple[str, ...]) -> list[Message]:
    """The columns in this order, each followed by the columns nested in it."""
    groups: list[list[Message]] = []
    for column in columns:
        if _number(column, _PARENT) == _NO_PARENT:
            groups.append([])
        groups[-1].append(column)
    groups.sort(key=lambda group: order.index(_name(group[0])))
    return [column for group in groups for column in group]


def _first_free_id(handle: Handle, fields: list[bytes]) -> int:
    known = [_number(decoded(each), _ID) for each in fields]
    for fragment in handle.get_fragments():
        for file in fragment.metadata.files:
            known += file.fields
    return max(known) + 1


def _number(column: Message, number: int) -> int:
    """A numeric field of a message; zero if it is not written."""
    return next((int(value) for key, value in column if key == number), 0)


def _name(column: Message) -> str:
    return next(
        value.decode() for key, value in column if key == _NAME and isinstance(value, bytes)
    )


def _with(column: Message, number: int, value: int | bytes) -> Message:
    return [field for field in column if field[0] != number] + [(number, value)]
