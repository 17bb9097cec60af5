"""The key rules of a load: which keys they need, and what they find in one bucket.

Incoming keys (`T#…`) are cut from the rows while they are decoded. Committed keys (`T@…`) are read
once the input is known. A check names the key sets it compares and can run in any process that
reads them.

Invariant: the committed keys that a check sees are those of rows that the load leaves as they are.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import Violation
from omnigraph.exec.load.records import Owner, Rows
from omnigraph.exec.load.spill import AT, KeySet, places
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
from omnigraph.types import TableKey

ReadBucket = Callable[[str, int], pa.Table | None]
_MOSTLY_DISTINCT = 0.7
_SAMPLED = 4_096


def id_keys(table: TableKey) -> KeySet:
    """The ids that the input states."""
    return KeySet(f"{table}#id", ("id",), ("id",))


def unique_keys(table: TableKey, number: int, rule: Unique) -> KeySet:
    """The tuples of a unique constraint."""
    return KeySet(f"{table}#unique{number}", ("id", *rule.columns), rule.columns)


def end_keys(table: TableKey, end: str) -> KeySet:
    """The nodes at one end of edges, each once a batch."""
    return KeySet(f"{table}#{end}", ("id", end), (end,))


def source_keys(table: TableKey) -> KeySet:
    """The edges of each source."""
    return KeySet(f"{table}#edges", ("id", "src"), ("src",))


def committed(keys: KeySet) -> KeySet:
    """The same keys of rows that are committed."""
    return replace(keys, name=keys.name.replace("#", "@"))


def incoming_keys(rows: Rows, part: int) -> list[tuple[KeySet, pa.Table]]:
    """The keys of some rows for the rules of their type."""
    owner, rules = rows.owner, rules_of(rows.owner)
    found: list[tuple[KeySet, pa.Table]] = []
    table = rows.table.append_column(AT, places(part, rows.lines))
    # A row that states its id may lose to a later one, so all of these are kept.
    is_stated = pc.any(rows.given).as_py()
    if is_stated:
        found.append((id_keys(owner.table), table.select(["id", AT]).filter(rows.given)))
    for number, unique in enumerate(rules.uniques):
        names = dict.fromkeys(("id", *unique.columns, AT))
        keys = unique_keys(owner.table, number, unique)
        found.append((keys, table.select(list(names)).drop_null()))
    # An id that was minted just now tells nobody which edge it is.
    ids = pa.nulls(table.num_rows, pa.utf8())
    if is_stated:
        ids = pc.if_else(rows.given, table["id"], pa.scalar(None, pa.utf8()))
    for endpoint in rules.endpoints:
        ends = pa.table({"id": ids, endpoint.end: table[endpoint.end], AT: table[AT]})
        keys = end_keys(owner.table, endpoint.end)
        found.append((keys, ends if is_stated else _first_of_each(ends, endpoint.end)))
    if rules.cardinality is not None:
        found.append((source_keys(owner.table), table.select(["id", "src", AT])))
    return found


def _first_of_each(table: pa.Table, end: str) -> pa.Table:
    """The first row of each value, or all of them where most values come once anyway."""
    values = table.column(end).combine_chunks()
    if _distinct_share(values) > _MOSTLY_DISTINCT:
        return table
    encoded = values.dictionary_encode()
    count = len(encoded.dictionary)
    if encoded.null_count or count > _MOSTLY_DISTINCT * len(encoded):
        return table
    codes = encoded.indices.to_numpy()
    first = np.empty(count, np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return table.take(pa.array(first))


def _distinct_share(values: pa.Array) -> float:
    """Which share of the values is distinct, guessed from how often the first ones come again."""
    some = len(values[:_SAMPLED])
    again = some - pc.count_distinct(values[:_SAMPLED]).as_py()
    if not again:
        return 1.0
    # As if each were drawn from so many with equal chances.
    drawn_from = some * some / (2 * again)
    return float(drawn_from * -np.expm1(-len(values) / drawn_from) / len(values))


@dataclass(frozen=True, slots=True)
class Check:
    """One rule and the key sets it compares: incoming rows with all the committed sets together.

    `touched` are sources that lose an edge; of these, only those that `nodes` hold are counted.
    """

    rule: KeyRule
    incoming: str
    committed: tuple[str, ...] = ()
    touched: str | None = None
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a check found in one bucket: some violations with their places, and how many in all."""

    violations: tuple[tuple[int | None, Violation], ...] = ()
    total: int = 0


