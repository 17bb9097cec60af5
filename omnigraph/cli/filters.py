"""The options that narrow changes, the same for every command that lists them."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, TypedDict

import typer


class EntityKind(StrEnum):
    """What an entity is."""

    NODE = "node"
    EDGE = "edge"


class Op(StrEnum):
    """What happened to an entity."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


Kinds = Annotated[
    list[EntityKind] | None, typer.Option("--kind", help="Only these; may be repeated.")
]
Ops = Annotated[list[Op] | None, typer.Option("--op", help="Only these; may be repeated.")]


class ChangeFilter(TypedDict):
    """The options as the graph takes them."""

    kinds: tuple[str, ...]
    types: tuple[str, ...]
    ops: tuple[str, ...]


def change_filter(
    kinds: list[EntityKind] | None, types: list[str] | None, ops: list[Op] | None
) -> ChangeFilter:
    """What was asked for; nothing asked is everything."""
    return ChangeFilter(
        kinds=tuple(kind.value for kind in kinds or ()),
        types=tuple(types or ()),
        ops=tuple(op.value for op in ops or ()),
    )
