"""Plans as text, one line an operator, for people and golden files.

Invariant: two plans that differ print differently.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING, assert_never

from omnigraph.catalog.indexes import Metric
from omnigraph.deferred import deferred
from omnigraph.language.moments import format_date, format_datetime
from omnigraph.plan import ir
from omnigraph.types import Scalar, ValueType

if TYPE_CHECKING:
    from omnigraph.plan import mutation_ir
else:
    mutation_ir = deferred("omnigraph.plan", "mutation_ir")

_INDENT = "  "


def explain(plan: "mutation_ir.Plan") -> str:
    """The whole plan."""
    declared = ", ".join(map(_parameter, plan.parameters))
    match plan:
        case ir.ReadPlan():
            lines = [f"read {plan.name}({declared})", *_indented(_computed_lines(plan.computed))]
            lines += _indented(_read_lines(plan))
        case mutation_ir.MutationPlan():
            lines = [
                f"mutation {plan.name}({declared})",
                *_indented(_computed_lines(plan.computed)),
            ]
            lines += _indented(line for each in plan.statements for line in _statement_lines(each))
        case _:
            assert_never(plan)
    return "\n".join(lines) + "\n"


def _parameter(parameter: ir.Parameter) -> str:
    default = "" if parameter.default is None else f" = {expression(parameter.default)}"
    return f"${parameter.name}: {parameter.type}{default}"


def _computed_lines(computed: tuple[ir.Computed, ...]) -> list[str]:
    return [f"compute {each.name}: {each.type} = {expression(each.value)}" for each in computed]


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"{_INDENT}{line}" for line in lines]


def _read_lines(plan: ir.ReadPlan) -> list[str]:
    if plan.union is not None:
        lines = _read_lines(plan.union.parts[0])
        for part, keeps in zip(plan.union.parts[1:], plan.union.keeps_equal, strict=True):
            lines += ["union all" if keeps else "union", *_read_lines(part)]
        return lines
    lines = [line for op in plan.pattern for line in operator_lines(op)]
    lines += [_score_line(score) for score in plan.scores]
    if plan.aggregate is not None:
        lines.append(_aggregate_line(plan.aggregate))
    if plan.having is not None:
        lines.append(f"having {expression(plan.having)}")
    columns = ", ".join(f"{c.name}: {c.type} = {expression(c.value)}" for c in plan.columns)
    lines.append(f"{'project distinct' if plan.distinct else 'project'} {columns}")
    if plan.order:
        lines.append(f"order by {', '.join(map(_sort_key, plan.order))}")
    if plan.limit is not None or plan.offset or plan.offset_from is not None:
        limit = "" if plan.limit is None else f" limit {plan.limit}"
        if plan.limit_from is not None:
            limit = f" limit {expression(plan.limit_from)}"
        offset = f" offset {plan.offset}" if plan.offset else ""
        if plan.offset_from is not None:
            offset = f" offset {expression(plan.offset_from)}"
        lines.append(f"slice{limit}{offset}")
    return lines


def operator_lines(op: ir.PatternOp) -> list[str]:
    """One operator of a pattern, inner patterns indented below it."""
    match op:
        case ir.NodeScan(out=out, table=table, where=where, members=members):
            condition = "" if where is None else f" where {expression(where)}"
            return [f"scan {table}{_members(members)} as ${out}{condition}"]
        case ir.Expand():
            return [_expand_line(op)]
        case ir.ExpandEdges():
            closes = " (bound)" if op.closes else ""
            steps = f"{op.direction} {op.edge} as ${op.edge_var}"
            return [f"expand edges ${op.source} {steps} to ${op.out} in {op.target}{closes}"]
        case ir.ExpandPaths():
            return [_paths_line(op)]
        case ir.Unwind(items=items, out=slot):
            return [f"unwind {expression(items)} into {slot}"]
        case ir.Stage(plan=plan, outs=outs):
            names = ", ".join(o.out if o.source is None else f"${o.out}" for o in outs)
            return [f"stage {names}: {'; '.join(_read_lines(plan))}"]
        case ir.Filter(where=where):
            return [f"filter {expression(where)}"]
        case ir.SemiJoin(inner=inner, anti=anti):
            return _block("anti join" if anti else "semi join", inner)
        case ir.Matches(inner=inner, out=slot, exists=exists):
            return _block(f"{'exists' if exists else 'count'} into {slot}", inner)
        case ir.LeftJoin(inner=inner, binds=binds):
            return _block(f"left join binding {', '.join(f'${var}' for var in binds)}", inner)
        case _:
            assert_never(op)


def _expand_line(op: ir.Expand) -> str:
    closes = " (bound)" if op.closes else ""
    steps = f"{op.direction} {op.edge}{_hops(op)}"
    return f"expand ${op.source} {steps} to ${op.out} in {op.target}{closes}"


def _members(members: tuple[ir.Member, ...] | None) -> str:
    if members is None:
        return ""
    return f" ({', '.join(f'{m.table} {dict(m.columns)}' for m in members)})"


def _hops(op: ir.Expand | ir.ExpandPaths) -> str:
    most = "" if op.hops_max >= ir.HOPS_ENDLESS else op.hops_max
    return "" if (op.hops_min, op.hops_max) == (1, 1) else f"{{{op.hops_min},{most}}}"


def _paths_line(op: ir.ExpandPaths) -> str:
    closes = " (bound)" if op.closes else ""
    all_of = "all " if op.mode is ir.PathMode.ALL else ""
    backward = " backward" if op.is_backward else ""
    head = f"expand {all_of}paths{backward} ${op.source}{_hops(op)} to ${op.out} in {op.target}"
    head += _members(op.members)
    slots = [
        f"{member.name} into {slot}"
        for member in fields(op.slots)
        if (slot := getattr(op.slots, member.name)) is not None
    ]
    inner = [_leg_text(leg, op.edge_var) for leg in op.legs]
    inner += [f"via {t} as ${op.via_var} where {expression(where)}" for t, where in op.via]
    return f"{head}{closes}{''.join(f', {slot}' for slot in slots)}, along {', '.join(inner)}"


def _leg_text(leg: ir.Leg, edge_var: ir.Var | None) -> str:
    name = "" if edge_var is None else f" as ${edge_var}"
    where = "" if leg.where is None else f" where {expression(leg.where)}"
    weight = "" if leg.weight is None else f" by {expression(leg.weight)}"
    return f"{leg.direction} {leg.edge}{name} from {leg.source} to {leg.target}{weight}{where}"


def _block(head: str, inner: tuple[ir.PatternOp, ...]) -> list[str]:
    return [head, *_indented(line for op in inner for line in operator_lines(op))]


def _score_line(score: ir.Score) -> str:
    required = ", rows without one dropped" if score.required else ""
    position = f", place into {score.position}" if score.position else ""
    return f"score {_ranking(score.ranking)} into {score.out}{position}{required}"


def _ranking(ranking: ir.Ranking) -> str:
    match ranking:
        case ir.Nearest(column=column, query=query, model=model):
            embedded = f", model {json.dumps(model)}" if model is not None else ""
            by = "" if ranking.metric is Metric.L2 else f", {ranking.metric}"
            return f"nearest({expression(column)}, {expression(query)}{embedded}{by})"
        case ir.Bm25(column=column, query=query):
            return f"bm25({expression(column)}, {expression(query)})"
        case ir.Rrf(first=first, second=second, k=k, depth=depth):
            return f"rrf({_ranking(first)}, {_ranking(second)}, k {expression(k)}, depth {depth})"
        case _:
            assert_never(ranking)


def _aggregate_line(aggregate: ir.Aggregate) -> str:
    keys = ", ".join(map(expression, aggregate.keys)) or "nothing"
    measures = ", ".join(map(_measure, aggregate.measures))
    return f"group by {keys} computing {measures}"


def _measure(measure: ir.Measure) -> str:
    operand = "*" if measure.operand is None else expression(measure.operand)
    distinct = "distinct " if measure.distinct else ""
    fraction = "" if measure.fraction is None else f", {expression(measure.fraction)}"
    return f"{measure.out} = {measure.op}({distinct}{operand}{fraction})"


def _sort_key(key: ir.SortKey) -> str:
    return f"{expression(key.value)}{' desc' if key.descending else ''}"


def _statement_lines(statement: "mutation_ir.StatementOp") -> list[str]:
    if not isinstance(statement, mutation_ir.MatchedRows):
        return [_statement_line(statement)]
    line = f"{_statement_line(statement.statement)} for each"
    return [line, *_indented(_read_lines(statement.read))]


def _statement_line(statement: "mutation_ir.PlainStatement") -> str:
    match statement:
        case mutation_ir.InsertNode(table=table, sets=sets, key=key):
            how = f"upsert by ({', '.join(key)})" if key else "insert"
            return f"{how} {table} {_sets(sets)}"
        case mutation_ir.InsertEdge(table=table, source=source, target=target, sets=sets):
            ends = f"{expression(source)} in {statement.source_table}"
            ends += f" -> {expression(target)} in {statement.target_table}"
            key = statement.key
            how = f"upsert by ({', '.join(key)})" if key else "insert"
            return f"{how} {table} {ends} {_sets(sets)}"
        case mutation_ir.UpsertRow(table=table, sets=sets, key=key):
            of = f"patch by ({', '.join(key)}) {table}"
            if statement.source is not None and statement.target is not None:
                tables = statement.end_tables
                of += f" {expression(statement.source)} in {tables[0]}"
                of += f" -> {expression(statement.target)} in {tables[1]}"
            return f"{of} {_sets(sets)}"
        case mutation_ir.UpdateRows(table=table, sets=sets, where=where):
            return f"update {table} {_sets(sets)} where {expression(where)}"
        case mutation_ir.DeleteRows(table=table, where=where, cascades=cascades):
            cascade = ", ".join(f"{c.edge} by {'/'.join(c.ends)}" for c in cascades)
            tail = f" cascading to {cascade}" if cascade else ""
            return f"delete {table} where {expression(where)}{tail}"
        case _:
            assert_never(statement)


def _sets(sets: "tuple[mutation_ir.SetColumn, ...]") -> str:
    return f"set {{{', '.join(f'{s.name}: {s.type} = {expression(s.value)}' for s in sets)}}}"


_PROPERTY_ID = re.compile(r"(\$\w+\.\w+)#[0-9]+")


def said(value: ir.Expr) -> str:
    """A typed expression for an error: properties by their names alone."""
    return _PROPERTY_ID.sub(r"\1", expression(value)).replace("$self.", "")


def expression(value: ir.Expr) -> str:  # noqa: C901 - one match over all cases
    """A typed expression on one line."""
    match value:
        case ir.Const(value=constant, type=value_type):
            return _constant(constant, value_type)
        case ir.Param(name=name):
            return f"param {name}"
        case ir.Now():
            return "now()"
        case ir.Column(var=var, name=name, property_id=property_id):
            return f"${var}.{name}#{property_id}"
        case ir.EntityId(var=var):
            return f"id(${var})"
        case ir.EndpointId(var=var, end=end):
            return f"{end}(${var})"
        case ir.SlotRef(slot=slot):
            return slot
        case ir.Call(function=function, arguments=arguments):
            return f"{function}({', '.join(map(expression, arguments))})"
        case ir.Case(branches=branches, otherwise=otherwise):
            whens = [f"when {expression(b.condition)} then {expression(b.value)}" for b in branches]
            whens += [] if otherwise is None else [f"else {expression(otherwise)}"]
            return f"case {' '.join(whens)} end"
        case ir.Compare(op=op, left=left, right=right):
            return f"{expression(left)} {op} {expression(right)}"
        case ir.ListContains(items=items, value=item):
            return f"{expression(item)} in {expression(items)}"
        case ir.TextContains(text=text, part=part, prefix=prefix):
            word = "starts_with" if prefix else "contains"
            return f"{expression(text)} {word} {expression(part)}"
        case ir.IsNull(operand=operand, negated=negated):
            return f"{expression(operand)} is {'not ' if negated else ''}null"
        case ir.TextMatch(mode=mode, column=column, query=query, edits_max=edits):
            limit = "" if edits is None else f", edits {expression(edits)}"
            return f"{mode}({expression(column)}, {expression(query)}{limit})"
        case ir.And(parts=parts):
            return " and ".join(map(_grouped, parts))
        case ir.Or(parts=parts):
            return " or ".join(map(_grouped, parts))
        case ir.Not(part=part):
            return f"not ({expression(part)})"
        case _:
            assert_never(value)


def _grouped(part: ir.Expr) -> str:
    text = expression(part)
    return f"({text})" if isinstance(part, ir.And | ir.Or) else text


def _constant(constant: ir.Constant, value_type: ValueType) -> str:
    if constant is None:
        return f"null {value_type}"
    if isinstance(constant, tuple):
        inner = ValueType(Scalar.F32 if value_type.is_vector else value_type.scalar)
        return f"[{', '.join(_constant(item, inner) for item in constant)}]"
    match value_type.scalar:
        case Scalar.DATE:
            assert isinstance(constant, int)
            return f"date {format_date(constant)}"
        case Scalar.DATETIME:
            assert isinstance(constant, int)
            return f"datetime {format_datetime(constant)}"
        case Scalar.STRING | Scalar.BLOB | Scalar.BOOL | Scalar.VECTOR:
            return json.dumps(constant, ensure_ascii=False)
        case Scalar.I32 | Scalar.I64 | Scalar.U32 | Scalar.U64 | Scalar.F32 | Scalar.F64:
            return json.dumps(constant, ensure_ascii=False)
        case _:
            assert_never(value_type.scalar)
