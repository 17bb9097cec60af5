"""Syntax tree (AST) of a `.gq` file, every part with its position in the text.

Invariant: two texts that differ only in layout, comments and optional commas give equal trees, so
positions take no part in comparison. Nothing here knows a schema.
"""

from dataclasses import field
from enum import StrEnum

from omnigraph.light_dataclass import dataclass
from omnigraph.types import Scalar, Span, ValueType


@dataclass(frozen=True, slots=True)
class Node:
    """Anything with a place in the text."""

    span: Span = field(default=Span(0, 0), compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Name(Node):
    """A word of the text, without any sigil."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Variable(Node):
    """`$name`: a parameter or a bound variable; the checker tells which."""

    name: str


ANONYMOUS = "_"

ConstantValue = bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class Literal(Node):
    """A constant. Dates are epoch days, DateTimes epoch milliseconds; `scalar` None is `null`."""

    value: ConstantValue
    scalar: Scalar | None


@dataclass(frozen=True, slots=True)
class ListLiteral(Node):
    """`[a, b]`: constants of one type."""

    items: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class Now(Node):
    """`now()`: the moment of the request."""


@dataclass(frozen=True, slots=True)
class PropertyRef(Node):
    """`$variable.property`."""

    variable: Variable
    property: Name


@dataclass(frozen=True, slots=True)
class EveryProperty(Node):
    """`$variable.*`: a column for each property that can be returned."""

    variable: Variable


@dataclass(frozen=True, slots=True)
class OwnProperty(Node):
    """A property of the entity that a mutation selects, by its bare name."""

    property: Name


@dataclass(frozen=True, slots=True)
class Alias(Node):
    """A bare word: a name given by `as`."""

    name: str


# Calls


class TextFunction(StrEnum):
    """Text conditions."""

    SEARCH = "search"
    FUZZY = "fuzzy"
    MATCH_TEXT = "match_text"


@dataclass(frozen=True, slots=True)
class TextCall(Node):
    """`search(field, query)`, `match_text(field, query)` or `fuzzy(field, query[, edits])`."""

    function: TextFunction
    subject: "Expr"
    query: "Expr"
    edits: "Expr | None" = None


@dataclass(frozen=True, slots=True)
class Nearest(Node):
    """`nearest($variable.property, query, metric)`."""

    subject: PropertyRef
    query: "Expr"
    metric: "Expr | None" = None


@dataclass(frozen=True, slots=True)
class Bm25(Node):
    """`bm25(field, query)`."""

    subject: "Expr"
    query: "Expr"


@dataclass(frozen=True, slots=True)
class Rrf(Node):
    """`rrf(first, second[, k])`."""

    first: Nearest | Bm25
    second: Nearest | Bm25
    k: "Expr | None" = None


class ArithmeticOperator(StrEnum):
    """Operators between two values."""

    ADD = "+"
    SUBTRACT = "-"
    MULTIPLY = "*"
    DIVIDE = "/"
    REMAINDER = "%"


@dataclass(frozen=True, slots=True)
class Arithmetic(Node):
    """`left op right`: arithmetic, joined texts, moments and durations."""

    operator: ArithmeticOperator
    left: "Expr"
    right: "Expr"


@dataclass(frozen=True, slots=True)
class Negative(Node):
    """`-operand`, of anything but a number, whose sign belongs to it."""

    operand: "Expr"


@dataclass(frozen=True, slots=True)
class Duration(Node):
    """`30d`, `2h`: a time span in milliseconds."""

    milliseconds: int


@dataclass(frozen=True, slots=True)
class Call(Node):
    """`function(arguments)`; a cast is a call by the name of its type."""

    function: Name
    arguments: "tuple[Expr, ...]"


@dataclass(frozen=True, slots=True)
class When(Node):
    """`when condition then value`."""

    condition: "Expr"
    value: "Expr"


@dataclass(frozen=True, slots=True)
class Case(Node):
    """`case when … then … else … end`: the value of the first condition that is true."""

    branches: tuple[When, ...]
    otherwise: "Expr | None" = None


class AggregateFunction(StrEnum):
    """Functions over the rows of a group."""

    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"
    ANY = "any"
    ALL = "all"
    COLLECT = "collect"
    MEDIAN = "median"
    PERCENTILE = "percentile"
    STDDEV = "stddev"


@dataclass(frozen=True, slots=True)
class Aggregate(Node):
    """`count(x)`, `count(distinct x)`, `sum(x)` …; without an argument `count(*)`."""

    function: AggregateFunction
    argument: "Expr | None"
    distinct: bool = False
    fraction: "Expr | None" = None  # of percentile


@dataclass(frozen=True, slots=True)
class CountBlock(Node):
    """`count { … }`: how many solutions an inner pattern has for a row."""

    clauses: "tuple[Clause, ...]"


Rank = Nearest | Bm25 | Rrf


# Conditions


class Comparator(StrEnum):
    """How two values are compared."""

    EQ = "="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    CONTAINS = "contains"
    STARTS_WITH = "starts_with"
    ENDS_WITH = "ends_with"
    MATCHES = "matches"


@dataclass(frozen=True, slots=True)
class Comparison(Node):
    """`left op right`."""

    left: "Expr"
    comparator: Comparator
    right: "Expr"


@dataclass(frozen=True, slots=True)
class IsNull(Node):
    """`x is null`, or with `negated` `x is not null`."""

    subject: "Expr"
    negated: bool


@dataclass(frozen=True, slots=True)
class Membership(Node):
    """`x in collection`."""

    subject: "Expr"
    collection: "Expr"


@dataclass(frozen=True, slots=True)
class TextCondition(Node):
    """A text call that stands alone."""

    call: TextCall


@dataclass(frozen=True, slots=True)
class Exists(Node):
    """`exists { … }`."""

    clauses: "tuple[Clause, ...]"


@dataclass(frozen=True, slots=True)
class Not(Node):
    """`not (…)`."""

    condition: "Expr"


@dataclass(frozen=True, slots=True)
class And(Node):
    """Conditions that must all hold."""

    conditions: "tuple[Expr, ...]"


@dataclass(frozen=True, slots=True)
class Or(Node):
    """Conditions of which one must hold."""

    conditions: "tuple[Expr, ...]"


Condition = Comparison | IsNull | Membership | TextCondition | Exists | Not | And | Or
Constant = Literal | ListLiteral | Now
Operation = Arithmetic | Negative | Duration | Call | Case
Reference = Variable | PropertyRef | EveryProperty | OwnProperty | Alias
Expr = Constant | Reference | Operation | TextCall | Rank | Aggregate | CountBlock | Condition
"""Every expression. One of type Bool is a condition."""


@dataclass(frozen=True, slots=True)
class PropertyMatch(Node):
    """`name: value` in a binding."""

    property: Name
    value: Expr


@dataclass(frozen=True, slots=True)
class Binding(Node):
    """`$variable: Type { name: value, … }`."""

    variable: Variable
    type_name: Name
    properties: tuple[PropertyMatch, ...] = ()


@dataclass(frozen=True, slots=True)
class Hops(Node):
    """`{low,high}`; `{2}` is `{2,2}`, `{2,}` has no end, and `*` is `{1,}`."""

    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Traversal(Node):
    """`$left edge|other{hops} $right via $node by weight where condition`.

    An edge called `_` is any edge. In `where`, the edge variable of a walk is each of its edges and
    `$node` each node between its ends.
    """

    left: Variable
    edge: Name
    right: Variable
    edge_variable: Variable | None = None
    undirected: bool = False
    hops: Hops | None = None
    others: tuple[Name, ...] = ()
    via: Variable | None = None
    by: Expr | None = None
    where: Expr | None = None

    @property
    def edges(self) -> tuple[Name, ...]:
        return (self.edge, *self.others)

    @property
    def is_any(self) -> bool:
        """Whether it goes along edges of every type."""
        return any(edge.text == ANONYMOUS for edge in self.edges)


class PathKind(StrEnum):
    """Which paths a walk gives for a destination: one, one that is shortest, or all of those."""

    WALK = "path"
    SHORTEST = "shortest"
    ALL_SHORTEST = "all shortest"


@dataclass(frozen=True, slots=True)
class Path(Node):
    """`$variable = shortest …`: a walk whose paths have a name."""

    variable: Variable
    kind: PathKind
    traversal: Traversal


@dataclass(frozen=True, slots=True)
class Negation(Node):
    """`not { … }`: keep rows for which the inner pattern has no solution."""

    clauses: "tuple[Clause, ...]"


@dataclass(frozen=True, slots=True)
class OptionalBlock(Node):
    """`optional { … }`: extend rows with the inner pattern's solutions, or with nulls."""

    clauses: "tuple[Clause, ...]"


@dataclass(frozen=True, slots=True)
class Unwind(Node):
    """`unwind list as name`: a row for each element, which `$name` is."""

    items: Expr
    name: Name


@dataclass(frozen=True, slots=True)
class Filter(Node):
    """A condition on the row."""

    condition: Expr


Clause = Binding | Traversal | Path | Negation | OptionalBlock | Unwind | Filter


# Queries


@dataclass(frozen=True, slots=True)
class ObjectField(Node):
    """`name`, a property of the object's variable; `name: value`; or, without a name, `*`."""

    name: Name | None
    value: Expr | None = None


@dataclass(frozen=True, slots=True)
class Projection(Node):
    """`expression as alias`; with fields, `$variable as alias { name, years: $p.age }`."""

    expression: Expr
    alias: Name | None = None
    object_fields: tuple[ObjectField, ...] = ()


@dataclass(frozen=True, slots=True)
class Ordering(Node):
    """`expression asc|desc`."""

    expression: Expr
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Read(Node):
    """`match … return … having … order … limit … offset`; with `with` in the place of `return`, a
    stage of a read that goes on from its rows."""

    clauses: tuple[Clause, ...]
    projections: tuple[Projection, ...]
    distinct: bool = False
    orderings: tuple[Ordering, ...] = ()
    limit: int | Variable | None = None
    offset: int | Variable | None = None
    having: Expr | None = None
    stages: "tuple[Read, ...]" = ()


@dataclass(frozen=True, slots=True)
class Union(Node):
    """`read union all read …`: the rows of one after the other. Without `all`, equal ones once."""

    reads: tuple[Read, ...]
    keeps_equal: tuple[bool, ...]  # one fewer


@dataclass(frozen=True, slots=True)
class Assignment(Node):
    """`name: value` in a mutation."""

    property: Name
    value: Expr


@dataclass(frozen=True, slots=True)
class Matched(Node):
    """`match { … }` behind a statement that writes, which is done for each row."""

    clauses: tuple[Clause, ...]
    stages: tuple[Read, ...] = ()


@dataclass(frozen=True, slots=True)
class Insert(Node):
    """`insert Type { … } match { … }`."""

    type_name: Name
    assignments: tuple[Assignment, ...]
    rows: Matched | None = None


@dataclass(frozen=True, slots=True)
class Upsert(Node):
    """`upsert Type { … } match { … }`."""

    type_name: Name
    assignments: tuple[Assignment, ...]
    rows: Matched | None = None


@dataclass(frozen=True, slots=True)
class Update(Node):
    """`update Type set { … } where …`."""

    type_name: Name
    assignments: tuple[Assignment, ...]
    where: Expr


@dataclass(frozen=True, slots=True)
class Delete(Node):
    """`delete Type where …`."""

    type_name: Name
    where: Expr


@dataclass(frozen=True, slots=True)
class UpdateMatched(Node):
    """`update $variable set { … } match { … }`."""

    variable: Variable
    assignments: tuple[Assignment, ...]
    rows: Matched


@dataclass(frozen=True, slots=True)
class DeleteMatched(Node):
    """`delete $variable match { … }`."""

    variable: Variable
    rows: Matched


Statement = Insert | Upsert | Update | Delete | UpdateMatched | DeleteMatched


@dataclass(frozen=True, slots=True)
class Mutation(Node):
    """Statements that take effect together. Inserts and updates, or deletes; never both."""

    statements: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Parameter(Node):
    """`$name: Type = default`."""

    name: str
    type: ValueType
    default: Expr | None = None


@dataclass(frozen=True, slots=True)
class Query(Node):
    """One declaration of a file."""

    name: Name
    parameters: tuple[Parameter, ...]
    body: Read | Union | Mutation
    description: str | None = None
    instruction: str | None = None

    @property
    def is_mutation(self) -> bool:
        return isinstance(self.body, Mutation)


@dataclass(frozen=True, slots=True)
class QueryFile:
    """Every query of a file, with the text they came from."""

    queries: tuple[Query, ...]
    source: str = field(default="", compare=False, repr=False)
