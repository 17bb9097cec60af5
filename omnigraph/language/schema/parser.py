"""Parser of `.pg` files: text to syntax tree.

Invariant: `parse_schema` returns a tree or raises `ParseError`. The builder runs while the parser
reduces and never walks a tree, so deep text costs no stack.
"""

from dataclasses import dataclass, field
from typing import Any

from omnigraph.language.reader import Fault, GrammarReader, token_span
from omnigraph.language.schema import items
from omnigraph.language.schema.ast import (
    Annotation,
    Cardinality,
    Constraint,
    Declaration,
    DefaultExpr,
    Edge,
    Interface,
    Name,
    Node,
    Property,
    Schema,
    TypeExpr,
)
from omnigraph.language.schema.items import AtItem, Interval, Keyword, Positional, Word
from omnigraph.language.schema.slips import syntax_hint, type_hint
from omnigraph.language.token import Token
from omnigraph.types import VECTOR_DIMENSION_MAX, Scalar, Span, ValueType

Children = list[Any]

_BASE_NAMES = tuple(str(scalar) for scalar in Scalar if scalar is not Scalar.VECTOR)
_TYPES_HINT = f"expected one of {', '.join(_BASE_NAMES)}, Vector(n), enum(a, b) or a list [T]"


def parse_schema(text: str) -> Schema:
    """The tree of a `.pg` text, or `ParseError`."""
    return _READER.read(text)


@dataclass(frozen=True, slots=True)
class _PropertyHead:
    """`name: type`, before its annotations are known."""

    name: Name
    type: TypeExpr
    default: DefaultExpr | None = None


@dataclass(frozen=True, slots=True)
class _DeclarationBody:
    """The members of a declaration, sorted by what they are."""

    properties: tuple[Property, ...]
    constraints: tuple[Constraint, ...]
    span: Span


@dataclass(slots=True)
class _Members:
    """Attaches each annotation to the property before it."""

    properties: list[Property] = field(default_factory=list)
    constraints: list[Constraint] = field(default_factory=list)
    head: _PropertyHead | None = None
    annotations: list[Annotation] = field(default_factory=list)
    comma_allowed: bool = False

    def add_head(self, head: _PropertyHead) -> None:
        self.finish()
        self.head, self.comma_allowed = head, True

    def add_item(self, item: AtItem) -> None:
        if item.name == items.CARD:
            raise _misplaced_card(item, "in a body")
        if item.is_constraint:
            self.finish()
            self.constraints.append(items.constraint(item))
            self.comma_allowed = True
        elif self.head is None:
            raise Fault(
                item.span,
                f"@{item.name} follows no property",
                code="misplaced",
                hint=_after_property(item),
            )
        else:
            self.annotations.append(items.annotation(item))

    def add_comma(self, comma: Token) -> None:
        if not self.comma_allowed:
            raise Fault(
                token_span(comma),
                "unexpected ','; expected a property, a constraint or '}'",
                hint="one comma may follow each property or constraint",
            )
        self.finish()
        self.comma_allowed = False

    def finish(self) -> None:
        """Close the open property, if there is one."""
        if self.head is None:
            return
        name, type_expr, default = self.head.name, self.head.type, self.head.default
        end = type_expr.span if default is None else default.span
        if self.annotations:
            end = self.annotations[-1].span
        self.properties.append(
            Property(name, type_expr, tuple(self.annotations), name.span.to(end), default)
        )
        self.head = None
        self.annotations.clear()


def _after_property(item: AtItem) -> str:
    if item.name in items.COLUMN_NAMES:
        return f"write @{item.name}(property), or @{item.name} right after a property's type"
    return "write an annotation right after the type of its property"


def _misplaced_card(item: AtItem, where: str) -> Fault:
    return Fault(
        item.span,
        f"@card is not supported {where}",
        code="misplaced",
        hint="write it right after the edge's target type: edge Name: A -> B @card(0..1)",
    )


