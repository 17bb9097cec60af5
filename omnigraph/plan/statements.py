"""Type checking of mutations: insert, update and delete statements to typed operations.

Invariant: a statement names one type, sets only properties of it, each once and with a value that
fits, and selects only by properties that can be compared.
"""

from typing import assert_never

from omnigraph.catalog.model import EdgeType, NodeType, Property, Type
from omnigraph.catalog.near_names import did_you_mean
from omnigraph.language.query import ast
from omnigraph.plan import ir, mutation_ir
from omnigraph.plan.end_types import key_type
from omnigraph.plan.expressions import type_of
from omnigraph.plan.family_writes import which_edge
from omnigraph.plan.operands import NOW, as_type, compatible, parameter_operand
from omnigraph.plan.scope import Names
from omnigraph.plan.typer import Typer
from omnigraph.types import ID_TYPE, Kind, Scalar, TableKey, ValueType, table_key

_ENDS = {"from": ir.End.SRC, "to": ir.End.DST}
_COLUMNS = {"src": "from", "dst": "to"}  # what storage and exports call the ends
_Assigning = ast.Insert | ast.Upsert | ast.Update


Plain = ast.Insert | ast.Upsert | ast.Update | ast.Delete


def check_statement(
    names: Names, statement: Plain, target: Type | None = None
) -> mutation_ir.PlainStatement:
    """The operation of one statement; `target` is its type where that is known."""
    target = target or _target(names, statement.type_name)
    match statement:
        case ast.Insert():
            _require_assignments(names, statement)
            if isinstance(target, NodeType):
                return _insert_node(names, statement, target)
            return _insert_edge(names, statement, target)
        case ast.Upsert():
            _require_assignments(names, statement)
            return _upsert(names, statement, target)
        case ast.Update():
            _require_assignments(names, statement)
            return _update(names, statement, target)
        case ast.Delete(where=where):
            predicate = _where(names, target, where)
            return mutation_ir.DeleteRows(target.table, predicate, _cascades(names, target))
        case _:
            assert_never(statement)


def _target(names: Names, name: ast.Name) -> Type:
    """The type of that name; where a node and an edge share it, the node."""
    target = names.catalog.node(name.text) or names.catalog.edge(name.text)
    if target is None and names.is_family(name):
        raise which_edge(names, name, names.edges(name, "T10"))
    if target is None:
        edges = (edge.name for edge in names.catalog.edges_declared)
        known = (*names.catalog.nodes, *edges)
        hint = did_you_mean(name.text, known)
        raise names.fail(name.span, f"unknown type '{name}'", code="T10", hint=hint)
    return target


def _require_assignments(names: Names, statement: _Assigning) -> None:
    """T10 for none, T13 for two of one property."""
    if not statement.assignments:
        text = f"no property of {statement.type_name} is assigned"
        raise names.fail(statement.span, text, code="T10", hint="write name: value")
    seen = set[str]()
    for assignment in statement.assignments:
        if assignment.property.text in seen:
            text = f"property '{assignment.property}' is assigned twice"
            raise names.fail(assignment.span, text, code="T13")
        seen.add(assignment.property.text)


def _insert_node(names: Names, statement: ast.Insert, node: NodeType) -> mutation_ir.InsertNode:
    sets = tuple(_set(names, node, assignment) for assignment in statement.assignments)
    _require_all(names, statement, node, {s.name for s in sets})
    return mutation_ir.InsertNode(node.table, sets, node.key)


def _insert_edge(names: Names, statement: ast.Insert, edge: EdgeType) -> mutation_ir.InsertEdge:
    ends, sets = _ends_and_sets(names, statement, edge)
    _require_all(names, statement, edge, {s.name for s in sets})
    return mutation_ir.InsertEdge(
        table=edge.table,
        source_table=table_key(Kind.NODE, edge.source),
        target_table=table_key(Kind.NODE, edge.target),
        source=ends["from"],
        target=ends["to"],
        sets=sets,
        key=edge.key,
    )


