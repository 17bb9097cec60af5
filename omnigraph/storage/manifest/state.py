"""Manifest state: the visible table versions and the branch head, at one version of `__manifest`.

Invariant: a `State` is immutable. A newer one is read from the fragments the older one has not
seen, so a refresh costs what was published since.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from lance.fragment import LanceFragment

from omnigraph.costs import COSTS
from omnigraph.errors import PreconditionFailed, SchemaChanged, StorageFailed, VersionMismatch
from omnigraph.light_dataclass import dataclass
from omnigraph.storage import stamp
from omnigraph.storage.lance.columns import ADDRESS, CREATED
from omnigraph.storage.lance.datasets import Datasets, Handle
from omnigraph.storage.lance.refs import ForkId
from omnigraph.storage.names import MAIN, MANIFEST, decode, lock_name
from omnigraph.storage.records import (
    GRAPH_COMMIT,
    GRAPH_HEAD,
    TABLE,
    TABLE_TOMBSTONE,
    TABLE_VERSION,
    CommitId,
    Embedded,
    Head,
    SchemaId,
    TablePin,
    Tombstone,
    decode_head,
    decode_pin,
    decode_tombstone,
    head_id,
    visible,
)
from omnigraph.types import TableKey

LOCATION = MANIFEST
STATE_COLUMNS = [
    "object_id",
    "object_type",
    "location",
    "metadata",
    "table_key",
    "table_version",
    "table_branch",
    "row_count",
]


def publish_lock(branch: str) -> str:
    """The lock publishers of a branch take turns on. The commit itself decides; turns only keep
    writers of different tables from using up each other's attempts."""
    return lock_name("publish", branch)


def crowd_lock(branch: str) -> str:
    """The lock that writers of a branch take first in their turns. Without it those that need many
    tables keep some while they wait for others, and everybody waits behind them."""
    return lock_name("crowd", branch)


@dataclass(frozen=True, slots=True)
class CopiedRows:
    """Rows of a state that need not be read, and the fragments they are of."""

    rows: pa.Table
    fragments: frozenset[int]


class RowCopies(Protocol):
    """Rows of states kept elsewhere than in the manifest."""

    def rows(self, handle: Handle, branch: str) -> CopiedRows | None:
        """The rows of some fragments of a version, if there is a copy."""

    def keep(self, handle: Handle, rows: pa.Table) -> None:
        """Keep the rows of a version."""


@dataclass(frozen=True, slots=True)
class State:
    """A branch's manifest at one version. `head_row` is the object id of the row that names the
    branch head: the branch's own row, or the nearest ancestor's while it has none."""

    branch: str
    identity: ForkId | None
    handle: Handle
    seen: frozenset[int]
    pins: dict[TableKey, TablePin]
    tombstones: tuple[Tombstone, ...]
    heads: dict[str, Head]
    declared: frozenset[tuple[TableKey, str]]  # tables that have or had their row, with its folder
    head_row: str
    version: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "version", int(self.handle.version))

    @property
    def locations(self) -> frozenset[str]:
        """Every folder that a table has or had."""
        return frozenset(location for _, location in self.declared)

    @property
    def head(self) -> CommitId:
        """The branch head. A branch never written to is at the commit it was created from."""
        return self._head().commit

    @property
    def schema(self) -> SchemaId | None:
        """The schema that holds on the branch."""
        return self._head().schema

    @property
    def embedded(self) -> Embedded:
        """Models that made the vectors of properties on the branch."""
        return self._head().embedded

    def _head(self) -> Head:
        head = self.heads.get(self.head_row)
        if head is None:
            raise StorageFailed(
                f"read the head of branch {self.branch}", "__manifest has no head row for it"
            )
        return head

    def require(
        self,
        expected: Mapping[TableKey, int],
        expected_head: CommitId | None = None,
        expected_schema: SchemaId | None = None,
    ) -> None:
        """Pass only when the schema and each named table are exactly as the caller saw them."""
        self.require_schema(expected_schema)
        for table_key, version in expected.items():
            pin = self.pins.get(table_key)
            actual = 0 if pin is None else pin.version
            if actual != version:
                raise VersionMismatch(table_key, version, actual)
        if expected_head is not None and (head := self.head) != expected_head:
            raise PreconditionFailed(self.branch, expected_head, head)

    def require_schema(self, expected: SchemaId | None) -> None:
        """Pass only when the branch has this schema, or none is named."""
        actual = self.schema
        if expected is not None and actual is not None and actual != expected:
            raise SchemaChanged(self.branch, expected, actual)


