"""`return`, `having` and `order` to typed columns, measures, scores and sort keys.

Invariant: a column, a measure and a score exist once each, however often the query mentions them;
the sort keys end with a tie-break by ids, so the order of rows is total.
"""

from collections.abc import Callable, Iterator
from dataclasses import field, fields, is_dataclass
from functools import cached_property
from typing import assert_never

from omnigraph.language.query import ast
from omnigraph.language.query.teaching import word_hint
from omnigraph.light_dataclass import dataclass
from omnigraph.plan import ir
from omnigraph.plan.aggregates import fraction_of, measure_of
from omnigraph.plan.expressions import needs, substituted, type_of
from omnigraph.plan.operands import BOOL, COUNT, NUMBER, parameter_operand, property_operand
from omnigraph.plan.scope import EdgeVar, Scope
from omnigraph.plan.search_calls import ranking, require_nearest_limit, text_match
from omnigraph.plan.typer import Typer
from omnigraph.types import ID_TYPE, Span, ValueType


@dataclass(frozen=True, slots=True)
class TypedReturn:
    """Everything after the pattern."""

    scores: tuple[ir.Score, ...]
    aggregate: ir.Aggregate | None
    columns: tuple[ir.OutputColumn, ...]
    order: tuple[ir.SortKey, ...]
    having: ir.Expr | None
    object_columns: tuple[ir.ObjectColumn, ...]


InnerCount = Callable[[tuple[ast.Clause, ...], Span, bool], ir.Slot]
"""Checks an inner pattern and answers the slot that will hold whether, or how often, it matches."""


def check_return(
    scope: Scope, read: ast.Read, inner: InnerCount, objects: tuple[ir.ObjectColumn, ...] = ()
) -> TypedReturn:
    """Types the columns, then the conditions on groups and the order, which may name them."""
    return _Return(scope, read, inner, objects).check()


_Asked = tuple[ir.AggregateOp, ir.Expr | None, bool, ir.Expr | None]
"""A measure by its function, what it is over, whether values count once, and its fraction."""


