"""A query in shares, in one process: as tasks solve them, and gathered as batches are."""

from typing import Any

import pyarrow as pa

from omnigraph.exec.read.share import Share
from omnigraph.exec.values.computed import cut_plan
from omnigraph.exec.values.constants import Given
from omnigraph.exec.values.rows import Rows
from omnigraph.graph import Graph
from omnigraph.plan.ir import ReadPlan, Slot
from omnigraph.plan.shares import in_shares


def rows_in_shares(
    graph: Graph, plan: ReadPlan, given: Given, count: int
) -> list[dict[str, Any]] | None:
    """The rows of a plan whose nodes are shared out; None for a plan that cannot be."""
    reading, snapshot = graph._reading, graph.snapshot()
    plan = cut_plan(plan, given)
    shares = None if plan.union is not None else in_shares(plan)
    if shares is None:
        return None
    parts = [
        part
        for number in range(count)
        for part in reading.parts(plan, given, snapshot, Share(number, count), lambda _: None)
    ]
    whole = pa.concat_tables(parts)
    slots = {Slot(name): whole[name].combine_chunks() for name in whole.column_names}
    running = reading._running(plan, given, snapshot)
    return running.gathered(shares, Rows(whole.num_rows, {}, slots), 0.0).rows