def read_state(
    datasets: Datasets,
    handle: Handle,
    *,
    branch: str,
    identity: ForkId | None,
    known: State | None,
    uri: str,
    copies: RowCopies | None = None,
) -> State:
    """The state at a version of the manifest, from what `known` has not seen. A version stamped by
    another program is refused."""
    stamp.require_supported(handle.schema, uri=uri)
    fragments = handle.get_fragments()
    seen = frozenset() if known is None else known.seen
    copies = copies if known is None else None
    copied = None if copies is None else copies.rows(handle, branch)
    if copied is not None:
        seen = copied.fragments
    fresh = [fragment for fragment in fragments if fragment.fragment_id not in seen]
    rows = None if copied is None else copied.rows
    if fresh or rows is None:
        with datasets.lance_call("scan_manifest", branch):
            is_whole = known is None and copied is None
            more = _state_rows(handle, fresh) if is_whole else _rows(handle, fresh)
        # A head row replaces that of the fragments before.
        rows = more if rows is None else pa.concat_tables([rows, more])
        if copies is not None:
            copies.keep(handle, rows)
    pins = tuple(known.pins.values()) if known else ()
    stones = (*(known.tombstones if known else ()), *_tombstones(rows))
    heads = {**(known.heads if known else {}), **_heads(rows)}
    return State(
        branch,
        identity,
        handle,
        frozenset(fragment.fragment_id for fragment in fragments),
        visible((*pins, *_latest_pins(rows)), stones),
        stones,
        heads,
        (known.declared if known else frozenset()) | _declared(rows),
        _head_row(datasets, branch, heads),
    )


def _rows(handle: Handle, fragments: list[LanceFragment], further: str = "true") -> pa.Table:
    """The rows that make a state, of some fragments."""
    return handle.scanner(
        columns=STATE_COLUMNS,
        filter=f"object_type <> '{GRAPH_COMMIT}' AND {further}",
        fragments=fragments,
        with_row_address=True,
    ).to_table()


def _state_rows(handle: Handle, fragments: list[LanceFragment]) -> pa.Table:
    """The same of a whole manifest, without versions of tables that newer ones replaced: those of
    the last publishes first, and then those of tables that they leave out. The versions of a table
    count up, on its branches too, so what was published later is higher."""
    version = int(handle.version)
    if version <= COSTS.exact_versions:
        return _rows(handle, fragments)
    recent = f"{CREATED} > {version - COSTS.exact_versions}"
    rows = _rows(handle, fragments, f"(object_type <> '{TABLE_VERSION}' OR {recent})")
    recent_ones = rows.filter(pc.equal(rows["object_type"], TABLE_VERSION))
    left_out = {folder for _, folder in _declared(rows)} - set(recent_ones["location"].to_pylist())
    if not left_out:
        return rows
    listed = ", ".join("'" + folder.replace("'", "''") + "'" for folder in sorted(left_out))
    older = f"object_type = '{TABLE_VERSION}' AND location IN ({listed})"
    return pa.concat_tables([rows, _rows(handle, fragments, older)])


def _head_row(datasets: Datasets, branch: str, heads: Mapping[str, Head]) -> str:
    """The row that speaks for a branch: its own, or that of the nearest ancestor that has one."""
    while head_id(branch) not in heads and branch != MAIN:
        ref = datasets.ref(LOCATION, branch)
        parent = None if ref is None else ref.parent_branch
        branch = MAIN if parent is None else decode(parent)
    return head_id(branch)


def declaration(pin: TablePin) -> tuple[TableKey, str]:
    """The name and folder that a table's own row declares."""
    return pin.table_key, pin.location


def _latest_pins(rows: pa.Table) -> list[TablePin]:
    """The latest version of each table, branch and folder. Arrow drops history before Python sees
    it."""
    rows = rows.filter(pc.equal(rows["object_type"], TABLE_VERSION))
    rows = rows.sort_by("table_version")
    columns = ["metadata", "table_version", "row_count"]
    groups = rows.group_by(["table_key", "table_branch", "location"], use_threads=False)
    last = groups.aggregate(
        [(column, "last", pc.ScalarAggregateOptions(skip_nulls=False)) for column in columns]
    )
    last = last.rename_columns([name.removesuffix("_last") for name in last.column_names])
    return [decode_pin(row) for row in last.to_pylist()]


def _declared(rows: pa.Table) -> frozenset[tuple[TableKey, str]]:
    rows = rows.filter(pc.equal(rows["object_type"], TABLE))
    names = map(TableKey, rows["table_key"].to_pylist())
    return frozenset(zip(names, rows["location"].to_pylist(), strict=True))


def _tombstones(rows: pa.Table) -> tuple[Tombstone, ...]:
    rows = rows.filter(pc.equal(rows["object_type"], TABLE_TOMBSTONE))
    return tuple(decode_tombstone(row) for row in rows.to_pylist())


def _heads(rows: pa.Table) -> dict[str, Head]:
    rows = rows.filter(pc.equal(rows["object_type"], GRAPH_HEAD))
    return {row["object_id"]: decode_head(row, row[ADDRESS]) for row in rows.to_pylist()}
