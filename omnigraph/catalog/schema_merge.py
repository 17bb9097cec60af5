"""Three-way schema merge: base, ours and theirs, compared type by type and property by property.

What one side alone changed is taken. What both changed alike is taken once. Where both widened a
type, a cardinality or an enum, the result holds the values of both. Anything else that both sides
changed is a conflict, and so is a change of what the other side removed.

Invariant: the identities of the result are those of ours. What theirs added keeps its identity
unless ours has one for it, or has given the number away.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from omnigraph.catalog.counterparts import counterpart, kind_of, property_counterparts
from omnigraph.catalog.documents import fingerprint
from omnigraph.catalog.draft import AnyType
from omnigraph.catalog.family_merge import whole_families
from omnigraph.catalog.model import (
    Annotation,
    Cardinality,
    Catalog,
    Check,
    EdgeType,
    Interface,
    NodeType,
    Property,
    Range,
)
from omnigraph.catalog.schema_text import property_text, type_text
from omnigraph.catalog.widening import widened_type
from omnigraph.errors import MergeConflict
from omnigraph.types import PropertyId, TypeId

SCHEMA_CONFLICT = "schema_conflict"

T = TypeVar("T")
Declared = TypeVar("Declared", Interface, NodeType, EdgeType)
_Columns = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SchemaMerge:
    """A merged schema, and what could not be decided."""

    catalog: Catalog
    conflicts: tuple[MergeConflict, ...]


def merge_schemas(base: Catalog, ours: Catalog, theirs: Catalog) -> SchemaMerge:
    """The merge of two schemas over the one they come from. The counters of `ours` are above those
    of every branch."""
    merging = _Merging(dict(ours.next_property_ids))
    sides = base, ours, theirs
    interfaces = merging.types(*(side.interfaces for side in sides))
    nodes = merging.types(*(_implementing(side, interfaces) for side in sides))
    edges = merging.types(*(_between(side, nodes) for side in sides))
    families = whole_families(edges, nodes, sides, max(side.next_type_id for side in sides))
    edges = families.edges
    for edge in families.rekeyed:
        merging.clash(edge, None, f"{edge.name} has another @key on each side", None, edge, edge)
    for edge in families.misnamed:
        text = f"two edge types would be called {edge.name}"
        merging.clash(edge, None, text, None, edge, edge)
    for edge in edges.values():
        if edge.source not in nodes or edge.target not in nodes:
            merging.clash(edge, None, f"an end of edge {edge.name} was removed", None, edge, edge)
    declared: list[AnyType] = [*interfaces.values(), *nodes.values(), *edges.values()]
    next_ids = {
        each.id: max(
            [
                theirs.next_property_ids.get(each.id, 1),
                merging.next_ids.get(each.id, 1),
                *(prop.id + 1 for prop in each.properties),
            ]
        )
        for each in declared
    }
    catalog = Catalog(
        nodes,
        edges,
        interfaces,
        families.next_type_id,
        next_ids,
        fingerprint(nodes, edges, interfaces),
    )
    return SchemaMerge(catalog, tuple(merging.conflicts))


def _own_name(each: AnyType) -> str:
    """The name of a type; of a member that of its family, since its ends are named elsewhere."""
    family = each.family if isinstance(each, EdgeType) else None
    return each.name if family is None else family.name


def _new_names(declared: Mapping[str, Declared], merged: Mapping[str, Declared]) -> dict[str, str]:
    """The merged names of the types of one side."""
    same = {name: counterpart(each, declared, merged) for name, each in declared.items()}
    return {name: name if each is None else each.name for name, each in same.items()}


def _implementing(side: Catalog, interfaces: Mapping[str, Interface]) -> dict[str, NodeType]:
    """The nodes of a side, with the merged names of their interfaces."""
    names = _new_names(side.interfaces, interfaces)
    return {
        name: replace(
            node,
            implements=tuple(names[each] for each in node.implements),
            properties=tuple(
                replace(prop, injected_from=names.get(prop.injected_from or ""))
                for prop in node.properties
            ),
        )
        for name, node in side.nodes.items()
    }


def _between(side: Catalog, nodes: Mapping[str, NodeType]) -> dict[str, EdgeType]:
    """The edges of a side, with the merged names of their ends."""
    names = _new_names(side.nodes, nodes)
    return {
        name: _renamed_member(replace(edge, source=names[edge.source], target=names[edge.target]))
        for name, edge in side.edges.items()
    }


def _renamed_member(edge: EdgeType) -> EdgeType:
    """A member under the name that follows from its ends."""
    if edge.family is None:
        return edge
    return replace(edge, name=edge.family.member_name(edge.source, edge.target))


@dataclass(slots=True)
class _Merging:
    """Merges declarations, and gathers what both sides changed."""

    next_ids: dict[TypeId, int]
    conflicts: list[MergeConflict] = field(default_factory=list)

    def clash(
        self,
        each: AnyType,
        prop: str | None,
        text: str,
        base: AnyType | Property | None,
        ours: AnyType | Property | None,
        theirs: AnyType | Property | None,
    ) -> None:
        """Note a conflict about a type or a property, with every version of its declaration."""
        sides = (_shown(side, prop) for side in (base, ours, theirs))
        kind = str(kind_of(each))
        self.conflicts.append(MergeConflict(kind, each.name, None, SCHEMA_CONFLICT, text, *sides))

    # ---- types

    def types(
        self,
        base: Mapping[str, Declared],
        ours: Mapping[str, Declared],
        theirs: Mapping[str, Declared],
    ) -> dict[str, Declared]:
        merged: dict[str, Declared] = {}
        for each in self._merged_types(base, ours, theirs):
            if each.name in merged:
                text = f"two types would be called {each.name}"
                self.clash(each, None, text, None, merged[each.name], each)
            merged[each.name] = each
        return merged

    def _merged_types(
        self,
        base: Mapping[str, Declared],
        ours: Mapping[str, Declared],
        theirs: Mapping[str, Declared],
    ) -> Iterator[Declared]:
        paired = set()
        for own in ours.values():
            origin, other = (counterpart(own, ours, side) for side in (base, theirs))
            if other is not None:
                paired.add(other.id)
                origin = origin or counterpart(other, theirs, base)
                yield self._both(origin, own, other)
            elif origin is None:
                yield own
            elif _definition(origin) != _definition(own):
                text = f"{own.name} was changed here and removed there"
                self.clash(own, None, text, origin, own, None)
        for other in theirs.values():
            if other.id in paired:
                continue
            origin = counterpart(other, theirs, base)
            if origin is None:
                yield other
            elif _definition(origin) != _definition(other):
                text = f"{other.name} was removed here and changed there"
                self.clash(other, None, text, origin, None, other)

    def _both(self, base: Declared | None, ours: Declared, theirs: Declared) -> Declared:
        if _definition(ours) == _definition(theirs):
            return ours
        if base is None:
            text = f"{ours.name} was added on both sides with different definitions"
            self.clash(ours, None, text, None, ours, theirs)
            return ours
        return self._three(base, ours, theirs)

    def _three(self, base: Declared, ours: Declared, theirs: Declared) -> Declared:
        sides = base, ours, theirs
        merged = self._properties(*sides)
        columns = _ColumnNames(merged, sides)
        name = self._one(ours, "the name", [_own_name(side) for side in sides], sides)
        rest: dict[str, Any] = {}
        for listed in ("keys", "uniques", "indexes", "implements", "ranges", "checks"):
            if hasattr(ours, listed):
                values = [columns.renamed(side, getattr(side, listed)) for side in sides]
                rest[listed] = self._set(ours, listed, values, sides)
        if not isinstance(ours, Interface):
            keys = [columns.renamed(side, (getattr(side, "key"),))[0] for side in sides]  # noqa: B009
            rest["key"] = self._one(ours, "@key", keys, sides)
        if isinstance(ours, EdgeType):
            bounds = [getattr(side, "cardinality") for side in sides]  # noqa: B009
            rest["cardinality"] = self._one(ours, "@card", bounds, sides, _wider_cardinality)
            families = [getattr(side, "family") for side in sides]  # noqa: B009
            family = rest["family"] = self._one(ours, "the ends", families, sides)
            if family is not None:
                name = family.member_name(ours.source, ours.target)
        if not isinstance(ours, Interface):
            notes = [getattr(side, "annotations") for side in sides]  # noqa: B009
            rest["annotations"] = self._annotations(ours, None, notes, sides)
        properties = tuple(prop for prop, _ in merged)
        return replace(ours, name=name, properties=properties, **rest)

    # ---- properties

    def _properties(
        self, base: AnyType, ours: AnyType, theirs: AnyType
    ) -> list[tuple[Property, tuple[Property | None, Property | None, Property | None]]]:
        """The merged properties, each with what it is in base, ours and theirs."""
        in_base, in_theirs = (property_counterparts(ours, side) for side in (base, theirs))
        base_of_theirs = property_counterparts(theirs, base)
        merged: list[tuple[Property, tuple[Property | None, Property | None, Property | None]]] = []
        for own in ours.properties:
            origin, other = in_base.get(own.name), in_theirs.get(own.name)
            if other is not None:
                origin = origin or base_of_theirs.get(other.name)
                merged.append((self._property(ours, origin, own, other), (origin, own, other)))
            elif origin is None:
                merged.append((own, (None, own, None)))
            elif _facts(origin) != _facts(own):
                text = f"{ours.name}.{own.name} was changed here and removed there"
                self.clash(ours, own.name, text, origin, own, None)
        paired = {prop.name for prop in in_theirs.values()}
        taken = {prop.id for prop, _ in merged}
        for other in theirs.properties:
            if other.name in paired:
                continue
            origin = base_of_theirs.get(other.name)
            if origin is None:
                fresh = self._numbered(ours, theirs, other, taken)
                taken.add(fresh.id)
                merged.append((fresh, (None, None, other)))
            elif _facts(origin) != _facts(other):
                text = f"{ours.name}.{other.name} was removed here and changed there"
                self.clash(ours, other.name, text, origin, None, other)
        return merged

    def _numbered(
        self, ours: AnyType, theirs: AnyType, prop: Property, taken: set[PropertyId]
    ) -> Property:
        """A property that theirs added, under an identity that is free in ours."""
        if ours.id == theirs.id and prop.id not in taken:
            return prop
        number = max([self.next_ids.get(ours.id, 1), *(int(each) + 1 for each in taken)])
        self.next_ids[ours.id] = number + 1
        return replace(prop, id=PropertyId(number))

    def _property(
        self, owner: AnyType, base: Property | None, ours: Property, theirs: Property
    ) -> Property:
        if _facts(ours) == _facts(theirs):
            return ours
        sides = base, ours, theirs
        if base is None:
            text = f"{owner.name}.{ours.name} was added on both sides with different definitions"
            self.clash(owner, ours.name, text, *sides)
            return ours
        facts = [base, ours, theirs]
        value_type = self._one(
            owner, "the type", [p.type for p in facts], sides, widened_type, prop=ours.name
        )
        return replace(
            ours,
            name=self._one(owner, "the name", [p.name for p in facts], sides, prop=ours.name),
            type=value_type,
            default=self._one(
                owner, "the default", [_exact(p.default) for p in facts], sides, prop=ours.name
            )[1],
            embed=self._one(owner, "@embed", [p.embed for p in facts], sides, prop=ours.name),
            annotations=self._annotations(owner, ours.name, [p.annotations for p in facts], sides),
        )

    # ---- facts

    def _one(
        self,
        owner: AnyType,
        what: str,
        values: Sequence[T],
        sides: Sequence[AnyType | Property | None],
        widened: Callable[[T, T], T | None] | None = None,
        *,
        prop: str | None = None,
    ) -> T:
        """One fact of three versions. Where both sides changed it, both are widened to one that
        holds both, or it is a conflict."""
        base, ours, theirs = values
        if ours == theirs or theirs == base:
            return ours
        if ours == base:
            return theirs
        wide = None if widened is None else widened(ours, theirs)
        if wide is not None:
            return wide
        subject = owner.name if prop is None else f"{owner.name}.{prop}"
        self.clash(owner, prop, f"{what} of {subject} was changed on both sides", *sides)
        return ours

    def _set(
        self,
        owner: AnyType,
        what: str,
        values: Sequence[tuple[T, ...]],
        sides: Sequence[AnyType | Property | None],
    ) -> tuple[T, ...]:
        """Members that both have, or that one side added; those that one side removed are gone.
        Two ranges or checks of one property are a conflict."""
        base, ours, theirs = values
        kept = [item for item in ours if item in theirs or item not in base]
        kept += [item for item in theirs if item not in ours and item not in base]
        subjects = [item.property for item in kept if isinstance(item, Range)]
        if len(set(subjects)) < len(subjects):
            text = f"@range of {owner.name} was changed on both sides"
            self.clash(owner, None, text, *sides)
        return tuple(kept)

    def _annotations(
        self,
        owner: AnyType,
        prop: str | None,
        values: Sequence[tuple[Annotation, ...]],
        sides: Sequence[AnyType | Property | None],
    ) -> tuple[Annotation, ...]:
        names = dict.fromkeys(note.name for side in values for note in side)
        merged: list[Annotation] = []
        for name in names:
            of = [tuple(note for note in side if note.name == name) for side in values]
            merged += self._one(owner, f"@{name}", of, sides, prop=prop)
        return tuple(merged)


@dataclass(frozen=True, slots=True)
class _ColumnNames:
    """The merged names of the columns of each side."""

    merged: Sequence[tuple[Property, tuple[Property | None, ...]]]
    sides: tuple[AnyType, AnyType, AnyType]

    def renamed(self, side: AnyType, values: Iterable[Any]) -> tuple[Any, ...]:
        """Constraints of a side with its columns under their merged names."""
        index = next(i for i, each in enumerate(self.sides) if each is side)
        names = {was[index].name: prop.name for prop, was in self.merged if was[index] is not None}  # type: ignore[union-attr]
        return tuple(_renamed(value, names) for value in values)


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, tuple):
        return tuple(names.get(name, name) for name in value)
    if isinstance(value, Range | Check):
        return replace(value, property=names.get(value.property, value.property))
    return value


def _wider_cardinality(one: Cardinality, other: Cardinality) -> Cardinality | None:
    highs = (one.high, other.high)
    high = None if None in highs else max(h for h in highs if h is not None)
    wide = Cardinality(min(one.low, other.low), high)
    return wide if wide in (one, other) else None


def _exact(default: object) -> tuple[type, Any]:
    """A default that equals another only where it is of the same type: 1 is not true."""
    return type(default), default


def _facts(prop: Property) -> tuple[Any, ...]:
    """A property without its identity."""
    notes = frozenset(map(repr, prop.annotations))
    injected = prop.injected_from is not None
    return prop.name, prop.type, notes, prop.embed, injected, _exact(prop.default)


def same_definition(one: AnyType, other: AnyType) -> bool:
    """Whether two types say the same, whatever their identities."""
    return _definition(one) == _definition(other)


def _definition(each: AnyType) -> tuple[Any, ...]:
    """A type without identities, and without an order where order means nothing."""
    properties = frozenset(map(_facts, each.properties))
    match each:
        case Interface():
            rest: tuple[Any, ...] = (set(each.keys), set(each.uniques), set(each.indexes))
        case NodeType():
            rest = (
                set(each.key),
                set(map(frozenset, each.uniques)),
                set(each.indexes),
                set(each.ranges),
                set(each.checks),
                set(each.implements),
                frozenset(map(repr, each.annotations)),
            )
        case EdgeType():
            rest = (
                (each.source, each.target, each.family, each.cardinality, frozenset(each.key)),
                set(map(frozenset, each.uniques)),
                set(each.indexes),
                frozenset(map(repr, each.annotations)),
            )
    return each.name, properties, rest


def _shown(side: AnyType | Property | None, prop: str | None) -> dict[str, Any] | None:
    """A version of a declaration as the schema language writes it."""
    if side is None:
        return None
    if isinstance(side, Property):
        return {"property": prop, "definition": property_text(side)}
    return {"property": prop, "definition": type_text(side)}
