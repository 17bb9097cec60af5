"""Stable type and property ids across schema changes, renames followed.

Invariant: a type or property keeps its id for as long as it exists, under any name, and no id is
given out twice. A new type numbers its properties in order of their names; properties added later
follow, again by name.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from omnigraph.catalog.documents import fingerprint
from omnigraph.catalog.draft import AnyType, Draft, Hint, entity
from omnigraph.catalog.model import Catalog, EdgeType, Family, Interface, NodeType
from omnigraph.language.reader import Fault
from omnigraph.types import Kind, PropertyId, Span, TypeId

_FIRST_ID = 1

T = TypeVar("T", Interface, NodeType, EdgeType)


@dataclass(frozen=True, slots=True)
class Note:
    """Something about a hint that its author may want to know. It stops nothing."""

    code: str
    entity: str
    text: str
    span: Span


EMPTY = Catalog({}, {}, {}, _FIRST_ID, {}, fingerprint({}, {}, {}))


def identify(draft: Draft, accepted: Catalog | None) -> tuple[Catalog, tuple[Note, ...]]:
    """The catalog of a draft, with the identities of the accepted one carried over."""
    mint = _Mint(draft.hints, accepted or EMPTY, initial=accepted is None)
    interfaces = mint.types(Kind.INTERFACE, draft.interfaces, mint.accepted.interfaces)
    nodes = mint.types(Kind.NODE, draft.nodes, mint.accepted.nodes)
    edges = mint.types(
        Kind.EDGE, draft.edges, mint.accepted.edges, mint.member_origins(draft, nodes)
    )
    nodes = {name: _with_ordered_key(node) for name, node in nodes.items()}
    edges = {name: with_ordered_edge_key(edge) for name, edge in edges.items()}
    catalog = Catalog(
        nodes,
        edges,
        interfaces,
        mint.next_type_id,
        mint.next_property_ids,
        fingerprint(nodes, edges, interfaces),
    )
    return catalog, tuple(mint.notes)


def numbered_above(catalog: Catalog, others: Iterable[Catalog]) -> Catalog:
    """The catalog with counters above those of others: what it is given next, none of them has.

    Branches keep schemas of their own, so an id that is new on one must be new on all.
    """
    next_type_id, next_ids = catalog.next_type_id, dict(catalog.next_property_ids)
    for other in others:
        next_type_id = max(next_type_id, other.next_type_id)
        for type_id, next_id in other.next_property_ids.items():
            if type_id in next_ids:
                next_ids[type_id] = max(next_ids[type_id], next_id)
    return replace(catalog, next_type_id=next_type_id, next_property_ids=next_ids)


def _with_ordered_key(node: NodeType) -> NodeType:
    """A key's columns in order of property ids, which is the order inside composite ids."""
    order = {prop.name: prop.id for prop in node.properties}
    return replace(node, key=tuple(sorted(node.key, key=lambda name: order[name])))


def with_ordered_edge_key(edge: EdgeType) -> EdgeType:
    """An edge's key: its ends, then its columns in order of property ids."""
    order: dict[str, int] = {prop.name: prop.id for prop in edge.properties}
    order |= {"src": -2, "dst": -1}
    return replace(edge, key=tuple(sorted(edge.key, key=lambda name: order[name])))


