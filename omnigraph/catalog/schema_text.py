"""Schema text of a catalog: declarations as the schema language writes them.

Invariant: `admit(schema_text(catalog), catalog)` has no step, so a schema that nobody wrote, like
the result of a merge, has a text all the same. Declarations that a person wrote are taken as they
are, with the comments before them, and the others keep these comments.
"""

from collections.abc import Iterator, Sequence

from omnigraph.catalog.counterparts import kind_of
from omnigraph.catalog.draft import AnyType
from omnigraph.catalog.model import Cardinality, Catalog, EdgeType, Interface, NodeType, Property
from omnigraph.catalog.steps import show_annotation
from omnigraph.language.reader import quote
from omnigraph.language.schema.literals import format_default, format_interval
from omnigraph.language.schema.parser import parse_schema
from omnigraph.types import Kind

Written = dict[tuple[Kind, str], tuple[str, str | None]]
"""By kind and name: the comments before a declaration, and its source; None where it is to be
written anew."""


def schema_text(catalog: Catalog, written: Written) -> str:
    """The text of a catalog; declarations in `written` are taken as they are."""
    declared: list[AnyType] = [
        *catalog.interfaces.values(),
        *catalog.nodes.values(),
        *catalog.edges_declared,
    ]
    parts = []
    for each in declared:
        comment, source = written.get((kind_of(each), each.name), ("", None))
        parts.append(f"{comment}\n{source or type_text(each)}".strip())
    return "\n\n".join(parts) + "\n"


def written_declarations(text: str) -> Written:
    """Each declaration of a schema as it is written, with the comments before it."""
    declarations = parse_schema(text).declarations
    written: Written = {}
    start = 0
    for each in declarations:
        kind = Kind(type(each).__name__.lower())
        before, own = text[start : each.span.start], text[each.span.start : each.span.end]
        written[kind, each.name.text] = before.strip(), own
        start = each.span.end
    return written


def type_text(each: AnyType) -> str:
    """The declaration of a type."""
    match each:
        case Interface():
            flags = {"key": each.keys, "unique": each.uniques, "index": each.indexes}
            lines = [_flagged(prop, flags) for prop in each.properties]
            return f"interface {each.name} {_body(lines)}"
        case NodeType():
            own = [_flagged(p, _flags(each)) for p in each.properties if p.injected_from is None]
            implements = f" implements {', '.join(each.implements)}" if each.implements else ""
            head = f"node {each.name}{_notes(each)}{implements}"
            return f"{head} {_body([*own, *_constraints(each)])}"
        case EdgeType():
            card = "" if each.cardinality == Cardinality() else f" @card({each.cardinality})"
            key = f" @key({', '.join(each.key)})" if each.key else ""
            head = f"edge {each.name}: {each.source} -> {each.target}{card}{key}{_notes(each)}"
            lines = [_flagged(prop, _flags(each)) for prop in each.properties]
            lines += _constraints(each)
            return f"{head} {_body(lines)}" if lines else head


def property_text(prop: Property) -> str:
    """The declaration of a property, without the constraints of its type."""
    parts = [f"{prop.name}: {prop.type}"]
    if prop.default is not None:
        parts.append(f"= {format_default(prop.default)}")
    if prop.embed is not None:
        model = "" if prop.embed.model is None else f", model={quote(prop.embed.model)}"
        parts.append(f"@embed({quote(prop.embed.source)}{model})")
    parts += map(show_annotation, prop.annotations)
    return " ".join(parts)


def _flagged(prop: Property, flags: dict[str, tuple[str, ...]]) -> str:
    named = [f"@{flag}" for flag, columns in flags.items() if prop.name in columns]
    return " ".join([property_text(prop), *named])


def _notes(each: NodeType | EdgeType) -> str:
    return "".join(f" {show_annotation(note)}" for note in each.annotations)


def _flags(each: NodeType | EdgeType) -> dict[str, tuple[str, ...]]:
    """The constraints that annotate one property."""
    key = each.key if len(each.key) == 1 else ()
    uniques = tuple(columns[0] for columns in each.uniques if len(columns) == 1)
    plain = {prop.name for prop in each.properties if not prop.type.is_list}
    indexes = tuple(name for name in each.indexes if name in plain)
    return {"key": key, "unique": uniques, "index": indexes}


def _constraints(each: NodeType | EdgeType) -> Iterator[str]:
    """The constraints that stand by themselves: of several columns, of an end, of a value. Those of
    one property that an interface declares come with it."""
    properties = {prop.name: prop for prop in each.properties}
    if len(each.key) > 1 and isinstance(each, NodeType):
        yield f"@key({', '.join(each.key)})"
    for columns in each.uniques:
        if len(columns) > 1 or columns[0] not in properties:
            yield f"@unique({', '.join(columns)})"
    flagged = _flags(each)["index"]
    yield from (f"@index({name})" for name in each.indexes if name not in flagged)
    if isinstance(each, NodeType):
        for bounds in each.ranges:
            interval = format_interval(_bound(bounds.low), _bound(bounds.high))
            yield f"@range({bounds.property}, {interval})"
        yield from (f"@check({c.property}, {quote(c.pattern)})" for c in each.checks)


def _bound(value: int | float | None) -> int | float | None:
    """A bound as the language writes it: a whole number beyond every integer type is a float."""
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return float(value)
    return value


def _body(lines: Sequence[str]) -> str:
    return "{\n" + "".join(f"  {line}\n" for line in lines) + "}"
