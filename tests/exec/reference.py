"""A naive evaluator of read plans: one row at a time, plain Python, nothing clever.

It is written from the docstrings of `omnigraph.plan.ir` and shares no code with `omnigraph.exec`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cmp_to_key
from typing import Any

from omnigraph.errors import LimitExceeded
from omnigraph.language.moments import format_date, format_datetime
from omnigraph.plan import ir
from omnigraph.types import INTEGER_BOUNDS, Scalar, TableKey, ValueType
from tests.exec.reference_functions import NoValue, as_common, called

Entity = Mapping[str, Any]
Data = Mapping[TableKey, Sequence[Entity]]


@dataclass(frozen=True)
class Row:
    """What one row binds."""

    vars: dict[str, Entity | None] = field(default_factory=dict)
    slots: dict[str, Any] = field(default_factory=dict)

    def bind(self, var: str, entity: Entity | None) -> "Row":
        return Row({**self.vars, var: entity}, self.slots)

    def put(self, slot: str, value: Any) -> "Row":
        return Row(self.vars, {**self.slots, slot: value})


Place = tuple[TableKey, str]
"""A node, by its table and id."""


@dataclass(frozen=True)
class Path:
    """Nodes and edges, from the source on."""

    nodes: tuple[Place, ...]
    edges: tuple[Place, ...]
    cost: float = 0.0

    @property
    def order(self) -> tuple[tuple[Place, ...], tuple[Place, ...]]:
        return self.nodes, self.edges

    @property
    def rank(self) -> tuple[Any, ...]:
        return self.cost, len(self.edges), self.nodes, self.edges


class Reference:
    """Runs plans over lists of dictionaries."""

    def __init__(self, data: Data, params: Mapping[str, Any] | None = None, now: int = 0) -> None:
        self.data = data
        self.params = dict(params or {})
        self.now = now

    def rows(self, plan: ir.ReadPlan) -> list[dict[str, Any]]:
        """The rows of a plan without scores, as JSON has them."""
        if plan.union is not None:
            return self._united(plan, plan.union)
        assert not plan.scores
        for parameter in plan.parameters:
            if parameter.default is not None and parameter.name not in self.params:
                self.params[parameter.name] = self.value(parameter.default, Row())
        for computed in plan.computed:
            self.params[computed.name] = self.value(computed.value, Row())
        solved = list(self.solve(plan.pattern, [Row()]))
        return [_json_row(plan, values) for values in self._tail(plan, solved)]

    def _tail(self, plan: ir.ReadPlan, solved: list[Row]) -> list[Any]:
        """The values of each row that a plan makes of those of its pattern."""
        if plan.aggregate is None:
            outputs = [
                (
                    [self.value(key.value, row) for key in plan.order],
                    [self.value(column.value, row) for column in plan.columns],
                )
                for row in solved
            ]
        else:
            outputs = self._aggregated(plan, plan.aggregate, solved)
        return self._cut(plan, outputs)

    def _united(self, plan: ir.ReadPlan, union: ir.Union) -> list[dict[str, Any]]:
        whole = list[list[Any]]()
        for part, keeps in zip(union.parts, (True, *union.keeps_equal), strict=True):
            columns = zip(part.columns, union.types, strict=True)
            numbered = tuple(replace(c, name=str(n), type=t) for n, (c, t) in enumerate(columns))
            plain = replace(part, columns=numbered, object_columns=())
            whole += [list(row.values()) for row in self.rows(plain)]
            if not keeps:
                whole = [row for n, row in enumerate(whole) if row not in whole[:n]]
        return [_row_of(plan, row) for row in whole]

    def _cut(self, plan: ir.ReadPlan, outputs: list[tuple[list[Any], list[Any]]]) -> list[Any]:
        if plan.distinct:
            seen = {
                repr([_canonical(v) for v in values]): (keys, values) for keys, values in outputs
            }
            outputs = sorted(seen.values(), key=cmp_to_key(lambda a, b: _compare_lists(a[1], b[1])))
        descending = [key.descending for key in plan.order]
        outputs = sorted(
            outputs, key=cmp_to_key(lambda a, b: _compare_lists(a[0], b[0], descending))
        )
        limit, offset = plan.limit, plan.offset
        if plan.limit_from is not None:
            limit = self.params[plan.limit_from.name]
        if plan.offset_from is not None:
            offset = self.params[plan.offset_from.name] or 0
        end = None if limit is None else offset + limit
        return [values for _, values in outputs[offset:end]]

    # ---- the pattern

    def solve(self, ops: Sequence[ir.PatternOp], rows: Sequence[Row]) -> Iterator[Row]:
        if not ops:
            yield from rows
            return
        stages = [n for n, op in enumerate(ops) if isinstance(op, ir.Stage)]
        if stages:
            stage, before = ops[stages[0]], list(self.solve(ops[: stages[0]], rows))
            assert isinstance(stage, ir.Stage)
            yield from self.solve(ops[stages[0] + 1 :], list(self._staged(stage, before)))
            return
        for row in rows:
            yield from self.solve(ops[1:], list(self.step(ops[0], row)))

    def _staged(self, op: ir.Stage, rows: list[Row]) -> Iterator[Row]:
        for values in self._tail(op.plan, rows):
            after = Row()
            for value, out in zip(values, op.outs, strict=True):
                if out.source is None:
                    after = after.put(out.out, value)
                    continue
                entities = [row.vars[out.source] for row in rows]
                after = after.bind(
                    out.out, next((e for e in entities if e is not None and e["id"] == value), None)
                )
            yield after

    def step(self, op: ir.PatternOp, row: Row) -> Iterator[Row]:
        match op:
            case ir.NodeScan():
                tables = [op.table] if op.members is None else [m.table for m in op.members]
                for entity in (entity for table in tables for entity in self.data[table]):
                    bound = row.bind(op.out, entity)
                    if op.where is None or self.value(op.where, bound) is True:
                        yield bound
            case ir.Filter():
                if self.value(op.where, row) is True:
                    yield row
            case ir.Unwind():
                for item in self.value(op.items, row) or ():
                    yield row.put(op.out, item)
            case ir.Expand():
                yield from self._expand(op, row)
            case ir.ExpandEdges():
                yield from self._expand_edges(op, row)
            case ir.ExpandPaths():
                yield from self._expand_paths(op, row)
            case ir.SemiJoin():
                if any(True for _ in self.solve(op.inner, [row])) != op.anti:
                    yield row
            case ir.Matches():
                count = sum(1 for _ in self.solve(op.inner, [row]))
                yield row.put(op.out, count > 0 if op.exists else count)
            case ir.LeftJoin():
                found = list(self.solve(op.inner, [row]))
                for each in found:
                    yield Row(each.vars, row.slots)
                if not found:
                    yield Row({**row.vars, **dict.fromkeys(op.binds)}, row.slots)

    def _steps(
        self, op: ir.Expand | ir.ExpandEdges | ir.Leg, at: str
    ) -> Iterator[tuple[Entity, str]]:
        """Edges at a node, each with the node at its other end."""
        for edge in self.data[op.edge]:
            forward = op.direction in (ir.Direction.OUT, ir.Direction.BOTH)
            backward = op.direction in (ir.Direction.IN, ir.Direction.BOTH)
            if forward and edge["src"] == at:
                yield edge, edge["dst"]
            elif backward and edge["dst"] == at:
                yield edge, edge["src"]

    def _node(self, table: TableKey, id_: str) -> Entity:
        return next(entity for entity in self.data[table] if entity["id"] == id_)

    def _expand(self, op: ir.Expand, row: Row) -> Iterator[Row]:
        source = row.vars[op.source]
        if source is None:
            return
        same_type = any(source is entity for entity in self.data[op.target])
        for reached in self._reached(op, source["id"], same_type=same_type):
            if not op.closes:
                yield row.bind(op.out, self._node(op.target, reached))
            else:
                bound = row.vars[op.out]
                if bound is not None and bound["id"] == reached:
                    yield row

    def _reached(self, op: ir.Expand, source: str, *, same_type: bool) -> list[str]:
        if not same_type:
            return sorted({far for _, far in self._steps(op, source)}) if op.hops_min == 1 else []
        visited, produced, frontier = {source}, [], [source]
        for hop in range(1, min(op.hops_max, len(self.data[op.target]) + 2) + 1):
            following = []
            for node in frontier:
                for _, far in self._steps(op, node):
                    if far == node and far not in produced and hop >= op.hops_min:
                        produced.append(far)
                    if far not in visited:
                        visited.add(far)
                        following.append(far)
                        if hop >= op.hops_min:
                            produced.append(far)
            frontier = following
        return produced

    def _expand_edges(self, op: ir.ExpandEdges, row: Row) -> Iterator[Row]:
        source = row.vars[op.source]
        if source is None:
            return
        for edge, far in self._steps(op, source["id"]):
            bound = row.bind(op.edge_var, edge)
            if not op.closes:
                yield bound.bind(op.out, self._node(op.target, far))
            else:
                target = row.vars[op.out]
                if target is not None and target["id"] == far:
                    yield bound

    # ---- paths

    def _expand_paths(self, op: ir.ExpandPaths, row: Row) -> Iterator[Row]:
        source, bound = row.vars[op.source], row.vars.get(op.out)
        if source is None or (op.closes and bound is None):
            return
        starts = [
            (table, source["id"])
            for table in sorted({leg.source for leg in op.legs})
            if any(source is entity for entity in self.data[table])
        ]
        if not starts:
            return
        (start,) = starts
        found = self._cheapest(op, start) if op.is_weighted else self._shortest(op, start)
        for end in sorted(found):
            if end[0] not in op.targets or (
                bound is not None and op.closes and bound["id"] != end[1]
            ):
                continue
            for number, path in enumerate(sorted(found[end], key=lambda p: p.order)):
                reached = row if op.closes else row.bind(op.out, self._node(*end))
                yield self._with_slots(op, reached, path, number)
                if op.mode is ir.PathMode.ONE:
                    break

    def _with_slots(self, op: ir.ExpandPaths, row: Row, path: "Path", number: int) -> Row:
        way = -1 if op.is_backward else 1
        values = {
            "length": len(path.edges),
            "nodes": [id_ for _, id_ in path.nodes][::way],
            "edges": [id_ for _, id_ in path.edges][::way],
            "cost": path.cost,
            "number": number,
        }
        for name, value in values.items():
            slot = getattr(op.slots, name)
            row = row if slot is None else row.put(slot, value)
        return row

    def _from(self, op: ir.ExpandPaths, path: "Path") -> Iterator["Path"]:
        """The path with one more edge, in every way."""
        table, id_ = path.nodes[-1]
        if len(path.nodes) > 1 and not self._passable(op, table, id_):
            return
        for leg in op.legs:
            if leg.source != table:
                continue
            for edge, far in self._steps(leg, id_):
                seen = Row({op.edge_var or "": edge})
                if leg.where is not None and self.value(leg.where, seen) is not True:
                    continue
                weight = 0 if leg.weight is None else self.value(leg.weight, seen)
                if weight is None:
                    continue
                if weight < 0:
                    raise NoValue
                yield Path(
                    (*path.nodes, (leg.target, far)),
                    (*path.edges, (leg.edge, edge["id"])),
                    path.cost + float(weight),
                )

    def _passable(self, op: ir.ExpandPaths, table: TableKey, id_: str) -> bool:
        for of_table, where in op.via:
            if of_table == table:
                row = Row({op.via_var or "": self._node(table, id_)})
                return self.value(where, row) is True
        return True

    def _shortest(self, op: ir.ExpandPaths, start: Place) -> dict[Place, list["Path"]]:
        """Every shortest path to each place, hop by hop."""
        visited, produced = {start}, dict[Place, list[Path]]()
        frontier = [Path((start,), ())]
        for hop in range(1, min(op.hops_max, sum(map(len, self.data.values())) + 2) + 1):
            following = [longer for path in frontier for longer in self._from(op, path)]
            loops = [path for path in following if path.nodes[-1] == path.nodes[-2]]
            frontier = [path for path in following if path.nodes[-1] not in visited]
            visited |= {path.nodes[-1] for path in frontier}
            if hop < op.hops_min:
                continue
            before = set(produced)
            for path in (*loops, *frontier):
                if path.nodes[-1] not in before:
                    produced.setdefault(path.nodes[-1], []).append(path)
        return produced

    def _cheapest(self, op: ir.ExpandPaths, start: Place) -> dict[Place, list["Path"]]:
        """The cheapest of all paths that come to no place twice, and of those the shortest."""
        best = dict[Place, list[Path]]()
        waiting = [Path((start,), ())]
        while waiting:
            path = waiting.pop()
            if len(path.edges) >= op.hops_max:
                continue
            for longer in self._from(op, path):
                end = longer.nodes[-1]
                if end not in path.nodes:
                    waiting.append(longer)
                    known = best.get(end)
                    if known is None or longer.rank < known[0].rank:
                        best[end] = [longer]
        return best

    # ---- expressions

    def value(self, expr: ir.Expr, row: Row) -> Any:
        match expr:
            case ir.Const(value=value):
                return value
            case ir.Param(name=name):
                return self.params[name]
            case ir.Now():
                return self.now
            case ir.Column(var=var, name=name):
                entity = row.vars[var]
                return None if entity is None else entity.get(name)
            case ir.EntityId(var=var):
                entity = row.vars[var]
                return None if entity is None else entity["id"]
            case ir.EndpointId(var=var, end=end):
                entity = row.vars[var]
                return None if entity is None else entity[end.value]
            case ir.SlotRef(slot=slot):
                return row.slots[slot]
            case ir.Call(function=function, arguments=arguments, type=type_):
                return called(function, [self.value(a, row) for a in arguments], arguments, type_)
            case ir.Case(branches=branches, otherwise=otherwise):
                for branch in branches:
                    if self.value(branch.condition, row) is True:
                        return as_common(self.value(branch.value, row), expr.type)
                return (
                    None if otherwise is None else as_common(self.value(otherwise, row), expr.type)
                )
            case ir.Compare(op=op, left=left, right=right):
                return compare(op, self.value(left, row), self.value(right, row))
            case ir.ListContains(items=items, value=value):
                return contains(self.value(items, row), self.value(value, row))
            case ir.TextContains(text=text, part=part, prefix=prefix):
                whole, piece = self.value(text, row), self.value(part, row)
                if whole is None or piece is None:
                    return None
                return whole.startswith(piece) if prefix else piece in whole
            case ir.IsNull(operand=operand, negated=negated):
                return (self.value(operand, row) is None) != negated
            case ir.And(parts=parts):
                return _all([self.value(part, row) for part in parts])
            case ir.Or(parts=parts):
                return _not(_all([_not(self.value(part, row)) for part in parts]))
            case ir.Not(part=part):
                return _not(self.value(part, row))
            case _:
                raise AssertionError(f"the reference does not know {expr}")

    # ---- groups

    def _aggregated(
        self, plan: ir.ReadPlan, op: ir.Aggregate, rows: list[Row]
    ) -> list[tuple[list[Any], list[Any]]]:
        groups: dict[str, tuple[list[Any], list[Row]]] = {}
        for row in rows:
            key = [self.value(each, row) for each in op.keys]
            groups.setdefault(repr([_canonical(v) for v in key]), (key, []))[1].append(row)
        if not op.keys and not groups:
            groups[""] = ([], [])
        outputs = []
        ordered = sorted(groups.values(), key=cmp_to_key(lambda a, b: _compare_lists(a[0], b[0])))
        for key, members in ordered:
            known: dict[ir.Expr, Any] = dict(zip(op.keys, key, strict=True))
            for measure in op.measures:
                known[ir.SlotRef(measure.out, measure.type)] = self._measure(measure, members)

            example = members[0] if members else Row()

            def of(expr: ir.Expr, known: dict[ir.Expr, Any] = known, example: Row = example) -> Any:
                slots = {k.slot: v for k, v in known.items() if isinstance(k, ir.SlotRef)}
                if expr in known:
                    return known[expr]
                return self.value(expr, Row(example.vars, {**example.slots, **slots}))

            if plan.having is not None and of(plan.having) is not True:
                continue
            outputs.append(
                ([of(key.value) for key in plan.order], [of(c.value) for c in plan.columns])
            )
        return outputs

    def _measure(self, measure: ir.Measure, rows: list[Row]) -> Any:
        if measure.operand is None:
            return len(rows)
        values = [self.value(measure.operand, row) for row in rows]
        values = [value for value in values if value is not None]
        if measure.distinct:
            values = list({repr(_canonical(value)): value for value in values}.values())
        if measure.op is ir.AggregateOp.COUNT:
            return len(values)
        values.sort(key=cmp_to_key(order_of))
        if measure.op is ir.AggregateOp.COLLECT:
            return values
        if not values:
            return None
        match measure.op:
            case ir.AggregateOp.SUM:
                return _bounded(sum(values), measure.type)
            case ir.AggregateOp.AVG:
                return float(sum(values) / len(values))
            case ir.AggregateOp.MIN:
                return values[0]
            case ir.AggregateOp.MAX:
                return values[-1]
            case ir.AggregateOp.PERCENTILE:
                assert measure.fraction is not None
                return _percentile([float(v) for v in values], self.value(measure.fraction, Row()))
            case ir.AggregateOp.STDDEV:
                return _deviation([float(v) for v in values])
            case _:
                raise AssertionError(f"no plan of a query has {measure.op}")


# ---- values


def _bounded(total: Any, type_: ValueType) -> Any:
    """A sum, or the refusal of one that its type does not hold."""
    if type_.scalar not in INTEGER_BOUNDS:
        return float(total)
    low, high = INTEGER_BOUNDS[type_.scalar]
    if not low <= total <= high:
        raise LimitExceeded("sum", total, low if total < 0 else high)
    return total


def _percentile(values: list[float], fraction: float) -> float:
    rank = fraction * (len(values) - 1)
    low = math.floor(rank)
    if rank == low:
        return values[low]
    return values[low] + (values[low + 1] - values[low]) * (rank - low)


def _deviation(values: list[float]) -> float | None:
    if len(values) < 2:
        return None
    total = 0.0
    for value in values:
        total += value
    mean, squares = total / len(values), 0.0
    for value in values:
        squares += (value - mean) ** 2
    return math.sqrt(squares / (len(values) - 1))


def order_of(left: Any, right: Any) -> int:
    """-1, 0 or 1 of two values that are there. NaN follows every number."""
    nans = [isinstance(value, float) and math.isnan(value) for value in (left, right)]
    if any(nans):
        return nans[0] - nans[1]
    if isinstance(left, str):
        left, right = left.encode(), right.encode()
    return (left > right) - (left < right)


def compare(op: ir.CompareOp, left: Any, right: Any) -> bool | None:
    """Unknown when either side is null."""
    if left is None or right is None:
        return None
    sign = order_of(left, right)
    return {
        ir.CompareOp.EQ: sign == 0,
        ir.CompareOp.NE: sign != 0,
        ir.CompareOp.LT: sign < 0,
        ir.CompareOp.LE: sign <= 0,
        ir.CompareOp.GT: sign > 0,
        ir.CompareOp.GE: sign >= 0,
    }[op]


def contains(items: Any, value: Any) -> bool | None:
    """Unknown when the list or the value is null."""
    if items is None or value is None:
        return None
    return any(order_of(item, value) == 0 for item in items)


def _all(values: list[bool | None]) -> bool | None:
    if any(value is False for value in values):
        return False
    return None if any(value is None for value in values) else True


def _not(value: bool | None) -> bool | None:
    return None if value is None else not value


def _canonical(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return value


def _compare_lists(
    left: Sequence[Any], right: Sequence[Any], descending: Sequence[bool] | None = None
) -> int:
    """Nulls first when ascending, last when descending."""
    for place, (a, b) in enumerate(zip(left, right, strict=True)):
        if a is None or b is None:
            sign = (a is not None) - (b is not None)
        elif isinstance(a, list | tuple):
            sign = (list(a) > list(b)) - (list(a) < list(b))
        else:
            sign = order_of(a, b)
        if sign:
            return -sign if descending and descending[place] else sign
    return 0


def _json_row(plan: ir.ReadPlan, values: Sequence[Any]) -> dict[str, Any]:
    cells = zip(plan.columns, values, strict=True)
    return _row_of(plan, [json_value(value, column.type) for column, value in cells])


def _row_of(plan: ir.ReadPlan, values: list[Any]) -> dict[str, Any]:
    """A row by the names of its columns; an object has those of its fields."""
    row, objects, place = dict[str, Any](), {each.start: each for each in plan.object_columns}, 0
    while place < len(values):
        shape = objects.get(place)
        if shape is None:
            row[plan.columns[place].name] = values[place]
            place += 1
            continue
        own = values[place : place + len(shape.fields) + shape.may_be_null]
        place += len(own)
        known = own.pop(0) if shape.may_be_null else True
        row[shape.name] = dict(zip(shape.fields, own, strict=True)) if known else None
    return row


def json_value(value: Any, type_: ValueType) -> Any:
    """A value as JSON has it."""
    if value is None:
        return None
    if isinstance(value, list | tuple):
        return [json_value(item, ValueType(type_.scalar)) for item in value]
    if type_.scalar is Scalar.DATE:
        return format_date(value)
    if type_.scalar is Scalar.DATETIME:
        return format_datetime(value)
    if type_.scalar in (Scalar.F32, Scalar.F64):
        number = float(value)
        if math.isnan(number):
            return "NaN"
        return number if math.isfinite(number) else "Infinity" if number > 0 else "-Infinity"
    return value