class _SchemaBuilder:
    """One method a grammar rule, called as the parser reduces it."""

    def schema(self, children: Children) -> Schema:
        declarations: tuple[Declaration, ...] = tuple(children)
        end = declarations[-1].span.end if declarations else 0
        return Schema(declarations, Span(0, end))

    # Declarations

    def interface(self, children: Children) -> Interface:
        keyword, name, *at_items, body = children
        if at_items:
            raise Fault(
                at_items[0].span,
                f"@{at_items[0].name} is not supported on interfaces",
                code="misplaced",
                hint="annotate its properties, or the nodes that implement it",
            )
        if body.constraints:
            raise Fault(
                body.constraints[0].span,
                "a constraint with arguments is not supported on interfaces",
                code="misplaced",
                hint="write @key, @unique or @index after a property, or constrain the nodes",
            )
        return Interface(_name(name), body.properties, token_span(keyword).to(body.span))

    def node(self, children: Children) -> Node:
        keyword, name, *at_items, implements, body = children
        for item in at_items:
            if item.name == items.CARD:
                raise _misplaced_card(item, "on nodes")
        return Node(
            _name(name),
            tuple(_type_annotation(item, "node") for item in at_items),
            implements or (),
            body.properties,
            body.constraints,
            token_span(keyword).to(body.span),
        )

    def edge(self, children: Children) -> Edge:
        keyword, name, source, target, *at_items, body = children
        ends = [token_span(target), *(item.span for item in at_items)]
        cardinality = _leading_cardinality(at_items)
        rest = at_items[1:] if cardinality else at_items
        keys = [item for item in rest if item.name == items.KEY and item.is_constraint]
        if len(keys) > 1:
            text = f"edge type {name} has multiple @key constraints; only one is supported"
            raise Fault(keys[1].span, text, code="multiple-keys")
        annotations = [item for item in rest if item not in keys]
        return Edge(
            _name(name),
            _name(source),
            _name(target),
            cardinality,
            tuple(_type_annotation(item, "edge") for item in annotations),
            body.properties if body else (),
            body.constraints if body else (),
            token_span(keyword).to(body.span if body else ends[-1]),
            items.column_constraint(keys[0]) if keys else None,
        )

    def implements(self, children: Children) -> tuple[Name, ...]:
        return tuple(_name(token) for token in children[1:])

    # Bodies

    def body(self, children: Children) -> _DeclarationBody:
        *parts, close = children
        members = _Members()
        for part in parts:
            match part:
                case _PropertyHead():
                    members.add_head(part)
                case AtItem():
                    members.add_item(part)
                case _:
                    members.add_comma(part)
        members.finish()
        return _DeclarationBody(
            tuple(members.properties), tuple(members.constraints), token_span(close)
        )

    def head(self, children: Children) -> _PropertyHead:
        name, type_expr, default = children
        return _PropertyHead(_name(name), type_expr, default)

    def single_default(self, children: Children) -> DefaultExpr:
        return DefaultExpr(items.default_literal(children[0]), token_span(children[0]))

    def word_default(self, children: Children) -> DefaultExpr:
        return DefaultExpr(str(children[0]), token_span(children[0]), is_word=True)

    def list_default(self, children: Children) -> DefaultExpr:
        open_, *values, shut = children
        literals = tuple(items.default_literal(token) for token in values if token is not None)
        return DefaultExpr(literals, token_span(open_).to(token_span(shut)))

    # Types

    def type(self, children: Children) -> TypeExpr:
        core, optional = children
        if optional is None:
            return core  # type: ignore[no-any-return]
        value: ValueType = core.value
        nullable = ValueType(value.scalar, True, value.is_list, value.enum_values, value.dimension)
        return TypeExpr(nullable, core.span.to(token_span(optional)))

    def named(self, children: Children) -> TypeExpr:
        name, dimension = children
        span = token_span(name)
        if name == Scalar.VECTOR:
            return _vector(span, dimension)
        if name not in _BASE_NAMES:
            hint = type_hint(str(name)) or _TYPES_HINT
            raise Fault(span, f"unknown type '{name}'", code="bad-type", hint=hint)
        if dimension is not None:
            hint = f'write {name}; a bound on a text is @check(name, "^.{{0,20}}$")'
            raise Fault(dimension[1], f"{name} takes no dimension", code="bad-type", hint=hint)
        return TypeExpr(ValueType(Scalar(str(name))), span)

    def dimension(self, children: Children) -> tuple[Token, Span]:
        number, end = children
        return number, token_span(number).to(token_span(end))

    def enum(self, children: Children) -> TypeExpr:
        keyword, *values, end = children
        seen: set[str] = set()
        for value in values:
            if value in seen:
                raise Fault(
                    token_span(value),
                    "enum type cannot include duplicate values",
                    code="bad-enum",
                    hint=f"remove one '{value}'",
                )
            seen.add(str(value))
        value_type = ValueType(Scalar.STRING, enum_values=tuple(sorted(seen)))
        return TypeExpr(value_type, token_span(keyword).to(token_span(end)))

    def list(self, children: Children) -> TypeExpr:
        open_, element, shut = children
        span = token_span(open_).to(token_span(shut))
        value: ValueType = element.value
        plain = value == ValueType(value.scalar) and value.scalar not in _NOT_IN_LISTS
        if not plain:
            raise Fault(
                element.span,
                f"a list cannot hold {value}",
                code="bad-type",
                hint="lists hold a base type other than Blob, never null: [String], [I64], …",
            )
        return TypeExpr(ValueType(value.scalar, is_list=True), span)

    # @name(…)

    def at_item(self, children: Children) -> AtItem:
        sign, name, arguments = children
        start = token_span(sign)
        if arguments is None:
            return AtItem(str(name), None, start.to(token_span(name)))
        *values, end = arguments
        return AtItem(str(name), tuple(values), start.to(token_span(end)))

    def arguments(self, children: Children) -> Children:
        return children

    def positional(self, children: Children) -> Positional:
        return Positional(children[0])

    def word(self, children: Children) -> Word:
        return Word(children[0])

    def type_word(self, children: Children) -> Word:
        raise Fault(
            token_span(children[0]),
            f"'{children[0]}' is neither a property nor a value here",
            hint=f'write it as a string: "{children[0]}"',
        )

    def keyword(self, children: Children) -> Keyword:
        return Keyword(children[0], children[1])

    def from_low(self, children: Children) -> Interval:
        low, to = children
        return Interval(low, None, token_span(low).to(token_span(to)))

    def between(self, children: Children) -> Interval:
        low, _, high = children
        return Interval(low, high, token_span(low).to(token_span(high)))

    def up_to(self, children: Children) -> Interval:
        to, high = children
        return Interval(None, high, token_span(to).to(token_span(high)))


