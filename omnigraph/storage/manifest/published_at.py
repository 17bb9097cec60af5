"""Manifest version of a row: the version of `__manifest` that published it.

A row carries the version that created it as Lance stamps rows, and names it in its metadata too.
Folding takes the stamp of an old row away (it becomes 0) when the row names the same version, so
that the runs of stamps stay few. A row whose publish was rebased names another one and keeps its
stamp, and so does a row of an earlier program, which names none.

A commit replaces the head row, so every third row id is one of a row that is gone, and a version
would list the gaps. Folding therefore gives the rows that it rewrites the ids from their lowest on,
without a gap. Nothing but Lance knows a row of `__manifest` by its id.

Invariant: row ids are unique. A stamp that is not 0 is right; where it is
0 the name is. A row that was published within the last `exact_versions` versions has its stamp.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.costs import COSTS
from omnigraph.storage.lance.columns import CREATED, ROW_ID
from omnigraph.storage.lance.datasets import Handle
from omnigraph.storage.lance.row_versions import (
    FragmentJson,
    Joins,
    row_id_span,
    set_row_ids,
    set_stamps,
    stamps_of,
)
from omnigraph.storage.lance.strict_commit import known_fragments
from omnigraph.storage.records import GRAPH_COMMIT, TABLE_TOMBSTONE, TABLE_VERSION

_NAMED = '"manifest_version":(?P<version>[0-9]+)'
"""In the metadata of a row. A text within it has its quotes escaped, and a name given by a user has
a text for its value."""

_STAMPED = pa.array([GRAPH_COMMIT, TABLE_VERSION, TABLE_TOMBSTONE])
"""Kinds of rows whose manifest version is asked for."""


def versions_of(rows: pa.Table) -> pa.ChunkedArray:
    """The manifest version that published each row, of rows read with their stamp and metadata."""
    stamps = rows[CREATED].cast(pa.int64())
    if not pc.any(pc.equal(stamps, 0), min_count=0).as_py():
        return stamps
    return pc.if_else(pc.equal(stamps, 0), _named(rows), stamps)


def _named(rows: pa.Table) -> pa.ChunkedArray:
    parts = pc.extract_regex(rows["metadata"], pattern=_NAMED)
    return pc.struct_field(parts, "version").cast(pa.int64())


def between(head: Handle, versions: range) -> str:
    """The filter for rows of a range of manifest versions; it lets older rows through, which
    `versions_of` tells apart."""
    stamped = f"({CREATED} >= {versions.start} AND {CREATED} < {versions.stop})"
    return stamped if _are_stamped(head, versions.start) else f"({stamped} OR {CREATED} = 0)"


def among(head: Handle, versions: list[int]) -> str:
    """The filter for rows of some manifest versions, with older rows as in `between`."""
    if _are_stamped(head, min(versions)):
        return f"{CREATED} IN ({', '.join(map(str, versions))})"
    return f"{CREATED} IN ({', '.join(map(str, [0, *versions]))})"


def _are_stamped(head: Handle, version: int) -> bool:
    return version > int(head.version) - COSTS.exact_versions


def chosen(rows: pa.Table, keep: Callable[[pa.ChunkedArray], pa.Array]) -> pa.Table:
    """The rows whose manifest version is wanted, with it in the place of the stamp."""
    versions = versions_of(rows)
    position = rows.column_names.index(CREATED)
    return rows.set_column(position, CREATED, versions).filter(keep(versions))


def joining(head: Handle) -> Joins:
    """Takes the stamps of old rows away that their metadata makes superfluous."""
    horizon = max(0, int(head.version) - COSTS.exact_versions)

    def join(fragments: list[FragmentJson], originals: list[FragmentJson]) -> None:
        stamps = [stamps_of(fragment) for fragment in fragments]
        count = sum(int(fragment["physical_rows"]) for fragment in fragments)
        lowest = _lowest_alone(head, originals, count)
        if lowest is None and all(each is None for each in stamps):
            return
        rows = _rows(head, originals)
        if rows.num_rows != count:
            return  # not the rows that were rewritten: every stamp stays
        ids = rows[ROW_ID].to_pylist() if lowest is None else range(lowest, lowest + count)
        is_old = _is_named(rows) & (rows[CREATED].to_numpy() <= horizon)
        start = 0
        for fragment, known in zip(fragments, stamps, strict=True):
            end = start + int(fragment["physical_rows"])
            if known is not None:
                without = np.where(is_old[start:end], np.uint64(0), known[0])
                set_stamps(fragment, without, without)
            if known is not None or lowest is not None:
                set_row_ids(fragment, list(ids[start:end]))
            start = end

    return join


def _lowest_alone(head: Handle, originals: list[FragmentJson], count: int) -> int | None:
    """The lowest row id of some fragments, if so many ids from there on are theirs alone."""
    own = {int(each["id"]) for each in originals}
    spans = {f.fragment_id: row_id_span(f.metadata.to_json()) for f in known_fragments(head)}
    known = [(number in own, span) for number, span in spans.items() if span is not None]
    if len(known) < len(spans) or not own <= spans.keys():
        return None
    lowest = min(span.start for is_own, span in known if is_own)
    highest = max(span.stop for is_own, span in known if is_own)
    others = (span for is_own, span in known if not is_own)
    are_apart = all(span.stop <= lowest or span.start >= highest for span in others)
    return lowest if are_apart and count <= highest - lowest else None


def _rows(head: Handle, originals: list[FragmentJson]) -> pa.Table:
    fragments = [head.get_fragment(int(each["id"])) for each in originals]
    return head.scanner(
        columns=["object_type", "metadata", CREATED, ROW_ID],
        fragments=[each for each in fragments if each is not None],
        scan_in_order=True,
    ).to_table()


def _is_named(rows: pa.Table) -> np.ndarray:
    """Whether a row names the version of its stamp, or is of a kind that nobody asks for it."""
    same = pc.fill_null(pc.equal(_named(rows), rows[CREATED].cast(pa.int64())), False)
    other = pc.invert(pc.is_in(rows["object_type"], value_set=_STAMPED))
    # A row that lost its stamp before named it then.
    flags: np.ndarray = pc.or_(same, other).to_numpy() | (rows[CREATED].to_numpy() == 0)
    return flags
