"""Shared vocabulary: table keys, kinds, scalar and value types, spans of source text.

Invariant: a `ValueType` says everything that decides how a value is written, stored, compared and
shown, so no room asks for more than it. Nothing here imports another room.
"""

import unicodedata
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any, Literal, NewType, assert_never

from omnigraph.light_dataclass import dataclass

TableKey = NewType("TableKey", str)
"""`node:<Type>` or `edge:<Type>`: the name of a table in a plan, a manifest row and an error."""

TypeId = NewType("TypeId", int)
"""A type's identity. It survives renames and is never given out twice in one graph."""

PropertyId = NewType("PropertyId", int)
"""A property's identity inside its type. It survives renames and is never given out twice there."""

LoadMode = Literal["append", "merge", "patch", "overwrite"]
"""What a load does with rows that are there already."""

EngineName = Literal["auto", "local", "spark"]
"""Where work is done: in this process, on Spark, or where it is faster."""

LocalEngineName = Literal["local", "spark"]
"""Where an export is written."""

ExportFormat = Literal["jsonl", "parquet", "csv"]
"""File format of an export."""

DatesForm = Literal["numbers", "iso"]
"""How NDJSON writes dates and moments: as numbers since the epoch, or as ISO text."""

Timing = Literal["now", "later"]
"""Whether indexes or vectors are made with a write, or by upkeep."""

DuplicateRule = Literal["last", "refuse"]
"""What an id that comes twice in the input of a load means."""

MergeUnit = Literal["entity", "property"]
"""What two branches may not both have changed."""

EntityKind = Literal["node", "edge"]
"""The kind of an entity."""

Durability = Literal["fsync", "os"]
"""Whether a commit is flushed to disk before it is acknowledged."""


class Kind(StrEnum):
    """The kinds of declarations: node types, edge types and interfaces."""

    NODE = "node"
    EDGE = "edge"
    INTERFACE = "interface"


TABLE_KINDS = (Kind.NODE, Kind.EDGE)
"""The kinds whose types have a table."""


def table_key(kind: Kind, type_name: str) -> TableKey:
    """The key of the table that holds a node or edge type."""
    return TableKey(f"{kind}:{type_name}")


def parse_table_key(key: str) -> tuple[Kind, str]:
    """The kind and the type name of a table's key, or `ValueError`: the inverse of `table_key`."""
    kind, _, type_name = key.partition(":")
    if kind not in TABLE_KINDS or not type_name:
        raise ValueError(f"'{key}' is no table key")
    return Kind(kind), type_name


def counts_of_kind(counts: Mapping[TableKey, int], kind: Kind) -> dict[str, int]:
    """The counts of the tables of one kind, by type name."""
    parsed = ((*parse_table_key(key), count) for key, count in counts.items())
    return {name: count for of, name, count in parsed if of is kind}


class Scalar(StrEnum):
    """The base types of the schema language, and `Vector`."""

    STRING = "String"
    BLOB = "Blob"
    BOOL = "Bool"
    I32 = "I32"
    I64 = "I64"
    U32 = "U32"
    U64 = "U64"
    F32 = "F32"
    F64 = "F64"
    DATE = "Date"
    DATETIME = "DateTime"
    VECTOR = "Vector"


def number_class(scalar: Scalar) -> type[int] | type[float] | None:
    """The Python class of a number type; None for a type that holds no single number."""
    match scalar:
        case Scalar.I32 | Scalar.I64 | Scalar.U32 | Scalar.U64:
            return int
        case Scalar.F32 | Scalar.F64:
            return float
        case Scalar.STRING | Scalar.BLOB | Scalar.BOOL:
            return None
        case Scalar.DATE | Scalar.DATETIME | Scalar.VECTOR:
            return None
        case _:
            assert_never(scalar)


INTEGERS = frozenset(scalar for scalar in Scalar if number_class(scalar) is int)
FLOATS = frozenset(scalar for scalar in Scalar if number_class(scalar) is float)
NUMERICS = INTEGERS | FLOATS

INTEGER_BOUNDS: dict[Scalar, tuple[int, int]] = {
    Scalar.I32: (-(2**31), 2**31 - 1),
    Scalar.I64: (-(2**63), 2**63 - 1),
    Scalar.U32: (0, 2**32 - 1),
    Scalar.U64: (0, 2**64 - 1),
}

VECTOR_DIMENSION_MAX = 2_147_483_647

RESERVED_COLUMNS = frozenset(
    {
        "_rowid",
        "_rowaddr",
        "_rowoffset",
        "_row_created_at_version",
        "_row_last_updated_at_version",
    }
)
"""Column names the storage engine keeps for itself."""

BLOB_EXTENSION = "lance.blob.v2"
"""The Arrow extension type of a blob column, by the storage engine's name for it."""


@dataclass(frozen=True, slots=True)
class ValueType:
    """The type of a property, a parameter or an expression."""

    scalar: Scalar
    nullable: bool = False
    is_list: bool = False
    enum_values: tuple[str, ...] | None = None  # sorted
    dimension: int | None = None  # vectors only

    @property
    def is_vector(self) -> bool:
        return self.scalar is Scalar.VECTOR

    @property
    def is_blob(self) -> bool:
        return self.scalar is Scalar.BLOB

    @property
    def is_numeric(self) -> bool:
        return self.scalar in NUMERICS and not self.is_list

    @property
    def is_text(self) -> bool:
        """A single string, enums included."""
        return self.scalar is Scalar.STRING and not self.is_list

    def __str__(self) -> str:
        if self.enum_values is not None:
            base = f"enum({', '.join(self.enum_values)})"
        elif self.is_vector:
            base = f"Vector({self.dimension})"
        else:
            base = str(self.scalar)
        if self.is_list:
            base = f"[{base}]"
        return f"{base}?" if self.nullable else base


ID_TYPE = ValueType(Scalar.STRING)
"""The type of the id of every node and edge."""


@dataclass(frozen=True, slots=True)
class SchemaStep:
    """One difference between two schemas: a line for people and its facts.

    >>> wider = graph.schema.text.replace("age:", "city: String?, age:")
    >>> done = graph.schema.apply(wider, branch=graph.branches.create("wider"))
    >>> [str(step) for step in graph.diff("main", "wider").schema_steps]
    ["add property 'Person.city' (String?) on node 'Person'"]
    """

    text: str
    facts: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def to_json(self) -> dict[str, Any]:
        """Return the facts and the line, as diffs, previews and commits carry them."""
        return {**self.facts, "text": self.text}

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of source text, in characters: `text[start:end]`."""

    start: int
    end: int

    def to(self, other: "Span") -> "Span":
        """From the beginning of this piece to the end of another."""
        return Span(self.start, other.end)


def columns_of(char: str) -> int:
    """How many columns of a terminal a character takes."""
    if char.isascii():
        return 1
    if unicodedata.combining(char) or unicodedata.category(char) in ("Cf", "Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
