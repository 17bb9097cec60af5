"""Scopes of a query: parameters, variables of nested blocks, and their types.

Invariant: a variable has one meaning in a block and in all blocks inside it. An inner block sees
the outer variables; its own bindings stay inside, unless the block is optional.
"""

from dataclasses import field, replace

from omnigraph.catalog.model import Catalog, EdgeType, NodeType, Property, Type
from omnigraph.catalog.near_names import did_you_mean
from omnigraph.errors import TypeCheckError
from omnigraph.language.query import ast
from omnigraph.light_dataclass import dataclass
from omnigraph.plan.expressions import terms_in
from omnigraph.plan.ir import Computed, Expr, Member, Param, PathSlots, Slot, SlotRef, Var
from omnigraph.query_limits import CONDITION_TERMS_MAX, QUERY_CLAUSES_MAX, QUERY_VALUES_MAX
from omnigraph.types import Scalar, Span, ValueType

_OPERATOR_WORDS = frozenset({"contains", "starts_with", "in", "is"})


@dataclass(frozen=True, slots=True)
class NodeVar:
    """A variable bound to nodes of one type."""

    var: Var
    node: NodeType
    optional: bool = False


@dataclass(frozen=True, slots=True)
class EdgeVar:
    """A variable bound to edges of one type."""

    var: Var
    edge: EdgeType
    optional: bool = False


Bound = NodeVar | EdgeVar


PATH_FUNCTIONS = {
    "length": ValueType(Scalar.I64),
    "nodes": ValueType(Scalar.STRING, is_list=True),
    "edges": ValueType(Scalar.STRING, is_list=True),
    "cost": ValueType(Scalar.F64),
}
"""What can be asked about a path, and the type of the answer."""


@dataclass
class PathVar:
    """A variable that is the path of a walk. It gets a slot for each function that is asked."""

    names: "Names"
    is_weighted: bool
    slots: PathSlots

    def value(self, function: str) -> SlotRef:
        """The slot of `length`, `nodes`, `edges` or `cost`."""
        slot: Slot | None = getattr(self.slots, function)
        if slot is None:
            slot = self.names.slot(function)
            self.slots = replace(self.slots, **{function: slot})
        return SlotRef(slot, PATH_FUNCTIONS[function])


@dataclass
class Names:
    """The names of one query, and counters for anonymous variables and slots."""

    catalog: Catalog
    source: str
    parameters: dict[str, ValueType]
    computed: dict[Expr, Computed] = field(default_factory=dict)
    on_the_way: set[str] = field(default_factory=set)  # edges and nodes that a walk names
    _vars: int = 0
    _slots: int = 0
    _terms: int = 0
    _clauses: int = 0
    _values: int = 0

    def anonymous(self) -> Var:
        """A variable no query can write."""
        self._vars += 1
        return Var(f"_:{self._vars}")

    def slot(self, purpose: str) -> Slot:
        self._slots += 1
        return Slot(f"{purpose}:{self._slots}")

    def with_terms(self, condition: Expr, span: Span) -> Expr:
        """Count the terms of a condition and return it. Raises T26 if the query has too many."""
        self._terms += terms_in(condition)
        if self._terms > CONDITION_TERMS_MAX:
            text = f"the conditions of a query have more than {CONDITION_TERMS_MAX} terms"
            hint = "pass alternatives for one property as a list: $p.age in $ages"
            raise self.fail(span, text, code="T26", hint=hint)
        return condition

    def count_clause(self, span: Span, weight: int = 1) -> None:
        """Count a binding, traversal, list, block or stage. Raises T26 if the query has too
        many."""
        self._clauses += weight
        if self._clauses > QUERY_CLAUSES_MAX:
            text = f"a query has more than {QUERY_CLAUSES_MAX} bindings, traversals and blocks"
            hint = "split the query, or unwind a list parameter"
            raise self.fail(span, text, code="T26", hint=hint)

    def count_values(self, count: int, span: Span) -> None:
        """Count columns and sort keys. Raises T26 if the query has too many."""
        self._values += count
        if self._values > QUERY_VALUES_MAX:
            text = f"a query has more than {QUERY_VALUES_MAX} parameters, columns and sort keys"
            raise self.fail(
                span, text, code="T26", hint="pass a list as one parameter, return fewer columns"
            )

    def compute(self, value: Expr, value_type: ValueType) -> Param:
        """The parameter that holds the value of an expression which reads no row."""
        known = self.computed.get(value)
        if known is None:
            known = Computed(f"={len(self.computed) + 1}", value, value_type)
            self.computed[value] = known
        return Param(known.name, known.type)

    def fail(
        self, span: Span, text: str, *, code: str | None = None, hint: str = ""
    ) -> TypeCheckError:
        """The error that points at a piece of this query's text."""
        return TypeCheckError.at(self.source, span, text, code=code, hint=hint)

    def unbound(
        self, name: str, span: Span, code: str | None = None, *, is_value: bool = False
    ) -> TypeCheckError:
        """The error of a variable that has no meaning where it stands; `is_value` where a parameter
        could stand."""
        hint = ""
        if name in self.on_the_way:
            hint = f"${name} is each step of a walk and has a name only in its where; "
            hint += "name the walk, $path = …, and return edges($path) or nodes($path)"
        elif name in self.parameters:
            hint = "a parameter has no properties"
        elif is_value:
            near = did_you_mean(name, self.parameters, listed=False)
            hint = f"{near} declare it as a parameter: query name(${name}: …)".strip()
        return self.fail(span, f"variable ${name} is not bound", code=code, hint=hint)

    def node(self, name: ast.Name, code: str) -> NodeType:
        node = self.catalog.node(name.text)
        if node is None:
            hint = did_you_mean(name.text, (*self.catalog.nodes, *self.catalog.interfaces))
            if name.text in self.catalog.interfaces:
                hint = f"{name} is an interface, which only match takes"
            raise self.fail(name.span, f"unknown node type '{name}'", code=code, hint=hint)
        return node

    def matched(self, name: ast.Name) -> NodeType:
        """A node type that a variable can have, or an interface as the type of all that have it."""
        return self.end_type(name.text) if self.is_type(name) else self.node(name, "T1")

    def end_type(self, name: str) -> NodeType:
        """A declared node type, or an interface as the type of all that implement it."""
        node = self.catalog.node(name)
        if node is not None:
            return node
        interface = self.catalog.interfaces[name]
        return NodeType(interface.id, interface.name, interface.properties)

    def is_type(self, name: ast.Name) -> bool:
        """Whether a variable can have this type."""
        return self.catalog.node(name.text) is not None or name.text in self.catalog.interfaces

    def types_of(self, node: NodeType) -> tuple[NodeType, ...]:
        """The type itself, or all that implement an interface."""
        nodes = self.catalog.nodes
        if node.name in nodes:
            return (node,)
        return tuple(each for each in nodes.values() if node.name in each.implements)

    def is_interface(self, node: NodeType) -> bool:
        return node.name not in self.catalog.nodes

    def members(self, node: NodeType) -> tuple[Member, ...] | None:
        """The tables of an interface, and where each keeps its properties; None for a type."""
        if not self.is_interface(node):
            return None
        declared = {each.name for each in node.properties}
        return tuple(
            Member(each.table, tuple((p.name, p.id) for p in each.properties if p.name in declared))
            for each in self.types_of(node)
        )

    def edge(self, name: ast.Name, code: str) -> EdgeType:
        """An edge type, or a family as the edge type that the schema declares."""
        edge = self.catalog.edge_declared(name.text)
        if edge is None:
            known = (edge.name for edge in self.catalog.edges_declared)
            hint = did_you_mean(name.text, (e[0].lower() + e[1:] for e in known))
            if name.text in _OPERATOR_WORDS:
                hint = "a word between two bare variables names an edge; compare a property"
            raise self.fail(name.span, f"unknown edge type '{name}'", code=code, hint=hint)
        return edge

    def edges(self, name: ast.Name, code: str) -> tuple[EdgeType, ...]:
        """An edge type, or the members of a family."""
        self.edge(name, code)
        return self.catalog.members(name.text)

    def is_family(self, name: ast.Name) -> bool:
        """Whether a name is that of an edge with an interface at an end."""
        return self.catalog.edge(name.text) is None and bool(self.catalog.members(name.text))

    def property(self, owner: Type, name: ast.Name, code: str) -> Property:
        declared = owner.property(name.text)
        if declared is None:
            hint = did_you_mean(name.text, (p.name for p in owner.properties))
            text = f"type '{owner.name}' has no property '{name}'"
            raise self.fail(name.span, text, code=code, hint=hint)
        return declared


