"""Type checking of walks: the edges a traversal may take, and conditions on what lies on its way.

Invariant: a walk knows the type of every node it can stop at before it starts, so each condition on
its edges and nodes is checked once a type. What is not about the way is a condition of the row.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from omnigraph.catalog.model import EdgeType, NodeType
from omnigraph.language.query import ast
from omnigraph.light_dataclass import dataclass
from omnigraph.plan import ir
from omnigraph.plan.conditions import condition_predicate, expression_value
from omnigraph.plan.expressions import conjunction, needs, type_of
from omnigraph.plan.scope import EdgeVar, Names, NodeVar, PathVar, Scope
from omnigraph.plan.typed import Anchor, TypedWalk
from omnigraph.types import Span, TableKey


@dataclass(frozen=True, slots=True)
class EdgeWay:
    """An edge type as a walk takes it: from a node of one type to one of another."""

    edge: EdgeType
    direction: ir.Direction
    source: NodeType
    target: NodeType

    @property
    def back(self) -> "EdgeWay":
        back = {
            ir.Direction.OUT: ir.Direction.IN,
            ir.Direction.IN: ir.Direction.OUT,
            ir.Direction.BOTH: ir.Direction.BOTH,
        }
        return EdgeWay(self.edge, back[self.direction], self.target, self.source)


@dataclass(frozen=True, slots=True)
class WalkEnds:
    """The ways of a walk from left to right, and the types of its ends."""

    ways: tuple[EdgeWay, ...]
    left: NodeType
    right: NodeType


def is_walk(traversal: ast.Traversal) -> bool:
    """Whether a traversal is more than a step or a plain hop range."""
    on_the_way = traversal.where is not None or traversal.by is not None
    return (
        len(traversal.edges) > 1
        or traversal.is_any
        or traversal.via is not None
        or traversal.by is not None
        or (traversal.edge_variable is not None and traversal.hops is not None and on_the_way)
    )


# ---- which edges


def ends_of(
    names: Names,
    traversal: ast.Traversal,
    ends: tuple[NodeType | None, NodeType | None],
    hops: tuple[int, int],
) -> WalkEnds:
    """The ways along several edge types, and the type of an end that has none yet."""
    left, right = ends
    if left is None and right is None:
        text = f"neither ${traversal.left.name} nor ${traversal.right.name} has a type"
        hint = f"write ${traversal.left.name}: Type before the walk"
        raise names.fail(traversal.span, text, code="T5", hint=hint)
    ways = _forwards(names, traversal, ends, hops) or tuple(
        way
        for members in _edges(names, traversal)
        for way in _ways(names, traversal, members, ends)
    )
    if left is not None:
        reached, used = _reachable(ways, names.types_of(left), hops)
        right = _end(names, traversal, traversal.right, reached, right, left, ways)
    else:
        assert right is not None
        backward = tuple(way.back for way in ways)
        reached, used_back = _reachable(backward, names.types_of(right), hops)
        left = _end(names, traversal, traversal.left, reached, None, right, backward)
        used = tuple(way.back for way in used_back)
    if not traversal.is_any:
        _require_used(names, traversal, used, (left, right))
    return WalkEnds(used, left, right)


def _edges(names: Names, traversal: ast.Traversal) -> Iterator[tuple[EdgeType, ...]]:
    """The edges of a walk, each as the edge types that it is: of a family several."""
    if traversal.is_any:
        catalog = names.catalog
        yield from ((edge,) for edge in catalog.edges.values() if edge.family is None)
        yield from catalog.families.values()
        return
    seen = set[str]()
    for name in traversal.edges:
        members = tuple(each for each in names.edges(name, "T4") if each.name not in seen)
        if members:
            yield members
        seen.update(each.name for each in members)


def _forwards(
    names: Names,
    traversal: ast.Traversal,
    ends: tuple[NodeType | None, NodeType | None],
    hops: tuple[int, int],
) -> tuple[EdgeWay, ...] | None:
    """Every edge of a hop range forwards, if such walks between the ends can take each of them:
    `hasRelease|dependsOn{1,4}` goes from package to release to package."""
    if traversal.undirected or traversal.is_any or hops[1] < 2:
        return None
    nodes = names.catalog.nodes
    edges = [edge for members in _edges(names, traversal) for edge in members]
    ways = tuple(EdgeWay(e, ir.Direction.OUT, nodes[e.source], nodes[e.target]) for e in edges)
    left, right = ends
    near, far = (left, right) if left is not None else (right, None)
    assert near is not None
    seen = ways if left is not None else tuple(way.back for way in ways)
    reached, used = _reachable(seen, names.types_of(near), hops)
    is_reached = far is None or any(each.name in reached for each in names.types_of(far))
    return ways if is_reached and len(used) == len(ways) else None


def _ways(
    names: Names,
    traversal: ast.Traversal,
    members: tuple[EdgeType, ...],
    ends: tuple[NodeType | None, NodeType | None],
) -> Iterator[EdgeWay]:
    """Both ways, or the one that the types of the ends demand; forwards if they demand none."""
    nodes = names.catalog.nodes
    is_forward = _goes_forward(names, members, *ends)
    for edge in members:
        forward = EdgeWay(edge, ir.Direction.OUT, nodes[edge.source], nodes[edge.target])
        if traversal.undirected and edge.source == edge.target:
            yield EdgeWay(edge, ir.Direction.BOTH, forward.source, forward.target)
        elif traversal.undirected:
            yield from (forward, forward.back)
        else:
            yield forward if is_forward else forward.back


def _goes_forward(
    names: Names, members: tuple[EdgeType, ...], left: NodeType | None, right: NodeType | None
) -> bool:
    """Whether a walk takes an edge forwards: unless only its end fits the left or the right."""
    sources, targets = {edge.source for edge in members}, {edge.target for edge in members}
    for bound, near, far in ((left, sources, targets), (right, targets, sources)):
        types = set[str]() if bound is None else {each.name for each in names.types_of(bound)}
        if types & (near | far):
            return bool(types & near)
    return True


def along_member(
    names: Names, traversal: ast.Traversal, left: NodeType | None, right: NodeType | None
) -> ast.Traversal:
    """A single step along a family between two node types: along the member between them."""
    name = traversal.edge
    if traversal.others or traversal.hops is not None or not names.is_family(name):
        return traversal
    left, right = family_ends(names, traversal, left, right, walks=False)
    if traversal.undirected and left.name != right.name:
        return traversal
    members = {(edge.source, edge.target): edge for edge in names.edges(name, "T4")}
    member = members.get((left.name, right.name))
    if member is None and (member := members.get((right.name, left.name))):
        # A step backwards is one forwards from its other end.
        traversal = replace(traversal, left=traversal.right, right=traversal.left)
    if member is None:
        return traversal
    return replace(traversal, edge=ast.Name(member.name, span=name.span))


def family_ends(
    names: Names,
    traversal: ast.Traversal,
    left: NodeType | None,
    right: NodeType | None,
    *,
    walks: bool,
) -> tuple[NodeType, NodeType]:
    """The types of the ends of a walk along a family; without a binding the declared ones."""
    edge = names.edge(traversal.edge, "T4")
    require_traversable(names, traversal, edge, walks=walks)
    near, far = edge.source, edge.target
    if not _goes_forward(names, names.edges(traversal.edge, "T4"), left, right):
        near, far = far, near
    return left or names.end_type(near), right or names.end_type(far)


def _reachable(
    ways: tuple[EdgeWay, ...], starts: tuple[NodeType, ...], hops: tuple[int, int]
) -> tuple[dict[str, NodeType], tuple[EdgeWay, ...]]:
    """The types that a walk can end at, and the ways it can take."""
    low, high = hops
    types = {way.source.name for way in ways}
    reached, used = dict[str, NodeType](), dict[EdgeWay, None]()
    current = {start.name for start in starts}
    for hop in range(1, min(high, low + (len(types) + 1) ** 2) + 1):
        taken = [way for way in ways if way.source.name in current]
        used.update(dict.fromkeys(taken))
        current = {way.target.name for way in taken}
        if hop >= low:
            reached.update({way.target.name: way.target for way in taken})
    return reached, tuple(way for way in ways if way in used)


def _end(
    names: Names,
    traversal: ast.Traversal,
    variable: ast.Variable,
    reached: dict[str, NodeType],
    bound: NodeType | None,
    start: NodeType,
    ways: tuple[EdgeWay, ...],
) -> NodeType:
    """The type at the other end of a walk."""
    if bound is not None and any(each.name in reached for each in names.types_of(bound)):
        return bound
    if bound is None and len(reached) == 1:
        return next(iter(reached.values()))
    if bound is None and reached:
        listed = " or ".join(f"a {name}" for name in sorted(reached))
        hint = _whole_binding(names, variable.name, reached)
        raise names.fail(variable.span, f"${variable.name} can be {listed}", code="T5", hint=hint)
    goal = "anything" if bound is None else f"a {bound.name}"
    text = f"no walk along these edges leads from a {start.name} to {goal}"
    taken = ", ".join(f"{w.edge.name} from {w.source.name} to {w.target.name}" for w in ways)
    hint = f"an edge goes one way in the whole walk, here {taken}; take the others in a step each"
    raise names.fail(traversal.span, text, code="T5", hint="" if traversal.is_any else hint)


def _whole_binding(names: Names, variable: str, reached: Collection[str]) -> str:
    """The binding that keeps every type that a walk reaches, and what a narrower one loses."""
    first, *others = sorted(reached)
    left_out = f"${variable}: {first} leaves out {_listed(others)}"
    implementing = {
        name: {node.name for node in names.catalog.nodes.values() if name in node.implements}
        for name in names.catalog.interfaces
    }
    whole = [name for name, nodes in implementing.items() if nodes.issuperset(reached)]
    if whole:
        nearest = min(whole, key=lambda name: (len(implementing[name]), name))
        return f"write ${variable}: {nearest} for all of them; {left_out}"
    return (
        f"declare an interface that {_listed([first, *others])} implement and write "
        f"${variable}: with its name, or join a query for each by union; {left_out}"
    )


def _listed(texts: Sequence[str]) -> str:
    *some, last = texts
    return f"{', '.join(some)} and {last}" if some else last


def _require_used(
    names: Names,
    traversal: ast.Traversal,
    used: tuple[EdgeWay, ...],
    ends: tuple[NodeType, NodeType],
) -> None:
    """T5 for an edge among alternatives that no walk between the two ends can take."""
    known = {way.edge.name for way in used}
    for name in traversal.edges:
        edge = names.edge(name, "T4")
        if known.isdisjoint(each.name for each in names.edges(name, "T4")):
            text = (
                f"{edge.name} goes from {edge.source} to {edge.target} and is never reached "
                f"from a {ends[0].name}"
            )
            raise names.fail(name.span, text, code="T5", hint="leave it out")


def hops_of(names: Names, traversal: ast.Traversal) -> tuple[int, int]:
    hops = traversal.hops
    if hops is None:
        return 1, 1
    fault = ""
    high = ir.HOPS_ENDLESS if hops.high is None else min(hops.high, ir.HOPS_ENDLESS)
    if hops.low < 1:
        fault = "hop bounds start at 1"
    elif high < hops.low:
        fault = "the maximum of hop bounds is less than the minimum"
    if fault:
        hint = f"write {traversal.edge}{{1,3}}"
        raise names.fail(hops.span, fault, code="T15", hint=hint)
    return hops.low, high


def require_traversable(
    names: Names, traversal: ast.Traversal, edge: EdgeType, *, walks: bool
) -> None:
    if traversal.undirected and edge.source != edge.target:
        text = f"{edge.name} goes from {edge.source} to {edge.target}"
        hint = f"write {traversal.edge} without < >: its direction follows from the types"
        raise names.fail(traversal.span, text, code="T22", hint=hint)
    if traversal.edge_variable is not None and traversal.hops is not None and not walks:
        text = "an edge variable takes exactly one hop"
        name = traversal.edge_variable.name
        hint = "leave out the hop bounds or the edge variable, or put a condition on each edge "
        hint += f"after the walk, where ${name}.property > 1"
        raise names.fail(traversal.hops.span, text, code="T23", hint=hint)


def direction_of(
    names: Names,
    traversal: ast.Traversal,
    edge: EdgeType,
    left: NodeVar | None,
    right: NodeVar | None,
) -> tuple[ir.Direction, Anchor]:
    """From what is bound: the left end decides, else the right one, else forward."""
    both_ways = ir.Direction.BOTH if traversal.undirected else None
    if left is not None:
        bound, variable, anchor, declared = left, traversal.left, Anchor.LEFT, edge.source
    elif right is not None:
        bound, variable, anchor, declared = right, traversal.right, Anchor.RIGHT, edge.target
    else:
        return both_ways or ir.Direction.OUT, Anchor.LEFT
    name = bound.node.name
    if name not in (edge.source, edge.target):
        text = f"{edge.name} goes from {edge.source} to {edge.target}, ${variable.name} is a {name}"
        raise names.fail(variable.span, text, code="T5")
    directed = ir.Direction.OUT if name == declared else ir.Direction.IN
    return both_ways or directed, anchor


def bind_path(scope: Scope, path: ast.Path | None) -> tuple[PathVar | None, ir.PathMode]:
    """The variable of a path, bound in this block."""
    if path is None:
        return None, ir.PathMode.ONE
    names, name = scope.names, path.variable.name
    if scope.outer is not None:
        text = "a path has its name in match itself, in no block inside it"
        raise names.fail(path.span, text, code="T7", hint="leave out the name of the path")
    if name in names.parameters or scope.find(name) or scope.element(name) or scope.path(name):
        hint = "give the path another name"
        raise names.fail(path.variable.span, f"${name} is bound already", hint=hint)
    _require_path(names, path)
    several = path.kind is ast.PathKind.ALL_SHORTEST
    number = names.slot("path") if several else None
    bound = PathVar(names, path.traversal.by is not None, ir.PathSlots(number=number))
    scope.paths[name] = bound
    return bound, ir.PathMode.ALL if several else ir.PathMode.ONE


def _require_path(names: Names, path: ast.Path) -> None:
    by, hops = path.traversal.by, path.traversal.hops
    if by is None:
        return
    if path.kind is not ast.PathKind.SHORTEST:
        text = f"weights choose one path, {path.kind} takes none"
        raise names.fail(by.span, text, code="T15", hint="write shortest")
    if hops is not None and hops.low > 1:
        text = "a walk with weights starts at one hop"
        raise names.fail(hops.span, text, code="T15", hint="write {1,6} or *")


# ---- what lies on the way


@dataclass(frozen=True, slots=True)
class Conditions:
    """The parts of `where` that are about the edges and nodes on the way, and the others."""

    of_way: tuple[ast.Expr, ...]
    of_row: tuple[ast.Expr, ...]


def conditions_of(traversal: ast.Traversal, *, is_walk: bool) -> Conditions:
    """The conjuncts of a traversal's condition."""
    where = traversal.where
    parts = where.conditions if isinstance(where, ast.And) else () if where is None else (where,)
    local = set[str]()
    if is_walk:
        names = (traversal.edge_variable, traversal.via)
        local = {each.name for each in names if each is not None}
    of_way = tuple(part for part in parts if not local.isdisjoint(_variables(part)))
    return Conditions(of_way, tuple(part for part in parts if part not in of_way))