def _ends_and_sets(
    names: Names, statement: ast.Insert | ast.Upsert, edge: EdgeType
) -> tuple[dict[str, ir.Expr], tuple[mutation_ir.SetColumn, ...]]:
    """The ends of an edge, which both must be assigned, and its own properties."""
    ends = dict[str, ir.Expr]()
    sets = list[mutation_ir.SetColumn]()
    for assignment in statement.assignments:
        name = assignment.property.text
        if name in _ENDS:
            if isinstance(assignment.value, ast.ListLiteral):
                text = f"{edge.name}.{name} is an id, a text; a list does not fit"
                hint = (
                    f"""write "[\\"acme\\",\\"7\\"]", or {name}: $n, match {{ $n: … }} behind it"""
                )
                raise names.fail(assignment.value.span, text, code="T3", hint=hint)
            node = names.catalog.nodes[edge.source if name == "from" else edge.target]
            ends[name] = _end(names, assignment.value, node, f"{edge.name}.{name}")
        else:
            sets.append(_set(names, edge, assignment))
    for name in _ENDS:
        if name not in ends:
            text = f"{edge.name} needs the endpoint '{name}'"
            raise names.fail(statement.span, text, code="T12", hint=f"write {name}: <id>")
    return ends, tuple(sets)


def _end(names: Names, value: ast.Expr, node: NodeType, what: str) -> ir.Expr:
    """An end of an edge: the id of its node, or its key where that is one value of another type."""
    key = key_type(node)
    if key is None or _is_text(names, value):
        return _assigned(names, value, ID_TYPE, what)
    return _assigned(names, value, key, what)


def _is_text(names: Names, value: ast.Expr) -> bool:
    match value:
        case ast.Literal():
            return value.scalar in (None, Scalar.STRING)
        case ast.Variable():
            return _declared(names, value).type.scalar is Scalar.STRING
        case ast.Now():
            return False
        case _:
            return type_of(_typer(names, None).value(value)).scalar is Scalar.STRING


def _upsert(names: Names, statement: ast.Upsert, target: Type) -> mutation_ir.UpsertRow:
    """A row known by its key. Whether required properties are there, its run decides."""
    if not target.key:
        text = f"{target.name} has no @key, so upsert cannot know which one is meant"
        hint = f"declare a @key, or write insert {target.name} or update {target.name} … where"
        raise names.fail(statement.type_name.span, text, hint=hint)
    ends: dict[str, ir.Expr] = {}
    end_tables: tuple[TableKey, ...] = ()
    if isinstance(target, EdgeType):
        ends, sets = _ends_and_sets(names, statement, target)
        end_tables = tuple(table_key(Kind.NODE, n) for n in (target.source, target.target))
    else:
        sets = tuple(_set(names, target, assignment) for assignment in statement.assignments)
    assigned = {s.name for s in sets}
    for name in target.key:
        if target.property(name) is not None and name not in assigned:
            text = f"upsert of {target.name} needs its @key property '{name}'"
            raise names.fail(statement.span, text, code="T12", hint=f"write {name}: …")
    return mutation_ir.UpsertRow(
        target.table, sets, target.key, ends.get("from"), ends.get("to"), end_tables
    )


def _require_all(names: Names, statement: ast.Insert, owner: Type, assigned: set[str]) -> None:
    """T12 for required properties that are left out, all of them at once."""
    missing = [
        declared
        for declared in owner.properties
        if not (declared.type.nullable or declared.default is not None or declared.name in assigned)
        if declared.embed is None or declared.embed.source not in assigned
    ]
    if missing:
        word = "property" if len(missing) == 1 else "properties"
        needed = ", ".join(f"'{each.name}' ({each.type})" for each in missing)
        text = f"{owner.name} needs the {word} {needed}"
        hint = f"write {', '.join(f'{each.name}: …' for each in missing)}"
        raise names.fail(statement.span, text, code="T12", hint=hint)


def _update(names: Names, statement: ast.Update, target: Type) -> mutation_ir.UpdateRows:
    for assignment in statement.assignments:
        _require_updatable(names, target, assignment)
    sets = tuple(_set(names, target, assignment, target) for assignment in statement.assignments)
    return mutation_ir.UpdateRows(target.table, sets, _where(names, target, statement.where))


def _require_updatable(names: Names, target: Type, assignment: ast.Assignment) -> None:
    name = assignment.property.text
    if isinstance(target, EdgeType) and name in _ENDS:
        text = f"the endpoints of {target.name} cannot be updated"
        raise names.fail(assignment.span, text, code="T16", hint="delete the edge and insert it")
    if name in target.key:
        text = f"cannot update @key property '{name}'; delete and re-insert"
        raise names.fail(assignment.span, text)


def _set(
    names: Names, owner: Type, assignment: ast.Assignment, read: Type | None = None
) -> mutation_ir.SetColumn:
    declared = _property(names, owner, assignment.property)
    what = f"{owner.name}.{declared.name}"
    value = _assigned(names, assignment.value, declared.type, what, read)
    return mutation_ir.SetColumn(declared.name, declared.id, declared.type, value)


