"""Catalog serialisation: to a JSON document and back, for a schema that was accepted before.

Invariant: `decode(encode(catalog)) == catalog`, and `decode` takes nothing that `encode` could not
have written. A document of another format raises `UnsupportedVersion`, a damaged one
`StorageFailed`.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from omnigraph.catalog.documents import (
    Document,
    edge_document,
    fingerprint,
    interface_document,
    node_document,
)
from omnigraph.catalog.draft import AnyType
from omnigraph.catalog.model import (
    Annotation,
    Cardinality,
    Catalog,
    Check,
    Default,
    EdgeType,
    Embed,
    Family,
    Interface,
    Literal,
    NodeType,
    Property,
    Range,
)
from omnigraph.errors import StorageFailed, UnsupportedVersion
from omnigraph.light_dataclass import dataclass
from omnigraph.types import PropertyId, Scalar, TypeId, ValueType

T = TypeVar("T")
Typed = TypeVar("Typed", Interface, NodeType, EdgeType)


FORMAT = 1
FORMAT_OF_FAMILIES = 2
"""The format of a schema with interfaces as ends of edges, which earlier programs do not know."""


def encode(catalog: Catalog) -> Document:
    """The document of a catalog: plain JSON values, declarations in order."""
    next_ids = catalog.next_property_ids

    def with_counter(document: Document) -> Document:
        return {**document, "next_property_id": next_ids[TypeId(document["id"])]}

    return {
        "format": _format(catalog),
        "fingerprint": catalog.fingerprint,
        "next_type_id": catalog.next_type_id,
        "interfaces": [with_counter(interface_document(i)) for i in catalog.interfaces.values()],
        "nodes": [with_counter(node_document(n)) for n in catalog.nodes.values()],
        "edges": [with_counter(edge_document(e)) for e in catalog.edges.values()],
    }


def _format(catalog: Catalog) -> int:
    return FORMAT_OF_FAMILIES if catalog.families else FORMAT


def decode(document: object) -> Catalog:
    """The catalog of a document."""
    record = _Record(document, "the document")
    version = record.integer("format")
    if version not in (FORMAT, FORMAT_OF_FAMILIES):
        raise UnsupportedVersion(version, FORMAT_OF_FAMILIES)
    interfaces = _by_name(record.items("interfaces", _interface))
    nodes = _by_name(record.items("nodes", _node))
    edges = _by_name(record.items("edges", _edge))
    declared: list[tuple[AnyType, int]] = [
        *interfaces.values(),
        *nodes.values(),
        *edges.values(),
    ]
    catalog = Catalog(
        {name: node for name, (node, _) in nodes.items()},
        {name: edge for name, (edge, _) in edges.items()},
        {name: interface for name, (interface, _) in interfaces.items()},
        record.integer("next_type_id"),
        {each.id: next_id for each, next_id in declared},
        record.text("fingerprint"),
    )
    record.finish()
    if version != _format(catalog):
        raise _damaged(f"its format is {version}, that of its content {_format(catalog)}")
    _require_whole(catalog, declared)
    return catalog


def _damaged(detail: str) -> StorageFailed:
    return StorageFailed("read the accepted schema", detail)


def _require_whole(catalog: Catalog, declared: Sequence[tuple[AnyType, int]]) -> None:
    """Checks across records: distinct ids below their counters, and the fingerprint."""
    ids = [each.id for each, _ in declared]
    if len(set(ids)) != len(ids) or any(not 0 < i < catalog.next_type_id for i in ids):
        raise _damaged("type ids are not distinct numbers below next_type_id")
    for each, next_id in declared:
        own = [prop.id for prop in each.properties]
        names = {prop.name for prop in each.properties}
        if len(set(own)) != len(own) or any(not 0 < i < next_id for i in own):
            raise _damaged(f"property ids of {each.name} are not distinct numbers below the next")
        if len(names) != len(own):
            raise _damaged(f"{each.name} has a property twice")
    for edge in catalog.edges.values():
        if edge.source not in catalog.nodes or edge.target not in catalog.nodes:
            raise _damaged(f"an end of edge {edge.name} is not declared")
        if edge.family is not None and edge.family.name in catalog.edges:
            raise _damaged(f"edge {edge.family.name} is declared twice")
    for node in catalog.nodes.values():
        if not {prop.injected_from for prop in node.properties} <= {None, *node.implements}:
            raise _damaged(f"a property of {node.name} comes from an interface it does not have")
    expected = fingerprint(catalog.nodes, catalog.edges, catalog.interfaces)
    if catalog.fingerprint != expected:
        raise _damaged(f"its fingerprint is {catalog.fingerprint}, its content gives {expected}")


def _by_name(items: Sequence[tuple[Typed, int]]) -> dict[str, tuple[Typed, int]]:
    by_name = {each.name: (each, next_id) for each, next_id in items}
    if len(by_name) != len(items):
        raise _damaged("a type is declared twice")
    return by_name


@dataclass(slots=True)
class _Record:
    """A JSON object of which every key must be asked for, once and with its type."""

    fields: dict[str, Any]
    where: str

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, dict):
            raise _damaged(f"{where} is not an object")
        self.fields, self.where = dict(value), where

    def take(self, key: str) -> Any:
        if key not in self.fields:
            raise _damaged(f"{self.where} has no '{key}'")
        return self.fields.pop(key)

    def integer(self, key: str) -> int:
        return self._typed(key, int)

    def text(self, key: str) -> str:
        return self._typed(key, str)

    def flag(self, key: str) -> bool:
        return self._typed(key, bool)

    def optional_integer(self, key: str) -> int | None:
        value = self.take(key)
        if value is not None and type(value) is not int:
            raise _damaged(f"'{key}' of {self.where} is neither a number nor null")
        return value

    def optional_text(self, key: str) -> str | None:
        value = self.take(key)
        if value is not None and type(value) is not str:
            raise _damaged(f"'{key}' of {self.where} is neither a text nor null")
        return value

    def _typed(self, key: str, kind: type[T]) -> T:
        value = self.take(key)
        if type(value) is not kind:
            raise _damaged(f"'{key}' of {self.where} is not of type {kind.__name__}")
        return value

    def items(self, key: str, read: Callable[[Any, str], T]) -> list[T]:
        values = self.take(key)
        if not isinstance(values, list):
            raise _damaged(f"'{key}' of {self.where} is not a list")
        return [read(value, f"{key}[{index}]") for index, value in enumerate(values)]

    def texts(self, key: str) -> tuple[str, ...]:
        return tuple(self.items(key, _text))

    def finish(self) -> None:
        if self.fields:
            raise _damaged(f"{self.where} has unknown keys: {', '.join(sorted(self.fields))}")


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise _damaged(f"{where} is not a text")
    return value


def _texts(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise _damaged(f"{where} is not a list")
    return tuple(_text(item, where) for item in value)


def _literal(value: Any, where: str) -> Literal:
    if not isinstance(value, str | int | float | bool):
        raise _damaged(f"{where} is not a literal")
    return value


def _number(value: Any, where: str) -> int | float | None:
    if value is not None and (not isinstance(value, int | float) or isinstance(value, bool)):
        raise _damaged(f"{where} is not a number")
    return value


def _scalar(value: Any, where: str) -> tuple[Scalar, int | None]:
    if isinstance(value, dict):
        record = _Record(value, where)
        dimension = record.integer(str(Scalar.VECTOR))
        record.finish()
        return Scalar.VECTOR, dimension
    if not isinstance(value, str) or value not in set(Scalar) - {Scalar.VECTOR}:
        raise _damaged(f"{where} is not a type: {value!r}")
    return Scalar(value), None


def _value_type(value: Any, where: str) -> ValueType:
    record = _Record(value, where)
    scalar, dimension = _scalar(record.take("scalar"), where)
    nullable, is_list = record.flag("nullable"), record.flag("list")
    values = record.take("enum_values")
    record.finish()
    enum_values = None if values is None else _texts(values, where)
    return ValueType(scalar, nullable, is_list, enum_values, dimension)


def _annotation(value: Any, where: str) -> Annotation:
    record = _Record(value, where)
    name, literal, kwargs = record.text("name"), record.take("value"), record.take("kwargs")
    record.finish()
    if not isinstance(kwargs, dict):
        raise _damaged(f"the arguments of {where} are not an object")
    pairs = tuple((key, _literal(item, where)) for key, item in kwargs.items())
    return Annotation(name, None if literal is None else _literal(literal, where), pairs)


def _embed(value: Any, where: str) -> Embed | None:
    if value is None:
        return None
    record = _Record(value, where)
    embed = Embed(record.text("source"), record.optional_text("model"))
    record.finish()
    return embed


def _property(value: Any, where: str) -> Property:
    record = _Record(value, where)
    prop = Property(
        PropertyId(record.integer("id")),
        record.text("name"),
        _value_type(record.take("type"), where),
        tuple(record.items("annotations", _annotation)),
        _embed(record.take("embed"), where),
        record.optional_text("injected_from"),
        _default(record, where),
    )
    record.finish()
    return prop


def _default(record: _Record, where: str) -> Default | None:
    """The default, which documents of schemas without one do not mention."""
    if "default" not in record.fields:
        return None
    value = record.take("default")
    if isinstance(value, list):
        return tuple(_literal(item, where) for item in value)
    return _literal(value, where)


def _range(value: Any, where: str) -> Range:
    record = _Record(value, where)
    low, high = _number(record.take("low"), where), _number(record.take("high"), where)
    bounds = Range(record.text("property"), low, high)
    record.finish()
    return bounds


def _check(value: Any, where: str) -> Check:
    record = _Record(value, where)
    check = Check(record.text("property"), record.text("pattern"))
    record.finish()
    return check


def _cardinality(value: Any, where: str) -> Cardinality:
    record = _Record(value, where)
    cardinality = Cardinality(record.integer("low"), record.optional_integer("high"))
    record.finish()
    return cardinality


def _interface(value: Any, where: str) -> tuple[Interface, int]:
    record = _Record(value, where)
    interface = Interface(
        TypeId(record.integer("id")),
        record.text("name"),
        tuple(record.items("properties", _property)),
        keys=record.texts("keys"),
        uniques=record.texts("uniques"),
        indexes=record.texts("indexes"),
    )
    return interface, _last_counter(record)


def _last_counter(record: _Record) -> int:
    next_id = record.integer("next_property_id")
    record.finish()
    return next_id


def _node(value: Any, where: str) -> tuple[NodeType, int]:
    record = _Record(value, where)
    node = NodeType(
        TypeId(record.integer("id")),
        record.text("name"),
        tuple(record.items("properties", _property)),
        key=record.texts("key"),
        uniques=tuple(record.items("uniques", _texts)),
        indexes=record.texts("indexes"),
        ranges=tuple(record.items("ranges", _range)),
        checks=tuple(record.items("checks", _check)),
        implements=record.texts("implements"),
        annotations=tuple(record.items("annotations", _annotation)),
    )
    return node, _last_counter(record)


def _family(value: Any, where: str) -> Family:
    record = _Record(value, where)
    family = Family(record.text("name"), record.text("source"), record.text("target"))
    record.finish()
    return family


def _edge(value: Any, where: str) -> tuple[EdgeType, int]:
    record = _Record(value, where)
    edge = EdgeType(
        TypeId(record.integer("id")),
        record.text("name"),
        record.text("source"),
        record.text("target"),
        tuple(record.items("properties", _property)),
        cardinality=_cardinality(record.take("cardinality"), where),
        uniques=tuple(record.items("uniques", _texts)),
        indexes=record.texts("indexes"),
        annotations=tuple(record.items("annotations", _annotation)),
        key=record.texts("key") if "key" in record.fields else (),
        family=_family(record.take("family"), where) if "family" in record.fields else None,
    )
    return edge, _last_counter(record)
