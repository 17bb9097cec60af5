"""Publish: the one write to `__manifest` that makes a graph commit visible.

Invariant: a publish is one Lance commit that replaces the branch's head row, so two publishers on a
branch always touch the same fragment and Lance lets one of them through. Lance never retries for
us: each attempt reads the branch again and re-checks what the caller expects, so a concurrent
advance surfaces as `VersionMismatch` and is never rebased through.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from lance.dataset import LanceOperation, Transaction
from lance.fragment import FragmentMetadata, write_fragments

from omnigraph.errors import StorageFailed
from omnigraph.light_dataclass import dataclass
from omnigraph.storage import failpoints, stamp
from omnigraph.storage.flushing import durability_metadata
from omnigraph.storage.lance.datasets import CommitRaced, Datasets, Handle, dataset_folder
from omnigraph.storage.lance.parallel import both
from omnigraph.storage.lance.strict_commit import known_fragments, writer_of
from omnigraph.storage.lance.written_files import (
    fork_files,
    staged_files,
    version_files,
    version_path,
)
from omnigraph.storage.locks.locks import NONE_KEPT, Kept, Locks, hold
from omnigraph.storage.manifest.manifest import Manifest
from omnigraph.storage.manifest.queries import Queries
from omnigraph.storage.manifest.state import LOCATION, State, declaration, publish_lock
from omnigraph.storage.names import MAIN, owner_of
from omnigraph.storage.records import (
    MANIFEST_SCHEMA,
    Commit,
    CommitFacts,
    CommitId,
    Head,
    OperationId,
    Row,
    SchemaId,
    TablePin,
    Tombstone,
    commit_row,
    embedded_after,
    facts_of,
    head_id,
    head_row,
    manifest_batch,
    table_row,
    tombstone_row,
    version_row,
    visible,
)
from omnigraph.storage.retry import PUBLISH, retried
from omnigraph.storage.stats import Stats
from omnigraph.types import TableKey


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestChange(CommitFacts):
    """What one publish makes visible."""

    commit_id: CommitId
    pins: tuple[TablePin, ...] = ()
    tombstones: tuple[Tombstone, ...] = ()
    new_tables: tuple[TablePin, ...] = ()
    operation_id: OperationId | None = None
    schema: SchemaId | None = None  # None: as it was


class Publisher:
    """Publishes commits on the branches of one graph."""

    def __init__(
        self,
        uri: str,
        datasets: Datasets,
        manifest: Manifest,
        queries: Queries,
        locks: Locks,
        stats: Stats,
    ) -> None:
        self._uri = uri
        self._datasets = datasets
        self._manifest = manifest
        self._queries = queries
        self._locks = locks
        self._stats = stats

    def publish(
        self,
        branch: str,
        change: ManifestChange,
        *,
        expected_table_versions: Mapping[TableKey, int],
        expected_head: CommitId | None = None,
        kept: Kept = NONE_KEPT,
    ) -> Commit:
        """Make a change visible as one commit, or raise with nothing of it visible. `kept` are the
        locks that the caller holds already."""

        def require(state: State) -> None:
            state.require(expected_table_versions, expected_head)

        with hold(self._locks, [publish_lock(branch)], kept=kept):
            return self._publish(branch, change, require)

    def _publish(
        self, branch: str, change: ManifestChange, require: Callable[[State], None]
    ) -> Commit:
        def attempt(losses: int) -> Commit:
            if not losses:
                state = self._manifest.recent(branch)
            else:
                self._stats.event("phase_c.raced", branch=branch, commit=change.commit_id)
                state = self._manifest.state(branch)
                landed = self._queries.find(state, [change.commit_id])
                if landed:  # a put that a client repeats for a lost answer loses against itself
                    return landed[0]
            require(state)
            return self._publish_once(state, change)

        try:
            return retried(PUBLISH, attempt, lost=(CommitRaced,))
        except CommitRaced as cause:
            landed = self._queries.find(self._manifest.state(branch), [change.commit_id])
            if landed:
                return landed[0]
            raise StorageFailed(
                f"published commit {change.commit_id}",
                f"{PUBLISH.attempts} attempts lost to other writers",
            ) from cause

    def _publish_once(self, state: State, change: ManifestChange) -> Commit:
        commit = Commit(
            id=change.commit_id,
            parent=state.head,
            created_at=time.time_ns() // 1000,
            branch=owner_of(state.branch),
            manifest_version=state.version + 1,
            operation_id=change.operation_id,
            schema=change.schema or state.schema,
            **facts_of(change),
        )
        failpoints.hit("publish.before")
        transaction = self._stage(state, change, commit)
        failpoints.hit("publish.staged")
        owner = owner_of(state.branch)
        folder = dataset_folder(LOCATION, owner)
        self._datasets.flusher.barrier(staged=self._named(state, folder, transaction))
        seen_at = self._manifest.seen_at(state)
        handle = self._datasets.commit(state.handle, transaction, seen_at=seen_at)
        version = int(handle.version)
        self._datasets.flusher.owe(version_files(folder, transaction, version))
        self._datasets.flusher.flushed_head(folder, version_path(folder, version))
        # The stamp was read when this write looked at the branch under its locks. One that another
        # program wrote in the moment since has been rebased over, which can only be reported.
        stamp.require_supported(handle.schema, uri=self._uri)
        commit = replace(commit, manifest_version=int(handle.version))
        self._advance(state, handle, change)
        self._stats.event("phase_c.published", branch=state.branch, commit=commit.id)
        failpoints.hit("publish.after")
        return commit

    def _named(self, state: State, folder: str, transaction: Transaction) -> list[str]:
        """The files that must be on disk before the version that names them is."""
        owner = owner_of(state.branch)
        base = version_path(folder, state.version)
        ref = fork_files(LOCATION, owner, state.version)[:1] if owner else []
        self._datasets.flusher.owe_head(folder, base, *ref)
        return staged_files(self._datasets, folder, state.handle, transaction)

    def _stage(self, state: State, change: ManifestChange, commit: Commit) -> Transaction:
        """Stage the new rows together with the removal of the head row they supersede."""
        # The branch's first commit replaces the head row it inherited: without an existing row to
        # collide on, two first commits would both go through.
        models = embedded_after(state.embedded, change.embedded)
        rows: list[Row] = [head_row(state.branch, commit.id, commit.schema, models)]
        new = (pin for pin in change.new_tables if declaration(pin) not in state.declared)
        rows += (table_row(pin.table_key, pin.location) for pin in new)
        version = commit.manifest_version
        rows += (version_row(pin, version) for pin in change.pins)
        rows += (tombstone_row(stone, version) for stone in change.tombstones)
        rows.append(commit_row(commit))
        with self._datasets.lance_call("stage_publish", state.branch):
            address = state.heads[state.head_row].address
            batch, writer = manifest_batch(rows), writer_of(state.handle)
            if self._datasets.is_remote:
                left, fragments = both(
                    lambda: self._without_head(state, address),
                    lambda: write_fragments(batch, writer, mode="append"),
                )
            else:
                fragments = write_fragments(batch, writer, mode="append")
                left = self._without_head(state, address)
            return Transaction(state.version, _replacing(address, left, fragments))

    def _without_head(self, state: State, address: int) -> FragmentMetadata | None:
        """The fragment of a branch's head row without that row; None if it was the last one."""
        removed = self._datasets.strict.without_row(state.handle, address)
        if removed is None:
            removed = _without_row(state.handle, address, state.head_row)
        left, deleted_before = removed
        if left is not None and left.num_deletions == deleted_before:
            raise StorageFailed(
                "staged a publish", f"{state.head_row} is not where the manifest showed it"
            )
        return left

    def _advance(self, state: State, handle: Handle, change: ManifestChange) -> None:
        """Remember what was just published without reading it back."""
        if handle.version != state.version + 1:
            return  # rebased over a fold: the next look reads it
        fragments = {fragment.fragment_id: fragment for fragment in known_fragments(handle)}
        ids = frozenset(fragments)
        new = max(ids)
        self._queries.marks.published(fragments[new], change.mark, int(handle.version))
        heads = {row: head for row, head in state.heads.items() if row != state.head_row}
        own = head_id(state.branch)
        schema = change.schema or state.schema
        models = embedded_after(state.embedded, change.embedded)
        heads[own] = Head(change.commit_id, new << 32, schema, models)  # its first row
        stones = (*state.tombstones, *change.tombstones)
        self._manifest.published(
            replace(
                state,
                handle=handle,
                seen=ids,
                pins=visible((*state.pins.values(), *change.pins), stones),
                tombstones=stones,
                heads=heads,
                declared=state.declared | set(map(declaration, change.new_tables)),
                head_row=own,
            )
        )


