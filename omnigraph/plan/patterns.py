"""Type checking of `match`: clauses of a pattern to a typed pattern.

Invariant: the meaning of a block does not depend on the order of its clauses, except that a
traversal takes its direction from what was bound before it. So bindings and traversals are read
first, in order; then optional blocks; then conditions, which may mention all of these.
"""

from dataclasses import replace

from omnigraph.catalog.model import EdgeType, NodeType
from omnigraph.language.query import ast
from omnigraph.plan import ir
from omnigraph.plan.conditions import condition_predicate, expression_value
from omnigraph.plan.expressions import type_of
from omnigraph.plan.fixed_values import fixed_value
from omnigraph.plan.operands import (
    NOW,
    as_type,
    compatible,
    element,
    literal_operand,
    parameter_operand,
)
from omnigraph.plan.scope import EdgeVar, Names, NodeVar, Scope
from omnigraph.plan.typed import (
    Anchor,
    TypedMatches,
    TypedNode,
    TypedPattern,
    TypedSemiJoin,
    TypedStep,
)
from omnigraph.plan.walks import (
    EdgeWay,
    WalkEnds,
    along_member,
    bind_path,
    conditions_of,
    direction_of,
    ends_of,
    family_ends,
    hops_of,
    is_walk,
    require_traversable,
    typed_walk,
)
from omnigraph.types import ID_TYPE, Span, ValueType


def check_pattern(scope: Scope, clauses: tuple[ast.Clause, ...]) -> TypedPattern:
    """The typed pattern of a block. Its variables are bound in `scope` afterwards."""
    return _Pattern(scope).check(clauses)


def inner_matches(
    scope: Scope, clauses: tuple[ast.Clause, ...], span: Span, exists: bool
) -> TypedMatches:
    """The slot of an inner pattern that stands outside `match`, and what fills it."""
    block = _Pattern(scope)
    block._slot(scope, clauses, span, exists)
    return block.matches[0]


