"""Schema diff and migration planning: the steps from the accepted schema to the desired one.

Invariant: old and new are compared by identity, never by name, and every difference yields a step.
A plan without steps means that both have the same fingerprint.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, assert_never

from omnigraph.catalog.accept import Admission, Diagnostic, admit
from omnigraph.catalog.annotations import METADATA
from omnigraph.catalog.demands import demands
from omnigraph.catalog.documents import annotation_document
from omnigraph.catalog.draft import AnyType, entity
from omnigraph.catalog.model import (
    Annotation,
    Catalog,
    EdgeType,
    Family,
    Literal,
    NodeType,
    Property,
)
from omnigraph.catalog.near_names import did_you_mean
from omnigraph.catalog.rename_hints import rename_hints
from omnigraph.catalog.schema_lint import PROPERTY_TYPE_CHANGED, REQUIRED_PROPERTY_ADDED
from omnigraph.catalog.steps import (
    HARD,
    SOFT,
    AddConstraint,
    AddIndex,
    AddProperty,
    AddType,
    DropConstraint,
    DropProperty,
    DropType,
    ExtendEnum,
    RenameProperty,
    RenameType,
    Step,
    UnsupportedChange,
    UpdateCardinality,
    UpdateDefault,
    UpdatePropertyMetadata,
    UpdateTypeMetadata,
    WidenProperty,
)
from omnigraph.catalog.widening import widened_type
from omnigraph.errors import BadRequest, MigrationUnsupported
from omnigraph.types import FLOATS, Kind, TypeId, ValueType


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """The steps of a migration, in order, and the catalog that holds afterwards."""

    steps: tuple[Step, ...]
    diagnostics: tuple[Diagnostic, ...]
    catalog: Catalog
    allows_data_loss: bool = False
    hints: tuple[str, ...] = ()  # renames that are planned as a drop and an add

    @property
    def supported(self) -> bool:
        return not any(isinstance(step, UnsupportedChange) for step in self.steps)

    def require_supported(self) -> None:
        """Raise the first unsupported step as an error."""
        for step in self.steps:
            if isinstance(step, UnsupportedChange):
                reason = "; ".join((step.reason, *self.hints))
                raise MigrationUnsupported(step.entity, reason, step.code)

    def __repr__(self) -> str:
        verdict = "supported" if self.supported else "not supported"
        return "\n".join((f"MigrationPlan({verdict})", *self.lines(), *hint_lines(self.hints)))

    def to_json(self) -> dict[str, Any]:
        """`{"supported", "steps"}`, the wire form."""
        return {"supported": self.supported, "steps": [dict(s.to_json()) for s in self.steps]}

    def lines(self) -> tuple[str, ...]:
        """One line a step, or the one line that says there is none."""
        return tuple(f"- {step}" for step in self.steps) or ("no schema changes",)

    def render(self, uri: str) -> str:
        """The plan for a person."""
        verdict = f"supported: {'yes' if self.supported else 'no'}"
        lines = (*self.lines(), *hint_lines(self.hints))
        return "\n".join((f"schema plan for {uri}", verdict, *lines))


def hint_lines(hints: Iterable[str]) -> tuple[str, ...]:
    """One line a hint, below the steps of a plan."""
    return tuple(f"hint: {hint}" for hint in hints)


def plan_migration(
    old: Catalog,
    new_text: str,
    *,
    allow_data_loss: bool = False,
    backfill: Mapping[str, str] | None = None,
) -> MigrationPlan:
    """The plan that turns an accepted schema into the one `new_text` declares.

    `backfill` has SQL expressions for properties that are added, by `Type.property`.
    """
    admission = admit(new_text, old)
    new = admission.catalog
    fillings = _fillings(new, admission, backfill or {})
    steps = tuple(_Diff(old, new, HARD if allow_data_loss else SOFT, fillings).steps())
    _require_used(steps, backfill or {}, new)
    if not steps and new.fingerprint != old.fingerprint:
        steps = (UnsupportedChange("schema", "this change is not classified"),)
    hints = tuple(dict.fromkeys(rename_hints(old, new, fillings)))
    return MigrationPlan(steps, admission.diagnostics, new, allow_data_loss, hints)


def steps_between(old: Catalog, new: Catalog) -> tuple[Step, ...]:
    """The steps from one accepted schema of a graph to another one of the same graph."""
    return tuple(_Diff(old, new, SOFT, {}).steps())


def differences(old: Catalog, new: Catalog) -> tuple[Step, ...]:
    """Return the differences between two accepted schemas. An added required property is an
    `AddProperty`; an `UnsupportedChange` names in `change` what no apply does in one step."""
    return tuple(_Diff(old, new, SOFT, {}, is_planned=False).steps())


def _fillings(new: Catalog, admission: Admission, given: Mapping[str, str]) -> dict[str, str]:
    """The backfill expression of each entity that has one. A caller's wins over an annotation."""
    expressions = {name: _as_sql(value) for name, value in admission.backfills.items()}
    for name, expression in given.items():
        owner, _, prop = name.partition(".")
        kind = Kind.NODE if owner in new.nodes else Kind.EDGE
        for each in (owner, *(member.name for member in new.families.get(owner, ()))):
            expressions[entity(kind, each, prop)] = expression
    return expressions


