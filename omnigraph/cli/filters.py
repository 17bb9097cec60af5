"""Filter options (`--kind`, `--type`, `--op`) of every command that lists changes."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, TypedDict

import typer


class EntityKind(StrEnum):
    """Node or edge, as `--kind` takes them."""

    NODE = "node"
    EDGE = "edge"


class Op(StrEnum):
    """Operation on an entity, as `--op` takes them."""

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
    """The filter that the options give; no option lets everything through."""
    return ChangeFilter(
        kinds=tuple(kind.value for kind in kinds or ()),
        types=tuple(types or ()),
        ops=tuple(op.value for op in ops or ()),
    )
