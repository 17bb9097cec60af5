"""Schema annotations: which ones have a meaning, and on which declarations they are allowed.

Invariant: every annotation is interpreted once: `@key`, `@unique` and `@index` are flags,
`@rename_from` and `@backfill` are hints, `@embed` is an `Embed`, `@hot` asks for a column file, and
the rest is opaque metadata, unless it is spelled nearly like one that has a meaning.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import assert_never

from omnigraph.catalog.defaults import read_default
from omnigraph.catalog.draft import NO_PROPERTY_ID, Hint
from omnigraph.catalog.indexes import Metric
from omnigraph.catalog.model import HOT, Annotation, Embed, Literal, Property
from omnigraph.language.reader import Fault
from omnigraph.language.schema import ast
from omnigraph.language.schema.ast import Columns
from omnigraph.types import Kind, Scalar, Span, ValueType

_TEXTS = frozenset({"description", "instruction"})
METADATA = _TEXTS | {HOT}
"""Annotations that change no row and no rule."""

_FLAGS = frozenset(Columns)
_ONCE = METADATA | _FLAGS | {"rename_from", "embed", "backfill"}
_MEANT = sorted(_ONCE - {HOT} | {"range", "check", "card"})
"""Names that a slip may be of. Too many words are near so short a one as `hot`."""

_LIKENESS_MIN = 0.75  # of a name that is taken for a slip


@dataclass(frozen=True, slots=True)
class Declared:
    """A property with its annotations interpreted."""

    property: Property
    flags: tuple[Columns, ...]
    hint: Hint | None
    span: Span
    backfill: Literal | None = None


@dataclass(frozen=True, slots=True)
class TypeNotes:
    """The annotations of a node or edge type, interpreted."""

    annotations: tuple[Annotation, ...]
    hint: Hint | None


def read_type_notes(kind: Kind, annotations: Sequence[ast.Annotation]) -> TypeNotes:
    """The annotations of a node or edge type."""
    _require_once(annotations)
    kept: list[Annotation] = []
    hint: Hint | None = None
    for note in annotations:
        match note.name:
            case "embed":
                raise _misplaced(note, f"{kind} types", "annotate a Vector property of a node")
            case "hot":
                raise _misplaced(note, f"{kind} types", "annotate the properties of a node")
            case "rename_from":
                hint = Hint(_one_text(note), note.span)
            case _:
                kept.append(_opaque(note))
    return TypeNotes(tuple(kept), hint)


def read_property(kind: Kind, owner: str, declared: ast.Property) -> Declared:
    """A property and its annotations."""
    _require_once(declared.annotations)
    name, value_type = declared.name.text, declared.type.value
    kept: list[Annotation] = []
    flags: list[Columns] = []
    hint: Hint | None = None
    embed: Embed | None = None
    backfill: Literal | None = None
    for note in declared.annotations:
        match note.name:
            case "key" | "unique" | "index":
                flags.append(Columns(note.name))
            case "rename_from":
                hint = Hint(_one_text(note), note.span)
            case "embed":
                if kind is Kind.EDGE:
                    raise _misplaced(note, "edges", "only nodes have embeddings")
                if not value_type.is_vector:
                    where = f"property {owner}.{name} of type {value_type}"
                    raise _misplaced(note, where, "annotate a Vector property")
                embed = _embed(note)
            case "metric" if value_type.is_vector:
                kept.append(_metric(note))
            case "hot":
                kept.append(_hot(note, kind, f"property {owner}.{name}", value_type))
            case "backfill":
                backfill = _backfill(note, value_type)
            case "instruction":
                raise _misplaced(note, "properties", "use @description, or annotate the type")
            case _:
                kept.append(_opaque(note))
    default = read_default(owner, declared)
    prop = Property(NO_PROPERTY_ID, name, value_type, tuple(kept), embed, default=default)
    return Declared(prop, tuple(flags), hint, declared.span, backfill)


def _require_once(annotations: Sequence[ast.Annotation]) -> None:
    seen: set[str] = set()
    for note in annotations:
        if note.name in _ONCE and note.name in seen:
            raise Fault(
                note.span,
                f"@{note.name} appears twice",
                code="bad-annotation",
                hint="keep one of them",
            )
        seen.add(note.name)


def _misplaced(note: ast.Annotation, where: str, hint: str) -> Fault:
    return Fault(
        note.span, f"@{note.name} is not supported on {where}", code="misplaced", hint=hint
    )


def _opaque(note: ast.Annotation) -> Annotation:
    if note.name in _TEXTS:
        _text(note)
    elif near := _nearly(note.name):
        raise Fault(
            note.span,
            f"@{note.name} has no meaning, and is nearly @{near}",
            code="bad-annotation",
            hint=f"did you mean @{near}? metadata of your own may be called @x_{note.name}",
        )
    return Annotation(note.name, note.value, note.kwargs)


def _nearly(name: str) -> str | None:
    """The annotation that a name is a slip of; a name of more words is meant so."""
    known = [each for each in _MEANT if each.count("_") == name.count("_")]
    near = get_close_matches(name.lower(), known, n=1, cutoff=_LIKENESS_MIN)
    return near[0] if near else None


def _text(note: ast.Annotation) -> str:
    if not isinstance(note.value, str) or not note.value.strip():
        raise Fault(
            note.span,
            f"@{note.name} needs a text that is not empty",
            code="bad-annotation",
            hint=f'write @{note.name}("…")',
        )
    return note.value


def _one_text(note: ast.Annotation) -> str:
    if note.kwargs:
        raise Fault(
            note.span,
            f"@{note.name} takes one value and no keyword arguments",
            code="bad-annotation",
            hint=f'write @{note.name}("OldName")',
        )
    return _text(note)


def _written_as(scalar: Scalar) -> tuple[type, ...]:
    """The classes of literals that spell a value of the type; none for a type without literals."""
    match scalar:
        case Scalar.STRING:
            return (str,)
        case Scalar.BOOL:
            return (bool,)
        case Scalar.I32 | Scalar.I64 | Scalar.U32 | Scalar.U64:
            return (int,)
        case Scalar.F32 | Scalar.F64:
            return int, float
        case Scalar.DATE | Scalar.DATETIME:
            return str, int
        case Scalar.BLOB | Scalar.VECTOR:
            return ()
        case _:
            assert_never(scalar)


def _backfill(note: ast.Annotation, value_type: ValueType) -> Literal:
    """The value of existing rows when the property is added."""
    classes = () if value_type.is_list else _written_as(value_type.scalar)
    if not classes:
        raise _misplaced(
            note, f"a property of type {value_type}", "give an expression when it is applied"
        )
    value = note.value
    fits = value is not None and type(value) in classes
    if value_type.enum_values is not None:
        fits = value in value_type.enum_values
    if value is None or not fits or note.kwargs:
        raise Fault(
            note.span,
            f"@backfill needs one value of type {value_type}",
            code="bad-annotation",
            hint="write @backfill(value)",
        )
    return value


def _metric(note: ast.Annotation) -> Annotation:
    """The metric of a vector; elsewhere `@metric` is metadata."""
    if note.kwargs or note.value not in list(Metric):
        near = get_close_matches(str(note.value).lower(), list(Metric), n=1)
        listed = ", ".join(Metric)
        hint = f"did you mean '{near[0]}'? use one of {listed}" if near else f"use one of {listed}"
        raise Fault(note.span, "@metric needs a metric", code="bad-annotation", hint=hint)
    return Annotation(note.name, note.value, note.kwargs)


def _hot(note: ast.Annotation, kind: Kind, where: str, value_type: ValueType) -> Annotation:
    """A property whose values are kept in a column file."""
    if kind is Kind.EDGE:
        raise _misplaced(note, "edges", "only properties of nodes have column files")
    if value_type.is_list or value_type.is_vector or value_type.is_blob:
        hint = "only single values have column files: texts, numbers, truth values, dates, moments"
        raise _misplaced(note, f"{where} of type {value_type}", hint)
    if note.value is not None or note.kwargs:
        raise Fault(note.span, "@hot takes no value", code="bad-annotation", hint="write @hot")
    return Annotation(note.name)


def _embed(note: ast.Annotation) -> Embed:
    source = _text(note)
    model: str | None = None
    for key, value in note.kwargs:
        if key != "model":
            raise Fault(
                note.span,
                f"@embed has no argument '{key}'",
                code="bad-annotation",
                hint='write @embed(source) or @embed(source, model="id")',
            )
        if not isinstance(value, str) or not value.strip():
            raise Fault(note.span, "the model of @embed must be a text", code="bad-annotation")
        model = value
    return Embed(source, model)
