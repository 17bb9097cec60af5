"""Key rules of a bulk load (unique, endpoints, cardinality), checked bucket by bucket.

Incoming keys (`T#…`) are cut from the rows while they are decoded. Committed keys (`T@…`) are read
once the input is known. A check names the key sets it compares and can run in any process that
reads them.

Invariant: the committed keys that a check sees are those of rows that the load leaves unchanged.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.costs import COSTS
from omnigraph.errors import Violation
from omnigraph.exec.load.exchange import Blocks, Exchange, ReadKeys
from omnigraph.exec.load.ndjson import Owner, TypedRows
from omnigraph.exec.load.spill import ORIGIN, KeySet, origins
from omnigraph.exec.rules.key_rules import check_keys
from omnigraph.exec.rules.row_rules import shown
from omnigraph.exec.rules.rules import (
    DistinctIds,
    EdgesPerSource,
    Endpoint,
    FreeIds,
    KeyRule,
    Unique,
    rules_of,
)
from omnigraph.exec.topology.end_numbers import Ends
from omnigraph.types import TableKey


def id_keys(table: TableKey) -> KeySet:
    """The ids that the input states."""
    return KeySet(f"{table}#id", ("id",), ("id",))


def unique_keys(table: TableKey, number: int, rule: Unique) -> KeySet:
    """The tuples of a unique constraint."""
    return KeySet(f"{table}#unique{number}", ("id", *rule.columns), rule.columns)


def end_keys(table: TableKey, end: str) -> KeySet:
    """The nodes at one end of edges, deduplicated by batch."""
    return KeySet(f"{table}#{end}", ("id", end), (end,))


def source_keys(table: TableKey) -> KeySet:
    """The edges of each source."""
    return KeySet(f"{table}#edges", ("id", "src"), ("src",))


def committed(keys: KeySet) -> KeySet:
    """The same keys of rows that are committed."""
    return replace(keys, name=keys.name.replace("#", "@"))


def incoming_keys(
    rows: TypedRows, part: int, numbers: Ends | None = None
) -> list[tuple[KeySet, pa.Table]]:
    """The key sets that the rules of a type need, cut from its rows. Ends of edges that have a
    number are known to be there."""
    owner, rules = rows.owner, rules_of(rows.owner)
    sets: list[tuple[KeySet, pa.Table]] = []
    table = rows.table.append_column(ORIGIN, origins(part, rows.lines))
    # A row that states its id may lose to a later one, so all of these are kept.
    is_stated = pc.any(rows.given).as_py()
    if is_stated:
        sets.append((id_keys(owner.table), table.select(["id", ORIGIN]).filter(rows.given)))
    for number, unique in enumerate(rules.uniques):
        names = dict.fromkeys(("id", *unique.columns, ORIGIN))
        keys = unique_keys(owner.table, number, unique)
        sets.append((keys, table.select(list(names)).drop_null()))
    # An id minted for this load identifies no edge to the user, so a fault does not name it.
    ids = pa.nulls(table.num_rows, pa.utf8())
    if is_stated:
        ids = pc.if_else(rows.given, table["id"], pa.scalar(None, pa.utf8()))
    for endpoint in rules.endpoints:
        ends = pa.table({"id": ids, endpoint.end: table[endpoint.end], ORIGIN: table[ORIGIN]})
        if numbers is not None:
            own = numbers[0 if endpoint.end == "src" else 1]
            if own.min(initial=0) >= 0:
                continue
            ends = ends.filter(pa.array(own < 0))
        keys = end_keys(owner.table, endpoint.end)
        sets.append((keys, ends if is_stated else _first_of_each(ends, endpoint.end)))
    if rules.cardinality is not None:
        sets.append((source_keys(owner.table), table.select(["id", "src", ORIGIN])))
    return sets


def _first_of_each(table: pa.Table, end: str) -> pa.Table:
    """The first row of each value, or the whole table where most values are distinct."""
    values = table.column(end).combine_chunks()
    if _distinct_share(values) > COSTS.distinct_share_max:
        return table
    encoded = values.dictionary_encode()
    count = len(encoded.dictionary)
    if encoded.null_count or count > COSTS.distinct_share_max * len(encoded):
        return table
    codes = encoded.indices.to_numpy()
    first = np.empty(count, np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return table.take(pa.array(first))


def _distinct_share(values: pa.Array) -> float:
    """The share of distinct values, estimated from the duplicates in a sample."""
    sampled = len(values[: COSTS.distinct_sample_rows])
    repeats = sampled - pc.count_distinct(values[: COSTS.distinct_sample_rows]).as_py()
    if not repeats:
        return 1.0
    # Birthday estimate: the values are drawn uniformly from that many.
    drawn_from = sampled * sampled / (2 * repeats)
    return float(drawn_from * -np.expm1(-len(values) / drawn_from) / len(values))


@dataclass(frozen=True, slots=True)
class KeyCheck:
    """One rule and the key sets it compares: incoming rows with all the committed sets together.

    `touched` are sources that lose an edge; of these, only those that `nodes` hold are counted.
    """

    rule: KeyRule
    incoming: str
    committed: tuple[str, ...] = ()
    touched: str | None = None
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """Result of a check in one bucket: listed violations with their origins, and the total."""

    violations: tuple[tuple[int | None, Violation], ...] = ()
    total: int = 0


def run_check(check: KeyCheck, owner: Owner, read: ReadKeys) -> CheckOutcome:
    """Check one rule over one bucket of keys."""
    incoming = read(check.incoming)
    if check.touched is not None:
        incoming = _with_touched(incoming, read(check.touched), check, read)
    if incoming is None:
        return CheckOutcome()
    stored = _concatenated(read(name) for name in check.committed)
    names = [name for name in incoming.column_names if name != ORIGIN]
    other = _matching(stored, names, check.rule, owner)
    broken = check_keys(incoming.select(names), other, check.rule)
    located = tuple((_origin(check.rule, incoming, v), v) for v in broken.violations)
    return CheckOutcome(located, broken.total)


def _with_touched(
    incoming: pa.Table | None,
    touched: pa.Table | None,
    check: KeyCheck,
    read: ReadKeys,
) -> pa.Table | None:
    if touched is None:
        return incoming
    if check.nodes:
        nodes = _concatenated(read(name) for name in check.nodes)
        known = pa.array([], pa.utf8()) if nodes is None else nodes.column("id").combine_chunks()
        touched = touched.filter(pc.is_in(touched.column("src"), value_set=known))
    sources = pc.unique(touched.column("src"))
    count = len(sources)
    marks = pa.table(
        {
            "id": pa.nulls(count, pa.utf8()),
            "src": sources,
            ORIGIN: pa.repeat(pa.scalar(-1, pa.int64()), count),
        }
    )
    return (
        marks
        if incoming is None
        else pa.concat_tables([incoming.select(marks.column_names), marks])
    )


def _concatenated(parts: Iterable[pa.Table | None]) -> pa.Table | None:
    present = [part for part in parts if part is not None]
    if not present:
        return None
    names = [n for n in present[0].column_names if n != ORIGIN]
    return pa.concat_tables([part.select(names) for part in present], promote_options="permissive")


def _matching(stored: pa.Table | None, names: list[str], rule: KeyRule, owner: Owner) -> pa.Table:
    """The committed side, with the columns that the rule's statement names."""
    columns = ["id"] if isinstance(rule, Endpoint | FreeIds | DistinctIds) else names
    if stored is not None:
        return stored.select(columns)
    schema = owner.schema
    return pa.schema([schema.field(name) for name in columns]).empty_table()


