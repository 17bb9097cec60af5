"""Which rows may differ between two versions of a table, at the cost of what was written between.

Two versions are joined by a path of spans: down to the version where their Lance branches parted
and up again. Inside a span every row written since its low end lies in a fragment the low end does
not have and carries a newer stamp, and Lance lists the row ids that are gone.

Invariant: an id that is not listed has the same content in both versions, under the same row id.
An id that is listed may still be equal: rows are written again without being changed.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial, reduce
from threading import Lock

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import BadRequest, NotFound, OmnigraphError
from omnigraph.storage.datasets import Datasets, ForkId, Handle
from omnigraph.storage.names import decode
from omnigraph.storage.records import TablePin
from omnigraph.storage.rowids import rows_by_id
from omnigraph.storage.tables import KEY
from omnigraph.storage.together import together

BEFORE, AFTER = "before", "after"
TOUCHED = pa.schema(
    [
        pa.field(KEY, pa.string(), nullable=False),
        pa.field(BEFORE, pa.uint64()),
        pa.field(AFTER, pa.uint64()),
    ]
)
"""An id with its row id in either version; null where the version lacks it."""

_SPANS_MAX = 64
_SPAN_ROWS_MAX = 200_000


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
class _Span:
    """Two versions of one Lance branch, `low` the older."""

    location: str
    branch: str | None
    fork: str
    low: int
    high: int

    def pin(self, base: TablePin, version: int) -> TablePin:
        return TablePin(base.table_key, self.location, version, self.branch, self.fork)


class Deltas:
    """Compares versions of tables. Remembers small spans: a span never changes."""

    def __init__(self, datasets: Datasets) -> None:
        self._datasets = datasets
        self._spans: OrderedDict[_Span, pa.Table] = OrderedDict()
        self._turn = Lock()

    def touched(self, before: TablePin, after: TablePin) -> pa.Table:
        """The ids that may differ between two versions of a table, sorted."""
        if before.location != after.location:
            raise BadRequest(
                f"{before.table_key} was dropped and added again between the two versions",
                "compare points on one side of that",
            )
        down, up = self._path(before, after)
        found = self._found(before, [*down, *up])
        steps = [_reversed(found[span]) for span in down] + [found[span] for span in up]
        joined = reduce(_composed, steps) if steps else TOUCHED.empty_table()
        present = pc.or_(pc.is_valid(joined[BEFORE]), pc.is_valid(joined[AFTER]))
        return joined.filter(present).sort_by(KEY)

    # The path

    def _path(self, before: TablePin, after: TablePin) -> tuple[list[_Span], list[_Span]]:
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

    def _found(self, base: TablePin, spans: list[_Span]) -> dict[_Span, pa.Table]:
        """What each span touched: remembered, or read, all that is missing at once."""
        with self._turn:
            known = {span: self._spans[span] for span in spans if span in self._spans}
            for span in known:
                self._spans.move_to_end(span)
        fresh = [span for span in spans if span not in known]
        reads = [partial(read, base, span) for span in fresh for read in (self._wrote, self._lost)]
        parts = iter(together(reads))
        for span in fresh:
            known[span] = _joined(next(parts), next(parts))
            self._remember(span, known[span])
        return known

    def _wrote(self, base: TablePin, span: _Span) -> pa.Table:
        low, high = self._ends(base, span)
        with self._datasets.lance_call("delta", base.table_key):
            return _written(low, high)

    def _lost(self, base: TablePin, span: _Span) -> pa.Table:
        low, high = self._ends(base, span)
        try:
            with self._datasets.lance_call("deleted_row_ids", base.table_key):
                return _gone(low, high)
        except OmnigraphError:
            # Lance cannot answer when versions between were reclaimed: compare the ids.
            with self._datasets.lance_call("compare_ids", base.table_key):
                return _missing(low, high)

    def _ends(self, base: TablePin, span: _Span) -> tuple[Handle, Handle]:
        low, high = (self._datasets.at(span.pin(base, at)) for at in (span.low, span.high))
        return low, high

    def _remember(self, span: _Span, found: pa.Table) -> None:
        if found.num_rows > _SPAN_ROWS_MAX:
            return
        with self._turn:
            self._spans[span] = found
            while len(self._spans) > _SPANS_MAX:
                self._spans.popitem(last=False)


def _spans(location: str, chain: list[_Point], low: int) -> list[_Span]:
    """The stretches of a chain from its tip down to `low` on its last branch."""
    ends = [*(point.version for point in chain[1:]), low]
    return [
        _Span(location, point.branch, ForkId(point.fork), end, point.version)
        for point, end in zip(chain, ends, strict=True)
        if end != point.version
    ]


def _written(low: Handle, high: Handle) -> pa.Table:
    """Rows of `high` written after `low`: id, row id, and whether `low` had that row."""
    known = {_files(fragment) for fragment in low.get_fragments()}
    fresh = [fragment for fragment in high.get_fragments() if _files(fragment) not in known]
    if not fresh:
        return pa.table({KEY: pa.array([], pa.string()), AFTER: pa.array([], pa.uint64())})
    rows = high.scanner(
        columns=[KEY, "_rowid", "_row_created_at_version"],
        filter=f"_row_last_updated_at_version > {low.version}",
        fragments=fresh,
    ).to_table()
    updated = pc.less_equal(rows["_row_created_at_version"], int(low.version))
    before = pc.if_else(updated, rows["_rowid"], pa.scalar(None, pa.uint64()))
    return pa.table({KEY: rows[KEY], BEFORE: before, AFTER: rows["_rowid"]})


def _files(fragment: object) -> tuple[str, ...]:
    return tuple(file.path for file in fragment.metadata.files)  # type: ignore[attr-defined]


def _gone(low: Handle, high: Handle) -> pa.Table:
    """Rows of `low` that `high` lacks: id and row id."""
    nothing = pa.table({KEY: pa.array([], pa.string()), BEFORE: pa.array([], pa.uint64())})
    if low.count_rows() == 0:
        return nothing
    delta = high.delta(compared_against=int(low.version))
    ids = delta.get_deleted_row_ids().read_all()["_rowid"].combine_chunks()
    if not len(ids):
        return nothing
    rows = rows_by_id(low, ids, [KEY])
    return pa.table({KEY: rows[KEY], BEFORE: ids.cast(pa.uint64())})


def _missing(low: Handle, high: Handle) -> pa.Table:
    """The same by reading every row id of both."""
    ours = low.scanner(columns=[KEY], with_row_id=True).to_table()
    theirs = high.scanner(columns=[], with_row_id=True).to_table()
    gone = ours.filter(pc.invert(pc.is_in(ours["_rowid"], theirs["_rowid"].combine_chunks())))
    return pa.table({KEY: gone[KEY], BEFORE: gone["_rowid"]})


def _joined(written: pa.Table, gone: pa.Table) -> pa.Table:
    """One line an id. A row deleted and inserted again under its id is one line, not two."""
    if written.num_rows == 0:
        return _table(gone[KEY], gone[BEFORE], pa.nulls(gone.num_rows, pa.uint64()))
    if gone.num_rows == 0:
        return _table(written[KEY], written[BEFORE], written[AFTER])
    places, rest = _matched(written, gone)
    before = pc.coalesce(written[BEFORE], gone[BEFORE].take(places))
    nothing = pa.nulls(rest.num_rows, pa.uint64())
    return pa.concat_tables(
        [_table(written[KEY], before, written[AFTER]), _table(rest[KEY], rest[BEFORE], nothing)]
    )


def _composed(first: pa.Table, second: pa.Table) -> pa.Table:
    """Two steps as one: an id only one of them lists kept its row in the other."""
    if first.num_rows == 0 or second.num_rows == 0:
        return second if first.num_rows == 0 else first
    places, rest = _matched(first, second)
    after = pc.if_else(places.is_valid(), second[AFTER].take(places), first[AFTER])
    return pa.concat_tables([_table(first[KEY], first[BEFORE], after), rest])


def _matched(one: pa.Table, other: pa.Table) -> tuple[pa.Array, pa.Table]:
    """For each id of `one` its place in `other`, or null; and the lines of `other` without one."""
    mine, theirs = (table[KEY].combine_chunks() for table in (one, other))
    rest = other.filter(pc.invert(pc.is_in(theirs, value_set=mine)))
    return pc.index_in(mine, value_set=theirs), rest


def _reversed(touched: pa.Table) -> pa.Table:
    return _table(touched[KEY], touched[AFTER], touched[BEFORE])


def _table(ids: pa.ChunkedArray, before: Iterable[int], after: Iterable[int]) -> pa.Table:
    return pa.table([ids, before, after], schema=TOUCHED)
