"""Fast path of: the operators of read/run — walks that are only counted, by products of degrees.

A chain of steps whose nodes nobody reads needs no row a walk: the number of walks from a node is
the sum of the numbers from its neighbours, and that of the last step is a degree. Over all nodes
the first two steps are a product of degrees, without a look at any edge.

Reference: `read/expand`, one row a walk.
Held equal by: `test_walks_that_are_counted_are_as_many_as_walks_that_are_made` and
`test_every_way_of_running_a_query_gives_the_same_rows`.
Falls back: for few rows, steps of several hops, closing steps, nodes that are not resident, and
counts that could leave 64 bits.

Invariant: a row's weight is the number of rows that the chain would make of it.
"""

from collections.abc import Sequence

import numpy as np

from omnigraph.costs import COSTS
from omnigraph.exec.memory.adjacency import ListView
from omnigraph.exec.memory.filed_lists import FiledLists
from omnigraph.exec.memory.resident import Nodes
from omnigraph.exec.read.context import Context, TraversalMode
from omnigraph.exec.values.rows import Rows
from omnigraph.number_arrays import runs_of
from omnigraph.plan import ir
from omnigraph.plan.middle_start import Step, is_counted_step
from omnigraph.types import TableKey

_SAFE = 1 << 62
_BYTES_A_STEP = 24


def chain_length(pattern: Sequence[ir.PatternOp]) -> int:
    """How many of the last operators are a chain of such steps, each from where the one before
    ended."""
    length = 0
    for op in reversed(pattern):
        if not isinstance(op, Step) or not is_counted_step(op):
            break
        follows = pattern[len(pattern) - length] if length else None
        if isinstance(follows, Step) and follows.source != op.out:
            break
        length += 1
    return length


def walk_counts(
    context: Context, steps: Sequence[Step], rows: Rows, *, total: bool
) -> tuple[Rows, list[np.ndarray]] | None:
    """The rows with the number of walks of each length from each of them; None when making them is
    the better way. With `total` the rows may be others whose numbers add up to the same."""
    binding = rows.bindings[steps[0].source]
    domain = binding.domain
    if context.mode is TraversalMode.INDEXED or not isinstance(domain, Nodes):
        return None
    tables = context.tables
    if (
        domain is not tables.nodes(domain.table)
        or rows.length * COSTS.count_all_share < domain.size
    ):
        return None
    if context.mode is TraversalMode.AUTO and not _are_held(context, steps, domain.table):
        return None
    whole = total and len(steps) > 1 and len(rows.bindings) == 1
    if whole and binding.positions is domain.present:
        totals = _totals(context, steps, domain.table)
        if totals is not None:
            return totals
    counts = []
    bound = binding.positions >= 0
    for length in range(1, len(steps) + 1):
        each = _from_every_node(context, steps[:length], domain.table)
        if each is None:
            return None
        own = np.zeros(rows.length, np.int64)
        own[bound] = each[binding.positions[bound]]
        counts.append(own)
    return rows, counts


def closed_pair(pattern: Sequence[ir.PatternOp]) -> tuple[ir.Expand, ir.Expand] | None:
    """The last two operators, if they are a step from a node and a step between the same two."""
    if len(pattern) < 2:
        return None
    step, closing = pattern[-2:]
    if not isinstance(step, ir.Expand) or not isinstance(closing, ir.Expand):
        return None
    if not is_counted_step(step) or not closing.closes or closing.hops_max != 1:
        return None
    same = {step.source, step.out} == {closing.source, closing.out}
    return (step, closing) if same and step.source != step.out and closing.hops_min == 1 else None


def pair_counts(
    context: Context, steps: tuple[ir.Expand, ir.Expand], rows: Rows
) -> tuple[int, int] | None:
    """How many pairs a step gives over all nodes, and how many of them the other step gives too:
    the intersection of two sorted lists of pairs. None when making them is the better way."""
    step, closing = steps
    binding = rows.bindings[step.source]
    domain = binding.domain
    if context.mode is TraversalMode.INDEXED or not isinstance(domain, Nodes):
        return None
    tables = context.tables
    if len(rows.bindings) > 1 or domain is not tables.nodes(domain.table):
        return None
    if binding.positions is not domain.present:
        return None
    forward = closing.source == step.source
    direction = closing.direction if forward else closing.direction.reversed
    ways = ((step.edge, step.direction), (closing.edge, direction))
    if step.target != (closing.target if forward else step.target):
        return None
    if context.mode is TraversalMode.AUTO and not all(
        tables.holds_step(edge, way, domain.table, step.target) for edge, way in ways
    ):
        return None
    parts = [tables.adjacency(edge, way, domain.table, step.target).distinct for edge, way in ways]
    if not all(isinstance(part, FiledLists) for part in parts):
        return None  # one of the ways is not in memory
    size = max(part.nodes for part in parts)
    ways_degrees = [_degrees(part, size) for part in parts]
    total, shared = int(ways_degrees[0].sum()), 0
    for begin, end in runs_of(ways_degrees[0] + ways_degrees[1], COSTS.count_edges_together):
        merged = np.concatenate(
            [_pairs(part, own, begin, end) for part, own in zip(parts, ways_degrees, strict=True)]
        )
        context.watch.hold(_BYTES_A_STEP * len(merged))
        merged.sort(kind="stable")  # two ascending runs: a merge
        shared += int(np.count_nonzero(merged[1:] == merged[:-1]))
        context.watch.tick()
    return total, shared