def typed_walk(
    scope: Scope,
    traversal: ast.Traversal,
    ways: Iterable[EdgeWay],
    of_way: tuple[ast.Expr, ...],
    path: PathVar | None,
    mode: ir.PathMode,
) -> TypedWalk:
    """A walk along ways that lead away from its anchor."""
    edge_var = _local(scope, traversal.edge_variable)
    via_var = _local(scope, traversal.via)
    names = {v.name for v in (traversal.edge_variable, traversal.via) if v is not None}
    of_edges = [part for part in of_way if not _mentions(part, traversal.via)]
    of_nodes = [part for part in of_way if _mentions(part, traversal.via)]
    for part in of_nodes:
        if _mentions(part, traversal.edge_variable):
            raise _mixed(scope, part, names)
    legs = tuple(_leg(scope, traversal, way, edge_var, of_edges) for way in ways)
    via = tuple(_via(scope, traversal, legs, via_var, of_nodes)) if of_nodes else ()
    return TypedWalk(legs, edge_var, via_var, via, mode, path)


def _local(scope: Scope, variable: ast.Variable | None) -> ir.Var | None:
    if variable is None or variable.name == ast.ANONYMOUS:
        return None
    names, name = scope.names, variable.name
    if scope.find(name) or scope.element(name) or scope.path(name) or name in names.parameters:
        hint = "what is on the way needs a name of its own"
        raise names.fail(variable.span, f"${name} is bound already", code="T23", hint=hint)
    names.on_the_way.add(name)
    return ir.Var(name)


