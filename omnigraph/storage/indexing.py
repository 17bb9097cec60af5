"""Indexes of a table: which it has, and new ones staged.

Invariant: all new indexes of a table are staged together and become one version of it, so that they
are built before any lock is taken and published, or not, with the rest of the write.

An index is made of segments, each over some fragments of the table. Rows written since may get a
segment of their own, so that an index costs what changed; after `SEGMENTS_MAX` it is built anew.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from lance.dataset import Index, LanceOperation, Transaction

from omnigraph.storage.datasets import Handle

SEGMENTS_MAX = 8


@dataclass(frozen=True, slots=True)
class IndexFacts:
    """An index that a table version has."""

    name: str
    column: str
    index_type: str  # as Lance names it
    rows: int  # that it covers
    is_whole: bool  # whether it covers every row


@dataclass(frozen=True, slots=True)
class IndexRequest:
    """An index that is to cover every row. With `anew`, no segment of it is kept."""

    column: str
    index_type: str
    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    anew: bool = False


def facts(handle: Handle) -> tuple[IndexFacts, ...]:
    """Every index of a version."""
    present = _fragments(handle)
    return tuple(
        IndexFacts(
            name=index.name,
            column=".".join(index.field_names),
            index_type=index.index_type,
            rows=int(index.num_rows_indexed),
            is_whole=present <= _covered(index),
        )
        for index in handle.describe_indices()
    )


def staged(
    handle: Handle, requests: Sequence[IndexRequest], gone: Collection[str] = ()
) -> Transaction:
    """One transaction that makes every index whole, with segments that are built now."""
    present = _fragments(handle)
    known = {index.name: index for index in handle.describe_indices()}
    built: list[Index] = []
    replaced = [segment for name in gone for segment in _named(known[name])]
    for request in requests:
        index = known.get(request.name)
        if index is None:
            built.append(_built(handle, request, present))
        elif request.anew or len(index.segments) >= SEGMENTS_MAX:
            built.append(_built(handle, request, present))
            replaced += _named(index)
        else:
            built.append(_built(handle, request, present - _covered(index)))
    return Transaction(handle.version, LanceOperation.CreateIndex(built, replaced))


def inherited(handle: Handle) -> frozenset[int]:
    """The fragments that an index of the branch this one was forked from covers.

    They must not be rewritten here: Lance writes the index that follows them into this branch and
    keeps looking for it in the other.
    """
    segments = (segment for index in handle.describe_indices() for segment in index.segments)
    return frozenset(n for s in segments if s.base_id is not None for n in s.fragment_ids)


def _fragments(handle: Handle) -> set[int]:
    return {fragment.fragment_id for fragment in handle.get_fragments()}


def _covered(index: Any) -> set[int]:
    return {number for segment in index.segments for number in segment.fragment_ids}


def _built(handle: Handle, request: IndexRequest, fragments: set[int]) -> Index:
    segment = handle.create_index_uncommitted(
        request.column,
        request.index_type,
        name=request.name,
        replace=True,
        fragment_ids=sorted(fragments),
        **request.parameters,
    )
    # A text index is unreadable until its segments are merged.
    is_text = request.index_type == "INVERTED"
    return handle.merge_existing_index_segments([segment]) if is_text else segment


def _named(index: Any) -> list[Index]:
    """The segments of an index as a commit that replaces them names them."""
    return [
        Index(
            uuid=str(segment.uuid),
            name=index.name,
            fields=list(index.fields),
            dataset_version=segment.dataset_version_at_last_update,
            fragment_ids=cast(Any, set(segment.fragment_ids)),
            index_version=segment.index_version,
        )
        for segment in index.segments
    ]
