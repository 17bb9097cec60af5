"""Catalog: the accepted schema, every type and property with its stable identity.

Invariant: a `Catalog` is consistent. Names resolve, interfaces are expanded, constraints name
properties that exist and fit them. `accept` and `codec` are its only producers.
"""

from collections.abc import Mapping
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, assert_never

from omnigraph.catalog.indexes import Metric
from omnigraph.errors import NotFound
from omnigraph.light_dataclass import dataclass
from omnigraph.types import (
    Kind,
    PropertyId,
    TableKey,
    TypeId,
    ValueType,
    parse_table_key,
    table_key,
)

if TYPE_CHECKING:
    import pyarrow as pa

Literal = str | int | float | bool

Default = Literal | tuple[Literal, ...]
"""The value of a property that is left out: a literal, or the items of a list."""


@dataclass(frozen=True, slots=True)
class Annotation:
    """`@name(value, key=value)`, kept as written. A bare word as value is a string here."""

    name: str
    value: Literal | None = None
    kwargs: tuple[tuple[str, Literal], ...] = ()


@dataclass(frozen=True, slots=True)
class Embed:
    """The text a vector property is computed from, and by which model."""

    source: str
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Range:
    """`low ≤ value ≤ high`; a missing bound is open."""

    property: str
    low: int | float | None
    high: int | float | None


@dataclass(frozen=True, slots=True)
class Check:
    """The regular expression that a value must contain a match of."""

    property: str
    pattern: str


@dataclass(frozen=True, slots=True)
class Cardinality:
    """How many outgoing edges of one type a source node may have. `high` None: no upper bound."""

    low: int = 0
    high: int | None = None

    def __str__(self) -> str:
        return f"{self.low}..{'' if self.high is None else self.high}"


@dataclass(frozen=True, slots=True)
class Property:
    """A property of a node, an edge or an interface."""

    id: PropertyId
    name: str
    type: ValueType
    annotations: tuple[Annotation, ...] = ()  # without @key, @unique, @index and @rename_from
    embed: Embed | None = None
    injected_from: str | None = None  # an interface, when the node itself is silent
    default: Default | None = None  # the value where an insert or a load leaves it out

    @property
    def metric(self) -> Metric:
        """How `nearest` and an index measure a vector, by `@metric`."""
        said = next((note.value for note in self.annotations if note.name == "metric"), None)
        is_known = self.type.is_vector and said in list(Metric)  # else it is metadata
        return Metric(str(said)) if is_known else Metric.L2


@dataclass(frozen=True, slots=True)
class Interface:
    """A reusable list of properties. It has no table."""

    id: TypeId
    name: str
    properties: tuple[Property, ...]
    keys: tuple[str, ...] = ()  # property-level @key, @unique, @index
    uniques: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeType:
    """A node type with interfaces expanded and constraints in one place."""

    id: TypeId
    name: str
    properties: tuple[Property, ...]
    key: tuple[str, ...] = ()  # in order of property ids; empty: ids are generated
    uniques: tuple[tuple[str, ...], ...] = ()
    indexes: tuple[str, ...] = ()
    ranges: tuple[Range, ...] = ()
    checks: tuple[Check, ...] = ()
    implements: tuple[str, ...] = ()
    annotations: tuple[Annotation, ...] = ()
    _by_name: dict[str, Property] = field(init=False, repr=False, compare=False)

    @property
    def kind(self) -> Kind:
        return Kind.NODE

    @property
    def table(self) -> TableKey:
        return table_key(Kind.NODE, self.name)

    @property
    def schema(self) -> "pa.Schema":
        """The Arrow schema of its table."""
        return _table_schema(self)

    @property
    def key_is_id(self) -> bool:
        """Whether the id is the key itself: a key of one string."""
        if len(self.key) != 1:
            return False
        key = self.property(self.key[0])
        return key is not None and key.type.is_text

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {prop.name: prop for prop in self.properties})

    def property(self, name: str) -> Property | None:
        return self._by_name.get(name)


@dataclass(frozen=True, slots=True)
class Family:
    """A declared edge with an interface at an end. It has no table: each pair of node types that
    its ends can be is an edge type, a member."""

    name: str
    source: str  # a node type or an interface
    target: str

    def member_name(self, source: str, target: str) -> str:
        """The name of the member between two node types: the family's, then the types that stand
        for interfaces."""
        ends = ((self.source, source), (self.target, target))
        return "_".join((self.name, *(node for declared, node in ends if declared != node)))

    def member(self, edge: "EdgeType", source: str, target: str) -> "EdgeType":
        """An edge type as the member between two node types."""
        name = self.member_name(source, target)
        return replace(edge, name=name, source=source, target=target, family=self)


