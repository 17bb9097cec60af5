"""Schema trees to test with: any well-formed one, and any that is also accepted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from hypothesis import strategies as st

from omnigraph.language.schema.ast import (
    Annotation,
    Cardinality,
    CheckConstraint,
    ColumnConstraint,
    Columns,
    Constraint,
    Declaration,
    DefaultExpr,
    Edge,
    Interface,
    Literal,
    Name,
    Node,
    Property,
    RangeConstraint,
    Schema,
    TypeExpr,
)
from omnigraph.types import Scalar, Span, ValueType

NOWHERE = Span(0, 0)
T = TypeVar("T")

KEYWORDS = ("node", "edge", "interface", "implements", "enum", "true", "false", "key", "card")
LISTABLE = tuple(s for s in Scalar if s not in (Scalar.BLOB, Scalar.VECTOR))

idents = st.from_regex(r"[a-z_][A-Za-z0-9_]{0,8}", fullmatch=True) | st.sampled_from(KEYWORDS)
plain_idents = idents.map(lambda word: f"p_{word}")  # never a word with a meaning of its own
type_names = st.from_regex(r"[A-Z][A-Za-z0-9_]{0,8}", fullmatch=True)
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
words = texts.filter(lambda text: bool(text.strip()))
floats = st.floats(min_value=0, max_value=1e300, allow_nan=False)
literals: st.SearchStrategy[Literal] = texts | st.integers(0, 2**63 - 1) | floats | st.booleans()
bounds = st.integers(-(2**63), 2**64 - 1) | st.floats(-1e300, 1e300)


def name(text: str) -> Name:
    return Name(text, NOWHERE)


names = idents.map(name)


@st.composite
def value_types(draw: st.DrawFn) -> ValueType:
    nullable = draw(st.booleans())
    return draw(
        st.one_of(
            st.sampled_from([s for s in Scalar if s is not Scalar.VECTOR]).map(
                lambda scalar: ValueType(scalar, nullable)
            ),
            st.sampled_from(LISTABLE).map(lambda s: ValueType(s, nullable, is_list=True)),
            st.integers(1, 2**31 - 1).map(
                lambda size: ValueType(Scalar.VECTOR, nullable, dimension=size)
            ),
            st.sets(st.from_regex(r"[A-Za-z0-9_-]{1,6}", fullmatch=True), min_size=1).map(
                lambda values: ValueType(Scalar.STRING, nullable, enum_values=tuple(sorted(values)))
            ),
        )
    )


MEANINGFUL = {"key", "unique", "index", "range", "check", "card"}
kwargs = st.dictionaries(idents, literals, max_size=2).map(lambda d: tuple(d.items()))
annotations = st.one_of(
    st.builds(
        lambda word: Annotation(word, None, (), NOWHERE),
        idents.filter(lambda word: word not in MEANINGFUL),
    ),
    st.builds(
        lambda word, value, rest: Annotation(word, value, rest, NOWHERE),
        idents.filter(lambda word: word not in MEANINGFUL) | st.just("embed"),
        literals,
        kwargs,
    ),
)
flags = st.sampled_from(Columns).map(lambda flag: Annotation(str(flag), None, (), NOWHERE))
signed = texts | st.integers(-(2**63), 2**64 - 1) | st.floats(-1e300, 1e300) | st.booleans()
defaults = st.none() | (signed | st.lists(signed, max_size=3).map(tuple)).map(
    lambda value: DefaultExpr(value, NOWHERE)
)
properties = st.builds(
    lambda word, value_type, notes, default: Property(
        word, TypeExpr(value_type, NOWHERE), tuple(notes), NOWHERE, default
    ),
    names,
    value_types(),
    st.lists(annotations | flags, max_size=2),
    defaults,
)


def _ordered(low: float | None, high: float | None) -> tuple[float | None, float | None]:
    if low is None and high is None:
        return 0, None
    if low is not None and high is not None and low > high:
        return high, low
    return low, high


intervals = st.tuples(st.none() | bounds, st.none() | bounds).map(lambda pair: _ordered(*pair))
constraints: st.SearchStrategy[Constraint] = st.one_of(
    st.builds(
        lambda kind, columns: ColumnConstraint(kind, tuple(columns), NOWHERE),
        st.sampled_from(Columns),
        st.lists(names, min_size=1, max_size=3, unique=True),
    ),
    st.builds(lambda word, pair: RangeConstraint(word, *pair, NOWHERE), names, intervals),
    st.builds(lambda word, text: CheckConstraint(word, text, NOWHERE, NOWHERE), names, texts),
)
u32 = st.integers(0, 2**32 - 1)
cardinalities = st.one_of(
    st.none(),
    u32.map(lambda low: Cardinality(low, None, NOWHERE)),
    st.tuples(u32, u32).map(lambda pair: Cardinality(min(pair), max(pair), NOWHERE)),
)


def some(strategy: st.SearchStrategy[T], most: int = 3) -> st.SearchStrategy[tuple[T, ...]]:
    return st.lists(strategy, max_size=most).map(tuple)


type_refs = type_names.map(name)
declarations: st.SearchStrategy[Declaration] = st.one_of(
    st.builds(Interface, type_refs, some(properties), st.just(NOWHERE)),
    st.builds(
        Node,
        type_refs,
        some(annotations),
        some(type_refs),
        some(properties),
        some(constraints),
        st.just(NOWHERE),
    ),
    st.builds(
        Edge,
        type_refs,
        type_refs,
        type_refs,
        cardinalities,
        some(annotations),
        some(properties),
        some(constraints),
        st.just(NOWHERE),
    ),
)
schemas = some(declarations, 4).map(lambda found: Schema(found, NOWHERE))
"""Any tree the parser can make."""


# Trees that are accepted


@dataclass(frozen=True, slots=True)
class _Columns:
    """The properties of one type under construction."""

    properties: tuple[Property, ...]

    def fitting(self, fits: Callable[[ValueType], bool]) -> list[str]:
        return [p.name.text for p in self.properties if fits(p.type.value)]


def _single(value_type: ValueType) -> bool:
    return not (value_type.is_list or value_type.is_vector or value_type.is_blob)


notes = st.one_of(
    words.map(lambda text: Annotation("description", text, (), NOWHERE)),
    st.builds(
        lambda word, value: Annotation(f"x_{word}", value, (), NOWHERE),
        idents,
        st.none() | literals,
    ),
)


@st.composite
def _columns(draw: st.DrawFn, least: int = 0) -> _Columns:
    found: list[str] = draw(st.lists(plain_idents, min_size=least, max_size=4, unique=True))
    made = []
    for word in found:
        value_type: ValueType = draw(value_types())
        own: list[Annotation] = draw(st.lists(notes, max_size=1))
        made.append(Property(name(word), TypeExpr(value_type, NOWHERE), tuple(own), NOWHERE))
    return _Columns(tuple(made))


def _subset(draw: st.DrawFn, among: Sequence[str]) -> tuple[Name, ...]:
    chosen: list[str] = draw(st.lists(st.sampled_from(among), min_size=1, max_size=3, unique=True))
    return tuple(map(name, chosen))


def _some_constraints(
    draw: st.DrawFn, columns: _Columns, kinds: dict[Columns, list[str]]
) -> list[Constraint]:
    return [
        ColumnConstraint(kind, _subset(draw, among), NOWHERE)
        for kind, among in kinds.items()
        if among and draw(st.booleans())
    ]


@st.composite
def _node(draw: st.DrawFn, type_name: str, interfaces: Sequence[str]) -> Node:
    columns: _Columns = draw(_columns())
    kinds = {
        Columns.KEY: columns.fitting(lambda t: _single(t) and not t.nullable),
        Columns.UNIQUE: columns.fitting(_single),
        Columns.INDEX: columns.fitting(lambda t: not t.is_blob),
    }
    found = _some_constraints(draw, columns, kinds)
    numbers = columns.fitting(lambda t: t.is_numeric)
    if numbers and draw(st.booleans()):
        low, high = draw(intervals)
        found.append(RangeConstraint(name(numbers[0]), low, high, NOWHERE))
    implements = _subset(draw, interfaces) if interfaces and draw(st.booleans()) else ()
    own: list[Annotation] = draw(st.lists(notes, max_size=1))
    return Node(name(type_name), tuple(own), implements, columns.properties, tuple(found), NOWHERE)


@st.composite
def _edge(draw: st.DrawFn, type_name: str, nodes: Sequence[str]) -> Edge:
    columns: _Columns = draw(_columns())
    ends = ["src", "dst"]
    kinds = {
        Columns.UNIQUE: ends + columns.fitting(_single),
        Columns.INDEX: ends + columns.fitting(lambda t: not t.is_blob),
    }
    source, target = (draw(st.sampled_from(nodes)) for _ in range(2))
    key = None
    if draw(st.booleans()):
        among = columns.fitting(lambda t: _single(t) and not t.nullable)
        others = draw(st.lists(st.sampled_from(among), unique=True)) if among else []
        key = ColumnConstraint(Columns.KEY, tuple(map(name, [*ends, *others])), NOWHERE)
    return Edge(
        name(type_name),
        name(source),
        name(target),
        draw(cardinalities),
        (),
        columns.properties,
        tuple(_some_constraints(draw, columns, kinds)),
        NOWHERE,
        key,
    )


@st.composite
def accepted_schemas(draw: st.DrawFn) -> Schema:
    """A tree whose declarations fit together. Interfaces use names no node uses."""
    made: list[Declaration] = []
    interfaces = [f"I{i}" for i in range(draw(st.integers(0, 2)))]
    for place, interface in enumerate(interfaces):
        columns: _Columns = draw(_columns())
        own = tuple(
            Property(name(f"i{place}_{p.name}"), p.type, p.annotations, NOWHERE)
            for p in columns.properties
        )
        made.append(Interface(name(interface), own, NOWHERE))
    nodes: list[str] = draw(st.lists(type_names, max_size=4, unique=True))
    made += [draw(_node(node, interfaces)) for node in nodes]
    if nodes:
        edges: list[str] = draw(st.lists(type_names, max_size=3, unique_by=str.lower))
        made += [draw(_edge(edge, nodes)) for edge in edges]
    order: list[Declaration] = draw(st.permutations(made))
    return Schema(tuple(order), NOWHERE)


@st.composite
def edited(draw: st.DrawFn, schema: Schema) -> Schema:
    """A tree that differs from another in one place, or not at all. It may not be accepted."""
    if not schema.declarations:
        return schema
    place = draw(st.integers(0, len(schema.declarations) - 1))
    changed = draw(_edited_declaration(schema.declarations[place]))
    found = list(schema.declarations)
    found[place : place + 1] = changed
    return Schema(tuple(found), NOWHERE)


@st.composite
def _edited_declaration(draw: st.DrawFn, declared: Declaration) -> list[Declaration]:
    edits: list[dict[str, object]] = [{}]
    for listed in ("properties", "constraints", "annotations", "implements"):
        items = getattr(declared, listed, ())
        if items:
            place = draw(st.integers(0, len(items) - 1))
            edits.append({listed: items[:place] + items[place + 1 :]})
    if declared.properties:
        first, *rest = declared.properties
        retyped = replace(first, type=TypeExpr(draw(value_types()), NOWHERE))
        noted = replace(first, annotations=tuple(draw(st.lists(notes, max_size=1))))
        edits += [{"properties": (retyped, *rest)}, {"properties": (noted, *rest)}]
    if isinstance(declared, Edge):
        edits += [{"cardinality": draw(cardinalities)}, {"target": declared.source}]
    choice = draw(st.sampled_from([None, *edits]))
    return [] if choice is None else [replace(declared, **choice)]  # type: ignore[arg-type]
