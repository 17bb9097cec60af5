"""Query stage (`with`): rank, group, order and cut rows in the middle of a pattern.

Invariant: rows leave with the variables and values that the stage names, and with nothing else.
"""

import pyarrow as pa

from omnigraph.catalog.arrow import arrow_type
from omnigraph.exec.read.aggregate import aggregate
from omnigraph.exec.read.context import Context
from omnigraph.exec.read.project import Projector
from omnigraph.exec.search.rank import Ranker
from omnigraph.exec.values.computed import cut_plan
from omnigraph.exec.values.rows import BoundEntities, Rows
from omnigraph.plan import ir


def staged(context: Context, ranker: Ranker, op: ir.Stage, rows: Rows) -> Rows:
    """The rows that a stage leaves, with what goes on of each."""
    evaluator = context.evaluator
    plan = cut_plan(op.plan, evaluator.given)
    for score in plan.scores:
        rows = ranker.score(score, rows, None)
    nodes = [out.source for out in op.outs if out.source is not None]
    projector = Projector(plan, context, nodes)
    if plan.aggregate is None:
        rows = projector.arranged(rows)
    else:
        cache = context.tables.holdings.cache
        groups = aggregate(plan.aggregate, rows, evaluator, cache, nodes=nodes)
        rows = projector.arranged(groups)
    bindings, slots = dict[ir.Var, BoundEntities](), dict[ir.Slot, pa.Array]()
    for column, out in zip(plan.columns, op.outs, strict=True):
        if out.source is not None:
            bindings[ir.Var(out.out)] = rows.bindings[out.source]
        else:
            values = evaluator.values(column.value, rows)
            slots[ir.Slot(out.out)] = values.cast(arrow_type(column.type))
    return Rows(rows.length, bindings, slots)
