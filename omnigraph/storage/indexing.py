"""Indexes of a table: which it has, and new ones staged.

Invariant: all new indexes of a table are staged together and become one version of it, so that they
are built before any lock is taken and published, or not, with the rest of the write.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from lance.dataset import Index, LanceOperation, Transaction

from omnigraph.storage.datasets import Handle


@dataclass(frozen=True, slots=True)
class IndexFacts:
    """An index that a table version has."""

    name: str
    column: str
    index_type: str  # as Lance names it
    rows: int  # that it covers
    is_whole: bool  # whether every row was there when it was built


@dataclass(frozen=True, slots=True)
class IndexRequest:
    """An index to build over every row, in place of one of the same name."""

    column: str
    index_type: str
    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


def facts(handle: Handle) -> tuple[IndexFacts, ...]:
    """Every index of a version."""
    present = {fragment.fragment_id for fragment in handle.get_fragments()}
    found = []
    for index in handle.describe_indices():
        covered = {number for segment in index.segments for number in segment.fragment_ids}
        found.append(
            IndexFacts(
                name=index.name,
                column=".".join(index.field_names),
                index_type=index.index_type,
                rows=int(index.num_rows_indexed),
                is_whole=present <= covered,
            )
        )
    return tuple(found)


def staged(handle: Handle, requests: Sequence[IndexRequest]) -> Transaction:
    """One transaction that adds the indexes, each built now over every fragment."""
    built = [_built(handle, request) for request in requests]
    replaced = [old for request in requests for old in _segments(handle, request.name)]
    return Transaction(handle.version, LanceOperation.CreateIndex(built, replaced))


def _built(handle: Handle, request: IndexRequest) -> Index:
    segment = handle.create_index_uncommitted(
        request.column,
        request.index_type,
        name=request.name,
        replace=True,
        fragment_ids=[fragment.fragment_id for fragment in handle.get_fragments()],
        **request.parameters,
    )
    # A text index is unreadable until its segments are merged.
    is_text = request.index_type == "INVERTED"
    return handle.merge_existing_index_segments([segment]) if is_text else segment


def _segments(handle: Handle, name: str) -> list[Index]:
    """The parts of an index as a commit that replaces them names them."""
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
        if index.name == name
        for segment in index.segments
    ]