@dataclass
class Scope:
    """The variables of a block, and the scope around it."""

    names: Names
    outer: "Scope | None" = None
    own: dict[str, Bound] = field(default_factory=dict)
    values: dict[str, SlotRef] = field(default_factory=dict)  # elements of lists, by name
    paths: dict[str, PathVar] = field(default_factory=dict)
    uses: set[Var] = field(default_factory=set)

    def find(self, name: str) -> Bound | None:
        """The binding of a variable in this block. Notes every use of an outer variable."""
        bound = self.own.get(name)
        if bound is not None or self.outer is None:
            return bound
        bound = self.outer.find(name)
        if bound is not None:
            self.uses.add(bound.var)
        return bound

    def element(self, name: str) -> SlotRef | None:
        """The element that a variable is. Notes every use of an outer one."""
        value = self.values.get(name)
        if value is not None or self.outer is None:
            return value
        value = self.outer.element(name)
        if value is not None:
            self.uses.add(Var(value.slot))
        return value

    def path(self, name: str) -> PathVar | None:
        """The path that a variable is."""
        path = self.paths.get(name)
        return path if path is not None or self.outer is None else self.outer.path(name)

    def path_value(self, call: ast.Call) -> SlotRef | None:
        """What a call asks about a path; None for a call about something else."""
        argument = call.arguments[0] if len(call.arguments) == 1 else None
        if not isinstance(argument, ast.Variable) or argument.name in self.names.parameters:
            return None
        path = self.path(argument.name)
        if path is None:
            return None
        function = call.function.text
        if function not in PATH_FUNCTIONS:
            raise self.no_value(argument)
        if function == "cost" and not path.is_weighted:
            text = f"${argument.name} has no weights to add up"
            hint = f"write by $k.property after the walk, or length(${argument.name})"
            raise self.names.fail(call.span, text, code="T25", hint=hint)
        value = path.value(function)
        if argument.name not in self.paths:
            self.uses.add(Var(value.slot))
        return value

    def no_value(self, variable: ast.Variable) -> TypeCheckError:
        """The error of a path that stands where a value is needed."""
        name = variable.name
        hint = f"write length(${name}), nodes(${name}) or edges(${name})"
        return self.names.fail(variable.span, f"${name} is a path", code="T7", hint=hint)

    def bind(self, name: str, bound: Bound) -> None:
        self.own[name] = bound

    def inner(self) -> "Scope":
        return Scope(self.names, self)
