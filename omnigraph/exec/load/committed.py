"""Committed keys that a load must look at, and the checks that compare them with its own.

A small input looks up the keys it mentions. A large one reads the key columns once and cuts them
into the same buckets as its own keys.

Invariant: every table that is looked at is read through the write, so the answer still holds when
it commits.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.model import Catalog, EdgeType, NodeType
from omnigraph.exec.load.checks import (
    Check,
    committed,
    end_keys,
    id_keys,
    source_keys,
    unique_keys,
)
from omnigraph.exec.load.records import Owner
from omnigraph.exec.load.spill import AT, KeyFile, KeySet, Spill
from omnigraph.exec.load.upsert import FRAGMENTS_ROWS, Each, at_hand, grouped
from omnigraph.exec.rules.rules import EdgesPerSource, Endpoint, Unique, rules_of
from omnigraph.exec.values.selection import KEYS_MAX, rows_by_key, rows_by_values, without_ids
from omnigraph.storage.lance.reader import TableReader
from omnigraph.storage.records import TablePin
from omnigraph.storage.store import Store, open_store
from omnigraph.types import TableKey

_AT_ONCE_MAX = 20 * KEYS_MAX
"""Incoming keys that are looked at all at once, as few of them may be distinct."""

Mode = Literal["append", "merge", "overwrite"]
Planned = tuple[Check, Owner]


@dataclass(frozen=True, slots=True)
class ScanJob:
    """Some fragments of a table, and the keys that are wanted of them."""

    uri: str
    storage_options: dict[str, str] | None
    pin: TablePin
    fragments: tuple[int, ...]
    keys: KeySet
    folder: str
    buckets: int


def scan_keys(job: ScanJob) -> list[KeyFile]:
    """Read the keys of some fragments and leave them by bucket where others find them."""
    store = open_store(job.uri, read_only=True, storage_options=job.storage_options)
    spill = Spill(Path(job.folder), job.buckets)
    names = list(dict.fromkeys(job.keys.columns))
    if job.fragments:
        for batch in store.tables.reader(job.pin).batches(names, fragments=job.fragments):
            spill.add(job.keys, pa.Table.from_batches([batch]))
    spill.flush()
    return spill.files


def _none(columns: list[str]) -> pa.Table:
    return pa.schema([(name, pa.utf8()) for name in columns]).empty_table()


@dataclass(slots=True)
class Committed:
    """Gathers committed keys for one attempt of a load."""

    catalog: Catalog
    mode: Mode
    touched: frozenset[TableKey]
    reader: Callable[[TableKey], TableReader]
    keys: Spill  # of the input
    spill: Spill  # of committed rows
    each: Each = at_hand
    store: Store | None = None  # what jobs elsewhere open
    _scanned: set[str] = field(default_factory=set)

    def checks(self) -> list[Planned]:
        """Every check of the load. The keys they name are there when this returns."""
        owners: tuple[Owner, ...] = (*self.catalog.nodes.values(), *self.catalog.edges.values())
        planned: list[Planned] = []
        for owner in owners:
            if owner.table in self.touched:
                planned += [(check, owner) for check in self._of(owner)]
            elif isinstance(owner, EdgeType) and self.mode == "overwrite":
                planned += [(check, owner) for check in self._left_behind(owner)]
        return planned

    def _are_few(self, keys: KeySet) -> bool:
        """Whether incoming keys may be looked at all at once."""
        return self.keys.rows(keys.name) <= _AT_ONCE_MAX

    def _of(self, owner: Owner) -> Iterator[Check]:
        rules = rules_of(owner)
        ids = id_keys(owner.table)
        if self.mode != "merge" or (isinstance(owner, NodeType) and owner.key):
            yield Check(rules.distinct, ids.name)
        if self.mode == "append":
            held = self._looked_up(owner.table, ids, "id", ids)
            yield Check(rules.free, ids.name, held)
        for number, unique in enumerate(rules.uniques):
            keys = unique_keys(owner.table, number, unique)
            yield Check(unique, keys.name, self._unique(owner, keys, unique))
        for endpoint in rules.endpoints:
            keys = end_keys(owner.table, endpoint.end)
            yield Check(endpoint, keys.name, self._nodes(endpoint, keys))
        if rules.cardinality is not None and isinstance(owner, EdgeType):
            yield self._edges_per_source(owner, rules.cardinality)

    def _left_behind(self, edge: EdgeType) -> Iterator[Check]:
        """Edges that stay although nodes of their ends are replaced."""
        for endpoint in rules_of(edge).endpoints:
            if endpoint.node_table in self.touched:
                keys = end_keys(edge.table, endpoint.end)
                for batch in self.reader(edge.table).batches(list(keys.columns)):
                    rows = pa.Table.from_batches([batch])
                    none = pa.repeat(pa.scalar(-1, pa.int64()), rows.num_rows)
                    self.spill.add(keys, rows.append_column(AT, none))
                yield Check(endpoint, keys.name, (id_keys(endpoint.node_table).name,))

    # Which committed keys

    def _nodes(self, rule: Endpoint, keys: KeySet) -> tuple[str, ...]:
        """Nodes that the input brings, and those that stay."""
        own = id_keys(rule.node_table)
        if self.mode == "overwrite" and rule.node_table in self.touched:
            return (own.name,)
        return (own.name, *self._looked_up(rule.node_table, own, rule.end, keys))

    def _looked_up(
        self, table: TableKey, wanted: KeySet, column: str, keys: KeySet
    ) -> tuple[str, ...]:
        """Committed ids of a table that may meet `column` of the incoming keys."""
        reader = self.reader(table)
        if not reader.count():
            return ()
        if self._are_few(keys):
            mentioned = self._mentioned(keys, column)
            if len(mentioned) <= KEYS_MAX:
                found = KeySet(f"{keys.name}=>{table}", wanted.columns, wanted.by)
                if len(mentioned):
                    rows = rows_by_key(reader, "id", mentioned, list(wanted.columns))
                    self._add(found, [rows])
                return (found.name,)
        held = committed(wanted)
        self._scan(reader, held)
        return (held.name,)

    def _mentioned(self, keys: KeySet, column: str) -> pa.Array:
        rows = self.keys.every(keys.name)
        return pa.array([], pa.utf8()) if rows is None else pc.unique(rows.column(column))

    def _unique(self, owner: Owner, keys: KeySet, rule: Unique) -> tuple[str, ...]:
        if self.mode == "overwrite":
            return ()
        reader = self.reader(owner.table)
        if not reader.count():
            return ()
        held = committed(keys)
        names = list(dict.fromkeys(keys.columns))
        if self._are_few(keys):
            rows = self.keys.every(keys.name)
            if rows is None:
                return ()
            wanted = rows.select(list(rule.columns))
            met = rows_by_values(reader, owner, wanted, names)
            self._add(held, [self._without_replaced(owner, met)])
        else:
            self._retained(owner, reader, held)
        return (held.name,)

    def _without_replaced(self, owner: Owner, rows: pa.Table) -> pa.Table:
        if self.mode != "merge":
            return rows
        for bucket in range(self.keys.buckets):
            stated = self.keys.read(id_keys(owner.table).name, bucket)
            if stated is not None:
                rows = without_ids(rows, stated.column("id").combine_chunks())
        return rows

    def _edges_per_source(self, edge: EdgeType, rule: EdgesPerSource) -> Check:
        keys = source_keys(edge.table)
        held = committed(keys)
        reader = self.reader(edge.table)
        if self.mode == "overwrite":
            return self._replaced_edges(edge, rule, keys, reader)
        if not reader.count():
            return Check(rule, keys.name)
        lost = KeySet(f"{edge.table}@lost", keys.columns, keys.by)
        if self.mode == "merge":
            if not self._few_edges(edge, reader, keys, held, lost):
                self._retained(edge, reader, held, lost)
            return Check(rule, keys.name, (held.name,), touched=lost.name)
        mentioned = self._mentioned(keys, "src") if self._are_few(keys) else None
        if mentioned is not None and len(mentioned) <= KEYS_MAX:
            self._add(held, [rows_by_key(reader, "src", mentioned, list(keys.columns))])
        else:
            self._scan(reader, held)
        return Check(rule, keys.name, (held.name,))

    def _few_edges(
        self, edge: EdgeType, reader: TableReader, keys: KeySet, held: KeySet, lost: KeySet
    ) -> bool:
        """Look up the edges that a small merge replaces and those beside them; whether it is."""
        ids = id_keys(edge.table)
        if max(self.keys.rows(keys.name), self.keys.rows(ids.name)) > KEYS_MAX:
            return False
        columns = list(keys.columns)
        stated = self._mentioned(ids, "id")
        replaced = rows_by_key(reader, "id", stated, columns) if len(stated) else _none(columns)
        sources = pa.chunked_array(
            [self._mentioned(keys, "src"), *replaced["src"].chunks], pa.utf8()
        ).unique()
        if len(sources) > KEYS_MAX or not len(sources):
            return False
        beside = rows_by_key(reader, "src", sources, columns)
        self._add(lost, [replaced])
        self._add(held, [self._without_replaced(edge, beside)])
        return True

    def _replaced_edges(
        self, edge: EdgeType, rule: EdgesPerSource, keys: KeySet, reader: TableReader
    ) -> Check:
        """Sources that had edges must have enough of the new ones, if they are still there."""
        if rule.low == 0:
            return Check(rule, keys.name)
        lost = KeySet(f"{edge.table}@lost", keys.columns, keys.by)
        self._scan(reader, lost)
        node = rules_of(edge).endpoints[0].node_table
        own = id_keys(node)
        nodes: tuple[str, ...] = (own.name,)
        if node not in self.touched:
            held = committed(own)
            self._scan(self.reader(node), held)
            nodes = (held.name,)
        return Check(rule, keys.name, touched=lost.name, nodes=nodes)

    # Reading

    def _scan(self, reader: TableReader, keys: KeySet) -> None:
        if keys.name in self._scanned:
            return
        self._scanned.add(keys.name)
        if self.store is not None and self.each is not at_hand:
            self._scan_elsewhere(self.store, reader, keys)
            return
        names = list(dict.fromkeys(keys.columns))
        self._add(keys, (pa.Table.from_batches([batch]) for batch in reader.batches(names)))

    def _scan_elsewhere(self, store: Store, reader: TableReader, keys: KeySet) -> None:
        where, folder, buckets = store.where, str(self.spill.folder), self.spill.buckets
        jobs = [
            ScanJob(where.uri, where.storage_options, reader.pin, group, keys, folder, buckets)
            for group in grouped(reader.fragments(), FRAGMENTS_ROWS)
        ]
        for files in self.each(scan_keys, jobs):
            self.spill.files += files

    def _retained(
        self, owner: Owner, reader: TableReader, keys: KeySet, lost: KeySet | None = None
    ) -> None:
        """Committed rows that a merge does not replace; `lost` gets the others."""
        if self.mode != "merge":
            self._scan(reader, keys)
            return
        by_id = KeySet(f"{keys.name}~", keys.columns, ("id",))
        self._scan(reader, by_id)
        for bucket in range(self.spill.buckets):
            rows = self.spill.read(by_id.name, bucket)
            if rows is None:
                continue
            stated = self.keys.read(id_keys(owner.table).name, bucket)
            if stated is None:
                self._add(keys, [rows])
                continue
            met = pc.is_in(rows.column("id"), value_set=stated.column("id").combine_chunks())
            self._add(keys, [rows.filter(pc.invert(met))])
            if lost is not None:
                self._add(lost, [rows.filter(met)])

    def _add(self, keys: KeySet, tables: Iterable[pa.Table]) -> None:
        for rows in tables:
            self.spill.add(keys, rows)