class _Mint:
    """Gives out ids, old ones where a declaration is an old one."""

    def __init__(self, hints: Mapping[str, Hint], accepted: Catalog, *, initial: bool) -> None:
        self.hints = hints
        self.accepted = accepted
        self.initial = initial
        self.next_type_id = accepted.next_type_id
        self.next_property_ids: dict[TypeId, int] = {}
        self.notes: list[Note] = []

    def types(
        self,
        kind: Kind,
        drafts: Sequence[T],
        accepted: Mapping[str, T],
        known: Mapping[str, str] | None = None,
    ) -> dict[str, T]:
        """The types of one kind; `known` has the accepted names of those not found by name."""
        known = known or {}
        names = [draft.name for draft in drafts if draft.name not in known]
        free = tuple(name for name in accepted if name not in known.values())
        scope = _Scope(
            {name: hint for name in names if (hint := self.hints.get(entity(kind, name)))},
            label=lambda name: entity(kind, name),
            missing=lambda old: self._no_such_type(kind, old),
        )
        origins = {**self._match(names, free, scope), **known}
        return {
            draft.name: self._identified(kind, draft, accepted.get(origins.get(draft.name, "")))
            for draft in drafts
        }

    def member_origins(self, draft: Draft, nodes: Mapping[str, NodeType]) -> dict[str, str]:
        """The accepted names of the members of families, "" for a new one: a member is known by its
        family and by the identities of its ends, whatever they are called. An edge type whose end
        becomes an interface goes on as the member with the same ends."""
        origins: dict[str, str] = {}
        taken = {edge.name: edge.name for edge in draft.edges if edge.family is None}
        for family in dict.fromkeys(edge.family for edge in draft.edges):
            if family is None:
                continue
            before = {
                self._accepted_ends(each): each for each in self._family_before(family, taken)
            }
            for edge in draft.edges:
                if edge.family == family:
                    origin = before.get((nodes[edge.source].id, nodes[edge.target].id))
                    origins[edge.name] = "" if origin is None else origin.name
        return origins

    def _accepted_ends(self, edge: EdgeType) -> tuple[TypeId, TypeId]:
        nodes = self.accepted.nodes
        return nodes[edge.source].id, nodes[edge.target].id

    def _family_before(self, family: Family, taken: dict[str, str]) -> tuple[EdgeType, ...]:
        """The accepted edge types that a family goes on from: of its name, or of its hint."""
        families = self.accepted.families
        accepted = {name: (edge,) for name, edge in self.accepted.edges.items()} | families
        hint = self.hints.get(entity(Kind.EDGE, family.name))
        scope = _Scope(
            {} if hint is None else {family.name: hint},
            label=lambda name: entity(Kind.EDGE, name),
            missing=lambda old: self._no_such_type(Kind.EDGE, old),
        )
        origin = self._match([family.name], tuple(accepted), scope, taken).get(family.name)
        return () if origin is None else accepted[origin]

    def _identified(self, kind: Kind, draft: T, origin: T | None) -> T:
        if origin is None:
            type_id, next_id = TypeId(self.next_type_id), _FIRST_ID
            self.next_type_id += 1
        else:
            type_id, next_id = origin.id, self.accepted.next_property_ids[origin.id]
        ids = self._kept_property_ids(kind, draft, origin)
        for name in sorted(prop.name for prop in draft.properties if prop.name not in ids):
            ids[name] = PropertyId(next_id)
            next_id += 1
        self.next_property_ids[type_id] = next_id
        properties = tuple(replace(prop, id=ids[prop.name]) for prop in draft.properties)
        return replace(draft, id=type_id, properties=properties)

    def _kept_property_ids(
        self, kind: Kind, draft: AnyType, origin: AnyType | None
    ) -> dict[str, PropertyId]:
        old = {prop.name: prop.id for prop in origin.properties} if origin else {}
        names = [prop.name for prop in draft.properties]
        old_name = origin.name if origin else None
        # The hint is about the members that were there; a type that implements the interface since
        # has nothing to rename.
        is_member = isinstance(draft, EdgeType) and draft.family is not None
        is_new_member = is_member and origin is None
        scope = _Scope(
            self._property_hints(kind, draft, old) if self.initial or not is_new_member else {},
            label=lambda name: entity(kind, draft.name, name),
            missing=lambda hinted: _no_such_property(draft.name, old_name, hinted),
        )
        return {new: old[name] for new, name in self._match(names, tuple(old), scope).items()}

    def _property_hints(
        self, kind: Kind, draft: AnyType, old: Mapping[str, PropertyId]
    ) -> dict[str, Hint]:
        """The hints to follow. A hint that came with an interface is checked at the interface: for
        a node that never had the property it means nothing."""
        current = {prop.name for prop in draft.properties}
        hints: dict[str, Hint] = {}
        for prop in draft.properties:
            hint = self.hints.get(entity(kind, draft.name, prop.name))
            if hint is None:
                continue
            applies = prop.name not in old and hint.old in old and hint.old not in current
            if applies or not hint.injected:
                hints[prop.name] = hint
        return hints

    def _match(
        self,
        names: Sequence[str],
        accepted: Sequence[str],
        scope: "_Scope",
        taken: dict[str, str] | None = None,
    ) -> dict[str, str]:
        """New name to accepted name, for every declaration that existed before. `taken` has the
        accepted names that others go on from, by these."""
        origins = {name: name for name in names if name in accepted}
        taken = {} if taken is None else taken
        taken.update(origins)
        for name, hint in scope.hints.items():
            if self.initial:
                self._note("inert_initialization_rename_hint", scope.label(name), hint)
            elif name in origins:
                self._note("ignored_exact_match_rename_hint", scope.label(name), hint)
            else:
                _require_free_origin(scope, hint, accepted, taken)
                origins[name] = hint.old
                taken[hint.old] = name
        return origins

    def _note(self, code: str, label: str, hint: Hint) -> None:
        if all((note.code, note.span) != (code, hint.span) for note in self.notes):
            self.notes.append(Note(code, label, _NOTES[code].format(old=hint.old), hint.span))

    def _no_such_type(self, kind: Kind, old: str) -> str:
        for other in Kind:
            if other is not kind and old in self.accepted.declared(other):
                return f"the accepted '{old}' is {_article(other)} type, not {_article(kind)} type"
        return f"the accepted schema has no {kind} type '{old}'"


_NOTES = {
    "inert_initialization_rename_hint": (
        '@rename_from("{old}") has no effect when a graph is created'
    ),
    "ignored_exact_match_rename_hint": (
        '@rename_from("{old}") is ignored: the accepted schema has this name already'
    ),
}


@dataclass(frozen=True, slots=True)
class _Scope:
    """One set of names to match, and how to speak of them."""

    hints: Mapping[str, Hint]
    label: Callable[[str], str]
    missing: Callable[[str], str]
    code: str = field(default="bad-rename", init=False)


def _require_free_origin(
    scope: _Scope, hint: Hint, accepted: Sequence[str], taken: Mapping[str, str]
) -> None:
    if hint.old not in accepted:
        raise Fault(
            hint.span,
            f'@rename_from("{hint.old}"): {scope.missing(hint.old)}',
            code=scope.code,
            hint="correct the old name, or remove the hint to add something new",
        )
    if hint.old in taken:
        raise Fault(
            hint.span,
            f"@rename_from(\"{hint.old}\"): '{hint.old}' is already {scope.label(taken[hint.old])}",
            code=scope.code,
            hint="one declaration can continue as one other; remove this hint or the other",
        )


def _no_such_property(type_name: str, old_type: str | None, old: str) -> str:
    if old_type is None:
        return f"{type_name} is a new type and has no earlier properties"
    return f"the accepted type {old_type} has no property '{old}'"


def _article(kind: Kind) -> str:
    return f"a {kind}" if kind is Kind.NODE else f"an {kind}"
