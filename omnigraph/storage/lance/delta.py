"""Delta of two table versions: the ids that may differ, at the cost of what was written between.

Two versions are joined by a path of spans: down to the version where their Lance branches parted
and up again. The change sets of the spans are composed into one.

Invariant: an id that is not listed has the same content in both versions, under the same row id.
An id that is listed may still be equal: rows are written again without being changed.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial, reduce

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.costs import COSTS
from omnigraph.errors import BadRequest, NotFound
from omnigraph.light_dataclass import dataclass
from omnigraph.lru import Lru
from omnigraph.storage.lance.columns import KEY, ROW_ID
from omnigraph.storage.lance.datasets import Datasets
from omnigraph.storage.lance.direct_read import DirectReader
from omnigraph.storage.lance.parallel import together
from omnigraph.storage.lance.refs import ForkId
from omnigraph.storage.lance.row_cache import RowCache, RowsRead
from omnigraph.storage.lance.spans import (
    AFTER,
    BEFORE,
    TOUCHED,
    Columns,
    Ends,
    SpanChanges,
    SpanRows,
    VersionSpan,
    composed,
    reversed_,
)
from omnigraph.storage.names import decode
from omnigraph.storage.records import TablePin


@dataclass(frozen=True, slots=True)
class _Point:
    """A version on one Lance branch of a table."""

    branch: str | None
    fork: str
    version: int

    @property
    def line(self) -> tuple[str | None, str]:
        return self.branch, self.fork


@dataclass(frozen=True, slots=True)
class _SpanStep:
    """A span on the way from one version to another, walked down to an older one or up."""

    span: VersionSpan
    is_down: bool

    def applied(self, touched: pa.Table) -> pa.Table:
        """What the span touched, in the direction of the walk."""
        return reversed_(touched) if self.is_down else touched


class Deltas:
    """Compares versions of tables. A span never changes, so small ones are kept in LRUs: the ids
    they touched by count, their rows by bytes."""

    def __init__(self, datasets: Datasets, row_cache: RowCache) -> None:
        self._datasets = datasets
        self._row_cache = row_cache
        self._direct = DirectReader()
        self._touched: Lru[VersionSpan, pa.Table] = Lru(COSTS.spans_max)
        self._rows: Lru[VersionSpan, SpanRows] = Lru(
            COSTS.span_rows_bytes_max, lambda rows: rows.nbytes
        )

    def touched(
        self,
        before: TablePin,
        after: TablePin,
        *,
        columns: Columns = None,
        via: TablePin | None = None,
    ) -> pa.Table:
        """The ids that may differ between two versions of a table, sorted. A caller that is about
        to read the rows names the columns: if the rows are few, they are read on the way and kept
        in the row cache for the readers of both versions. `via` is a version between the two whose
        own differences from both were just read: nothing is read twice."""
        for pin in (after, via):
            if pin is not None and before.location != pin.location:
                raise BadRequest(
                    f"{before.table_key} was dropped and added again between the two versions",
                    "compare points on one side of that",
                )
        steps = self._steps(before, after)
        if via is not None:
            steps = [*self._steps(before, via), *self._steps(via, after)]
        changes = self._changes(before, [each.span for each in steps], columns)
        tables = [each.applied(changes[each.span].touched) for each in steps]
        joined = reduce(composed, tables) if tables else TOUCHED.empty_table()
        present = pc.or_(pc.is_valid(joined[BEFORE]), pc.is_valid(joined[AFTER]))
        if columns is not None and steps:
            self._cache_rows(before, after, steps, changes)
        return joined.filter(present).sort_by(KEY)

    def ancestors(self, pin: TablePin) -> list[TablePin]:
        """The fork points below a version: the newest versions of other branches it contains."""
        below = self._chain(pin)[1:] if pin.branch is not None else []
        return [replace(pin, version=p.version, branch=p.branch, fork=p.fork) for p in below]

    def compared(
        self,
        before: TablePin,
        after: TablePin,
        *,
        columns: Columns = None,
        via: TablePin | None = None,
    ) -> pa.Table:
        """The same for two tables that may be different ones: tables of one type that two branches
        made share no history, so every id of both is listed."""
        if before.location == after.location:
            return self.touched(before, after, columns=columns, via=via)
        ours, theirs = self.listed(before), self.listed(after)
        return composed(reversed_(ours), theirs).sort_by(KEY)

    def listed(self, pin: TablePin) -> pa.Table:
        """Every id of a version, as what a new table brings."""
        with self._datasets.lance_call("scan", pin.table_key):
            rows = self._datasets.handle(pin).scanner(columns=[KEY], with_row_id=True).to_table()
        nothing = pa.nulls(rows.num_rows, pa.uint64())
        return pa.table([rows[KEY], nothing, rows[ROW_ID]], schema=TOUCHED).sort_by(KEY)

    def clear(self) -> None:
        """Forget everything."""
        self._touched.clear()
        self._rows.clear()
        self._direct.clear()
        self._row_cache.clear()

    def _cache_rows(
        self,
        before: TablePin,
        after: TablePin,
        steps: list["_SpanStep"],
        changes: dict[VersionSpan, SpanChanges],
    ) -> None:
        """Keep the rows for the readers of both versions, if every span has its rows. On the way
        from a version the first span that touched a row id has read it as the version holds it."""
        rows = {span: each.rows for span, each in changes.items() if each.rows is not None}
        if len(rows) < len(changes):
            return
        ends = {span: self._ends(before, span) for span in rows}
        news: dict[VersionSpan, RowsRead] = {s: (ends[s].high, rows[s].new) for s in rows}
        olds: dict[VersionSpan, RowsRead] = {s: (ends[s].low, rows[s].old) for s in rows}
        forth = [(news if step.is_down else olds)[step.span] for step in steps]
        back = [(olds if step.is_down else news)[step.span] for step in reversed(steps)]
        for pin, reads in ((before, forth), (after, back)):
            self._row_cache.keep(pin, self._datasets.handle(pin), reads)

    # The path

    def _steps(self, before: TablePin, after: TablePin) -> list["_SpanStep"]:
        """Spans from `before` down to where the two part, and from there up to `after`."""
        ours, theirs = self._chain(before), self._chain(after)
        lines = {point.line: index for index, point in enumerate(theirs)}
        for index, point in enumerate(ours):
            other = lines.get(point.line)
            if other is not None:
                low = min(point.version, theirs[other].version)
                down = _spans(before.location, ours[: index + 1], low)
                up = _spans(before.location, theirs[: other + 1], low)
                return [
                    *(_SpanStep(span, True) for span in down),
                    *(_SpanStep(s, False) for s in up[::-1]),
                ]
        raise NotFound("common version", before.table_key, "its branches share no history")

    def _chain(self, pin: TablePin) -> list[_Point]:
        """A version and the fork points below it, down to the table's first branch."""
        chain = [_Point(pin.branch, pin.fork, pin.version)]
        branch = pin.branch
        while branch is not None:
            ref = self._datasets.fork_refs.get(pin.location, branch, chain[-1].fork)
            if ref is None or ref.identity != chain[-1].fork:
                raise NotFound("data of branch", branch, "the branch was deleted")
            branch = None if ref.parent_branch is None else decode(ref.parent_branch)
            chain.append(_Point(branch, self._fork_of(pin.location, branch), ref.parent_version))
        return chain

    def _fork_of(self, location: str, branch: str | None) -> str:
        ref = None if branch is None else self._datasets.ref(location, branch)
        return "" if ref is None else ref.identity

    # Spans

    def _changes(
        self, base: TablePin, spans: list[VersionSpan], columns: Columns
    ) -> dict[VersionSpan, SpanChanges]:
        """What each span touched: from the LRUs, or read, all missing spans at once."""
        known = {}
        for span in spans:
            touched = self._touched.get(span)
            if touched is not None:
                known[span] = SpanChanges(touched, self._rows.get(span))
        fresh = [span for span in spans if span not in known]
        ends = [self._ends(base, span) for span in fresh]
        reads: list[Callable[[], pa.Table | pa.Array]] = []
        for each in ends:
            reads += [each.lost, partial(each.wrote, columns)]
        parts = together(reads)
        pairs = list(zip(parts[::2], parts[1::2], strict=True))
        for span, each, pair in zip(fresh, ends, pairs, strict=True):
            known[span] = each.changes(*pair, columns).kept()
            self._remember(span, known[span])
        return known

    def _ends(self, base: TablePin, span: VersionSpan) -> Ends:
        low, high = (self._datasets.handle(span.pin(base, v)) for v in (span.low, span.high))
        return Ends(self._datasets, self._direct, base.table_key, low, high)

    def _remember(self, span: VersionSpan, changes: SpanChanges) -> None:
        if changes.touched.num_rows > COSTS.span_rows_max:
            return
        self._touched.put(span, changes.touched)
        if changes.rows is not None:
            self._rows.put(span, changes.rows)


def _spans(location: str, chain: list[_Point], low: int) -> list[VersionSpan]:
    """The stretches of a chain from its tip down to `low` on its last branch."""
    ends = [*(point.version for point in chain[1:]), low]
    return [
        VersionSpan(location, point.branch, ForkId(point.fork), end, point.version)
        for point, end in zip(chain, ends, strict=True)
        if end != point.version
    ]