def _degrees(lists: ListView, size: int) -> np.ndarray:
    degrees = np.zeros(size, np.int64)
    degrees[: lists.nodes] = lists.degrees(np.arange(lists.nodes))
    return degrees


def _pairs(lists: ListView, degrees: np.ndarray, begin: int, end: int) -> np.ndarray:
    """Node and neighbour as one integer, ascending, of the nodes between two numbers."""
    keys = np.repeat(np.arange(begin, end, dtype=np.int64) << 32, degrees[begin:end])
    keys |= lists.between(begin, end) if begin < lists.nodes else np.empty(0, np.int64)
    return keys


def _are_held(context: Context, steps: Sequence[Step], source: TableKey) -> bool:
    for step in steps:
        if not context.tables.holds_step(step.edge, step.direction, source, step.target):
            return False
        source = step.target
    return True


def _totals(
    context: Context, steps: Sequence[Step], source: TableKey
) -> tuple[Rows, list[np.ndarray]] | None:
    """The walks of each length from all nodes, as one row: by their second nodes, as many come in
    as the degree backwards, and as many go on as there are walks from there."""
    first = steps[0]
    if not isinstance(_lists(context, first, source), FiledLists):
        return None  # the way back is not in memory
    step = (first.edge, first.direction.reversed, first.target, source)
    back = context.tables.adjacency(*step)
    lists: ListView = back.distinct if isinstance(first, ir.Expand) else back.multiple
    second = _lists(context, steps[1], first.target)
    further = []
    for length in range(3, len(steps) + 1):
        onward = _from_every_node(context, steps[1:length], first.target)
        if onward is None:
            return None
        further.append(onward)
    totals = [0] * len(steps)
    for begin in range(0, lists.nodes, COSTS.count_nodes_together):
        end = min(begin + COSTS.count_nodes_together, lists.nodes)
        incoming = _degrees_between(lists, begin, end)
        totals[0] += int(incoming.sum())
        onwards = [_degrees_between(second, begin, end), *(each[begin:end] for each in further)]
        for number, onward in enumerate(onwards, start=1):
            if not _is_safe(onward, incoming):
                return None
            totals[number] += int(np.dot(incoming[: len(onward)], onward))
        context.watch.tick()
    if max(totals) >= _SAFE:
        return None
    return Rows(1, {}, {}), [np.array([total]) for total in totals]


def _degrees_between(lists: ListView, begin: int, end: int) -> np.ndarray:
    """The degrees of the nodes between two numbers, as far as there are such nodes."""
    return lists.degrees(np.arange(begin, max(begin, min(end, lists.nodes)))).astype(np.int64)


def _lists(context: Context, step: Step, source: TableKey) -> ListView:
    adjacency = context.tables.adjacency(step.edge, step.direction, source, step.target)
    return adjacency.distinct if isinstance(step, ir.Expand) else adjacency.multiple


def _from_every_node(
    context: Context, steps: Sequence[Step], source: TableKey
) -> np.ndarray | None:
    """The number of walks along these steps from every node of a table, by its number."""
    lists = _lists(context, steps[0], source)
    everyone = np.arange(lists.nodes)
    degrees = lists.degrees(everyone).astype(np.int64)
    if len(steps) == 1:
        return degrees
    onward = _from_every_node(context, steps[1:], steps[0].target)
    if onward is None or not _is_safe(onward, degrees):
        return None
    counts = np.zeros(lists.nodes, np.int64)
    for begin, end in runs_of(degrees, COSTS.count_edges_together):
        reached, own = lists.between(begin, end), degrees[begin:end]
        context.watch.hold(_BYTES_A_STEP * len(reached))
        filled = np.flatnonzero(own)
        if len(filled):
            starts = np.cumsum(own) - own
            counts[begin + filled] = np.add.reduceat(onward[reached], starts[filled])
        context.watch.tick()
    return counts


def _is_safe(onward: np.ndarray, degrees: np.ndarray) -> bool:
    """Whether no sum can leave 64 bits."""
    most = int(onward.max(initial=0))
    return most * max(int(degrees.sum()), 1) < _SAFE