def _as_sql(value: Literal) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case int() | float():
            return repr(value)
        case _:
            assert_never(value)


def _require_used(steps: Iterable[Step], given: Mapping[str, str], new: Catalog) -> None:
    added = set[str]()
    for step in steps:
        if isinstance(step, AddProperty):
            edge = new.edges.get(step.type_name)
            family = edge.family.name if edge is not None and edge.family is not None else None
            added |= {f"{name}.{step.name}" for name in (step.type_name, family)}
    for name in given:
        if name not in added:
            known = {f"{each.name}.{prop.name}" for each in new.types for prop in each.properties}
            near = "" if name in known else did_you_mean(name, known, listed=False)
            raise BadRequest(
                f"backfill for '{name}', which this change does not add",
                near or "name an added property as Type.property",
            )


def _unsupported(
    where: str, change: str, advice: str = "", code: str | None = None
) -> UnsupportedChange:
    return UnsupportedChange(where, f"{change} is not supported{advice}", code, change)


@dataclass(frozen=True, slots=True)
class _Diff:
    old: Catalog
    new: Catalog
    drop_mode: str
    fillings: Mapping[str, str]
    is_planned: bool = True  # False: both schemas are accepted, and no row is to be filled

    def steps(self) -> Iterator[Step]:
        for kind in (Kind.INTERFACE, Kind.NODE, Kind.EDGE):
            yield from self._kind(kind, self.old.declared(kind), self.new.declared(kind))

    def _kind(
        self, kind: Kind, old: Mapping[str, AnyType], new: Mapping[str, AnyType]
    ) -> Iterator[Step]:
        before = {each.id: each for each in old.values()}
        for each in new.values():
            origin = before.pop(each.id, None)
            if origin is None:
                yield AddType(kind, each.name)
            else:
                yield from self._type(kind, origin, each)
        for gone in before.values():
            if kind is Kind.INTERFACE:
                yield _unsupported(entity(kind, gone.name), "removing an interface")
            else:
                yield DropType(kind, gone.name, self.drop_mode)

    def _type(self, kind: Kind, old: AnyType, new: AnyType) -> Iterator[Step]:
        if old.name != new.name:
            yield RenameType(kind, old.name, new.name)
        if isinstance(old, NodeType) and isinstance(new, NodeType):
            yield from self._implements(old, new)
            yield from _type_notes(kind, new.name, old.annotations, new.annotations)
        if isinstance(old, EdgeType) and isinstance(new, EdgeType):
            yield from self._ends(old, new)
            yield from _type_notes(kind, new.name, old.annotations, new.annotations)
        yield from self._properties(kind, old, new)
        yield from _constraints(kind, old, new)

    def _implements(self, old: NodeType, new: NodeType) -> Iterator[Step]:
        before = {self.old.interfaces[name].id for name in old.implements}
        after = {self.new.interfaces[name].id for name in new.implements}
        if before != after:
            where = entity(Kind.NODE, new.name)
            yield _unsupported(where, "changing implemented interfaces")

    def _ends(self, old: EdgeType, new: EdgeType) -> Iterator[Step]:
        where = entity(Kind.EDGE, new.name)
        families = (old.family, new.family) if old.family and new.family else None
        for before, after in ((old, new), families) if families else ((old, new),):
            if _end_ids(self.old, before) != _end_ids(self.new, after):
                change = f"{before.source} -> {before.target} to {after.source} -> {after.target}"
                yield _unsupported(where, f"changing edge endpoints from {change}")
                break
        if old.cardinality != new.cardinality:
            yield UpdateCardinality(new.name, old.cardinality, new.cardinality)

    def _properties(self, kind: Kind, old: AnyType, new: AnyType) -> Iterator[Step]:
        before = {prop.id: prop for prop in old.properties}
        for prop in new.properties:
            origin = before.pop(prop.id, None)
            if origin is None:
                filling = self.fillings.get(entity(kind, new.name, prop.name))
                if self.is_planned:
                    yield _added(kind, new.name, prop, filling)
                else:
                    yield AddProperty(kind, new.name, prop.name, prop.type, None, prop.default)
            else:
                yield from _property(kind, new, origin, prop)
                yield from _embed(kind, (old, origin), (new, prop))
        for gone in before.values():
            yield DropProperty(kind, new.name, gone.name, self.drop_mode)


