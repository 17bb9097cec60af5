"""Schema rules as values: required, enum, range, regex, unique, endpoint and cardinality.

A rule is a value derived from the catalog. Row rules look at one row by itself and are checked by
`row_rules` over Arrow batches. Key rules compare rows with other rows and are checked by
`key_rules` as SQL over the keys that matter. Mutations, loads and merges ask the same rules.

Invariant: data that passes every rule of its type, seen together with the rows that the
write leaves alone, is data that the schema allows.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from omnigraph.catalog.model import Cardinality, Catalog, EdgeType, NodeType, Property, Type
from omnigraph.errors import ConstraintViolated, Violation
from omnigraph.types import Kind, TableKey, ValueType, table_key

VIOLATIONS_LISTED = 10


# ---- row rules


@dataclass(frozen=True, slots=True)
class Required:
    """The column has a value in every row. `word` is what the author calls it."""

    type_name: str
    column: str
    word: str


@dataclass(frozen=True, slots=True)
class OneOf:
    """The text is one of the enum's values; null passes."""

    type_name: str
    column: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Within:
    """`low ≤ value ≤ high`, a missing bound being open; null passes."""

    type_name: str
    column: str
    low: int | float | None
    high: int | float | None


@dataclass(frozen=True, slots=True)
class Matching:
    """The text contains a match of the regular expression; null passes."""

    type_name: str
    column: str
    pattern: str


@dataclass(frozen=True, slots=True)
class WholeItems:
    """A list or a vector has no null inside; null itself passes."""

    type_name: str
    column: str


@dataclass(frozen=True, slots=True)
class Dimension:
    """A vector has exactly this many numbers; null passes."""

    type_name: str
    column: str
    numbers: int


RowRule = Required | OneOf | Within | Matching | WholeItems | Dimension


# ---- key rules


@dataclass(frozen=True, slots=True)
class DistinctIds:
    """No id comes twice among the incoming rows. `key` are the properties that make the id."""

    type_name: str
    key: tuple[str, ...]
    advice: str = ""  # what the caller can do about it, beside correcting the rows


