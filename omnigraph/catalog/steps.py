"""Migration steps: one frozen value for each kind of schema change.

Invariant: a step says what changes in names a person can read, renders as one line with `str` and
as the wire object with `to_json`. A plan is supported when no step is an `UnsupportedChange`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omnigraph.catalog.demands import Shown
from omnigraph.catalog.documents import annotation_document, default_document, type_document
from omnigraph.catalog.model import Annotation, Cardinality, Default
from omnigraph.catalog.schema_lint import LINT_CODES
from omnigraph.language.schema.literals import format_default, format_literal
from omnigraph.types import Kind, ValueType

Json = Mapping[str, Any]

SOFT = "soft"
HARD = "hard"


@dataclass(frozen=True, slots=True)
class AddType:
    """A new type."""

    kind: Kind
    name: str

    def to_json(self) -> Json:
        return {"kind": "add_type", "type_kind": str(self.kind), "name": self.name}

    def __str__(self) -> str:
        return f"add {self.kind} type '{self.name}'"


@dataclass(frozen=True, slots=True)
class RenameType:
    """The same type under another name."""

    kind: Kind
    old: str
    new: str

    def to_json(self) -> Json:
        return {
            "kind": "rename_type",
            "type_kind": str(self.kind),
            "from": self.old,
            "to": self.new,
        }

    def __str__(self) -> str:
        return f"rename {self.kind} type '{self.old}' -> '{self.new}'"


@dataclass(frozen=True, slots=True)
class AddProperty:
    """A new property. Existing rows get the value of `backfill`, else the default, else null."""

    kind: Kind
    type_name: str
    name: str
    type: ValueType
    backfill: str | None = None  # a SQL expression over the row
    default: Default | None = None

    def to_json(self) -> Json:
        filled = {} if self.backfill is None else {"backfill": self.backfill}
        return {
            "kind": "add_property",
            "type_kind": str(self.kind),
            "type_name": self.type_name,
            "property_name": self.name,
            "property_type": type_document(self.type),
            **default_document(self.default),
            **filled,
        }

    def __str__(self) -> str:
        default = "" if self.default is None else f" = {format_default(self.default)}"
        what = f"'{self.type_name}.{self.name}' ({self.type}{default})"
        filled = "" if self.backfill is None else f" filled with {self.backfill}"
        return f"add property {what} on {self.kind} '{self.type_name}'{filled}"


@dataclass(frozen=True, slots=True)
class RenameProperty:
    """The same property under another name."""

    kind: Kind
    type_name: str
    old: str
    new: str

    def to_json(self) -> Json:
        return {
            "kind": "rename_property",
            "type_kind": str(self.kind),
            "type_name": self.type_name,
            "from": self.old,
            "to": self.new,
        }

    def __str__(self) -> str:
        owner = self.type_name
        names = f"'{owner}.{self.old}' -> '{owner}.{self.new}'"
        return f"rename property {names} on {self.kind} '{owner}'"


@dataclass(frozen=True, slots=True)
class AddIndex:
    """A column to index."""

    kind: Kind
    type_name: str
    columns: tuple[str, ...]

    def to_json(self) -> Json:
        return {
            "kind": "add_constraint",
            "type_kind": str(self.kind),
            "type_name": self.type_name,
            "constraint": {"Index": list(self.columns)},
        }

    def __str__(self) -> str:
        columns = ", ".join(self.columns)
        return f"add constraint @index({columns}) on {self.kind} '{self.type_name}'"


@dataclass(frozen=True, slots=True)
class AddConstraint:
    """A new rule. Existing data must satisfy it too."""

    kind: Kind
    type_name: str
    constraint: Shown

    def to_json(self) -> Json:
        return {
            "kind": "add_constraint",
            "type_kind": str(self.kind),
            "type_name": self.type_name,
            "constraint": constraint_document(self.constraint),
        }

    def __str__(self) -> str:
        return f"add constraint {self.constraint} on {self.kind} '{self.type_name}'"


@dataclass(frozen=True, slots=True)
class DropConstraint:
    """A rule that data need not keep any more."""

    kind: Kind
    type_name: str
    constraint: Shown

    def to_json(self) -> Json:
        return {
            "kind": "drop_constraint",
            "type_kind": str(self.kind),
            "type_name": self.type_name,
            "constraint": constraint_document(self.constraint),
        }

    def __str__(self) -> str:
        return f"drop constraint {self.constraint} on {self.kind} '{self.type_name}'"


@dataclass(frozen=True, slots=True)
class UpdateCardinality:
    """Another number of edges a source may have. Existing edges must fit."""

    type_name: str
    old: Cardinality
    new: Cardinality

    def to_json(self) -> Json:
        return {
            "kind": "update_cardinality",
            "type_kind": str(Kind.EDGE),
            "type_name": self.type_name,
            "from": str(self.old),
            "to": str(self.new),
        }

    def __str__(self) -> str:
        return f"change @card({self.old}) to @card({self.new}) on edge '{self.type_name}'"


@dataclass(frozen=True, slots=True)
class ExtendEnum:
    """An enum that keeps its values and gains some."""

    kind: Kind
    type_name: str
    name: str
    added: tuple[str, ...]

    def to_json(self) -> Json:
        return {
            "kind": "extend_enum",
            "type_kind": str(self.kind),
            "type_name": self.type_name,
            "property_name": self.name,
            "added_values": list(self.added),
        }

    def __str__(self) -> str:
        added = ", ".join(f"+{value}" for value in self.added)
        what = f"'{self.type_name}.{self.name}' ({added})"
        return f"extend enum {what} on {self.kind} '{self.type_name}'"


@dataclass(frozen=True, slots=True)
class WidenProperty:
    """A type that holds every value of the old one, and more."""

    kind: Kind
    type_name: str
    name: str
    old: ValueType
    new: ValueType

    def to_json(self) -> Json:
        return {
            "kind": "widen_property",
            "type_kind": str(self.kind),
            "type_name": self.type_name,
            "property_name": self.name,
            "from": type_document(self.old),
            "to": type_document(self.new),
        }

    def __str__(self) -> str:
        what = f"'{self.type_name}.{self.name}' ({self.old} -> {self.new})"
        return f"widen property {what} on {self.kind} '{self.type_name}'"


@dataclass(frozen=True, slots=True)
class UpdateDefault:
    """Another default, for rows that are written from now on. None: no default."""

    kind: Kind
    type_name: str
    name: str
    old: Default | None
    new: Default | None

    def to_json(self) -> Json:
        return {
            "kind": "update_default",
            "type_kind": str(self.kind),
            "type_name": self.type_name,
            "property_name": self.name,
            "from": default_document(self.old).get("default"),
            "to": default_document(self.new).get("default"),
        }

    def __str__(self) -> str:
        old, new = ("none" if d is None else format_default(d) for d in (self.old, self.new))
        what = f"'{self.type_name}.{self.name}' ({old} -> {new})"
        return f"change default {what} on {self.kind} '{self.type_name}'"


@dataclass(frozen=True, slots=True)
class UpdateTypeMetadata:
    """New texts for people on a type. The list is all it has after the change."""

    kind: Kind
    name: str
    annotations: tuple[Annotation, ...]

    def to_json(self) -> Json:
        return {
            "kind": "update_type_metadata",
            "type_kind": str(self.kind),
            "name": self.name,
            "annotations": [annotation_document(note) for note in self.annotations],
        }

    def __str__(self) -> str:
        return f"update metadata on {self.kind} '{self.name}' ({_shown(self.annotations)})"


@dataclass(frozen=True, slots=True)
class UpdatePropertyMetadata:
    """New texts for people on a property, or `@hot`. The list is all it has after the change."""

    kind: Kind
    type_name: str
    name: str
    annotations: tuple[Annotation, ...]

    def to_json(self) -> Json:
        return {
            "kind": "update_property_metadata",
            "type_kind": str(self.kind),
            "type_name": self.type_name,
            "property_name": self.name,
            "annotations": [annotation_document(note) for note in self.annotations],
        }

    def __str__(self) -> str:
        what = f"'{self.type_name}.{self.name}' of {self.kind} '{self.type_name}'"
        return f"update metadata on property {what} ({_shown(self.annotations)})"


@dataclass(frozen=True, slots=True)
class DropType:
    """A dropped type. Soft: earlier commits keep its data until cleanup."""

    kind: Kind
    name: str
    mode: str

    def to_json(self) -> Json:
        return {
            "kind": "drop_type",
            "type_kind": str(self.kind),
            "name": self.name,
            "mode": self.mode,
        }

    def __str__(self) -> str:
        return f"drop {self.kind} type '{self.name}' ({self.mode} mode)"


@dataclass(frozen=True, slots=True)
class DropProperty:
    """A dropped property. Soft: earlier commits keep its data until cleanup."""

    kind: Kind
    type_name: str
    name: str
    mode: str

    def to_json(self) -> Json:
        return {
            "kind": "drop_property",
            "type_kind": str(self.kind),
            "type_name": self.type_name,
            "property_name": self.name,
            "mode": self.mode,
        }

    def __str__(self) -> str:
        what = f"'{self.type_name}.{self.name}' of {self.kind} '{self.type_name}'"
        return f"drop property {what} ({self.mode} mode)"


@dataclass(frozen=True, slots=True)
class UnsupportedChange:
    """A change that cannot be made to a graph with data in it."""

    entity: str
    reason: str
    code: str | None = None
    change: str = ""  # the change as a noun phrase, for comparisons of two accepted schemas

    def to_json(self) -> Json:
        wire = {"kind": "unsupported_change", "entity": self.entity, "reason": self.reason}
        return {**wire, "code": self.code} if self.code else wire

    def __str__(self) -> str:
        mark = f" [{self.code}, {LINT_CODES[self.code].tier}]" if self.code else ""
        return f"unsupported change on {self.entity}{mark}: {self.reason}"


Step = (
    AddType
    | RenameType
    | AddProperty
    | RenameProperty
    | AddIndex
    | AddConstraint
    | DropConstraint
    | UpdateCardinality
    | ExtendEnum
    | WidenProperty
    | UpdateDefault
    | UpdateTypeMetadata
    | UpdatePropertyMetadata
    | DropType
    | DropProperty
    | UnsupportedChange
)


def constraint_document(constraint: Shown) -> Json:
    """A constraint as plans write it."""
    name, columns = constraint.name.capitalize(), list(constraint.columns)
    match constraint.name:
        case "range":
            return {name: {"property": columns[0], "bounds": constraint.argument}}
        case "check":
            return {name: {"property": columns[0], "pattern": json.loads(constraint.argument)}}
        case _:
            return {name: columns}


def _shown(annotations: tuple[Annotation, ...]) -> str:
    return ", ".join(map(show_annotation, annotations)) or "none"


def show_annotation(annotation: Annotation) -> str:
    """An annotation as the schema would write it."""
    if annotation.value is None:
        return f"@{annotation.name}"
    rest = (f"{key}={format_literal(value)}" for key, value in annotation.kwargs)
    return f"@{annotation.name}({', '.join([format_literal(annotation.value), *rest])})"