def _end_ids(catalog: Catalog, edge: EdgeType | Family) -> list[TypeId]:
    """The identities of declared ends: of node types, and of interfaces."""
    nodes, interfaces = catalog.nodes, catalog.interfaces
    names = (edge.source, edge.target)
    return [nodes[name].id if name in nodes else interfaces[name].id for name in names]


def _added(kind: Kind, owner: str, prop: Property, filling: str | None) -> Step:
    if prop.type.nullable or filling is not None or prop.default is not None:
        return AddProperty(kind, owner, prop.name, prop.type, filling, prop.default)
    reason = (
        f"adding required property of type {prop.type}: existing rows would have no value; "
        "give a default (= value), one with @backfill(value), or an expression when it is applied: "
        f"--backfill '{owner}.{prop.name}=…', in Python backfill="
    )
    code = REQUIRED_PROPERTY_ADDED.code
    return UnsupportedChange(entity(kind, owner, prop.name), reason, code)


def _property(kind: Kind, each: AnyType, old: Property, new: Property) -> Iterator[Step]:
    owner = each.name
    where = entity(kind, owner, new.name)
    if old.name != new.name:
        yield RenameProperty(kind, owner, old.name, new.name)
    if (old.injected_from is None) != (new.injected_from is None):
        yield _unsupported(where, "moving a property between a node and its interface")
    if old.type != new.type:
        keyed = isinstance(each, NodeType) and new.name in each.key
        yield _retyped(kind, owner, old.type, new, keyed=keyed)
    if old.default != new.default or type(old.default) is not type(new.default):
        yield UpdateDefault(kind, owner, new.name, old.default, new.default)
    metadata, other = _split_notes(old.annotations, new.annotations)
    if metadata is not None:
        yield UpdatePropertyMetadata(kind, owner, new.name, metadata)
    if other:
        yield _unsupported(where, f"changing {other}")


def _retyped(kind: Kind, owner: str, old: ValueType, new: Property, *, keyed: bool) -> Step:
    before, after = set(old.enum_values or ()), set(new.type.enum_values or ())
    widened = ValueType(old.scalar, old.nullable, enum_values=new.type.enum_values)
    if before and widened == new.type and before < after:
        return ExtendEnum(kind, owner, new.name, tuple(sorted(after - before)))
    # An id spells the value of its key: a whole number alike in both widths, a float not.
    respelled = keyed and old.scalar in FLOATS
    if widened_type(old, new.type) == new.type and not respelled:
        return WidenProperty(kind, owner, new.name, old, new.type)
    advice = ""
    if replace(old, nullable=False) == new.type:
        advice = (
            ": rows may lack a value; add another required property with the backfill "
            f"coalesce({new.name}, …), then drop this one in a second apply"
        )
    change = f"changing property type from {old} to {new.type}"
    where = entity(kind, owner, new.name)
    return _unsupported(where, change, advice, PROPERTY_TYPE_CHANGED.code)