@dataclass
class _Return:
    scope: Scope
    read: ast.Read
    inner: InnerCount
    object_columns: tuple[ir.ObjectColumn, ...]
    columns: list[ir.OutputColumn] = field(default_factory=list)
    returned: set[ir.Expr] = field(default_factory=set)  # the values of the columns
    aliases: dict[str, tuple[ast.Projection, ir.OutputColumn]] = field(default_factory=dict)
    keys: dict[ir.Expr, None] = field(default_factory=dict)  # in order
    measures: dict[_Asked, ir.Measure] = field(default_factory=dict)
    scores: list[ir.Score] = field(default_factory=list)

    @cached_property
    def aggregating(self) -> bool:
        return any(has_aggregate(p.expression) for p in self.read.projections)

    def check(self) -> TypedReturn:
        for projection in self.read.projections:
            self._project(projection)
        for projection, column in zip(self.read.projections, self.columns, strict=True):
            self._require_grouped(projection.expression, column.value)
        having = self._having()
        order = self._order()
        aggregate = None
        if self.aggregating:
            aggregate = ir.Aggregate(tuple(self.keys), tuple(self.measures.values()))
        columns = tuple(self.columns)
        return TypedReturn(
            tuple(self.scores), aggregate, columns, order, having, self.object_columns
        )

    # Columns

    def _project(self, projection: ast.Projection) -> None:
        expression = projection.expression
        value = self._typer(self._reference).value(expression)
        value_type = type_of(value)
        if value_type.is_blob:
            text = "a Blob cannot be returned"
            hint = "read it with omnigraph blob get, or count it"
            raise self.scope.names.fail(expression.span, text, code="T24", hint=hint)
        if self.aggregating and not has_aggregate(expression):
            self._group_by(expression, value, value_type)
        elif self.read.distinct:
            _require_hashable(self.scope, expression, value_type)
        name = projection.alias.text if projection.alias else column_name(expression)
        column = ir.OutputColumn(name, value, value_type)
        self.columns.append(column)
        self.returned.add(value)
        if projection.alias is not None:
            self.aliases[name] = projection, column  # of two with one alias the last counts

    def _typer(self, reference: Callable[[ast.Expr], ir.Expr]) -> Typer:
        return Typer(self.scope.names, reference, self._bound_id, self.scope.path_value)

    def _bound_id(self, variable: ast.Variable) -> ir.Expr | None:
        if variable.name in self.scope.names.parameters or not self.scope.find(variable.name):
            return None
        return self._entity_id(variable, edges=True)

    def _reference(self, expression: ast.Expr) -> ir.Expr:
        """The value of a name, an aggregate, a ranking or a search."""
        names = self.scope.names
        match expression:
            case ast.Aggregate():
                measure = self._measure(expression)
                return ir.SlotRef(measure.out, measure.type)
            case ast.Nearest() | ast.Bm25() | ast.Rrf():
                return ir.SlotRef(self._score(expression, required=False).out, NUMBER)
            case ast.TextCall():
                return text_match(self.scope, expression)
            case ast.TextCondition(call=call):
                return text_match(self.scope, call)
            case ast.PropertyRef():
                return property_operand(self.scope, expression)
            case ast.Variable():
                return self._variable(expression)
            case ast.CountBlock(clauses=clauses, span=span):
                return ir.SlotRef(self.inner(clauses, span, False), COUNT)
            case ast.Exists(clauses=clauses, span=span):
                return ir.SlotRef(self.inner(clauses, span, True), BOOL)
            case ast.Alias(name=name):
                text = f"the alias '{name}' cannot be returned"
                raise names.fail(expression.span, text, hint=word_hint(name))
            case _:
                raise names.fail(expression.span, "this cannot be returned")

    def _sorted_reference(self, expression: ast.Expr) -> ir.Expr:
        """The same in `having` and `order`, where an alias is its column."""
        if isinstance(expression, ast.Alias):
            return self._aliased(expression)[1].value
        if isinstance(expression, ast.Aggregate) and not self.aggregating:
            text = "ordering by an aggregate needs an aggregate in return"
            raise self.scope.names.fail(expression.span, text, code="T9")
        return self._reference(expression)

    def _having(self) -> ir.Expr | None:
        given = self.read.having
        if given is None:
            return None
        if not self.aggregating:
            text = "having needs an aggregate in return"
            hint = "a condition on rows belongs into match"
            raise self.scope.names.fail(given.span, text, code="T9", hint=hint)
        condition = self._typer(self._sorted_reference).truth(given)
        self.scope.names.with_terms(condition, given.span)
        self._require_grouped(given, condition)
        return condition

    def _require_grouped(self, expression: ast.Expr, value: ir.Expr) -> None:
        """T9 for an expression over groups that reads what rows are not grouped by."""
        if not self.aggregating:
            return
        if _reads_more(value, set(self.keys), _slots(self.measures)):
            text = "this is neither aggregated nor returned as a column to group by"
            hint = "return it as a column of its own, or put it into an aggregate"
            raise self.scope.names.fail(expression.span, text, code="T9", hint=hint)

    def _variable(self, variable: ast.Variable) -> ir.Expr:
        parameter = parameter_operand(self.scope.names, variable)
        if parameter is not None:
            return parameter
        element = self.scope.element(variable.name)
        return element if element is not None else self._entity_id(variable)

    def _entity_id(self, variable: ast.Variable, *, edges: bool = False) -> ir.EntityId:
        names = self.scope.names
        if self.scope.path(variable.name) is not None:
            raise self.scope.no_value(variable)
        bound = self.scope.find(variable.name)
        if bound is None:
            aliases = {each.alias.text for each in self.read.projections if each.alias is not None}
            if variable.name in aliases:
                text = f"variable ${variable.name} is not bound"
                hint = f"an alias is written without $: {variable.name}"
                raise names.fail(variable.span, text, hint=hint)
            raise names.unbound(variable.name, variable.span)
        if isinstance(bound, EdgeVar) and not edges:
            text = f"the edge ${variable.name} has no value of its own"
            hint = f"use ${variable.name}.id or one of its properties"
            raise names.fail(variable.span, text, code="T23", hint=hint)
        return ir.EntityId(bound.var, ValueType(ID_TYPE.scalar, bound.optional))

    def _measure(self, aggregate: ast.Aggregate) -> ir.Measure:
        op, operand, value_type = measure_of(self.scope, aggregate, self._reference)
        fraction = fraction_of(self.scope, aggregate)
        asked = op, operand, aggregate.distinct, fraction
        if asked not in self.measures:
            slot, distinct = self.scope.names.slot(str(op)), aggregate.distinct
            self.measures[asked] = ir.Measure(slot, op, operand, distinct, value_type, fraction)
        return self.measures[asked]

    def _group_by(self, expression: ast.Expr, value: ir.Expr, value_type: ValueType) -> None:
        if not needs(value):
            raise self.scope.names.fail(
                expression.span,
                "beside an aggregate a constant cannot be returned",
                code="T9",
                hint="the other columns are what rows are grouped by",
            )
        _require_hashable(self.scope, expression, value_type)
        self.keys[value] = None

    def _score(self, call: ast.Rank, *, required: bool) -> ir.Score:
        names = self.scope.names
        if self.aggregating:
            text = "a ranking cannot be used beside an aggregate"
            raise names.fail(call.span, text, code="T9")
        limit, offset = self.read.limit, self.read.offset
        rows_max = 0 if isinstance(limit, ast.Variable) else limit
        if rows_max is not None and isinstance(offset, int):
            rows_max += offset
        typed = ranking(self.scope, call, rows_max)
        for index, known in enumerate(self.scores):
            if known.ranking == typed:
                merged = ir.Score(known.out, typed, known.required or required, known.position)
                self.scores[index] = merged
                return merged
        position = names.slot("position") if isinstance(typed, ir.Rrf) else None
        score = ir.Score(names.slot(_rank_name(call)), typed, required, position)
        self.scores.append(score)
        return score

    # Order

    def _order(self) -> tuple[ir.SortKey, ...]:
        _require_no_alias_beside_nearest(self.scope, self.read)
        keys, ties = list[ir.SortKey](), list[ir.SortKey]()
        for index, ordering in enumerate(self.read.orderings):
            rank = self._rank_of(ordering)
            if rank is None:
                keys.append(ir.SortKey(self._sort_value(ordering), ordering.descending))
                continue
            score = self._score(rank, required=index == 0)
            keys.append(self._rank_key(ordering, score))
            ties.append(ir.SortKey(ir.EntityId(_ranked_var(score.ranking), ID_TYPE)))
        if self.aggregating or self.read.distinct:
            return tuple(keys)
        return _without_repeats((*keys, *ties, *_tie_break(self.scope, self.read)))

    def _rank_of(self, ordering: ast.Ordering) -> ast.Rank | None:
        """The ranking an ordering means, by itself or through an alias."""
        expression = ordering.expression
        if isinstance(expression, ast.Alias):
            expression = self._aliased(expression)[0].expression
        if not isinstance(expression, ast.Rank):
            return None
        if isinstance(expression, ast.Nearest):
            require_nearest_limit(self.scope, expression, self.read.limit)
            if ordering.descending:
                text = "nearest takes no direction"
                hint = "it always puts the closest first"
                raise self.scope.names.fail(ordering.span, text, hint=hint)
        return expression

    def _aliased(self, alias: ast.Alias) -> tuple[ast.Projection, ir.OutputColumn]:
        aliased = self.aliases.get(alias.name)
        if aliased is not None:
            return aliased
        for each in self.object_columns:
            if each.name == alias.name:
                text = f"the object '{alias.name}' has no order and is compared with nothing"
                hint = "name one of its properties: $p.name"
                raise self.scope.names.fail(alias.span, text, code="T7", hint=hint)
        text = f"no column has the alias '{alias.name}'"
        raise self.scope.names.fail(alias.span, text, hint="name one with as, in return")

    def _rank_key(self, ordering: ast.Ordering, score: ir.Score) -> ir.SortKey:
        if score.position is not None:
            key = ir.SortKey(ir.SlotRef(score.position, ValueType(_POSITION, nullable=True)))
        else:
            best_last = isinstance(score.ranking, ir.Bm25)
            key = ir.SortKey(ir.SlotRef(score.out, NUMBER), descending=best_last)
        if self.read.distinct:
            projected = ir.SlotRef(score.out, NUMBER)
            self._require_returned(ordering, projected)
        return key

    def _sort_value(self, ordering: ast.Ordering) -> ir.Expr:
        names, expression = self.scope.names, ordering.expression
        if isinstance(expression, ast.Literal | ast.ListLiteral | ast.Now) or (
            isinstance(expression, ast.Variable) and expression.name in names.parameters
        ):
            hint = "order by $v.property, $v, an alias, an aggregate, a ranking or an expression"
            raise names.fail(expression.span, "unsupported ordering expression", hint=hint)
        value = self._typer(self._sorted_reference).value(expression)
        self._require_returned(ordering, value)
        _require_orderable(self.scope, ordering, type_of(value))
        return value

    def _require_returned(self, ordering: ast.Ordering, value: ir.Expr) -> None:
        """What is ordered by must still be there after grouping."""
        if not self.aggregating and not self.read.distinct:
            return
        known = self.returned if self.read.distinct else {*self.returned, *self.keys}
        if _reads_more(value, known, set() if self.read.distinct else _slots(self.measures)):
            text = "rows that are grouped or distinct can only be ordered by what is returned"
            hint = "add it to the columns of return or with, or order by an alias"
            raise self.scope.names.fail(ordering.span, text, code="T9", hint=hint)