class _Pattern:
    """Collects one block."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.names: Names = scope.names
        self.where = dict[ir.Var, list[ir.Expr]]()
        self.nodes = dict[ir.Var, NodeType]()
        self.steps = list[TypedStep]()
        self.filters = list[ir.Expr]()
        self.semi_joins = list[TypedSemiJoin]()
        self.matches = list[TypedMatches]()
        self.optionals = list[TypedPattern]()
        self.unwinds = list[ir.Unwind]()
        self.declared = dict[str, NodeType]()  # types that bindings of this block give
        self.later = list[ast.Expr]()  # conditions of traversals

    def check(self, clauses: tuple[ast.Clause, ...]) -> TypedPattern:
        for clause in clauses:
            if not isinstance(clause, ast.Filter):
                self.names.count_clause(clause.span)
        self.declared = {
            clause.variable.name: self.names.matched(clause.type_name)
            for clause in clauses
            if isinstance(clause, ast.Binding) and self.names.is_type(clause.type_name)
        }
        for clause in clauses:
            if isinstance(clause, ast.Binding):
                self._binding(clause)
            elif isinstance(clause, ast.Traversal):
                self._step(clause)
            elif isinstance(clause, ast.Path):
                self._traversal(clause.traversal, clause)
        for clause in clauses:
            if isinstance(clause, ast.Unwind):
                self._unwind(clause)
        for clause in clauses:
            if isinstance(clause, ast.OptionalBlock):
                self._optional(clause)
        for clause in clauses:
            if isinstance(clause, ast.Filter):
                self._condition(clause.condition)
            elif isinstance(clause, ast.Negation):
                inner = self._inner(self.scope, clause.clauses, clause.span, "not")
                self.semi_joins.append(TypedSemiJoin(inner, anti=True))
        for condition in self.later:
            self._condition(condition)
        return TypedPattern(
            nodes=tuple(
                TypedNode(var, node, tuple(self.where.get(var, ())), self.names.members(node))
                for var, node in self.nodes.items()
            ),
            steps=tuple(self.steps),
            filters=tuple(self.filters),
            semi_joins=tuple(self.semi_joins),
            matches=tuple(self.matches),
            optionals=tuple(self.optionals),
            unwinds=tuple(self.unwinds),
            uses=frozenset(self.scope.uses),
        )

    # Bindings

    def _binding(self, binding: ast.Binding) -> None:
        node = self.names.matched(binding.type_name)
        bound = self._bind_node(binding.variable, node)
        for match in binding.properties:
            predicate = self._property_match(bound.var, node, match)
            self.names.with_terms(predicate, match.span)
            if bound.var in self.nodes:
                self.where.setdefault(bound.var, []).append(predicate)
            else:  # a variable of the row around this block
                self.filters.append(predicate)

    def _bind_node(self, variable: ast.Variable, node: NodeType) -> NodeVar:
        name = variable.name
        if name == ast.ANONYMOUS:
            bound = NodeVar(self.names.anonymous(), node)
            self.nodes[bound.var] = node
            return bound
        known = self.scope.find(name)
        if isinstance(known, EdgeVar):
            text = f"${name} is bound to the edge {known.edge.name}, not to a node"
            raise self.names.fail(variable.span, text, code="T23", hint="use another name")
        if known is not None:
            if known.node.name != node.name:
                text = (
                    f"variable ${name} already bound to type {known.node.name}, "
                    f"cannot rebind to {node.name}"
                )
                raise self.names.fail(variable.span, text)
            return known
        bound = NodeVar(ir.Var(name), node)
        self.scope.bind(name, bound)
        self.nodes[bound.var] = node
        return bound

    def _property_match(self, var: ir.Var, node: NodeType, match: ast.PropertyMatch) -> ir.Expr:
        if match.property.text == "id":
            value = self._value(match.value, ID_TYPE, f"{node.name}.id")
            return ir.Compare(ir.CompareOp.EQ, ir.EntityId(var, ID_TYPE), value)
        declared = self.names.property(node, match.property, "T2")
        what = f"{node.name}.{declared.name}"
        if declared.type.is_blob or declared.type.is_vector:
            text = f"{what} is a {declared.type} and cannot be matched"
            raise self.names.fail(match.span, text, code="T3")
        column = ir.Column(var, declared.name, declared.id, declared.type)
        if declared.type.is_list:  # one element: it matches lists that hold it
            value = self._value(match.value, element(declared.type), f"an element of {what}")
            return ir.ListContains(column, value)
        return ir.Compare(ir.CompareOp.EQ, column, self._value(match.value, declared.type, what))

    def _value(self, given: ast.Expr, target: ValueType, what: str) -> ir.Expr:
        """The value of an inline match."""
        names = self.names
        match given:
            case ast.Literal(scalar=None):
                return ir.Const(None, target)
            case ast.Literal() if target.is_numeric and literal_operand(given).type.is_numeric:
                return literal_operand(given)  # 2.5 equals no integer, which is not an error
            case ast.Literal():
                return as_type(names, given, target, what)
            case ast.ListLiteral():
                text = f"{what} cannot be matched with a list"
                hint = "give one element, or write $v.property in [..] as a filter"
                raise names.fail(given.span, text, code="T3", hint=hint)
            case ast.Now():
                if not compatible(NOW.type, target):
                    raise names.fail(given.span, f"{what} is {target}, now() is not", code="T7")
                return NOW
            case ast.Variable():
                return self._parameter(given, target, what)
            case _:
                return fixed_value(names, given, target, what)

    def _parameter(self, given: ast.Variable, target: ValueType, what: str) -> ir.Expr:
        parameter = parameter_operand(self.names, given)
        if parameter is None:
            text = f"variable ${given.name} is not bound"
            hint = f"declare it as a parameter: ${given.name}: {target}"
            raise self.names.fail(given.span, text, hint=hint)
        if not compatible(parameter.type, target):
            text = f"{what} has type {target}, ${given.name} is {parameter.type}"
            raise self.names.fail(given.span, text, code="T7")
        return parameter

    # Traversals

    def _step(self, traversal: ast.Traversal) -> None:
        """A traversal whose path has no name."""
        if traversal.by is not None:
            text = "weights choose a shortest path, and this walk asks for none"
            hint = "write $p = shortest $a $k:edge* $b by $k.property"
            raise self.names.fail(traversal.by.span, text, code="T15", hint=hint)
        self._traversal(traversal)

    def _traversal(self, traversal: ast.Traversal, path: ast.Path | None = None) -> None:
        if path is None:
            types = (self._type_of(e, self._endpoint(e)) for e in (traversal.left, traversal.right))
            traversal = along_member(self.names, traversal, *types)
        walks = is_walk(traversal) or path is not None or self._meets_interface(traversal)
        hops = hops_of(self.names, traversal)
        if path is not None and traversal.hops is None and path.kind is not ast.PathKind.WALK:
            hops = 1, ir.HOPS_ENDLESS
        conditions = conditions_of(traversal, is_walk=walks)
        self.later += conditions.of_row
        ends, anchor = self._ends(traversal, hops, walks=walks)
        edge, direction = ends.ways[0].edge, ends.ways[0].direction
        left_var = self._bind_endpoint(traversal.left, ends.left, edge)
        right_var = self._bind_endpoint(traversal.right, ends.right, edge)
        walk = edge_var = None
        if walks:
            ways = ends.ways if anchor is Anchor.LEFT else tuple(way.back for way in ends.ways)
            named, mode = bind_path(self.scope, path)
            walk = typed_walk(self.scope, traversal, ways, conditions.of_way, named, mode)
            far = ends.right if anchor is Anchor.LEFT else ends.left
            walk = replace(walk, members=self.names.members(far))
        else:
            edge_var = self._bind_edge(traversal.edge_variable, edge)
        self.steps.append(
            TypedStep(
                left=left_var,
                right=right_var,
                left_node=ends.left,
                right_node=ends.right,
                edge=edge,
                direction=direction,
                hops_min=hops[0],
                hops_max=hops[1],
                anchor=anchor,
                edge_var=edge_var,
                walk=walk,
            )
        )

    def _ends(
        self, traversal: ast.Traversal, hops: tuple[int, int], *, walks: bool
    ) -> tuple[WalkEnds, Anchor]:
        """The edges of a traversal as it takes them, and the end that it starts from."""
        left, right = self._endpoint(traversal.left), self._endpoint(traversal.right)
        many = len(traversal.edges) > 1 or traversal.is_any
        if many or self._meets_interface(traversal):
            anchor = Anchor.RIGHT if left is None and right is not None else Anchor.LEFT
            bound = (self._type_of(traversal.left, left), self._type_of(traversal.right, right))
            if not many and self.names.is_family(traversal.edge):
                bound = family_ends(self.names, traversal, *bound, walks=walks)
            return ends_of(self.names, traversal, bound, hops), anchor
        edge = self.names.edge(traversal.edge, "T4")
        require_traversable(self.names, traversal, edge, walks=walks)
        direction, anchor = direction_of(self.names, traversal, edge, left, right)
        nodes = self.names.catalog.nodes
        way = EdgeWay(edge, ir.Direction.OUT, nodes[edge.source], nodes[edge.target])
        if direction is not ir.Direction.OUT:
            way = replace(way.back, direction=direction)
        return WalkEnds((way,), way.source, way.target), anchor

    def _meets_interface(self, traversal: ast.Traversal) -> bool:
        """Whether an end of a traversal is of several types."""
        ends = (traversal.left, traversal.right)
        types = (self._type_of(end, self._endpoint(end)) for end in ends)
        is_family = len(traversal.edges) == 1 and self.names.is_family(traversal.edge)
        if not is_family and not any(
            node is not None and self.names.is_interface(node) for node in types
        ):
            return False
        variable = traversal.edge_variable
        if variable is not None and traversal.where is None and traversal.by is None:
            text = f"the edge ${variable.name} has an interface at its end"
            hint = "give the node a type, or leave out the edge variable"
            raise self.names.fail(variable.span, text, code="T23", hint=hint)
        return True

    def _type_of(self, variable: ast.Variable, bound: NodeVar | None) -> NodeType | None:
        """The type of an end, also where its binding comes after the walk."""
        return self.declared.get(variable.name) if bound is None else bound.node

    def _endpoint(self, variable: ast.Variable) -> NodeVar | None:
        if variable.name == ast.ANONYMOUS:
            return None
        bound = self.scope.find(variable.name)
        if isinstance(bound, EdgeVar):
            text = f"${variable.name} is an edge and cannot be an end of another"
            hint = f"use ${variable.name}.from or ${variable.name}.to"
            raise self.names.fail(variable.span, text, code="T23", hint=hint)
        return bound

    def _bind_endpoint(self, variable: ast.Variable, node: NodeType, edge: EdgeType) -> ir.Var:
        bound = self._endpoint(variable)
        if bound is not None and bound.node.name != node.name:
            text = (
                f"{edge.name} goes from {edge.source} to {edge.target}, "
                f"${variable.name} is a {bound.node.name} and must be a {node.name} here"
            )
            raise self.names.fail(variable.span, text, code="T5")
        return self._bind_node(variable, node).var

    def _bind_edge(self, variable: ast.Variable | None, edge: EdgeType) -> ir.Var | None:
        if variable is None or variable.name == ast.ANONYMOUS:
            return None
        if self.scope.find(variable.name) is not None:
            text = f"${variable.name} is bound already"
            raise self.names.fail(
                variable.span, text, code="T23", hint="an edge variable needs a name of its own"
            )
        self.scope.bind(variable.name, EdgeVar(ir.Var(variable.name), edge))
        return ir.Var(variable.name)

    # Blocks and conditions

    def _unwind(self, unwind: ast.Unwind) -> None:
        names, name = self.names, unwind.name.text
        if self.scope.outer is not None:
            text = "unwind stands in match itself, in no block inside it"
            raise names.fail(unwind.span, text, code="T7", hint="write $x in list")
        if name in names.parameters or self.scope.find(name) or self.scope.element(name):
            text = f"${name} is bound already"
            raise names.fail(unwind.name.span, text, hint="give the elements another name")
        items = expression_value(self.scope, unwind.items, self._slot)
        kind = type_of(items)
        if not kind.is_list or kind.is_blob:
            text = f"unwind needs a list, not {kind}"
            raise names.fail(unwind.items.span, text, code="T7")
        slot = names.slot(name)
        self.scope.values[name] = ir.SlotRef(slot, element(kind))
        self.unwinds.append(ir.Unwind(items, slot))

    def _optional(self, block: ast.OptionalBlock) -> None:
        inner_scope = self.scope.inner()
        pattern = self._inner(inner_scope, block.clauses, block.span, "optional", entered=True)
        self.optionals.append(pattern)
        for name, bound in inner_scope.own.items():
            if isinstance(bound, NodeVar):
                self.scope.bind(name, NodeVar(bound.var, bound.node, optional=True))
            else:
                self.scope.bind(name, EdgeVar(bound.var, bound.edge, optional=True))

    def _inner(
        self,
        scope: Scope,
        clauses: tuple[ast.Clause, ...],
        span: Span,
        word: str,
        *,
        entered: bool = False,
    ) -> TypedPattern:
        inner_scope = scope if entered else scope.inner()
        pattern = check_pattern(inner_scope, clauses)
        if not pattern.uses:
            text = f"the {word} block uses no variable from outside it"
            hint = "it would be the same for every row; mention a variable of the pattern around it"
            raise self.names.fail(span, text, code="T9", hint=hint)
        return pattern

    def _condition(self, condition: ast.Expr) -> None:
        """Conditions joined by `and` stand each on their own."""
        match condition:
            case ast.And(conditions=parts):
                for part in parts:
                    self._condition(part)
            case ast.Exists(clauses=clauses, span=span):
                inner = self._inner(self.scope, clauses, span, "exists")
                self.semi_joins.append(TypedSemiJoin(inner, anti=False))
            case ast.Not(condition=ast.Exists(clauses=clauses, span=span)):
                inner = self._inner(self.scope, clauses, span, "exists")
                self.semi_joins.append(TypedSemiJoin(inner, anti=True))
            case _:
                self.filters.append(condition_predicate(self.scope, condition, self._slot))

    def _slot(
        self, scope: Scope, clauses: tuple[ast.Clause, ...], span: Span, exists: bool
    ) -> ir.Slot:
        word = "exists" if exists else "count"
        slot = self.names.slot(word)
        pattern = self._inner(scope, clauses, span, word)
        self.matches.append(TypedMatches(pattern, slot, exists))
        return slot
