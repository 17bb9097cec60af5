"""Pattern operators in batches (pipelined, depth first): a bounded number of rows at a time.

Invariant: the batches together are the rows of the pattern, each once, and there is at least one,
though an empty one, so that every variable is bound in something. An operator passes on no more
than `rows_max` rows before those after it are done with them; so a pattern holds no more than that
for each of its operators, whatever it makes of them. Without `rows_max` there is one batch. (What
searches of paths and hash joins make of a batch of rows is one batch, however many it is.)
"""

from collections.abc import Iterator
from time import perf_counter
from typing import assert_never

from omnigraph.exec.profile import Profile
from omnigraph.exec.read.context import Context, domains_of, load_compared
from omnigraph.exec.read.expand import expand, expand_edges
from omnigraph.exec.read.joins import joined, left_join, matches, semi_join
from omnigraph.exec.read.paths import expand_paths
from omnigraph.exec.read.scan import scan
from omnigraph.exec.read.stage import staged
from omnigraph.exec.read.unwind import unwind
from omnigraph.exec.search.rank import Ranker
from omnigraph.exec.values.rows import BoundEntities, Rows
from omnigraph.plan import ir

Ops = tuple[ir.PatternOp, ...]


class Batches:
    """The pattern of one running query."""

    def __init__(self, context: Context, ranker: Ranker, profile: Profile) -> None:
        self._context = context
        self._ranker = ranker
        self.profile = profile
        self._scanned: dict[int, BoundEntities] = {}

    def solve(self, ops: Ops, rows: Rows, rows_max: int | None = None) -> Iterator[Rows]:
        """Walk rows through operators."""
        if not ops:
            yield rows
            return
        op, rest = ops[0], ops[1:]
        made = self._made(op, rows, rest[0] if rest else None, rows_max)
        empty, has_rows = None, False
        for batch in self._watched(op, made):
            if not batch.length:
                empty = batch
                continue
            has_rows = True
            self.profile.hold(batch.length)
            yield from self.solve(rest, batch, rows_max)
            self.profile.hold(-batch.length)
        if not has_rows:
            assert empty is not None, "an operator gives a batch, though an empty one"
            yield from self.solve(rest, empty, rows_max)

    def _watched(self, op: ir.PatternOp, made: Iterator[Rows]) -> Iterator[Rows]:
        """The batches of an operator, with the time that making them took."""
        watch = self._context.watch
        while True:
            watch.operator = op
            since = perf_counter()
            batch = next(made, None)
            if batch is None:
                return
            self.profile.operator(op, batch.length, since)
            watch.tick()
            yield batch

    def _made(
        self, op: ir.PatternOp, rows: Rows, then: ir.PatternOp | None, rows_max: int | None
    ) -> Iterator[Rows]:
        if isinstance(op, ir.NodeScan):
            yield from scan(self._context, op, rows, then, rows_max, self._scanned)
            return
        for batch in rows.batches(rows_max):
            yield from self._made_of(op, batch, rows_max)

    def _made_of(self, op: ir.PatternOp, rows: Rows, rows_max: int | None) -> Iterator[Rows]:
        context = self._context
        match op:
            case ir.Expand():
                yield from expand(context, op, rows, rows_max)
            case ir.ExpandEdges():
                yield from expand_edges(context, op, rows, rows_max)
            case ir.ExpandPaths():
                yield from expand_paths(context, op, rows, rows_max)
            case ir.Filter(where=where):
                load_compared(where, domains_of(rows))
                yield rows.where(context.evaluator.keep(where, rows))
            case ir.Unwind():
                yield from unwind(context, op, rows, rows_max)
            case ir.Stage():
                yield staged(context, self._ranker, op, rows)
            case ir.SemiJoin():
                yield semi_join(context, op, rows, self._inner)
            case ir.Matches():
                yield matches(context, op, rows, self._inner)
            case ir.LeftJoin() if rows_max is None:
                yield joined(left_join(op, rows, self.solve))
            case ir.LeftJoin():
                yield from left_join(op, rows, self._inner)
            case ir.NodeScan():
                raise AssertionError("a scan takes its rows in batches itself")
            case _:
                assert_never(op)

    def _inner(self, ops: Ops, rows: Rows) -> Iterator[Rows]:
        """The solutions of an inner pattern, which only have to be counted or passed on."""
        return self.solve(ops, rows, self._context.rows_max)