def _leg(
    scope: Scope,
    traversal: ast.Traversal,
    way: EdgeWay,
    edge_var: ir.Var | None,
    conditions: list[ast.Expr],
) -> ir.Leg:
    inner = scope.inner()
    if edge_var is not None:
        inner.bind(edge_var, EdgeVar(edge_var, way.edge))
    where = _condition(inner, conditions, edge_var)
    weight = None if traversal.by is None else _weight(inner, traversal.by, edge_var)
    return ir.Leg(way.edge.table, way.direction, way.source.table, way.target.table, where, weight)


def _via(
    scope: Scope,
    traversal: ast.Traversal,
    legs: tuple[ir.Leg, ...],
    via_var: ir.Var | None,
    conditions: list[ast.Expr],
) -> Iterator[tuple[TableKey, ir.Expr]]:
    """The condition on the nodes of each type that a walk can pass."""
    assert via_var is not None
    passed = {leg.target for leg in legs} & {leg.source for leg in legs}
    for node in scope.names.catalog.nodes.values():
        if node.table in passed:
            inner = scope.inner()
            inner.bind(via_var, NodeVar(via_var, node))
            where = _condition(inner, conditions, via_var)
            assert where is not None
            yield node.table, where


def _condition(scope: Scope, parts: list[ast.Expr], own: ir.Var | None) -> ir.Expr | None:
    typed = list[ir.Expr]()
    for part in parts:
        typed.append(condition_predicate(scope, part, _no_block))
        if needs(typed[-1]) - {own}:
            raise _mixed(scope, part, {own} if own else set())
    return conjunction(typed)