_NOT_IN_LISTS = frozenset({Scalar.BLOB, Scalar.VECTOR})


def _name(token: Token) -> Name:
    return Name(str(token), token_span(token))


def _type_annotation(item: AtItem, kind: str) -> Annotation:
    if item.name == items.CARD:
        raise _misplaced_card(item, "after another annotation")
    if item.name in items.CONSTRAINT_NAMES:
        raise Fault(
            item.span,
            f"@{item.name} is not supported on {kind} types",
            code="misplaced",
            hint="constraints stand inside the braces",
        )
    return items.annotation(item)


def _leading_cardinality(at_items: list[AtItem]) -> Cardinality | None:
    if at_items and at_items[0].name == items.CARD:
        return items.cardinality(at_items[0])
    return None


def _vector(span: Span, dimension: tuple[Token, Span] | None) -> TypeExpr:
    if dimension is None:
        raise Fault(
            span, "Vector dimension is missing", code="bad-vector", hint="write Vector(768)"
        )
    number, end = dimension
    size = items.unsigned(
        number, high=VECTOR_DIMENSION_MAX, code="bad-vector", what="Vector dimension"
    )
    if size == 0:
        raise Fault(token_span(number), "Vector dimension must be at least 1", code="bad-vector")
    return TypeExpr(ValueType(Scalar.VECTOR, dimension=size), span.to(end))


# Keywords are left out: an error names them as they are written, or not at all where any name fits.
_READER: GrammarReader[Schema] = GrammarReader(
    package="omnigraph.language.schema",
    start="schema",
    builder=_SchemaBuilder,
    terminals={
        "TYPE": "a type name (it starts with an upper-case letter)",
        "IDENT": "a name (it starts with a lower-case letter or '_')",
        "ENUM_VALUE": "a bare enum value",
        "NUMBER": "a number",
        "STRING": "a string",
        "COMMA": "','",
        "CLOSE": "'}'",
        "OPEN": "'['",
        "SHUT": "']'",
        "END": "')'",
        "OPTIONAL": "'?'",
        "AT": "'@'",
        "TO": "'..'",
        "STAR": "'*'",
        "LBRACE": "'{'",
        "LPAR": "'('",
        "COLON": "':'",
        "EQUAL": "'='",
        "__ANON_0": "'->'",
        "$END": "the end of the text",
    },
    hint=syntax_hint,
)