_POSITION = NUMBER.scalar


def _rank_name(call: ast.Rank) -> str:
    match call:
        case ast.Nearest():
            return "nearest"
        case ast.Bm25():
            return "bm25"
        case ast.Rrf():
            return "rrf"
        case _:
            assert_never(call)


def _ranked_var(rank: ir.Ranking) -> ir.Var:
    """The variable a ranking ranks; of a fusion, its first arm's."""
    return rank.first.column.var if isinstance(rank, ir.Rrf) else rank.column.var


def _without_repeats(keys: tuple[ir.SortKey, ...]) -> tuple[ir.SortKey, ...]:
    """A value that was ordered by already decides nothing."""
    seen = dict[ir.Expr, ir.SortKey]()
    for key in keys:
        seen.setdefault(_unnullable(key.value), key)
    return tuple(seen.values())


def _unnullable(value: ir.Expr) -> ir.Expr:
    return ir.EntityId(value.var, ID_TYPE) if isinstance(value, ir.EntityId) else value


_KNOWN = ir.Const(None, BOOL)
_COMPOUND = (ast.Arithmetic, ast.Negative, ast.Case, *ast.Condition.__args__)


def is_compound(expression: ast.Expr) -> bool:
    """Whether an expression is made of others by operators."""
    return isinstance(expression, _COMPOUND)


