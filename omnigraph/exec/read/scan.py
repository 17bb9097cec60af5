"""Node scan: the nodes of a table that satisfy a condition, with predicate pushdown.

Invariant: a scan binds the same nodes whether Lance filters them or memory does. A version that is
not resident is scanned by Lance, with the condition pushed down and only the columns the query
reads; one that is scanned again and again becomes resident, and then a key is found by binary
search and any other condition by one pass over the columns it names.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from omnigraph.costs import COSTS
from omnigraph.errors import ExpressionFailed
from omnigraph.exec.memory.version import FetchedEntities
from omnigraph.exec.read.context import Context, TraversalMode, load_compared
from omnigraph.exec.read.hash_join import equality_of, paired
from omnigraph.exec.read.key_lookup import pointed_at, points_in
from omnigraph.exec.read.members import MemberDomains, of_member
from omnigraph.exec.read.neighbour_batches import spread_in_batches
from omnigraph.exec.read.share import Share
from omnigraph.exec.values.columns import in_one
from omnigraph.exec.values.pushdown import push_down
from omnigraph.exec.values.rows import BoundEntities, Positions, Rows
from omnigraph.plan import ir
from omnigraph.types import TableKey


def scan(
    context: Context,
    op: ir.NodeScan,
    rows: Rows,
    then: ir.PatternOp | None = None,
    rows_max: int | None = None,
    known: dict[int, BoundEntities] | None = None,
) -> Iterator[Rows]:
    """Every row with every node of the table that satisfies the condition, no more than `rows_max`
    at a time unless the scan is the first operator.

    `then` is the operator that follows: pairs that it would drop need not be made. `known` keeps
    the nodes of an operator for its next batch of rows.
    """
    nodes = None if known is None else known.get(id(op))
    if nodes is None:
        nodes = _scanned(context, op)
        if known is not None:
            known[id(op)] = nodes
    if rows.length == 1 and not rows.bindings and not rows.slots:
        yield Rows(len(nodes.positions), {op.out: nodes}, {})
        return
    for batch in rows.batches(rows_max):
        equality = equality_of(op, then, batch)
        pairs = equality and paired(context, batch, op.out, nodes, equality)
        for outer, inner in (pairs,) if pairs else _all_pairs(context, batch, nodes, rows_max):
            yield batch.take(outer).bind(op.out, BoundEntities(nodes.domain, inner))


def scan_share(context: Context, op: ir.NodeScan, share: Share) -> Rows:
    """The nodes of one share of the table's rows that satisfy the condition."""
    parts = list[BoundEntities]()
    for member in op.members or (ir.Member(op.table, ()),):
        where = op.where if op.members is None else of_member(member, op.where, op.out)
        nodes = _of_share(context, member.table, share)
        parts.append(nodes if where is None else _filtered(context, op.out, nodes, where))
    if op.members is None:
        return Rows(len(parts[0].positions), {op.out: parts[0]}, {})
    domain = MemberDomains(op.table, op.members, tuple(part.domain for part in parts))
    bound = BoundEntities(domain, domain.numbered([part.positions for part in parts]))
    return Rows(len(bound.positions), {op.out: bound}, {})


def _of_share(context: Context, table: TableKey, share: Share) -> BoundEntities:
    """Rows of a table that are next to each other, as nodes. Only they are read, where the order of
    the table is not that of the numbers."""
    tables = context.tables
    source = tables.source(table)
    first, end = share.bounds(source.pin.row_count)
    few = source.pin.row_count <= COSTS.scan_whole_rows_max or context.mode is TraversalMode.CSR
    nodes = tables.nodes(table) if few else tables.resident_nodes(table)
    if nodes is not None and context.mode is not TraversalMode.INDEXED:
        if nodes.is_in_table_order:
            return BoundEntities(nodes, np.arange(first, end))
        rows = source.reader.rows(["id"], offset=first, limit=end - first)
        return BoundEntities(nodes, nodes.ids.locate(in_one(rows["id"])))
    rows = source.reader.rows(["id"], offset=first, limit=end - first)
    return BoundEntities(FetchedEntities(source, rows), np.arange(rows.num_rows))


def _scanned(context: Context, op: ir.NodeScan) -> BoundEntities:
    """The nodes that satisfy the condition, of an interface those of every member."""
    if op.members is None:
        return _looked_up(context, op) if _looks_up(context, op) else _resident(context, op)
    parts = list[BoundEntities]()
    for member in op.members:
        read = of_member(member, context.columns_read.get(op.out, ()))
        own = replace(context, columns_read={**context.columns_read, op.out: read})
        where = of_member(member, op.where, op.out)
        parts.append(_scanned(own, ir.NodeScan(op.out, member.table, where)))
    domain = MemberDomains(op.table, op.members, tuple(part.domain for part in parts))
    return BoundEntities(domain, domain.numbered([part.positions for part in parts]))


