"""Values that a request works out once: defaults of parameters, and expressions without a row.

Invariant: after `given_of` every parameter that a plan reads has a value, and all ways of running
the plan get the same ones.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from omnigraph.errors import BadRequest
from omnigraph.exec.limits import announce
from omnigraph.exec.values.constants import Given
from omnigraph.exec.values.evaluate import Evaluator
from omnigraph.exec.values.rows import ONE_ROW, Rows
from omnigraph.exec.values.scalars import SCALARS, JsonForm
from omnigraph.lru import Lru
from omnigraph.plan import ir, mutation_ir
from omnigraph.plan.expressions import type_of
from omnigraph.query_limits import checkpoint
from omnigraph.types import ValueType


def given_of(plan: mutation_ir.Plan, params: Mapping[str, ir.Constant], now_ms: int) -> Given:
    """The values of one request."""
    if not plan.computed and len(params) == len(plan.parameters):
        return Given(params, now_ms)
    values = dict(params)
    for parameter in plan.parameters:
        checkpoint()
        if parameter.name not in values and parameter.default is not None:
            values[parameter.name] = evaluated(parameter.default, Given({}, now_ms))
    held = 0
    for computed in plan.computed:
        value = evaluated(computed.value, Given(values, now_ms))
        values[computed.name] = value
        held += len(value) if isinstance(value, str | tuple) else 0
        announce(held)
    return Given(values, now_ms)


_cuts: Lru[tuple[int, int | None, int], tuple[ir.ReadPlan, ir.ReadPlan]] = Lru(256)


def cut_plan(plan: ir.ReadPlan, given: Given) -> ir.ReadPlan:
    """The plan with the limit and the offset that a request gives; the same one for the same."""
    if plan.limit_from is None and plan.offset_from is None:
        return plan
    limit, offset = plan.limit, plan.offset
    if plan.limit_from is not None:
        limit = _count(plan.limit_from, given)
    if plan.offset_from is not None:
        offset = _count(plan.offset_from, given) or 0
    key = (id(plan), limit, offset)
    known = _cuts.get(key)
    if known is None or known[0] is not plan:
        known = plan, _with_cut(plan, limit, offset)
        _cuts.put(key, known)
    return known[1]


def _count(parameter: ir.Param, given: Given) -> int | None:
    count = given.of(parameter)
    if count is None:
        return None
    assert isinstance(count, int)
    if count < 0:
        raise BadRequest(f"param '{parameter.name}': {count} rows", "give 0 or more")
    return count


def _with_cut(plan: ir.ReadPlan, limit: int | None, offset: int) -> ir.ReadPlan:
    depth = 2**31 if limit is None else limit + offset
    scores = tuple(
        replace(score, ranking=replace(score.ranking, depth=depth))
        if isinstance(score.ranking, ir.Rrf)
        else score
        for score in plan.scores
    )
    return replace(
        plan, limit=limit, offset=offset, scores=scores, limit_from=None, offset_from=None
    )


def evaluated(value: ir.Expr, given: Given) -> ir.Constant:
    """The value of an expression that reads no row."""
    array = Evaluator(given, no_text_search).values(value, ONE_ROW)
    return constants_of(array, type_of(value))[0]


def constants_of(values: pa.Array, kind: ValueType) -> list[ir.Constant]:
    """Arrow values as a plan writes them: days, milliseconds, tuples."""
    to_json = SCALARS[kind.scalar].to_json
    if not kind.is_list and not kind.is_vector:
        return list(to_json(values, JsonForm.RECORD))
    lists = list[ir.Constant]()
    for each in values:
        lists.append(None if not each.is_valid else tuple(to_json(each.values, JsonForm.RECORD)))
    return lists


def no_text_search(_match: ir.TextMatch, _rows: Rows) -> np.ndarray:
    raise AssertionError("a text search reads a row")
