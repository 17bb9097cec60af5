"""Which rows may differ between two versions of a table, at the cost of what was written between.

Two versions are joined by a path of spans: down to the version where their Lance branches parted
and up again. What each span touched is composed into one list.

Invariant: an id that is not listed has the same content in both versions, under the same row id.
An id that is listed may still be equal: rows are written again without being changed.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from threading import Lock

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import BadRequest, NotFound
from omnigraph.storage.lance.datasets import Datasets, ForkId
from omnigraph.storage.lance.direct_read import InPlace
from omnigraph.storage.lance.parallel import together
from omnigraph.storage.lance.row_cache import Carried, Read
from omnigraph.storage.lance.spans import (
    AFTER,
    BEFORE,
    TOUCHED,
    Columns,
    Ends,
    Found,
    Span,
    composed,
    reversed_,
)
from omnigraph.storage.lance.tables import KEY
from omnigraph.storage.names import decode
from omnigraph.storage.records import TablePin

_SPANS_MAX = 64
_SPAN_ROWS_MAX = 200_000
_ROWS_BYTES_MAX = 32 << 20


@dataclass(frozen=True, slots=True)
class _Point:
    """A version on one Lance branch of a table."""

    branch: str | None
    fork: str
    version: int

    @property
    def line(self) -> tuple[str | None, str]:
        return self.branch, self.fork


class Deltas:
    """Compares versions of tables. Remembers small spans: a span never changes."""

    def __init__(self, datasets: Datasets, carried: Carried) -> None:
        self._datasets = datasets
        self._carried = carried
        self._in_place = InPlace()
        self._spans: OrderedDict[Span, Found] = OrderedDict()
        self._turn = Lock()

    def touched(self, before: TablePin, after: TablePin, *, columns: Columns = None) -> pa.Table:
        """The ids that may differ between two versions of a table, sorted. Who is about to read the
        rows names the columns: if the rows are few, they are read on the way and carried to the
        readers of both versions."""
        if before.location != after.location:
            raise BadRequest(
                f"{before.table_key} was dropped and added again between the two versions",
                "compare points on one side of that",
            )
        down, up = self._path(before, after)
        found = self._found(before, [*down, *up], columns)
        steps = [reversed_(found[span].touched) for span in down]
        steps += [found[span].touched for span in up]
        joined = reduce(composed, steps) if steps else TOUCHED.empty_table()
        present = pc.or_(pc.is_valid(joined[BEFORE]), pc.is_valid(joined[AFTER]))
        if columns is not None and steps and all(each.has_rows for each in found.values()):
            self._carry(before, after, down, up, found)
        return joined.filter(present).sort_by(KEY)

    def clear(self) -> None:
        """Forget everything."""
        with self._turn:
            self._spans.clear()
        self._in_place.clear()
        self._carried.clear()

    def _carry(
        self,
        before: TablePin,
        after: TablePin,
        down: list[Span],
        up: list[Span],
        found: dict[Span, Found],
    ) -> None:
        """Keep the rows for the readers of both versions. On the way from a version the first span
        that touched a row id has read it as the version holds it."""
        ends = {span: self._ends(before, span) for span in found}
        news: dict[Span, Read] = {s: (ends[s].high, found[s].new) for s in found}
        olds: dict[Span, Read] = {s: (ends[s].low, found[s].old) for s in found}
        forth = [news[span] for span in down] + [olds[span] for span in up]
        back = [news[span] for span in reversed(up)] + [olds[span] for span in reversed(down)]
        for pin, reads in ((before, forth), (after, back)):
            self._carried.keep(pin, self._datasets.at(pin), reads)

    # The path

    def _path(self, before: TablePin, after: TablePin) -> tuple[list[Span], list[Span]]:
        """Spans from `before` down to where the two part, and from there up to `after`."""
        ours, theirs = self._chain(before), self._chain(after)
        lines = {point.line: index for index, point in enumerate(theirs)}
        for index, point in enumerate(ours):
            other = lines.get(point.line)
            if other is not None:
                low = min(point.version, theirs[other].version)
                down = _spans(before.location, ours[: index + 1], low)
                up = _spans(before.location, theirs[: other + 1], low)
                return down, up[::-1]
        raise NotFound("common version", before.table_key, "its branches share no history")

    def _chain(self, pin: TablePin) -> list[_Point]:
        """A version and the fork points below it, down to the table's first branch."""
        chain = [_Point(pin.branch, pin.fork, pin.version)]
        branch = pin.branch
        while branch is not None:
            ref = self._datasets.ref(pin.location, branch)
            if ref is None or ref.identity != chain[-1].fork:
                raise NotFound("data of branch", branch, "the branch was deleted")
            branch = None if ref.parent_branch is None else decode(ref.parent_branch)
            chain.append(_Point(branch, self._fork_of(pin.location, branch), ref.parent_version))
        return chain

    def _fork_of(self, location: str, branch: str | None) -> str:
        ref = None if branch is None else self._datasets.ref(location, branch)
        return "" if ref is None else ref.identity

    # Spans

    def _found(self, base: TablePin, spans: list[Span], columns: Columns) -> dict[Span, Found]:
        """What each span touched: remembered, or read, all that is missing at once."""
        with self._turn:
            known = {span: self._spans[span] for span in spans if span in self._spans}
            for span in known:
                self._spans.move_to_end(span)
        fresh = [span for span in spans if span not in known]
        ends = [self._ends(base, span) for span in fresh]
        reads: list[Callable[[], pa.Table | pa.Array]] = []
        for each in ends:
            reads += [each.lost, partial(each.wrote, columns)]
        parts = together(reads)
        pairs = list(zip(parts[::2], parts[1::2], strict=True))
        for span, each, pair in zip(fresh, ends, pairs, strict=True):
            known[span] = each.found(*pair, columns)
            self._remember(span, known[span])
        return known

    def _ends(self, base: TablePin, span: Span) -> Ends:
        low, high = (self._datasets.at(span.pin(base, at)) for at in (span.low, span.high))
        return Ends(self._datasets, self._in_place, base.table_key, low, high)

    def _remember(self, span: Span, found: Found) -> None:
        if found.touched.num_rows > _SPAN_ROWS_MAX:
            return
        with self._turn:
            self._spans[span] = found
            while len(self._spans) > _SPANS_MAX:
                self._spans.popitem(last=False)
            self._forget_rows()

    def _forget_rows(self) -> None:
        """Hold no more rows than a few comparisons need; the oldest go first."""
        held = 0
        for span, found in list(reversed(self._spans.items())):
            held += found.rows_bytes
            if found.has_rows and held > _ROWS_BYTES_MAX:
                self._spans[span] = Found(found.touched)


def _spans(location: str, chain: list[_Point], low: int) -> list[Span]:
    """The stretches of a chain from its tip down to `low` on its last branch."""
    ends = [*(point.version for point in chain[1:]), low]
    return [
        Span(location, point.branch, ForkId(point.fork), end, point.version)
        for point, end in zip(chain, ends, strict=True)
        if end != point.version
    ]
