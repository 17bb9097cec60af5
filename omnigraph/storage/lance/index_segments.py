"""Secondary indexes of a table: index segments planned, built and staged.

Invariant: all new indexes of a table are staged together and become one version of it, so that they
are built before any lock is taken and published, or not, with the rest of the write.

An index is made of segments, each over some fragments of the table. Rows written since get a
segment of their own, so that an index costs what changed; it takes in segments that are not much
larger, so that there are few (a log-structured merge). Fragments that become one fragment must lie
in one segment, so segments that share such a group are built as one.

Lance returns a changed row by its older text or vector too, once a second segment covers the row.
So a segment of texts or vectors gets fragments of new rows alone; changed rows wait, compared one
by one, until the index is built anew.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, cast

import pyarrow.compute as pc
from lance.dataset import Index, LanceOperation, Transaction
from lance.fragment import LanceFragment

from omnigraph.costs import COSTS
from omnigraph.light_dataclass import dataclass
from omnigraph.storage.lance.columns import CREATED
from omnigraph.storage.lance.datasets import Handle

_EXACT = frozenset({"BTree"})
"""Types, as Lance names them, whose segments answer by what a row is now."""


@dataclass(frozen=True, slots=True)
class IndexFacts:
    """An index that a table version has."""

    name: str
    column: str
    index_type: str  # as Lance names it
    rows: int  # that it covers
    behind: int  # rows that it does not cover

    @property
    def is_whole(self) -> bool:
        """Whether it covers every row."""
        return not self.behind


@dataclass(frozen=True, slots=True)
class IndexRequest:
    """A requested index over every row. With `anew`, no segment of an existing one is kept."""

    column: str
    index_type: str
    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    anew: bool = False


def facts(handle: Handle) -> tuple[IndexFacts, ...]:
    """Every index of a version."""
    fragments = {each.fragment_id: each for each in handle.get_fragments()}
    return tuple(
        IndexFacts(
            name=index.name,
            column=".".join(index.field_names),
            index_type=index.index_type,
            rows=int(index.num_rows_indexed),
            behind=sum(_rows(fragments[number]) for number in fragments.keys() - _covered(index)),
        )
        for index in handle.describe_indices()
    )


@dataclass(frozen=True, slots=True)
class IndexLag:
    """The fragments that an index does not cover, and their rows: `fresh` ones have rows that are
    newer than all of it, `stale` ones also rows that it knows by older values."""

    fresh: frozenset[int]
    fresh_rows: int
    stale: frozenset[int]
    stale_rows: int


def lag(handle: Handle, name: str) -> IndexLag:
    """How far an index of a version is behind."""
    return _lag(handle, next(each for each in handle.describe_indices() if each.name == name))


def _lag(handle: Handle, index: Any) -> IndexLag:
    covered = _covered(index)
    left = [each for each in handle.get_fragments() if each.fragment_id not in covered]
    rows = {each.fragment_id: _rows(each) for each in left}
    stale: set[int] = set()
    if index.index_type not in _EXACT:
        newest = max(segment.dataset_version_at_last_update for segment in index.segments)
        for each in left:
            created = handle.scanner(columns=[CREATED], fragments=[each]).to_table()[CREATED]
            if pc.any(pc.less_equal(created, int(newest)), min_count=0).as_py():
                stale.add(each.fragment_id)
    fresh = frozenset(rows) - stale
    return IndexLag(
        fresh, sum(rows[n] for n in fresh), frozenset(stale), sum(rows[n] for n in stale)
    )


@dataclass(frozen=True, slots=True)
class SegmentPlan:
    """A segment to build, over these fragments."""

    request: IndexRequest
    fragments: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """The segments to build for indexes to cover every row, and the ids of those they replace."""

    segments: tuple[SegmentPlan, ...] = ()
    replaced: frozenset[str] = frozenset()


def planned(
    handle: Handle,
    requests: Iterable[IndexRequest],
    groups: Iterable[Sequence[int]] = (),
    gone: Collection[str] = (),
) -> IndexPlan:
    """The segments to build so that every index covers every row and no group of fragments is split
    between two segments. The indexes named as gone are dropped."""
    known = {index.name: index for index in handle.describe_indices()}
    together = [frozenset(group) for group in groups]
    segments: list[SegmentPlan] = []
    replaced = {str(s.uuid) for name in gone for s in known[name].segments}
    for request in requests:
        cells = _cells(handle, known.get(request.name), request)
        for fragments, uuids in _joined(cells, together):
            segments.append(SegmentPlan(request, tuple(sorted(fragments))))
            replaced |= uuids
    return IndexPlan(tuple(segments), frozenset(replaced))


Cell = tuple[frozenset[int], frozenset[str], bool]
"""Fragments, the segments that cover them now, and whether they have to be built."""


def inherited(handle: Handle) -> frozenset[int]:
    """The fragments that an index of the branch this one was forked from covers.

    They must not be rewritten here: Lance writes the index that follows them into this branch and
    keeps looking for it in the other.
    """
    if not handle.base_paths():
        return frozenset()
    segments = (segment for index in handle.describe_indices() for segment in index.segments)
    return frozenset(n for s in segments if s.base_id is not None for n in s.fragment_ids)


def _cells(handle: Handle, index: Any, request: IndexRequest) -> list[Cell]:
    present = frozenset(_fragments(handle))
    if index is None:
        return [(present, frozenset(), True)]
    if request.anew:
        return [(present, frozenset(str(segment.uuid) for segment in index.segments), True)]
    cells = [
        (frozenset(segment.fragment_ids) & present, frozenset({str(segment.uuid)}), False)
        for segment in index.segments
    ]
    fresh = _lag(handle, index).fresh
    return _grown(handle, cells, fresh) if fresh else cells


def _grown(handle: Handle, cells: list[Cell], fresh: frozenset[int]) -> list[Cell]:
    """A new cell of fresh fragments and of the cells that are not much larger."""
    rows = {each.fragment_id: _rows(each) for each in handle.get_fragments()}
    sizes = [sum(rows[number] for number in cell[0]) for cell in cells]
    total, taken = sum(rows[number] for number in fresh), frozenset[str]()
    kept: list[Cell] = []
    for size, cell in sorted(zip(sizes, cells, strict=True), key=lambda each: each[0]):
        if size <= COSTS.segment_growth * total and not kept:
            fresh, taken, total = fresh | cell[0], taken | cell[1], total + size
        else:
            kept.append(cell)
    return [*kept, (fresh, taken, True)]


def left_out(handle: Handle, requests: Iterable[IndexRequest]) -> dict[int, frozenset[str]]:
    """By fragment: the requested indexes that will not cover it. No compaction may mix them."""
    known = {index.name: index for index in handle.describe_indices()}
    names: dict[int, set[str]] = {}
    for request in requests:
        if request.name in known and not request.anew:
            for number in _lag(handle, known[request.name]).stale:
                names.setdefault(number, set()).add(request.name)
    return {number: frozenset(each) for number, each in names.items()}


def _joined(
    cells: Sequence[Cell], groups: Iterable[frozenset[int]]
) -> list[tuple[frozenset[int], frozenset[str]]]:
    """The segments to build, once cells that share a group are joined."""
    for group in groups:
        shared = [cell for cell in cells if cell[0] & group]
        if len(shared) > 1:
            fragments = frozenset[int]().union(*(cell[0] for cell in shared))
            uuids = frozenset[str]().union(*(cell[1] for cell in shared))
            cells = [cell for cell in cells if not cell[0] & group]
            cells = [*cells, (fragments, uuids, True)]
    return [(fragments, uuids) for fragments, uuids, is_new in cells if is_new]


def staged(handle: Handle, plan: IndexPlan, built: Sequence[Index]) -> Transaction:
    """One transaction that adds built segments and removes those they replace."""
    return Transaction(
        handle.version, LanceOperation.CreateIndex(list(built), named(handle, plan.replaced))
    )


def build(handle: Handle, plan: SegmentPlan) -> Index:
    """Build a segment. No version names it yet."""
    return finished(handle, plan.request, [build_part(handle, plan.request, plan.fragments)])


def build_part(handle: Handle, request: IndexRequest, fragments: Iterable[int]) -> Index:
    """Build a part of a segment, in any process."""
    return handle.create_index_uncommitted(
        request.column,
        request.index_type,
        name=request.name,
        replace=True,
        fragment_ids=sorted(fragments),
        **_parameters(handle, request, set(fragments)),
    )


def _parameters(handle: Handle, request: IndexRequest, fragments: set[int]) -> dict[str, Any]:
    """The parameters of a segment; few vectors make few partitions."""
    parameters = dict(request.parameters)
    if "num_partitions" in parameters:
        own = [each for each in handle.get_fragments() if each.fragment_id in fragments]
        most = sum(_rows(each) for each in own) // COSTS.vectors_per_partition
        parameters["num_partitions"] = max(1, min(most, parameters["num_partitions"]))
    return parameters


def finished(handle: Handle, request: IndexRequest, parts: Sequence[Index]) -> Index:
    """A segment of its parts. A text index is unreadable until its parts are merged."""
    if len(parts) == 1 and request.index_type != "INVERTED":
        return parts[0]
    return handle.merge_existing_index_segments(list(parts))


def named(handle: Handle, uuids: Iterable[str]) -> list[Index]:
    """Segments as a commit that removes them names them."""
    removed = set(uuids)
    return [
        Index(
            uuid=str(segment.uuid),
            name=index.name,
            fields=list(index.fields),
            dataset_version=segment.dataset_version_at_last_update,
            fragment_ids=cast(Any, set(segment.fragment_ids)),
            index_version=segment.index_version,
        )
        for index in handle.describe_indices()
        for segment in index.segments
        if str(segment.uuid) in removed
    ]


def _fragments(handle: Handle) -> set[int]:
    return {fragment.fragment_id for fragment in handle.get_fragments()}


def _rows(fragment: LanceFragment) -> int:
    return int(fragment.metadata.physical_rows - fragment.num_deletions)


def _covered(index: Any) -> set[int]:
    return {number for segment in index.segments for number in segment.fragment_ids}
