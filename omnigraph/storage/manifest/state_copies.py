"""Copies of the manifest's state: on this machine, and for main one object beside the graph.

    __derived/manifest/main      a checkpoint: digest, then Arrow rows and the fragments they are of

A graph on an object store is opened by a machine that never read it with one call for the object,
instead of up to three for each fragment of the manifest. Writers leave it after a few commits, and
when they are closed.

Invariant: a checkpoint counts only for a manifest that still has every fragment it was made of, by
the random names of their files; what was published since is read beside it. So one that is old,
missing, damaged or of another graph changes no answer.
"""

import hashlib
from contextlib import suppress

import orjson
import pyarrow as pa

from omnigraph.costs import COSTS
from omnigraph.errors import OmnigraphError
from omnigraph.light_dataclass import dataclass
from omnigraph.storage.derived.derived_folder import FOLDER
from omnigraph.storage.lance.columns import ADDRESS
from omnigraph.storage.lance.datasets import Handle, files_of
from omnigraph.storage.lance.derived_bases import fingerprint
from omnigraph.storage.lance.strict_commit import known_fragments
from omnigraph.storage.local_copies import SCHEMAS, LocalCopies
from omnigraph.storage.manifest.state import STATE_COLUMNS, CopiedRows, State
from omnigraph.storage.names import MAIN
from omnigraph.storage.objects import Objects
from omnigraph.storage.records import (
    head_id,
    head_row,
    manifest_batch,
    table_row,
    tombstone_row,
    version_row,
)

CHECKPOINT = f"{FOLDER}/manifest/{MAIN}"
_STATES = "states"
_FORMAT = 1
_DIGEST = 16
_FACTS, _SCHEMA = b"omnigraph:checkpoint", b"omnigraph:schema"

_Fragments = dict[int, list[str]]


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    """A checkpoint as it was read."""

    rows: pa.Table
    fragments: _Fragments


class StateCopies:
    """The copies of one graph's states. A graph on local disk has none."""

    def __init__(self, local: LocalCopies, objects: Objects, *, read_only: bool) -> None:
        self._local = local
        self._objects = objects
        self._read_only = read_only
        self.was_fetched = False  # whether this process looked for the checkpoint
        self._covered: frozenset[int] = frozenset()  # the fragments of the newest checkpoint

    def rows(self, handle: Handle, branch: str) -> CopiedRows | None:
        """The rows of a version of the manifest that a copy has, and the fragments they are of."""
        data = self._local.get(_STATES, fingerprint(handle))
        if data is not None:
            ids = frozenset(fragment.fragment_id for fragment in handle.get_fragments())
            return CopiedRows(_table(data), ids)
        if branch != MAIN or self.was_fetched:
            return None
        self.was_fetched = True
        checkpoint = self._fetched()
        if checkpoint is None or not _is_part_of(checkpoint.fragments, handle):
            return None
        self._covered = frozenset(checkpoint.fragments)
        if len(self._covered) == len(handle.get_fragments()):
            self.keep(handle, checkpoint.rows)
        return CopiedRows(checkpoint.rows, self._covered)

    def keep(self, handle: Handle, rows: pa.Table) -> None:
        """Keep the rows of a version on this machine."""
        self._local.put(_STATES, fingerprint(handle), _bytes(rows))

    def _fetched(self) -> _Checkpoint | None:
        try:
            stored = self._objects.get(CHECKPOINT)
        except OmnigraphError:
            return None  # the manifest itself says what is wrong
        if stored is None or _digest(stored.data[_DIGEST:]) != stored.data[:_DIGEST]:
            return None
        rows = _table(stored.data[_DIGEST:])
        metadata = rows.schema.metadata or {}
        facts = orjson.loads(metadata.get(_FACTS, b"{}"))
        if facts.get("format") != _FORMAT:
            return None
        if _SCHEMA in metadata:
            self._local.put(SCHEMAS, facts["schema"], metadata[_SCHEMA])
        fragments = {int(number): files for number, files in facts["fragments"]}
        return _Checkpoint(rows.replace_schema_metadata(None), fragments)

    # Leaving a checkpoint

    def leave(self, state: State | None, *, commits: int | None = None) -> None:
        """Put the checkpoint of main's state, unless the one that is there lacks fewer commits than
        `commits`, or than a threshold."""
        if self._local.is_off or self._read_only or state is None or state.branch != MAIN:
            return
        least = COSTS.state_copy_commits_min if commits is None else commits
        if len(state.seen - self._covered) < least:
            return
        with suppress(OmnigraphError):
            body = _bytes(self._described(state))
            if len(body) <= COSTS.state_copy_bytes_max:
                self._objects.put(CHECKPOINT, _digest(body) + body)
            self._covered = state.seen

    def _described(self, state: State) -> pa.Table:
        fragments = [[each.fragment_id, files_of(each)] for each in known_fragments(state.handle)]
        facts = {"format": _FORMAT, "fragments": fragments, "schema": state.schema}
        metadata = {_FACTS: orjson.dumps(facts)}
        schema = None if state.schema is None else self._local.get(SCHEMAS, state.schema)
        if schema is not None:
            metadata[_SCHEMA] = schema
        return state_rows(state).replace_schema_metadata(metadata)


def state_rows(state: State) -> pa.Table:
    """Rows that make up a state, as a manifest without history has them."""
    version = state.version
    rows = [table_row(*each) for each in sorted(state.declared)]
    rows += (version_row(pin, version) for pin in state.pins.values())
    rows += (tombstone_row(stone, version) for stone in state.tombstones)
    addresses = [0] * len(rows)
    for name, head in state.heads.items():
        branch = name.removeprefix(head_id(""))
        rows.append(head_row(branch, head.commit, head.schema, head.embedded))
        addresses.append(head.address)
    table = manifest_batch(rows).select(STATE_COLUMNS).replace_schema_metadata(None)
    return table.append_column(ADDRESS, pa.array(addresses, pa.uint64()))


def _is_part_of(fragments: _Fragments, handle: Handle) -> bool:
    """Whether a version has all these fragments, each with the same files."""
    own = {each.fragment_id: list(files_of(each)) for each in handle.get_fragments()}
    return bool(fragments) and all(own.get(number) == files for number, files in fragments.items())


def _bytes(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, rows.schema) as stream:
        stream.write_table(rows)
    return bytes(sink.getvalue().to_pybytes())


def _table(data: bytes) -> pa.Table:
    with pa.ipc.open_file(pa.BufferReader(data)) as stream:
        return stream.read_all()


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_DIGEST).digest()