def _origin(rule: KeyRule, incoming: pa.Table, violation: Violation) -> int | None:
    """The origin of the row that breaks a rule; None for a committed row."""
    match rule:
        case Endpoint(end=end):
            mask = pc.equal(incoming.column(end), violation.value)
        case EdgesPerSource():
            mask = pc.equal(incoming.column("src"), violation.id)
        case Unique(columns=columns):
            mask = pa.array(list(_tuples_equal(incoming, columns, violation)), pa.bool_())
        case DistinctIds() | FreeIds():
            mask = pc.equal(incoming.column("id"), violation.id)
        case _:
            assert_never(rule)
    origins = incoming.column(ORIGIN).filter(mask).to_pylist()
    # Of rows that clash with each other the last one is reported.
    is_last = isinstance(rule, DistinctIds | Unique | EdgesPerSource)
    origin = (max(origins) if is_last else min(origins)) if origins else -1
    return None if origin < 0 else int(origin)


def _tuples_equal(
    incoming: pa.Table, columns: tuple[str, ...], violation: Violation
) -> Iterator[bool]:
    for row in zip(*(incoming.column(name).to_pylist() for name in columns), strict=True):
        values = [shown(value) for value in row]
        text = values[0] if len(values) == 1 else f"({', '.join(values)})"
        yield text == violation.value


def losers_among(rows: pa.Table | None) -> pa.Array:
    """The origins of rows that a later row of the same id replaces, in one bucket of a merge."""
    if rows is None or pc.count_distinct(rows.column("id")).as_py() == rows.num_rows:
        return pa.array([], pa.int64())
    last = rows.group_by("id", use_threads=False).aggregate([(ORIGIN, "max")])
    kept = last.column(f"{ORIGIN}_max").combine_chunks()
    mask = pc.invert(pc.is_in(rows.column(ORIGIN), value_set=kept))
    return rows.column(ORIGIN).filter(mask).combine_chunks()


def find_losers(name: str, bucket: int, read: ReadKeys) -> pa.Array:
    """The losers of one bucket of ids."""
    return losers_among(read(name))


def losers_of(
    tables: Sequence[TableKey], keys: Blocks, exchange: Exchange
) -> dict[TableKey, pa.Array]:
    """The losers of each table that has some, bucket by bucket."""
    named = {table: id_keys(table).name for table in tables}
    stated = [table for table, name in named.items() if keys.rows(name)]
    works = [partial(find_losers, named[table]) for table in stated]
    by_bucket = exchange.read(works, [keys]) if works else []
    lost = {
        table: pa.concat_arrays([pa.array([], pa.int64()), *each])
        for table, each in zip(stated, by_bucket, strict=True)
    }
    return {table: origins for table, origins in lost.items() if len(origins)}


def without_losers(read: ReadKeys, losers: Mapping[TableKey, pa.Array]) -> ReadKeys:
    """Key sets without the keys of rows that lose to a later one."""

    def kept(name: str) -> pa.Table | None:
        rows = read(name)
        lost = losers.get(TableKey(name.partition("#")[0]))
        if rows is None or lost is None or ORIGIN not in rows.column_names:
            return rows
        return rows.filter(pc.invert(pc.is_in(rows.column(ORIGIN), value_set=lost)))

    return kept
