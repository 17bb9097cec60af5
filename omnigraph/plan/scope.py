"""Scopes of a query: parameters, variables of nested blocks, and their types.

Invariant: a variable has one meaning in a block and in all blocks inside it. An inner block sees
the outer variables; its own bindings stay inside, unless the block is optional.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches

from omnigraph.catalog.model import Catalog, EdgeType, NodeType, Property, Type
from omnigraph.errors import TypeCheckError
from omnigraph.language.query import ast
from omnigraph.plan.ir import Computed, Expr, Param, Slot, SlotRef, Var
from omnigraph.types import Span, ValueType

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


@dataclass
class Names:
    """The names of one query, and counters for anonymous variables and slots."""

    catalog: Catalog
    source: str
    parameters: dict[str, ValueType]
    computed: dict[Expr, Computed] = field(default_factory=dict)
    _vars: int = 0
    _slots: int = 0

    def anonymous(self) -> Var:
        """A variable no query can write."""
        self._vars += 1
        return Var(f"_:{self._vars}")

    def slot(self, purpose: str) -> Slot:
        self._slots += 1
        return Slot(f"{purpose}:{self._slots}")

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

    def node(self, name: ast.Name, code: str) -> NodeType:
        node = self.catalog.node(name.text)
        if node is None:
            hint = did_you_mean(name.text, self.catalog.nodes)
            raise self.fail(name.span, f"unknown node type '{name}'", code=code, hint=hint)
        return node

    def edge(self, name: ast.Name, code: str) -> EdgeType:
        edge = self.catalog.edge(name.text)
        if edge is None:
            hint = did_you_mean(name.text, (e[0].lower() + e[1:] for e in self.catalog.edges))
            if name.text in _OPERATOR_WORDS:
                hint = "a word between two bare variables names an edge; compare a property"
            raise self.fail(name.span, f"unknown edge type '{name}'", code=code, hint=hint)
        return edge

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

    def bind(self, name: str, bound: Bound) -> None:
        self.own[name] = bound

    def inner(self) -> "Scope":
        return Scope(self.names, self)


def did_you_mean(name: str, known: Iterable[str], *, listed: bool = True) -> str:
    """A hint with the known name that is nearest, or else with all of them if they are listed."""
    folded = {candidate.lower(): candidate for candidate in known}
    close = get_close_matches(name.lower(), folded, n=1)
    if close:
        return f"did you mean '{folded[close[0]]}'?"
    if not listed:
        return ""
    every = sorted(folded.values())[:8]
    return f"known: {', '.join(every)}" if every else "the schema declares none"
