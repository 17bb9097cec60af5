"""Plan rewrite for shares: two hops that are only counted begin at the node in the middle.

    $a ──▶ $b ──▶ $c, rows counted        shares of $a: every edge from them is walked
    $b: its sources × its targets         shares of $b: two degrees a node

Invariant: the plan makes as many rows as before, and its operators as many each. It depends on the
plan alone, so that all tasks of a query divide the same table.
"""

from dataclasses import replace

from omnigraph.plan import ir

Step = ir.Expand | ir.ExpandEdges


def is_counted_step(op: ir.PatternOp) -> bool:
    """Whether an operator makes one row a neighbour, of any node."""
    match op:
        case ir.ExpandEdges(closes=closes):
            return not closes
        case ir.Expand(closes=closes):
            return not closes and op.hops_min == 1 and op.hops_max == 1
        case _:
            return False


def from_the_middle(plan: ir.ReadPlan) -> ir.ReadPlan:
    """The plan, begun at its second node if it only counts the walks of two steps over all nodes of
    a table."""
    groups = plan.aggregate
    if groups is None or groups.keys or plan.scores or len(plan.pattern) != 3:
        return plan
    if any(measure.operand is not None for measure in groups.measures):
        return plan
    scan, first, second = plan.pattern
    if not isinstance(scan, ir.NodeScan) or scan.where is not None or scan.members is not None:
        return plan
    if not isinstance(first, Step) or not isinstance(second, Step):
        return plan
    if not is_counted_step(first) or not is_counted_step(second):
        return plan
    if first.source != scan.out or second.source != first.out:
        return plan
    middle = ir.NodeScan(first.out, first.target, None)
    way = first.direction.reversed
    back = replace(first, source=first.out, out=scan.out, target=scan.table, direction=way)
    return replace(plan, pattern=(middle, back, second))
