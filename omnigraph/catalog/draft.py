"""Draft: a checked schema whose types have no ids yet.

Invariant: everything in a `Draft` satisfies the rules of a `Catalog`, except that every id is 0 and
keys are in written order. `identity` gives out the ids.
"""

from collections.abc import Mapping
from dataclasses import field

from omnigraph.catalog.model import EdgeType, Interface, Literal, NodeType
from omnigraph.light_dataclass import dataclass
from omnigraph.types import Kind, PropertyId, Span, TypeId

NO_TYPE_ID = TypeId(0)
NO_PROPERTY_ID = PropertyId(0)

AnyType = Interface | NodeType | EdgeType


def entity(kind: Kind, type_name: str, property_name: str | None = None) -> str:
    """How plans and diagnostics call a type or a property: `node:Person.age`."""
    return f"{kind}:{type_name}" if property_name is None else f"{kind}:{type_name}.{property_name}"


@dataclass(frozen=True, slots=True)
class Hint:
    """`@rename_from("old")`. An injected one came with an interface's property."""

    old: str
    span: Span
    injected: bool = False


@dataclass(frozen=True, slots=True)
class Draft:
    """The declarations of a schema, in order, and the hints for a change by entity."""

    interfaces: tuple[Interface, ...]
    nodes: tuple[NodeType, ...]
    edges: tuple[EdgeType, ...]
    hints: Mapping[str, Hint]
    backfills: Mapping[str, Literal] = field(default_factory=dict)
