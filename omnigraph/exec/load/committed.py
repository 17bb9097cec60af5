"""Committed keys that a bulk load compares with its own: index lookups, or one scan of the keys.

A small input looks up the keys it mentions. A large one scans the key columns once and partitions
them into the same buckets as its own keys (partitioned hash join).

Invariant: every table that a check reads is read through the write, so the commit is refused when
one of them moved.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.model import Catalog, EdgeType
from omnigraph.costs import COSTS
from omnigraph.exec.load.checks import (
    KeyCheck,
    committed,
    end_keys,
    id_keys,
    source_keys,
    unique_keys,
)
from omnigraph.exec.load.exchange import Blocks, Exchange, ReadKeys, put_tables
from omnigraph.exec.load.ndjson import Owner
from omnigraph.exec.load.spill import ORIGIN, KeySet, Spill
from omnigraph.exec.load.upsert import grouped
from omnigraph.exec.rules.rules import EdgesPerSource, Endpoint, Unique, rules_of
from omnigraph.exec.values.selection import rows_by_key, rows_by_values, without_ids
from omnigraph.storage.lance.reader import TableReader
from omnigraph.storage.opening import open_store
from omnigraph.storage.records import TablePin
from omnigraph.storage.store import Store
from omnigraph.types import TableKey

Mode = Literal["append", "merge", "patch", "overwrite"]
Planned = tuple[KeyCheck, Owner]


@dataclass(frozen=True, slots=True)
class ScanJob:
    """Fragments of a table to scan for the keys of a key set."""

    uri: str
    storage_options: dict[str, str] | None
    pin: TablePin
    fragments: tuple[int, ...]
    keys: KeySet
    has_origin: bool = False  # whether the set meets incoming keys, which have origins


def scan_keys(job: ScanJob, out: Spill) -> None:
    """Put the keys of a job's fragments."""
    if not job.fragments:
        return
    store = open_store(job.uri, read_only=True, storage_options=job.storage_options)
    names = list(dict.fromkeys(job.keys.columns))
    for batch in store.tables.reader(job.pin).batches(names, fragments=job.fragments):
        rows = pa.Table.from_batches([batch])
        if job.has_origin:
            none = pa.repeat(pa.scalar(-1, pa.int64()), rows.num_rows)
            rows = rows.append_column(ORIGIN, none)
        out.add(job.keys, rows)


def retain(
    stated: str,
    by_id: str,
    keys: KeySet,
    lost: KeySet | None,
    bucket: int,
    read: ReadKeys,
    out: Spill,
) -> None:
    """Put the committed rows of one bucket of ids that the input does not replace as `keys`, and
    those it does as `lost`."""
    rows, incoming = read(by_id), read(stated)
    if rows is None:
        return
    if incoming is None:
        out.add(keys, rows)
        return
    replaced = pc.is_in(rows.column("id"), value_set=incoming.column("id").combine_chunks())
    out.add(keys, rows.filter(pc.invert(replaced)))
    if lost is not None:
        out.add(lost, rows.filter(replaced))


def _none(columns: list[str]) -> pa.Table:
    return pa.schema([(name, pa.utf8()) for name in columns]).empty_table()