@dataclass(frozen=True, slots=True)
class FreeIds:
    """No incoming id is in use: what a strict insert asks."""

    type_name: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Unique:
    """No two rows share the tuple. A tuple that holds a null is exempt."""

    type_name: str
    columns: tuple[str, ...]
    word: str = "unique"  # or key, while rows get ids that follow from it

    @property
    def label(self) -> str:
        """The constraint as its author wrote it, without the type."""
        return self.columns[0] if len(self.columns) == 1 else f"({', '.join(self.columns)})"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The node at one end of each edge exists. `node_key` are the properties that make its id,
    where the caller knows them."""

    type_name: str
    end: str  # src or dst
    node_name: str
    node_key: tuple[str, ...] = ()

    @property
    def node_table(self) -> TableKey:
        return table_key(Kind.NODE, self.node_name)


@dataclass(frozen=True, slots=True)
class EdgesPerSource:
    """Each touched source has between `low` and `high` edges of the type."""

    type_name: str
    low: int
    high: int | None


KeyRule = DistinctIds | FreeIds | Unique | Endpoint | EdgesPerSource


# ---- the rules of a type


@dataclass(frozen=True, slots=True)
class TypeRules:
    """Every rule for the rows of one table."""

    table: TableKey
    type_name: str
    kind: Kind
    rows: tuple[RowRule, ...]
    distinct: DistinctIds
    free: FreeIds
    uniques: tuple[Unique, ...]
    endpoints: tuple[Endpoint, ...] = ()
    cardinality: EdgesPerSource | None = None


def rules_of(owner: Type) -> TypeRules:
    """The rules of one type."""
    return _node_rules(owner) if isinstance(owner, NodeType) else _edge_rules(owner)


def rules_by_table(catalog: Catalog) -> dict[TableKey, TypeRules]:
    """The rules of every type, by its table."""
    return {owner.table: rules_of(owner) for owner in catalog.types}


def _node_rules(node: NodeType) -> TypeRules:
    name = node.name
    ranges = (Within(name, r.property, r.low, r.high) for r in node.ranges)
    checks = (Matching(name, c.property, c.pattern) for c in node.checks)
    # The id follows from the key, so the key needs no check of its own.
    uniques = (columns for columns in node.uniques if columns != node.key)
    return TypeRules(
        table=node.table,
        type_name=name,
        kind=Kind.NODE,
        rows=(*_property_rules(name, node.properties), *ranges, *checks),
        distinct=DistinctIds(name, node.key),
        free=FreeIds(name, Kind.NODE),
        uniques=tuple(Unique(name, columns) for columns in uniques),
    )


def _edge_rules(edge: EdgeType) -> TypeRules:
    name = edge.name
    ends = (Required(name, "src", "from"), Required(name, "dst", "to"))
    uniques = (columns for columns in edge.uniques if set(columns) != set(edge.key))
    return TypeRules(
        table=edge.table,
        type_name=name,
        kind=Kind.EDGE,
        rows=(*ends, *_property_rules(name, edge.properties)),
        distinct=DistinctIds(name, edge.key),
        free=FreeIds(name, Kind.EDGE),
        uniques=tuple(Unique(name, columns) for columns in uniques),
        endpoints=(Endpoint(name, "src", edge.source), Endpoint(name, "dst", edge.target)),
        cardinality=_cardinality_rule(name, edge.cardinality),
    )


def _cardinality_rule(type_name: str, bounds: Cardinality) -> EdgesPerSource | None:
    if bounds.low == 0 and bounds.high is None:
        return None
    return EdgesPerSource(type_name, bounds.low, bounds.high)


def _property_rules(type_name: str, properties: Iterable[Property]) -> Iterable[RowRule]:
    for prop in properties:
        if not prop.type.nullable:
            yield Required(type_name, prop.name, prop.name)
        yield from _value_rules(type_name, prop.name, prop.type)


def _value_rules(type_name: str, column: str, value_type: ValueType) -> Iterable[RowRule]:
    if value_type.enum_values is not None:
        yield OneOf(type_name, column, value_type.enum_values)
    if value_type.is_vector:
        yield Dimension(type_name, column, value_type.dimension or 0)
    if value_type.is_vector or value_type.is_list:
        yield WholeItems(type_name, column)


# ---- the outcome of a check


@dataclass(frozen=True, slots=True)
class RuleViolations:
    """The first violations, and how many there are in all."""

    violations: tuple[Violation, ...] = ()
    total: int = 0
    folded: tuple[tuple[Violation, int], ...] = ()  # of several checks: the first of each

    def require_none(self) -> None:
        """Pass only when there is no violation."""
        if self.total:
            raise ConstraintViolated(self.violations, self.total, folded=self.kinds)

    def named(self) -> "RuleViolations":
        """The same violations, the id of the row in each text."""
        violations = tuple(each.naming_id() for each in self.violations)
        kinds = tuple((first.naming_id(), count) for first, count in self.kinds)
        return RuleViolations(violations, self.total, kinds)

    @property
    def kinds(self) -> tuple[tuple[Violation, int], ...]:
        """The first violation of each kind, and how many there are; a check has one kind."""
        return self.folded or tuple((first, self.total) for first in self.violations[:1])


def joined(
    parts: Sequence[RuleViolations], *, listed: int | None = VIOLATIONS_LISTED
) -> RuleViolations:
    """The violations of several checks, in their order."""
    every = (violation for part in parts for violation in part.violations)
    kinds = dict[tuple[str, str, str], tuple[Violation, int]]()
    for first, count in (each for part in parts for each in part.kinds):
        kept, before = kinds.get(first.kind(), (first, 0))
        kinds[first.kind()] = kept, before + count
    total = sum(part.total for part in parts)
    return RuleViolations(tuple(every)[:listed], total, tuple(kinds.values()))
