"""Row versions: runs in which a fragment lists the versions that created and last wrote its rows.

Lance writes them into every version of a dataset, so a table of many small commits would write all
its history again with each. Compaction therefore joins the runs of old rows into one.

    written within the last `exact_versions` versions      as Lance stamps it
    before, and never again under its row id               created = updated = the newest of them
    before, and once more under its row id                 created = 0, updated = the newest of them

Invariant: `updated` is never older than the version that wrote the row, and a row was written again
under its row id exactly when `created` and `updated` differ. A span of at most `exact_versions`
versions sees exact stamps; in a longer one the row id tells whether a row is older than the span,
because Lance gives row ids in the order of creation.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from lance.fragment import RowIdSequence

from omnigraph.costs import COSTS
from omnigraph.storage.lance.datasets import Handle
from omnigraph.storage.lance.protobuf import Message, decoded, encoded
from omnigraph.storage.lance.strict_commit import known_handle

_CREATED, _UPDATED = "created_at_version_meta", "last_updated_at_version_meta"
_NEXT_ROW_ID = 14  # in the message of a version
_RANGES = (1, 2, 3)  # kinds of lists of row ids: without gaps, with some, with a bitmap of them

Versions = npt.NDArray[np.uint64]
FragmentJson = dict[str, Any]
"""A fragment as Lance writes it to JSON."""

Joins = Callable[[list[FragmentJson], list[FragmentJson]], None]
"""Joins the runs of new fragments, given those they were rewritten from."""


def joining(head: Handle) -> Joins:
    """Joins the runs of a table's rows that are old at a version."""
    horizon = max(0, int(head.version) - COSTS.exact_versions)

    def join(fragments: list[FragmentJson], _: list[FragmentJson]) -> None:
        for fragment in fragments:
            stamps = stamps_of(fragment)
            if stamps is not None:
                set_stamps(fragment, *_joined(*stamps, horizon))

    return join


def has_old_runs(fragment: FragmentJson, version: int) -> bool:
    """Whether a fragment is worth rewriting for the runs that became old since it was written: all
    of them did, or many."""
    old, recent = _ages(fragment, version)
    return old > COSTS.runs_few and (not recent or old > COSTS.runs_many)


def has_recent_runs(fragment: FragmentJson, version: int) -> bool:
    """Whether rows of a fragment keep their stamps for now."""
    return _ages(fragment, version)[1] > 0


def _ages(fragment: FragmentJson, version: int) -> tuple[int, int]:
    """How many versions with rows in a fragment are old, and how many are not."""
    runs = _runs(fragment.get(_UPDATED))
    if runs is None:
        return 0, 0
    versions = np.unique(runs[1])
    old = int(np.count_nonzero(versions <= max(0, version - COSTS.exact_versions)))
    return old, len(versions) - old


def _joined(created: Versions, updated: Versions, horizon: int) -> tuple[Versions, Versions]:
    old = updated <= horizon
    newest = updated[old].max(initial=0)
    again = created != updated
    return (
        np.where(old, np.where(again, 0, newest), created).astype(np.uint64),
        np.where(old, newest, updated).astype(np.uint64),
    )


def is_exact(low: Handle, high: Handle) -> bool:
    """Whether the stamps of the later version tell what was written since the earlier one."""
    return int(high.version) - int(low.version) <= COSTS.exact_versions


def next_row_id(handle: Handle) -> int:
    """The lowest row id that a version has not given to a row. Every row that a later version of
    the same branch has below it was there before."""
    message = decoded(known_handle(handle)._ds.serialized_manifest())
    return next((int(value) for number, value in message if number == _NEXT_ROW_ID), 0)


def stamps_of(fragment: FragmentJson) -> tuple[Versions, Versions] | None:
    """The version that created each row of a fragment, and the one that last wrote it; None where
    the runs are few, or of a kind that this program does not know."""
    created, updated = (_runs(fragment.get(name)) for name in (_CREATED, _UPDATED))
    if created is None or updated is None:
        return None
    if max(len(created[0]), len(updated[0])) <= COSTS.runs_few:
        return None
    rows = int(fragment["physical_rows"])
    if created[0].sum() != rows or updated[0].sum() != rows:
        return None
    return np.repeat(created[1], created[0]), np.repeat(updated[1], updated[0])


def set_stamps(fragment: FragmentJson, created: Versions, updated: Versions) -> None:
    """Stamp the rows of a fragment, one run for each stretch of equal versions."""
    fragment[_CREATED] = {"inline": list(_as_runs(created))}
    fragment[_UPDATED] = {"inline": list(_as_runs(updated))}


def set_row_ids(fragment: FragmentJson, row_ids: list[int]) -> None:
    """List the row ids of a fragment in the shortest form. Compaction puts lists one behind the
    other, with each of their gaps."""
    meta: Any = RowIdSequence(row_ids).to_inline_metadata()
    fragment["row_id_meta"] = meta.asdict()


def row_id_span(fragment: FragmentJson) -> range | None:
    """From the lowest row id of a fragment to the highest, by the ends of its ranges; None if they
    are listed otherwise."""
    meta = fragment.get("row_id_meta") or {}
    segments = decoded(bytes(meta.get("Inline") or b""))
    ends: list[tuple[int, int]] = []
    for _, segment in segments:
        [(kind, listed)] = decoded(segment) if isinstance(segment, bytes) else [(0, 0)]
        if kind not in _RANGES or not isinstance(listed, bytes):
            return None
        fields = dict(decoded(listed))
        ends.append((int(fields.get(1, 0)), int(fields.get(2, 0))))
    return range(min(low for low, _ in ends), max(high for _, high in ends)) if ends else None


def _runs(meta: Any) -> tuple[npt.NDArray[np.int64], Versions] | None:
    """The lengths and versions of runs."""
    data = None if meta is None else meta.get("inline")
    if data is None:
        return None
    lengths, versions = [], []
    for _, run in decoded(bytes(data)):
        fields = dict(decoded(run)) if isinstance(run, bytes) else {}
        length = _length(fields.get(1))
        if length is None:
            return None
        lengths.append(length)
        versions.append(int(fields.get(2, 0)))
    return np.array(lengths, np.int64), np.array(versions, np.uint64)


def _length(segment: int | bytes | None) -> int | None:
    """How many rows a run has; None if they are not listed as a range."""
    parts = decoded(segment) if isinstance(segment, bytes) else []
    if len(parts) != 1 or parts[0][0] != 1 or not isinstance(parts[0][1], bytes):
        return None
    ends = dict(decoded(parts[0][1]))
    return int(ends.get(2, 0)) - int(ends.get(1, 0))


def _as_runs(versions: Versions) -> bytes:
    starts = np.flatnonzero(np.diff(versions, prepend=versions[:1] + 1))
    lengths = np.diff(starts, append=len(versions))
    runs: Message = []
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        rows = encoded([(1, encoded([(2, length)]))])
        version = int(versions[start])
        runs.append((1, encoded([(1, rows), (2, version)] if version else [(1, rows)])))
    return encoded(runs)
