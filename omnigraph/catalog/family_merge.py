"""Families in a schema merge: edges with an interface at an end, whole again after a merge.

A merge goes edge type by edge type, and each side may know node types that the other does not. So a
family can come out of it with members of different shapes, or without a member between two node
types that only the merged schema has both of.

Invariant: in the result every family has a member for each pair of node types that its ends can be,
and all its members have the same properties and constraints.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product

from omnigraph.catalog.counterparts import counterpart, property_counterparts
from omnigraph.catalog.identity import with_ordered_edge_key
from omnigraph.catalog.model import Catalog, EdgeType, NodeType, Property
from omnigraph.types import PropertyId, TypeId

Edges = dict[str, EdgeType]


@dataclass(frozen=True, slots=True)
class WholeFamilies:
    """The edge types of a merged schema, and the number of the next type."""

    edges: Edges
    next_type_id: int
    rekeyed: tuple[EdgeType, ...]  # members whose rows have ids by another key than their family
    misnamed: tuple[EdgeType, ...]  # edges that are called like a family or one of its members


def whole_families(
    edges: Edges,
    nodes: Mapping[str, NodeType],
    sides: tuple[Catalog, Catalog, Catalog],
    next_type_id: int,
) -> WholeFamilies:
    """The merged edge types with every family whole. `sides` are base, ours and theirs."""
    base, ours, theirs = sides
    kept, rekeyed = dict(edges), list[EdgeType]()
    for side, other in ((ours, theirs), (theirs, ours)):
        for members in side.families.values():
            pairs = [(member, _heir(member, side, kept)) for member in members]
            heirs = [(member, heir) for member, heir in pairs if heir is not None]
            both = [(m, heir) for m, heir in heirs if _is_in(other, m, side)]
            for member, heir in heirs:
                if _is_in(other, member, side):
                    continue
                if both:
                    like = _like(both[0], heir, side.next_property_ids)
                    if set(like.key) != _renamed(heir.key, both[0]):
                        rekeyed.append(heir)
                    del kept[heir.name]
                    kept[like.name] = like
                elif any(_is_in(base, each, side) for each in members):
                    del kept[heir.name]  # the other side removed the family
    misnamed = list[EdgeType]()
    for member in list(_members(kept, nodes)):
        assert member.family is not None
        named = [kept.get(member.family.name), kept.get(member.name)]
        misnamed += [each for each in named if each is not None and each.family != member.family]
        if member.name not in kept:
            kept[member.name] = replace(member, id=TypeId(next_type_id))
            next_type_id += 1
    return WholeFamilies(kept, next_type_id, tuple(rekeyed), tuple(dict.fromkeys(misnamed)))


def _is_in(catalog: Catalog, member: EdgeType, side: Catalog) -> bool:
    """Whether another catalog has a side's member."""
    return counterpart(member, side.edges, catalog.edges) is not None


def _heir(member: EdgeType, side: Catalog, merged: Edges) -> EdgeType | None:
    """The merged edge type that a side's member became."""
    heir = counterpart(member, side.edges, merged)
    return heir if heir is not None and heir.family is not None else None


def _like(
    shared: tuple[EdgeType, EdgeType], own: EdgeType, next_ids: Mapping[TypeId, int]
) -> EdgeType:
    """A member that one side alone has, in the shape that the family has after the merge.

    `shared` is a member that both sides have: as this side has it, and as it was merged.
    """
    merged = shared[1]
    assert merged.family is not None
    names = _new_names(shared)
    ids = {names.get(prop.name, prop.name): prop.id for prop in own.properties}
    next_id = next_ids.get(own.id, 1)
    properties = list[Property]()
    for prop in merged.properties:
        if prop.name not in ids:
            ids[prop.name] = PropertyId(next_id)
            next_id += 1
        properties.append(replace(prop, id=ids[prop.name]))
    like = replace(merged, id=own.id, properties=tuple(properties))
    return with_ordered_edge_key(merged.family.member(like, own.source, own.target))


def _new_names(shared: tuple[EdgeType, EdgeType]) -> dict[str, str]:
    """The merged names of the properties of a member, by the names that one side has."""
    return {name: prop.name for name, prop in property_counterparts(*shared).items()}


def _renamed(key: Iterable[str], shared: tuple[EdgeType, EdgeType]) -> set[str]:
    names = _new_names(shared)
    return {names.get(name, name) for name in key}


def _members(edges: Edges, nodes: Mapping[str, NodeType]) -> Iterator[EdgeType]:
    """Every member that the families should have, as a new one would be, without identity."""
    families = {edge.family: edge for edge in edges.values() if edge.family is not None}
    for family, one in families.items():
        named = sorted(one.properties, key=lambda prop: prop.name)
        ids = {prop.name: PropertyId(n) for n, prop in enumerate(named, 1)}
        properties = tuple(replace(prop, id=ids[prop.name]) for prop in one.properties)
        alike = with_ordered_edge_key(replace(one, properties=properties))
        for ends in product(_types(family.source, nodes), _types(family.target, nodes)):
            yield family.member(alike, *ends)


def _types(end: str, nodes: Mapping[str, NodeType]) -> list[str]:
    """The node types that an end of a family can be."""
    if end in nodes:
        return [end]
    return [name for name, node in nodes.items() if end in node.implements]
