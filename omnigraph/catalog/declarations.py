"""Name resolution of schema declarations: AST to draft, interfaces expanded.

Invariant: `resolve` returns a draft in which every name refers to a declaration, or raises `Fault`
at the piece of text to change.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import assert_never

from omnigraph.catalog.annotations import Declared, read_property, read_type_notes
from omnigraph.catalog.constraints import Owner, read_constraints, require_countable
from omnigraph.catalog.defaults import require_allowed_defaults
from omnigraph.catalog.draft import NO_TYPE_ID, Draft, Hint, entity
from omnigraph.catalog.model import Cardinality, EdgeType, Family, Interface, Literal, NodeType
from omnigraph.catalog.near_names import nearest
from omnigraph.language.reader import Fault
from omnigraph.language.schema import ast
from omnigraph.types import RESERVED_COLUMNS, Kind, Span, ValueType


def _physical(kind: Kind) -> frozenset[str]:
    """The names of the columns that are no properties."""
    match kind:
        case Kind.INTERFACE | Kind.NODE:
            return frozenset({"id"})
        case Kind.EDGE:
            return frozenset({"id", "src", "dst", "from", "to"})
        case _:
            assert_never(kind)


def resolve(schema: ast.Schema) -> Draft:
    """The draft of a schema, or `Fault`."""
    interfaces = [d for d in schema.declarations if isinstance(d, ast.Interface)]
    nodes = [d for d in schema.declarations if isinstance(d, ast.Node)]
    edges = [d for d in schema.declarations if isinstance(d, ast.Edge)]
    for kind, declarations in (
        (Kind.INTERFACE, interfaces),
        (Kind.NODE, nodes),
        (Kind.EDGE, edges),
    ):
        _require_distinct(f"{kind} type", (declaration.name for declaration in declarations))
    names = [(edge.name, edge.name.text) for edge in edges]
    _require_distinct_folded(names)
    resolver = _Resolver()
    drafted = tuple(map(resolver.interface, interfaces)), tuple(map(resolver.node, nodes))
    types = [(edge.name, each) for edge in edges for each in resolver.edge(edge)]
    _require_distinct_folded([*names, *((name, each.name) for name, each in types)])
    edge_types = tuple(each for _, each in types)
    return Draft(*drafted, edge_types, resolver.hints, resolver.backfills)


def _require_distinct(what: str, names: Iterable[ast.Name], *, where: str = "") -> None:
    seen: set[str] = set()
    for name in names:
        if name.text in seen:
            raise Fault(
                name.span,
                f"duplicate {what} '{name}'{where}",
                code="duplicate",
                hint="rename or remove one of them",
            )
        seen.add(name.text)


def _require_distinct_folded(edges: Iterable[tuple[ast.Name, str]]) -> None:
    """Edges with the declarations they come from: their names differ, also ignoring case."""
    seen: dict[str, tuple[str, ast.Name]] = {}
    for declared, name in edges:
        other, where = seen.setdefault(name.lower(), (name, declared))
        if other != name:
            raise Fault(
                declared.span,
                f"edge name collision after case folding: '{other}' and '{name}'",
                code="edge-name-collision",
                hint="queries find edges by name ignoring case; rename one of them",
            )
        if where is not declared:
            raise Fault(
                declared.span,
                f"edges {where} and {declared} would both have an edge type '{name}'",
                code="edge-name-collision",
                hint=(
                    "an edge with an interface at an end is an edge type for each node type that "
                    "implements it, named after both; rename one of them"
                ),
            )


@dataclass(slots=True)
class _Resolver:
    """Knows the names that declarations refer to, and gathers the rename hints."""

    interfaces: dict[str, tuple[Declared, ...]] = field(default_factory=dict)
    implementing: dict[str, list[str]] = field(default_factory=dict)  # interfaces of each node
    hints: dict[str, Hint] = field(default_factory=dict)
    backfills: dict[str, Literal] = field(default_factory=dict)

    def interface(self, declaration: ast.Interface) -> Interface:
        name = declaration.name.text
        declared = self._properties(Kind.INTERFACE, name, declaration.properties)
        self.interfaces[name] = declared
        constraints = read_constraints(Owner(Kind.INTERFACE, name, _types(declared)), declared, ())
        self._keep_hints(Kind.INTERFACE, name, declared)
        return Interface(
            NO_TYPE_ID,
            name,
            tuple(item.property for item in declared),
            keys=tuple(column for key in constraints.keys for column in key),
            uniques=tuple(column for unique in constraints.uniques.values() for column in unique),
            indexes=tuple(constraints.indexes),
        )

    def node(self, declaration: ast.Node) -> NodeType:
        name = declaration.name.text
        notes = read_type_notes(Kind.NODE, declaration.annotations)
        own = self._properties(Kind.NODE, name, declaration.properties)
        declared = own + self._injected(declaration, {item.property.name: item for item in own})
        types = _types(declared)
        _require_embed_sources(name, declared, types)
        constraints = read_constraints(
            Owner(Kind.NODE, name, types), declared, declaration.constraints
        )
        self._keep_hints(Kind.NODE, name, declared)
        if notes.hint:
            self.hints[entity(Kind.NODE, name)] = notes.hint
        node = NodeType(
            NO_TYPE_ID,
            name,
            tuple(item.property for item in declared),
            key=constraints.keys[0] if constraints.keys else (),
            uniques=tuple(constraints.uniques.values()),
            indexes=tuple(constraints.indexes),
            ranges=tuple(constraints.ranges),
            checks=tuple(constraints.checks),
            implements=tuple(interface.text for interface in declaration.implements),
            annotations=notes.annotations,
        )
        require_allowed_defaults(node, {item.property.name: item.span for item in declared})
        self.implementing[name] = [interface.text for interface in declaration.implements]
        return node

    def edge(self, declaration: ast.Edge) -> tuple[EdgeType, ...]:
        """The edge type of a declaration; several where an end is an interface."""
        name = declaration.name.text
        sources = self._end_types(name, "source", declaration.source)
        targets = self._end_types(name, "target", declaration.target)
        notes = read_type_notes(Kind.EDGE, declaration.annotations)
        declared = self._properties(Kind.EDGE, name, declaration.properties)
        owner = Owner(Kind.EDGE, name, _types(declared))
        header = () if declaration.key is None else (declaration.key,)
        constraints = read_constraints(owner, declared, (*header, *declaration.constraints))
        if notes.hint:
            self.hints[entity(Kind.EDGE, name)] = notes.hint
        card = declaration.cardinality
        edge = EdgeType(
            NO_TYPE_ID,
            name,
            declaration.source.text,
            declaration.target.text,
            tuple(item.property for item in declared),
            cardinality=Cardinality(card.low, card.high) if card else Cardinality(),
            uniques=tuple(constraints.uniques.values()),
            indexes=tuple(constraints.indexes),
            annotations=notes.annotations,
            key=constraints.keys[0] if constraints.keys else (),
        )
        family = Family(name, edge.source, edge.target)
        if {edge.source, edge.target} <= self.implementing.keys():
            members: tuple[EdgeType, ...] = (edge,)
        else:
            require_countable(declaration, edge, self.implementing.keys())
            members = tuple(family.member(edge, *ends) for ends in product(sources, targets))
        for each in members:
            self._keep_hints(Kind.EDGE, each.name, declared)
        return members

    def _properties(
        self, kind: Kind, owner: str, properties: Sequence[ast.Property]
    ) -> tuple[Declared, ...]:
        names = (prop.name for prop in properties)
        _require_distinct("property", names, where=f" on {kind} {owner}")
        for prop in properties:
            _require_free(kind, prop.name)
        return tuple(read_property(kind, owner, prop) for prop in properties)

    def _keep_hints(self, kind: Kind, owner: str, declared: Sequence[Declared]) -> None:
        for item in declared:
            if item.hint:
                self.hints[entity(kind, owner, item.property.name)] = item.hint
            if item.backfill is not None:
                self.backfills[entity(kind, owner, item.property.name)] = item.backfill

    def _end_types(self, edge: str, end: str, name: ast.Name) -> list[str]:
        """The node types that an end can be: one, or those that implement an interface."""
        if name.text in self.implementing:
            return [name.text]
        types = [node for node, listed in self.implementing.items() if name.text in listed]
        if types:
            return types
        text = f"edge {edge} references unknown {end} type: {name}"
        near = nearest(name.text, (*self.implementing, *self.interfaces))
        declare = f"declare it: node {name} {{ … }}"
        hint = declare if near is None else f"did you mean '{near}'? else {declare}"
        if (renamed := self._renamed_from(name.text)) is not None:
            hint = f"{name} is called {renamed} now: write that"
        if name.text in self.interfaces:
            text = f"the {end} of edge {edge} is {name}, which no node type implements"
            hint = f"declare one: node Thing implements {name} {{ … }}"
        raise Fault(name.span, text, code="unknown-type", hint=hint)

    def _renamed_from(self, old: str) -> str | None:
        """The node type that is declared with `@rename_from` an older name."""
        hints = ((node, self.hints.get(entity(Kind.NODE, node))) for node in self.implementing)
        return next((node for node, hint in hints if hint is not None and hint.old == old), None)

    def _injected(self, node: ast.Node, own: Mapping[str, Declared]) -> tuple[Declared, ...]:
        """The properties a node takes over from its interfaces, checked against its own."""
        _require_distinct("interface", node.implements, where=f" implemented by node {node.name}")
        injected: dict[str, Declared] = {}
        for interface in node.implements:
            for item in self._interface_properties(node, interface):
                name = item.property.name
                if name in own:
                    _require_same_type(node, own[name], interface, item)
                elif name in injected:
                    _require_agreement(node, injected[name], interface, item)
                else:
                    injected[name] = _inject(item, interface)
        return tuple(injected.values())

    def _interface_properties(self, node: ast.Node, interface: ast.Name) -> tuple[Declared, ...]:
        if interface.text in self.interfaces:
            return self.interfaces[interface.text]
        known = ", ".join(sorted(self.interfaces))
        raise Fault(
            interface.span,
            f"node {node.name} implements unknown interface '{interface}'",
            code="unknown-interface",
            hint=f"declared interfaces: {known}" if known else "no interface is declared",
        )


def _types(declared: Sequence[Declared]) -> dict[str, ValueType]:
    return {item.property.name: item.property.type for item in declared}


def _require_free(kind: Kind, name: ast.Name) -> None:
    if name.text in RESERVED_COLUMNS:
        raise Fault(
            name.span,
            f"property name '{name}' is reserved for storage",
            code="reserved-column",
            hint="choose another name",
        )
    if name.text in _physical(kind):
        raise Fault(
            name.span,
            f"property name '{name}' is reserved: every {_bearer(kind)} has its own",
            code="reserved-name",
            hint=f"choose another name, for example {kind}_{name}",
        )


def _bearer(kind: Kind) -> str:
    return "edge" if kind is Kind.EDGE else "node"


def _inject(item: Declared, interface: ast.Name) -> Declared:
    hint = replace(item.hint, injected=True) if item.hint else None
    prop = replace(item.property, injected_from=interface.text)
    return Declared(prop, item.flags, hint, interface.span, item.backfill)


def _require_same_type(node: ast.Node, own: Declared, interface: ast.Name, item: Declared) -> None:
    if own.property.type == item.property.type:
        return
    raise Fault(
        own.span,
        f"node {node.name} property '{own.property.name}' has type {own.property.type} "
        f"but interface {interface} declares it as {item.property.type}",
        code="interface-mismatch",
        hint=f"leave the property out to take it from {interface}, or give it the same type",
    )


def _require_agreement(
    node: ast.Node, first: Declared, interface: ast.Name, second: Declared
) -> None:
    if _meaning(first) == _meaning(second):
        return
    raise Fault(
        interface.span,
        f"interfaces {first.property.injected_from} and {interface} of node {node.name} disagree "
        f"about property '{first.property.name}'",
        code="interface-mismatch",
        hint="declare the property alike in both, or implement one of them",
    )


def _meaning(item: Declared) -> tuple[object, ...]:
    """The part of a property that two interfaces must agree on. Texts for people may differ."""
    notes = sorted(repr(note) for note in item.property.annotations if note.name != "description")
    old = item.hint.old if item.hint else None
    prop = item.property
    return prop.type, set(item.flags), prop.embed, notes, old, item.backfill, prop.default


def _require_embed_sources(
    owner: str, declared: Sequence[Declared], types: Mapping[str, ValueType]
) -> None:
    for item in declared:
        embed = item.property.embed
        if embed is None:
            continue
        target = f"{owner}.{item.property.name}"
        source = types.get(embed.source)
        if source is None:
            raise _bad_source(
                item.span,
                f"@embed on {target} references unknown property '{embed.source}'",
                "unknown-property",
            )
        if not source.is_text:
            raise _bad_source(
                item.span,
                f"@embed on {target} reads {owner}.{embed.source}, which is {source}",
                "bad-annotation",
            )


def _bad_source(span: Span, text: str, code: str) -> Fault:
    return Fault(span, text, code=code, hint="name a String property of the same node")