def _parts(node: object) -> Iterator[object]:
    """An expression and everything inside it, blocks aside."""
    waiting = [node]  # no generator in a generator: each level would pass every part on
    while waiting:
        part = waiting.pop()
        if isinstance(part, tuple):
            waiting.extend(reversed(part))
        elif is_dataclass(part) and not isinstance(part, ast.CountBlock | ast.Exists):
            yield part
            waiting.extend(getattr(part, member.name) for member in reversed(fields(part)))


def has_aggregate(expression: ast.Expr) -> bool:
    """Whether an expression is, or holds, an aggregate of the rows."""
    return any(isinstance(part, ast.Aggregate) for part in _parts(expression))


def column_name(expression: ast.Expr) -> str:
    """The name of a column without an alias."""
    match expression:
        case ast.PropertyRef(variable=variable, property=name):
            return f"{variable.name}.{name}"
        case ast.Variable(name=name):
            return name
        case ast.Aggregate(function=function, argument=argument):
            return str(function) if argument is None else column_name(argument)
        case ast.Now():
            return "now"
        case ast.Call(function=name):
            return name.text
        case ast.TextCall(function=function):
            return str(function)
        case ast.CountBlock():
            return "count"
        case ast.Nearest() | ast.Bm25() | ast.Rrf():
            return _rank_name(expression)
        case _:
            return "expression" if is_compound(expression) else "literal"


def _require_hashable(scope: Scope, expression: ast.Expr, value_type: ValueType) -> None:
    if value_type.is_list or value_type.is_vector:
        text = f"rows cannot be grouped or made distinct by a {value_type}"
        raise scope.names.fail(expression.span, text, code="T9")


def _require_orderable(scope: Scope, ordering: ast.Ordering, value_type: ValueType) -> None:
    if value_type.is_blob:
        raise scope.names.fail(ordering.span, "a Blob has no order", code="T24")
    if value_type.is_list or value_type.is_vector:
        text = f"unsupported ordering expression: a {value_type} has no order"
        raise scope.names.fail(ordering.span, text)


def _require_no_alias_beside_nearest(scope: Scope, read: ast.Read) -> None:
    orderings = read.orderings
    if not any(isinstance(o.expression, ast.Nearest) for o in orderings):
        return
    for ordering in orderings:
        if isinstance(ordering.expression, ast.Alias):
            text = f"the alias '{ordering.expression.name}' cannot be used beside nearest"
            hint = "order by the expression itself"
            raise scope.names.fail(ordering.span, text, code="T18", hint=hint)


def _tie_break(scope: Scope, read: ast.Read) -> tuple[ir.SortKey, ...]:
    """The ids of all named variables: by name after an order, as they appear without one; then the
    elements of lists, and of several paths between two nodes the number."""
    bound = list(scope.own.values())
    if read.orderings:
        bound.sort(key=lambda b: b.var)
    values: list[ir.Expr] = [
        ir.EntityId(b.var, ValueType(ID_TYPE.scalar, b.optional)) for b in bound
    ]
    elements = [e for e in scope.values.values() if not (e.type.is_list or e.type.is_vector)]
    numbers = (path.slots.number for path in scope.paths.values())
    paths = (ir.SlotRef(slot, COUNT) for slot in numbers if slot is not None)
    return tuple(ir.SortKey(value) for value in (*values, *elements, *paths))


def _reads_more(value: ir.Expr, known: set[ir.Expr], slots: set[ir.Slot]) -> bool:
    """Whether an expression reads something that is not among the known ones."""
    rest = substituted(value, lambda part: _KNOWN if part in known else None)
    return bool(needs(rest) - slots)


def _slots(measures: dict[_Asked, ir.Measure]) -> set[ir.Slot]:
    return {measure.out for measure in measures.values()}