@dataclass(frozen=True, slots=True)
class EdgeType:
    """An edge type from one node type to another. Constraints may name `src` and `dst`."""

    id: TypeId
    name: str
    source: str
    target: str
    properties: tuple[Property, ...] = ()
    cardinality: Cardinality = Cardinality()
    uniques: tuple[tuple[str, ...], ...] = ()
    indexes: tuple[str, ...] = ()
    annotations: tuple[Annotation, ...] = ()
    key: tuple[str, ...] = ()  # src, dst, then properties by id; empty: ids are generated
    family: Family | None = None  # the declaration of which this is a member
    _by_name: dict[str, Property] = field(init=False, repr=False, compare=False)

    @property
    def kind(self) -> Kind:
        return Kind.EDGE

    @property
    def table(self) -> TableKey:
        return table_key(Kind.EDGE, self.name)

    @property
    def schema(self) -> "pa.Schema":
        """The Arrow schema of its table."""
        return _table_schema(self)

    @property
    def ends(self) -> dict[str, str]:
        """The node types of its ends, by column."""
        return {"src": self.source, "dst": self.target}

    @property
    def key_is_id(self) -> bool:
        """Never: a key of an edge has both ends."""
        return False

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {prop.name: prop for prop in self.properties})

    def property(self, name: str) -> Property | None:
        return self._by_name.get(name)


Type = NodeType | EdgeType
"""A type that has a table."""


def declared_edge(edge: EdgeType) -> EdgeType:
    """The edge type that the schema declares: itself, or of a member its family, which has
    interfaces at its ends and no table."""
    family = edge.family
    if family is None:
        return edge
    return replace(edge, name=family.name, source=family.source, target=family.target, family=None)


def key_ids(owner: Type) -> list[int | str]:
    """What the ids of a type follow from, whatever it is called: ends, and identities of
    properties."""
    ids = {prop.name: prop.id for prop in owner.properties}
    return [ids.get(name, name) for name in owner.key]


def _table_schema(owner: Type) -> "pa.Schema":
    # Arrow takes longer to load than a catalog to be read, and planning needs none of it.
    from omnigraph.catalog.arrow import table_schema  # noqa: PLC0415

    return table_schema(owner)


@dataclass(frozen=True)
class Catalog:
    """Everything the graph's schema declares, by name, in declaration order."""

    nodes: Mapping[str, NodeType]
    edges: Mapping[str, EdgeType]
    interfaces: Mapping[str, Interface]
    next_type_id: int
    next_property_ids: Mapping[TypeId, int]
    fingerprint: str  # equal for equal meaning and identities
    schema_id: str = field(default="", compare=False)  # of the accepted schema it was read from

    @cached_property
    def _edges_folded(self) -> dict[str, EdgeType]:
        return {name.lower(): edge for name, edge in self.edges.items()}

    @cached_property
    def embeds(self) -> bool:
        """Whether a vector of a node type is made from a text."""
        return any(p.embed is not None for node in self.nodes.values() for p in node.properties)

    @cached_property
    def families(self) -> dict[str, tuple[EdgeType, ...]]:
        """The members of each family, by its name."""
        members: dict[str, tuple[EdgeType, ...]] = {}
        for edge in self.edges.values():
            if edge.family is not None:
                members[edge.family.name] = (*members.get(edge.family.name, ()), edge)
        return members

    @cached_property
    def _families_folded(self) -> dict[str, tuple[EdgeType, ...]]:
        return {name.lower(): members for name, members in self.families.items()}

    @property
    def edges_declared(self) -> tuple[EdgeType, ...]:
        """Edge types as the schema declares them: a family is one, between its declared ends."""
        declared = {edge.name: edge for edge in map(declared_edge, self.edges.values())}
        return tuple(declared.values())

    @property
    def types(self) -> tuple[Type, ...]:
        """Every type that has a table, nodes first."""
        return (*self.nodes.values(), *self.edges.values())

    def of(self, table: TableKey) -> Type:
        """The type whose rows a table holds."""
        kind, name = parse_table_key(table)
        owner = self.nodes.get(name) if kind is Kind.NODE else self.edges.get(name)
        if owner is None:
            raise NotFound("type", name)
        return owner

    def called(self, name: str) -> tuple[Type, ...]:
        """The types that a name means in a list of types: a node type, an edge type, both, or the
        members of a family."""
        named = (self.nodes.get(name), self.edges.get(name))
        types = tuple(owner for owner in named if owner is not None)
        return types or self.families.get(name, ())

    def declared(self, kind: Kind) -> Mapping[str, NodeType | EdgeType | Interface]:
        """Everything of one kind, by name."""
        match kind:
            case Kind.NODE:
                return self.nodes
            case Kind.EDGE:
                return self.edges
            case Kind.INTERFACE:
                return self.interfaces
            case _:
                assert_never(kind)

    def node(self, name: str) -> NodeType | None:
        return self.nodes.get(name)

    def edge(self, name: str) -> EdgeType | None:
        """By exact name, else ignoring case: `WorksAt` is traversed as `worksAt`."""
        return self.edges.get(name) or self._edges_folded.get(name.lower())

    def edge_declared(self, name: str) -> EdgeType | None:
        """An edge type, or a family as the edge type that the schema declares."""
        return self.edge(name) or next(map(declared_edge, self.members(name)), None)

    def members(self, name: str) -> tuple[EdgeType, ...]:
        """The edge type of that name, or the members of the family; none for another name."""
        edge = self.edge(name)
        if edge is not None:
            return (edge,)
        return self._families_folded.get(name.lower(), ())

    def edges_of(self, node_name: str) -> tuple[EdgeType, ...]:
        """Every edge type that starts or ends at a node type."""
        return tuple(e for e in self.edges.values() if node_name in (e.source, e.target))