def _weight(scope: Scope, by: ast.Expr, own: ir.Var | None) -> ir.Expr:
    weight = expression_value(scope, by, _no_block)
    if not type_of(weight).is_numeric:
        text = f"a weight is a number, this is {type_of(weight)}"
        raise scope.names.fail(by.span, text, code="T7")
    if needs(weight) != {own}:
        text = "a weight is made of the edge on the way"
        hint = "give the edge a name: $a $k:edge* $b by $k.property"
        raise scope.names.fail(by.span, text, code="T7", hint=hint)
    return weight


def _mixed(scope: Scope, part: ast.Expr, own: Iterable[str]) -> Exception:
    listed = " or ".join(f"${name}" for name in sorted(own))
    text = f"a condition on the way of a walk reads one of its edges or nodes alone ({listed})"
    hint = "write a condition of its own for each, joined by and"
    return scope.names.fail(part.span, text, code="T23", hint=hint)


def _no_block(scope: Scope, _clauses: tuple[ast.Clause, ...], span: Span, _exists: bool) -> ir.Slot:
    text = "a condition on the way of a walk takes no pattern"
    raise scope.names.fail(span, text, code="T23", hint="compare properties")


def _mentions(part: ast.Expr, variable: ast.Variable | None) -> bool:
    return variable is not None and variable.name in _variables(part)


def _variables(part: Any) -> set[str]:
    """The names of the variables that an expression mentions."""
    if isinstance(part, ast.Variable):
        return {part.name}
    if isinstance(part, tuple):
        return set[str]().union(*map(_variables, part))
    if not is_dataclass(part):
        return set()
    return set[str]().union(*(_variables(getattr(part, f.name)) for f in fields(part)))
