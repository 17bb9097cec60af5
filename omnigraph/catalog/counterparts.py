"""Counterparts: the type or property of one schema that is the same as one of another schema.

Invariant: identity decides, and the name only where identity is silent: two branches that add the
same type or property by themselves give it different identities, and a merge makes it one. A name
whose declaration is known under another name by identity says nothing.
"""

from collections.abc import Mapping
from typing import TypeVar

from omnigraph.catalog.draft import AnyType
from omnigraph.catalog.model import Catalog, EdgeType, Interface, NodeType, Property, Type
from omnigraph.types import Kind, PropertyId

Declared = TypeVar("Declared", Interface, NodeType, EdgeType)


def type_counterpart(owner: Type, own: Catalog, catalog: Catalog) -> Type | None:
    """The type of a catalog that is the same as a type of its own one."""
    if isinstance(owner, NodeType):
        return counterpart(owner, own.nodes, catalog.nodes)
    return counterpart(owner, own.edges, catalog.edges)


def counterpart(
    each: Declared, own: Mapping[str, Declared], declared: Mapping[str, Declared]
) -> Declared | None:
    """The declaration with the same identity, else the one with the same name, unless that is
    another of its own declarations under another name."""
    same = next((other for other in declared.values() if other.id == each.id), None)
    if same is not None:
        return same
    named = declared.get(each.name)
    if named is None or any(other.id == named.id for other in own.values()):
        return None
    return named


def property_counterparts(each: AnyType, other: AnyType) -> dict[str, Property]:
    """For each property of a type, by name, the same property of its counterpart, if it has one.
    Property ids mean the same only within one type."""
    by_name = {prop.name: prop for prop in other.properties}
    by_id = {prop.id: prop for prop in other.properties} if other.id == each.id else {}
    own_ids = {prop.id for prop in each.properties} if other.id == each.id else set()
    pairs = {}
    for prop in each.properties:
        same = by_id.get(prop.id)
        if same is None:
            named = by_name.get(prop.name)
            same = named if named is not None and named.id not in own_ids else None
        if same is not None:
            pairs[prop.name] = same
    return pairs


def stored_ids(owner: Type, side: Type) -> dict[str, PropertyId]:
    """The identities under which a table of `side` stores the properties of `owner`."""
    return {name: prop.id for name, prop in property_counterparts(owner, side).items()}


def kind_of(each: AnyType) -> Kind:
    """The kind of a declaration."""
    return Kind.INTERFACE if isinstance(each, Interface) else each.kind