def _all_pairs(
    context: Context, rows: Rows, nodes: BoundEntities, rows_max: int | None
) -> Iterator[tuple[np.ndarray, Positions]]:
    """The cross join of rows and nodes."""
    positions = nodes.positions
    each = np.full(rows.length, len(positions))
    if rows_max is None:
        context.watch.hold(rows.bytes_as(rows.length * len(positions)))
    for outer, inner in spread_in_batches(np.zeros(rows.length, np.int64), each, rows_max):
        context.watch.hold(rows.bytes_as(len(outer)))
        yield outer, positions[inner]


def counted(context: Context, op: ir.NodeScan) -> int | None:
    """How many nodes a scan finds, when nothing has to be read to tell."""
    if op.members is not None:
        return None
    source = context.tables.source(op.table)
    if op.where is None:
        return source.pin.row_count
    pushed = push_down(op.where, context.evaluator.given, source.columns.name_of)
    if pushed.rest is not None or not _looks_up(context, op):
        return None
    return source.reader.count(pushed.filter)


def _looks_up(context: Context, op: ir.NodeScan) -> bool:
    if op.where is None or context.tables.holds_nodes(op.table):
        return context.mode is TraversalMode.INDEXED
    if context.mode is not TraversalMode.AUTO:
        return context.mode is TraversalMode.INDEXED
    return not context.tables.worth_holding(op.table, 1 if points_in(op.where) else 0)


def _looked_up(context: Context, op: ir.NodeScan) -> BoundEntities:
    source = context.tables.source(op.table)
    pushed = push_down(op.where, context.evaluator.given, source.columns.name_of)
    read = (source.columns.name_of(c) for c in context.columns_read.get(op.out, ()))
    names = list(dict.fromkeys(["id", *(name for name in read if name is not None)]))
    fetched = FetchedEntities(source, source.reader.rows(names, filter=pushed.filter))
    nodes = BoundEntities(fetched, np.arange(len(fetched)))
    if pushed.rest is None:
        return nodes
    return _filtered(context, op.out, nodes, pushed.rest, whole=True)


def _resident(context: Context, op: ir.NodeScan) -> BoundEntities:
    nodes = context.tables.nodes(op.table)
    if op.where is None:
        return BoundEntities(nodes, nodes.present)
    parts = op.where.parts if isinstance(op.where, ir.And) else (op.where,)
    cache = context.tables.holdings.cache
    for part in parts:
        positions = pointed_at(nodes, cache, part, context.evaluator.given)
        if positions is None:
            continue
        rest = tuple(other for other in parts if other is not part)
        pointed = BoundEntities(nodes, positions)
        return _filtered(context, op.out, pointed, ir.And(rest)) if rest else pointed
    every = BoundEntities(nodes, nodes.present)
    whole = every.positions is nodes.everything
    return _filtered(context, op.out, every, op.where, whole=whole)


def _filtered(
    context: Context, var: ir.Var, nodes: BoundEntities, where: ir.Expr, *, whole: bool = False
) -> BoundEntities:
    """The nodes that satisfy a condition, looked at a batch at a time. Cheap conjuncts come first,
    so that a text search sees only the nodes they leave, and those at once. `whole`: the nodes are
    all of their domain, in its order."""
    load_compared(where, {var: nodes.domain})
    parts = sorted(where.parts if isinstance(where, ir.And) else (where,), key=_has_text_match)
    if whole:
        nodes, parts = _filtered_whole(context, var, nodes, parts)
    for part in parts:
        rows = Rows(len(nodes.positions), {var: nodes}, {})
        together = (
            None if _has_text_match(part) else max(context.rows_max, COSTS.scan_whole_rows_max)
        )
        keeps = [context.evaluator.keep(part, batch) for batch in rows.batches(together)]
        keep = keeps[0] if len(keeps) == 1 else np.concatenate(keeps)
        if not keep.all():
            nodes = nodes.take(np.flatnonzero(keep))
    return nodes


def _filtered_whole(
    context: Context, var: ir.Var, nodes: BoundEntities, parts: list[ir.Expr]
) -> tuple[BoundEntities, list[ir.Expr]]:
    """The nodes of a whole domain that satisfy the first conjuncts, and the other conjuncts.

    As long as most nodes stay, a conjunct is worked out for all of them: columns as they are cost
    less than values gathered for most rows. One that fails has to be asked of those that stay.
    """
    rows = Rows(len(nodes.positions), {var: nodes}, {})
    kept: np.ndarray | None = None
    left = list(parts)
    while left and not _has_text_match(left[0]):
        if kept is not None and np.count_nonzero(kept) < COSTS.scan_kept_share_min * rows.length:
            break
        try:
            keep = context.evaluator.keep(left[0], rows)
        except ExpressionFailed:
            if kept is None:
                raise
            break
        kept = keep if kept is None else kept & keep
        left = left[1:]
    if kept is None or kept.all():
        return nodes, left
    return BoundEntities(nodes.domain, np.flatnonzero(kept)), left


def _has_text_match(expr: ir.Expr) -> bool:
    match expr:
        case ir.TextMatch():
            return True
        case ir.And(parts=parts) | ir.Or(parts=parts):
            return any(map(_has_text_match, parts))
        case ir.Not(part=part):
            return _has_text_match(part)
        case _:
            return False
