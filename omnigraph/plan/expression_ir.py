"""Expression IR: typed constants, columns, calls and conditions of plans.

Invariant: as in `ir`, which has all of these names too: variables and types, never source text. An
operand knows its type; a condition is true, false or unknown.
"""

from enum import StrEnum
from typing import NewType

from omnigraph.light_dataclass import dataclass
from omnigraph.types import PropertyId, ValueType

Var = NewType("Var", str)
"""A row's binding: a node, or an edge of `ExpandEdges`. `_1`, `_2` … are anonymous ones."""

Slot = NewType("Slot", str)
"""A number or truth value that an operator adds to each row."""

SELF = Var("self")
"""The entity that a mutation's condition is about."""

Constant = bool | int | float | str | tuple["Constant", ...] | None
"""Dates are epoch days, DateTimes epoch milliseconds, lists and vectors tuples."""


# ---- expressions


@dataclass(frozen=True, slots=True)
class Const:
    """A constant of a known type."""

    value: Constant
    type: ValueType


@dataclass(frozen=True, slots=True)
class Param:
    """A value given with the request."""

    name: str
    type: ValueType


@dataclass(frozen=True, slots=True)
class Now:
    """The moment of the request: one value, however often it is asked."""

    type: ValueType


@dataclass(frozen=True, slots=True)
class Column:
    """A property of a bound entity. Its identity finds it in versions that had another name."""

    var: Var
    name: str
    property_id: PropertyId
    type: ValueType


@dataclass(frozen=True, slots=True)
class EntityId:
    """The id of a bound node or edge."""

    var: Var
    type: ValueType


class End(StrEnum):
    """The two ends of an edge, by the names of their columns."""

    SRC = "src"
    DST = "dst"


@dataclass(frozen=True, slots=True)
class EndpointId:
    """The id of the node at one end of a bound edge."""

    var: Var
    end: End
    type: ValueType


@dataclass(frozen=True, slots=True)
class SlotRef:
    """The value an earlier operator put into a slot, or an aggregate's result."""

    slot: Slot
    type: ValueType


@dataclass(frozen=True, slots=True)
class Call:
    """A function or an operator of `plan.functions`, by the name of its kernel.

    Null where an argument is null, unless the table says otherwise. A value that the function does
    not have (an overflow, a division by zero) fails the query, and the error names the row.
    """

    function: str
    arguments: "tuple[Expr, ...]"
    type: ValueType


@dataclass(frozen=True, slots=True)
class Branch:
    """A value, and the condition under which a `Case` has it."""

    condition: "Expr"
    value: "Expr"


@dataclass(frozen=True, slots=True)
class Case:
    """The value of the first branch whose condition is true, else `otherwise`, else null.

    A branch is evaluated for the rows that come to it, and for no others.
    """

    branches: tuple[Branch, ...]
    otherwise: "Expr | None"
    type: ValueType


class CompareOp(StrEnum):
    """Comparisons of two scalars."""

    EQ = "="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="


@dataclass(frozen=True, slots=True)
class Compare:
    """Unknown when either side is null."""

    op: CompareOp
    left: "Expr"
    right: "Expr"


@dataclass(frozen=True, slots=True)
class ListContains:
    """Whether a list holds a value. Unknown when the list or the value is null."""

    items: "Expr"
    value: "Expr"


@dataclass(frozen=True, slots=True)
class TextContains:
    """Whether a string holds another, or with `prefix` starts with it. No character is special."""

    text: "Expr"
    part: "Expr"
    prefix: bool


@dataclass(frozen=True, slots=True)
class IsNull:
    """Never unknown."""

    operand: "Expr"
    negated: bool


class TextMode(StrEnum):
    """How query tokens meet document tokens."""

    ANY_TOKEN = "any_token"
    FUZZY = "fuzzy"


@dataclass(frozen=True, slots=True)
class TextMatch:
    """Whether a text shares an analysed token with the query. Null text: false, never unknown."""

    mode: TextMode
    column: Column
    query: "Expr"
    edits_max: "Expr | None" = None  # fuzzy only


@dataclass(frozen=True, slots=True)
class And:
    """Every part holds."""

    parts: "tuple[Expr, ...]"


@dataclass(frozen=True, slots=True)
class Or:
    """Some part holds."""

    parts: "tuple[Expr, ...]"


@dataclass(frozen=True, slots=True)
class Not:
    """The part does not hold; unknown stays unknown."""

    part: "Expr"


Operand = Const | Param | Now | Column | EntityId | EndpointId | SlotRef | Call | Case
Predicate = Compare | ListContains | TextContains | IsNull | TextMatch | And | Or | Not
Expr = Operand | Predicate