@dataclass(slots=True)
class Committed:
    """Plans the key checks of one attempt of a load, and reads the committed keys they need."""

    catalog: Catalog
    mode: Mode
    touched: frozenset[TableKey]
    reader: Callable[[TableKey], TableReader]
    keys: Blocks  # of the input
    exchange: Exchange
    store: Store  # opened again by jobs
    refuses_duplicates: bool = True
    advice: str = ""  # to the caller of a load that is refused for a duplicate
    stored: list[Blocks] = field(default_factory=list)  # keys of committed rows
    _scanned: set[str] = field(default_factory=set)
    _own: list[tuple[KeySet, pa.Table]] = field(default_factory=list)  # looked up here, so few

    def checks(self) -> list[Planned]:
        """Every check of the load; the committed keys they name are in `stored` when this
        returns."""
        owners: tuple[Owner, ...] = (*self.catalog.nodes.values(), *self.catalog.edges.values())
        planned: list[Planned] = []
        for owner in owners:
            if owner.table in self.touched:
                planned += [(check, owner) for check in self._of(owner)]
            elif isinstance(owner, EdgeType) and self.mode == "overwrite":
                planned += [(check, owner) for check in self._left_behind(owner)]
        if self._own:
            self.stored.append(self.exchange.put(put_tables, [self._own])[1])
        return planned

    def _are_few(self, keys: KeySet) -> bool:
        """Whether the incoming keys are few enough to be read all at once."""
        return self.keys.rows(keys.name) <= COSTS.mentioned_keys_max

    def _of(self, owner: Owner) -> Iterator[KeyCheck]:
        rules = rules_of(owner)
        ids = id_keys(owner.table)
        if self.refuses_duplicates:
            yield KeyCheck(replace(rules.distinct, advice=self.advice), ids.name)
        if self.mode == "append":
            names = self._looked_up(owner.table, ids, "id", ids)
            yield KeyCheck(rules.free, ids.name, names)
        for number, unique in enumerate(rules.uniques):
            keys = unique_keys(owner.table, number, unique)
            yield KeyCheck(unique, keys.name, self._unique(owner, keys, unique))
        for endpoint in rules.endpoints:
            keys = end_keys(owner.table, endpoint.end)
            node = self.catalog.nodes[endpoint.node_name]
            keyed = replace(endpoint, node_key=node.key)
            yield KeyCheck(keyed, keys.name, self._nodes(endpoint, keys))
        if rules.cardinality is not None and isinstance(owner, EdgeType):
            yield self._edges_per_source(owner, rules.cardinality)

    def _left_behind(self, edge: EdgeType) -> Iterator[KeyCheck]:
        """Edges that stay although nodes of their ends are replaced."""
        for endpoint in rules_of(edge).endpoints:
            if endpoint.node_table in self.touched:
                keys = end_keys(edge.table, endpoint.end)
                self._scan(self.reader(edge.table), keys, has_origin=True)
                yield KeyCheck(endpoint, keys.name, (id_keys(endpoint.node_table).name,))

    # Which committed keys

    def _nodes(self, rule: Endpoint, keys: KeySet) -> tuple[str, ...]:
        """Key sets with the nodes of the input and the committed nodes that stay."""
        own = id_keys(rule.node_table)
        if self.mode == "overwrite" and rule.node_table in self.touched:
            return (own.name,)
        return (own.name, *self._looked_up(rule.node_table, own, rule.end, keys))

    def _looked_up(
        self, table: TableKey, ids: KeySet, column: str, keys: KeySet
    ) -> tuple[str, ...]:
        """Key sets with the committed ids that may equal `column` of the incoming keys."""
        reader = self.reader(table)
        if not reader.count():
            return ()
        if self._are_few(keys):
            mentioned = self._mentioned(keys, column)
            if len(mentioned) <= COSTS.committed_keys_max:
                looked_up = KeySet(f"{keys.name}=>{table}", ids.columns, ids.by)
                if len(mentioned):
                    rows = rows_by_key(reader, "id", mentioned, list(ids.columns))
                    self._add(looked_up, rows)
                return (looked_up.name,)
        scanned = committed(ids)
        self._scan(reader, scanned)
        return (scanned.name,)

    def _mentioned(self, keys: KeySet, column: str) -> pa.Array:
        rows = self.keys.every(keys.name)
        return pa.array([], pa.utf8()) if rows is None else pc.unique(rows.column(column))

    def _unique(self, owner: Owner, keys: KeySet, rule: Unique) -> tuple[str, ...]:
        if self.mode == "overwrite":
            return ()
        reader = self.reader(owner.table)
        if not reader.count():
            return ()
        stored = committed(keys)
        names = list(dict.fromkeys(keys.columns))
        if self._are_few(keys):
            rows = self.keys.every(keys.name)
            if rows is None:
                return ()
            values = rows.select(list(rule.columns))
            self._keep(owner, stored, rows_by_values(reader, owner, values, names))
        else:
            self._retained(owner, reader, stored)
        return (stored.name,)

    def _keep(self, owner: Owner, keys: KeySet, rows: pa.Table) -> None:
        """Add committed rows, without those that a merge replaces."""
        ids = id_keys(owner.table)
        if self.mode != "merge" or not self.keys.rows(ids.name):
            self._add(keys, rows)
        elif self._are_few(ids):
            self._add(keys, without_ids(rows, self._mentioned(ids, "id")))
        else:
            by_id = _by_id(keys)
            put = self.exchange.put(put_tables, [[(by_id, rows)]])[1]
            self._retain(owner, put, by_id, keys, None)

    def _edges_per_source(self, edge: EdgeType, rule: EdgesPerSource) -> KeyCheck:
        keys = source_keys(edge.table)
        stored = committed(keys)
        reader = self.reader(edge.table)
        if self.mode == "overwrite":
            return self._replaced_edges(edge, rule, keys, reader)
        if not reader.count():
            return KeyCheck(rule, keys.name)
        lost = KeySet(f"{edge.table}@lost", keys.columns, keys.by)
        if self.mode == "merge":
            if not self._few_edges(edge, reader, keys, stored, lost):
                self._retained(edge, reader, stored, lost)
            return KeyCheck(rule, keys.name, (stored.name,), touched=lost.name)
        mentioned = self._mentioned(keys, "src") if self._are_few(keys) else None
        if mentioned is not None and len(mentioned) <= COSTS.committed_keys_max:
            self._add(stored, rows_by_key(reader, "src", mentioned, list(keys.columns)))
        else:
            self._scan(reader, stored)
        return KeyCheck(rule, keys.name, (stored.name,))

    def _few_edges(
        self, edge: EdgeType, reader: TableReader, keys: KeySet, stored: KeySet, lost: KeySet
    ) -> bool:
        """Look up the edges that a small merge replaces and the other edges of their sources.
        Returns False, with nothing added, when the merge is not small."""
        ids = id_keys(edge.table)
        if max(self.keys.rows(keys.name), self.keys.rows(ids.name)) > COSTS.committed_keys_max:
            return False
        columns = list(keys.columns)
        stated = self._mentioned(ids, "id")
        replaced = rows_by_key(reader, "id", stated, columns) if len(stated) else _none(columns)
        sources = pa.chunked_array(
            [self._mentioned(keys, "src"), *replaced["src"].chunks], pa.utf8()
        ).unique()
        if len(sources) > COSTS.committed_keys_max or not len(sources):
            return False
        beside = rows_by_key(reader, "src", sources, columns)
        self._add(lost, replaced)
        self._keep(edge, stored, beside)
        return True

    def _replaced_edges(
        self, edge: EdgeType, rule: EdgesPerSource, keys: KeySet, reader: TableReader
    ) -> KeyCheck:
        """Sources that had edges need enough of the new ones, if the sources still exist."""
        if rule.low == 0:
            return KeyCheck(rule, keys.name)
        lost = KeySet(f"{edge.table}@lost", keys.columns, keys.by)
        self._scan(reader, lost)
        node = rules_of(edge).endpoints[0].node_table
        own = id_keys(node)
        nodes: tuple[str, ...] = (own.name,)
        if node not in self.touched:
            stored = committed(own)
            self._scan(self.reader(node), stored)
            nodes = (stored.name,)
        return KeyCheck(rule, keys.name, touched=lost.name, nodes=nodes)

    # Reading

    def _scan(self, reader: TableReader, keys: KeySet, *, has_origin: bool = False) -> None:
        if keys.name in self._scanned:
            return
        self._scanned.add(keys.name)
        self.stored.append(self._keys_of(reader, keys, has_origin=has_origin))

    def _keys_of(self, reader: TableReader, keys: KeySet, *, has_origin: bool = False) -> Blocks:
        """The keys of all rows of a table."""
        where = self.store.where
        jobs = [
            ScanJob(where.uri, where.storage_options, reader.pin, group, keys, has_origin)
            for group in grouped(reader.fragments(), COSTS.upsert_job_rows)
        ]
        return self.exchange.put(scan_keys, jobs)[1]

    def _retained(
        self, owner: Owner, reader: TableReader, keys: KeySet, lost: KeySet | None = None
    ) -> None:
        """Committed rows that a merge does not replace; `lost` gets the others."""
        if self.mode != "merge":
            self._scan(reader, keys)
            return
        by_id = _by_id(keys)
        self._retain(owner, self._keys_of(reader, by_id), by_id, keys, lost)

    def _retain(
        self, owner: Owner, rows: Blocks, by_id: KeySet, keys: KeySet, lost: KeySet | None
    ) -> None:
        """Put again, by the columns of `keys`, rows that were put by id."""
        work = partial(retain, id_keys(owner.table).name, by_id.name, keys, lost)
        self.stored.append(self.exchange.forward([work], [self.keys, rows])[1])

    def _add(self, keys: KeySet, rows: pa.Table) -> None:
        if rows.num_rows:
            self._own.append((keys, rows))


def _by_id(keys: KeySet) -> KeySet:
    """A key set on its way: the same rows, by id."""
    return KeySet(f"{keys.name}~", keys.columns, ("id",))