def run_check(check: Check, owner: Owner, bucket: int, read: ReadBucket) -> Outcome:
    """Check one rule over one bucket of keys."""
    incoming = read(check.incoming, bucket)
    if check.touched is not None:
        incoming = _with_touched(incoming, read(check.touched, bucket), check, bucket, read)
    if incoming is None:
        return Outcome()
    held = _together(read(name, bucket) for name in check.committed)
    names = [name for name in incoming.column_names if name != AT]
    other = _matching(held, names, check.rule, owner)
    found = check_keys(incoming.select(names), other, check.rule)
    located = tuple((_place(check.rule, incoming, v), v) for v in found.violations)
    return Outcome(located, found.total)


def _with_touched(
    incoming: pa.Table | None,
    touched: pa.Table | None,
    check: Check,
    bucket: int,
    read: ReadBucket,
) -> pa.Table | None:
    if touched is None:
        return incoming
    if check.nodes:
        nodes = _together(read(name, bucket) for name in check.nodes)
        known = pa.array([], pa.utf8()) if nodes is None else nodes.column("id").combine_chunks()
        touched = touched.filter(pc.is_in(touched.column("src"), value_set=known))
    sources = pc.unique(touched.column("src"))
    count = len(sources)
    marks = pa.table(
        {
            "id": pa.nulls(count, pa.utf8()),
            "src": sources,
            AT: pa.repeat(pa.scalar(-1, pa.int64()), count),
        }
    )
    return (
        marks
        if incoming is None
        else pa.concat_tables([incoming.select(marks.column_names), marks])
    )


def _together(parts: Iterable[pa.Table | None]) -> pa.Table | None:
    there = [part for part in parts if part is not None]
    if not there:
        return None
    names = [n for n in there[0].column_names if n != AT]
    return pa.concat_tables([part.select(names) for part in there], promote_options="permissive")


def _matching(held: pa.Table | None, names: list[str], rule: KeyRule, owner: Owner) -> pa.Table:
    """The committed side, with the columns that the rule's statement names."""
    wanted = ["id"] if isinstance(rule, Endpoint | FreeIds | DistinctIds) else names
    if held is not None:
        return held.select(wanted)
    schema = owner.schema
    return pa.schema([schema.field(name) for name in wanted]).empty_table()


def _place(rule: KeyRule, incoming: pa.Table, violation: Violation) -> int | None:
    """Where the row of a violation came from; None when it was there before."""
    match rule:
        case Endpoint(end=end):
            mask = pc.equal(incoming.column(end), violation.value)
        case EdgesPerSource():
            mask = pc.equal(incoming.column("src"), violation.id)
        case Unique(columns=columns):
            mask = pa.array(list(_tuples_equal(incoming, columns, violation)), pa.bool_())
        case _:
            mask = pc.equal(incoming.column("id"), violation.id)
    found = incoming.column(AT).filter(mask).to_pylist()
    # Of rows that clash with each other the last is the one too many.
    is_last = isinstance(rule, DistinctIds | Unique | EdgesPerSource)
    at = (max(found) if is_last else min(found)) if found else -1
    return None if at < 0 else int(at)


def _tuples_equal(
    incoming: pa.Table, columns: tuple[str, ...], violation: Violation
) -> Iterator[bool]:
    for row in zip(*(incoming.column(name).to_pylist() for name in columns), strict=True):
        values = [shown(value) for value in row]
        text = values[0] if len(values) == 1 else f"({', '.join(values)})"
        yield text == violation.value


def losers_of(owner: Owner, buckets: int, read: ReadBucket) -> pa.Array:
    """The places of rows that a later row of the same id replaces, in a merge."""
    lost: list[pa.Array] = [pa.array([], pa.int64())]
    for bucket in range(buckets):
        rows = read(id_keys(owner.table).name, bucket)
        if rows is None:
            continue
        last = rows.group_by("id", use_threads=False).aggregate([(AT, "max")])
        if last.num_rows < rows.num_rows:
            kept = last.column(f"{AT}_max").combine_chunks()
            mask = pc.invert(pc.is_in(rows.column(AT), value_set=kept))
            lost.append(rows.column(AT).filter(mask).combine_chunks())
    return pa.concat_arrays(lost)


def without_losers(read: ReadBucket, losers: Mapping[TableKey, pa.Array]) -> ReadBucket:
    """Key sets without the keys of rows that lose to a later one."""

    def kept(name: str, bucket: int) -> pa.Table | None:
        rows = read(name, bucket)
        lost = losers.get(TableKey(name.partition("#")[0]))
        if rows is None or lost is None or AT not in rows.column_names:
            return rows
        return rows.filter(pc.invert(pc.is_in(rows.column(AT), value_set=lost)))

    return kept