def _embed(
    kind: Kind, old: tuple[AnyType, Property], new: tuple[AnyType, Property]
) -> Iterator[Step]:
    if _embedding(*old) != _embedding(*new):
        owner, prop = new
        where = entity(kind, owner.name, prop.name)
        yield _unsupported(where, "changing @embed")


def _embedding(owner: AnyType, prop: Property) -> tuple[object, str | None] | None:
    """The source by identity, so that renaming it changes nothing. An interface may name a source
    that only its nodes have."""
    if prop.embed is None:
        return None
    ids = {each.name: each.id for each in owner.properties}
    return ids.get(prop.embed.source, prop.embed.source), prop.embed.model


def _type_notes(
    kind: Kind, name: str, old: tuple[Annotation, ...], new: tuple[Annotation, ...]
) -> Iterator[Step]:
    metadata, other = _split_notes(old, new)
    if metadata is not None:
        yield UpdateTypeMetadata(kind, name, metadata)
    if other:
        yield _unsupported(entity(kind, name), f"changing {other}")


def _split_notes(
    old: tuple[Annotation, ...], new: tuple[Annotation, ...]
) -> tuple[tuple[Annotation, ...] | None, str]:
    """The metadata if it changed, and the names of other annotations that did."""
    metadata = tuple(note for note in new if note.name in METADATA)
    changed = _canonical(metadata) != _canonical(n for n in old if n.name in METADATA)
    before = _canonical(note for note in old if note.name not in METADATA)
    after = _canonical(note for note in new if note.name not in METADATA)
    differing = {name for name, _ in _difference(before, after)}
    return metadata if changed else None, ", ".join(f"@{name}" for name in sorted(differing))


def _canonical(notes: Iterable[Annotation]) -> list[tuple[str, str]]:
    """Order means nothing among annotations; `1`, `1.0` and `true` are different values."""
    return sorted(
        (note.name, json.dumps(annotation_document(note), sort_keys=True)) for note in notes
    )


def _difference(
    before: list[tuple[str, str]], after: list[tuple[str, str]]
) -> list[tuple[str, str]]:
    rest = list(after)
    gone = []
    for item in before:
        if item in rest:
            rest.remove(item)
        else:
            gone.append(item)
    return gone + rest


def _can_be_keyed(old: AnyType, new: AnyType) -> bool:
    """Whether ids can be made from the key of the new type: no row refers to an edge by its id, and
    every row has the properties already."""
    if not (isinstance(old, EdgeType) and isinstance(new, EdgeType)):
        return False
    before = {prop.id for prop in old.properties}
    key = (new.property(name) for name in new.key)
    return all(prop is None or prop.id in before for prop in key)


def _constraints(kind: Kind, old: AnyType, new: AnyType) -> Iterator[Step]:
    before, after = demands(old), demands(new)
    where = entity(kind, new.name)
    for demand, shown in after.items():
        if demand in before:
            continue
        if demand.name == "index":
            yield AddIndex(kind, new.name, shown.columns)
        elif demand.name == "key" and not _can_be_keyed(old, new):
            # Ids follow from the key, and edges from ids.
            yield _unsupported(where, f"adding constraint {shown} to an existing type")
        else:
            yield AddConstraint(kind, new.name, shown)
    for demand, shown in before.items():
        if demand in after:
            continue
        if demand.name == "key" and kind is not Kind.EDGE:
            yield UnsupportedChange(
                where,
                f"removing constraints is not supported: {shown}",
                change=f"removing constraint {shown}",
            )
        else:
            yield DropConstraint(kind, new.name, shown)