def _property(names: Names, owner: Type, name: ast.Name) -> Property:
    if name.text == "id" and owner.property("id") is None:
        text = f"the id of a {owner.name} cannot be assigned"
        hint = "it follows from the key" if owner.key else "it is generated"
        raise names.fail(name.span, text, code="T11", hint=hint)
    return names.property(owner, name, "T11")


def _assigned(
    names: Names, value: ast.Expr, target: ValueType, what: str, owner: Type | None = None
) -> ir.Expr:
    """The value of a property. An update (`owner`) may read the row as it was."""
    match value:
        case ast.Literal() | ast.ListLiteral():
            return as_type(names, value, target, what)
        case ast.Now():
            if target.scalar is not Scalar.DATETIME or target.is_list:
                raise names.fail(value.span, f"{what} is {target}, now() is not", code="T7")
            return NOW
        case ast.Variable():
            parameter = _declared(names, value)
            text_into_blob = parameter.type.is_text and target.is_blob and not target.is_list
            if not text_into_blob and not compatible(parameter.type, target):
                given = "this" if "." in value.name else f"${value.name}"  # `match.0`
                text = f"{what} has type {target}, {given} is {parameter.type}"
                raise names.fail(value.span, text, code="T7")
            return parameter
        case _:
            return _computed(names, value, target, what, owner)


def _computed(
    names: Names, value: ast.Expr, target: ValueType, what: str, owner: Type | None
) -> ir.Expr:
    typed = _typer(names, owner).value(value)
    kind = type_of(typed)
    if target.is_blob or not compatible(kind, target):
        text = f"{what} has type {target}, this is {kind}"
        raise names.fail(value.span, text, code="T7")
    return typed


def _declared(names: Names, variable: ast.Variable) -> ir.Param:
    parameter = parameter_operand(names, variable)
    if parameter is None:
        text = f"${variable.name} is not a declared parameter"
        hint = did_you_mean(variable.name, names.parameters)
        raise names.fail(variable.span, text, code="T14", hint=hint)
    return parameter


def _cascades(names: Names, target: Type) -> tuple[mutation_ir.Cascade, ...]:
    """The edges that cannot outlive a node."""
    if isinstance(target, EdgeType):
        return ()
    cascades = list[mutation_ir.Cascade]()
    for edge in names.catalog.edges_of(target.name):
        ends = ((ir.End.SRC, edge.source), (ir.End.DST, edge.target))
        touched = tuple(end for end, node in ends if node == target.name)
        cascades.append(mutation_ir.Cascade(edge.table, touched))
    return tuple(cascades)


# Selection


def _where(names: Names, owner: Type, condition: ast.Expr) -> ir.Expr:
    return names.with_terms(_typer(names, owner).truth(condition), condition.span)


def _typer(names: Names, owner: Type | None) -> Typer:
    """Types expressions over the entity that a statement writes; an insert has none yet."""

    def reference(expression: ast.Expr) -> ir.Expr:
        match expression:
            case ast.OwnProperty() if owner is not None:
                return _own_operand(names, owner, expression)
            case ast.OwnProperty(property=name):
                text = f"an insert has no '{name}' to read"
                hint = f"a parameter is written ${name}, a text in quotes"
                raise names.fail(expression.span, text, code="T14", hint=hint)
            case ast.Variable():
                return _declared(names, expression)
            case _:
                text = "a statement that writes reads its own properties and parameters alone"
                raise names.fail(expression.span, text, code="T14")

    return Typer(names, reference)


def _own_operand(names: Names, owner: Type, expression: ast.OwnProperty) -> ir.Expr:
    word = expression.property.text
    if word == "id":
        return ir.EntityId(ir.SELF, ID_TYPE)
    if isinstance(owner, EdgeType) and word in _ENDS:
        return ir.EndpointId(ir.SELF, _ENDS[word], ID_TYPE)
    if isinstance(owner, EdgeType) and word in _COLUMNS and owner.property(word) is None:
        text, hint = (
            f"type '{owner.name}' has no property '{word}'",
            f"did you mean '{_COLUMNS[word]}'?",
        )
        raise names.fail(expression.property.span, text, code="T11", hint=hint)
    declared = names.property(owner, expression.property, "T11")
    if declared.type.is_blob:
        text = f"{owner.name}.{declared.name} is a Blob and cannot select"
        raise names.fail(expression.span, text, code="T11")
    return ir.Column(ir.SELF, declared.name, declared.id, declared.type)