def create(
    datasets: Datasets,
    pins: Iterable[TablePin],
    genesis: CommitId,
    actor: str | None,
    schema: SchemaId | None = None,
    durability: str | None = None,
) -> None:
    """Write the first version of a manifest: every table, and a commit without parent or data. Its
    schema keeps the durability that was chosen for the graph, if one was."""
    commit = Commit(
        id=genesis,
        parent=None,
        created_at=time.time_ns() // 1000,
        branch=None,
        manifest_version=1,
        actor=actor,
        schema=schema,
    )
    rows = [head_row(MAIN, genesis, schema)]
    for pin in pins:
        rows += [table_row(pin.table_key, pin.location), version_row(pin, 1)]
    rows.append(commit_row(commit))
    batch = manifest_batch(rows)
    metadata = {**batch.schema.metadata, **durability_metadata(durability)}
    datasets.create_named_last(LOCATION, batch.replace_schema_metadata(metadata))


def _without_row(handle: Handle, address: int, head: str) -> tuple[FragmentMetadata | None, int]:
    """A fragment without one of its rows, and how many were deleted before."""
    fragment = handle.get_fragment(address >> 32)
    if fragment is None:
        raise StorageFailed("staged a publish", f"the fragment of {head} is gone")
    return fragment.delete_rows([address & 0xFFFFFFFF]), int(fragment.num_deletions)


def _replacing(
    address: int, left: FragmentMetadata | None, fragments: list[FragmentMetadata]
) -> LanceOperation.BaseOperation:
    """The update that swaps the head row for the new rows. It must touch the old row's fragment:
    that is what the compare-and-swap collides on."""
    return LanceOperation.Update(
        removed_fragment_ids=[address >> 32] if left is None else [],
        updated_fragments=[] if left is None else [left],
        new_fragments=fragments,
        fields_for_preserving_frag_bitmap=list(range(len(MANIFEST_SCHEMA) + 1)),
        update_mode="rewrite_rows",
    )
