"""Constraint checks of a schema migration: existing rows against the rules that the change adds.

Invariant: the rules checked are those of the new schema that the old one did not set already, over
every row as it will be. They are the rules that writes are held to, so data that passes here would
be accepted by a load into the new schema. Memory is bounded by a batch and a bucket of keys.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from omnigraph.catalog.model import key_ids
from omnigraph.exec.load.checks import source_keys, unique_keys
from omnigraph.exec.load.local import bucket_count
from omnigraph.exec.load.scratch import scratch_folder
from omnigraph.exec.load.spill import KeySet, Spill
from omnigraph.exec.rules.key_rules import check_keys
from omnigraph.exec.rules.row_rules import check_rows
from omnigraph.exec.rules.rules import (
    EdgesPerSource,
    OneOf,
    Required,
    RowRule,
    RuleViolations,
    TypeRules,
    Unique,
    joined,
    rules_of,
)
from omnigraph.exec.schema.backfill import Filling, Owner, columns_after
from omnigraph.storage.lance.reader import TableReader

_KEY_BYTES = 64  # estimated size of a row in a set of keys


@dataclass(frozen=True, slots=True)
class NewRules:
    """The rules that a schema change adds to a type."""

    rows: tuple[RowRule, ...]
    uniques: tuple[Unique, ...]
    cardinality: EdgesPerSource | None

    def __bool__(self) -> bool:
        return bool(self.rows or self.uniques or self.cardinality)

    @property
    def columns(self) -> set[str]:
        """Every column that the rules read."""
        named = {rule.column for rule in self.rows}
        named |= {name for unique in self.uniques for name in unique.columns}
        return named | ({"src"} if self.cardinality else set())


def new_rules(old: Owner, new: Owner, filling: Filling | None) -> NewRules:
    """The rules of a type that its rows were not held to. An added empty column breaks none but
    that it is required, and an enum can only be widened."""
    names = columns_after(old, new)
    before, after = rules_of(old), rules_of(new)
    filled = set() if filling is None else set(filling.names)
    known = {_translated(rule, new.name, names) for rule in before.rows}
    present = {*names.values(), *filled}
    empty = {prop.name for prop in new.properties if prop.default is None} - present
    return NewRules(
        tuple(
            rule
            for rule in after.rows
            if (rule.column in present or (isinstance(rule, Required) and rule.column in empty))
            and rule not in known
            and not (isinstance(rule, OneOf) and rule.column not in filled)
        ),
        tuple(
            unique
            for unique in after.uniques
            if set(unique.columns) <= present
            and frozenset(unique.columns) not in _unique_columns(before, names)
        )
        + ((Unique(new.name, new.key, "key"),) if is_rekeyed(old, new) else ()),
        _new_cardinality(before, after),
    )


def is_rekeyed(old: Owner, new: Owner) -> bool:
    """Whether the ids of a type's rows follow from another key than before."""
    return bool(new.key) and key_ids(old) != key_ids(new)


def _translated(rule: RowRule, type_name: str, names: dict[str, str]) -> RowRule:
    column = names.get(rule.column, rule.column)
    if isinstance(rule, Required):
        word = column if rule.word == rule.column else rule.word
        return replace(rule, type_name=type_name, column=column, word=word)
    return replace(rule, type_name=type_name, column=column)


def _unique_columns(rules: TypeRules, names: dict[str, str]) -> set[frozenset[str]]:
    return {frozenset(names.get(n, n) for n in unique.columns) for unique in rules.uniques}


def _new_cardinality(before: TypeRules, after: TypeRules) -> EdgesPerSource | None:
    old, new = before.cardinality, after.cardinality
    bounds = (0, None) if old is None else (old.low, old.high)
    return None if new is None or (new.low, new.high) == bounds else new


def broken(
    reader: TableReader, old: Owner, new: Owner, filling: Filling | None, rules: NewRules
) -> RuleViolations:
    """The violations of a table's rows, as they will be after the change."""
    if filling is not None:  # an invalid expression is refused for an empty table, too
        filling.values(_nothing(reader, list(filling.columns)))
    with scratch_folder() as folder:
        buckets = bucket_count(reader.pin.row_count * _KEY_BYTES)
        return _RulesCheck(new, rules, folder, buckets).violations(
            _rows(reader, old, new, filling, rules)
        )


def broken_by(
    owner: Owner, rules: NewRules, row_count: int, tables: Iterable[pa.Table]
) -> RuleViolations:
    """The violations of rules by all rows of a type, given with the columns that they read."""
    with scratch_folder() as folder:
        buckets = bucket_count(row_count * _KEY_BYTES)
        return _RulesCheck(owner, rules, folder, buckets).violations(tables)


def _nothing(reader: TableReader, names: list[str]) -> pa.RecordBatch:
    schema = pa.schema([reader.schema.field(name) for name in names])
    return pa.RecordBatch.from_pylist([], schema=schema)


def _rows(
    reader: TableReader, old: Owner, new: Owner, filling: Filling | None, rules: NewRules
) -> Iterator[pa.Table]:
    """The rows with the columns that the rules read, under their new names."""
    names = columns_after(old, new)
    columns = {"id"} | rules.columns
    read = [name for name, after in names.items() if filling is not None or after in columns]
    for batch in reader.batches(read):
        rows = pa.Table.from_batches([batch]).rename_columns([names[name] for name in read])
        if filling is not None:
            values = filling.values(batch)
            for field, array in zip(values.schema, values.columns, strict=True):
                rows = rows.append_column(field, array)
        yield rows.select([name for name in rows.column_names if name in columns])


@dataclass(frozen=True, slots=True)
class _RulesCheck:
    """Checks new rules over all rows of one type, keys bucket by bucket."""

    owner: Owner
    rules: NewRules
    folder: Path
    buckets: int

    def violations(self, tables: Iterable[pa.Table]) -> RuleViolations:
        broken_rules = []
        spill = Spill(self.folder, self.buckets)
        keyed = list(self._key_rules())
        for rows in tables:
            broken_rules.append(check_rows(self.rules.rows, rows))
            for keys, _ in keyed:
                spill.add(keys, rows.select(list(dict.fromkeys(keys.columns))))
        for keys, rule in keyed:
            for bucket in range(self.buckets):
                incoming = spill.read(keys.name, bucket)
                if incoming is not None:
                    broken_rules.append(check_keys(incoming, incoming.slice(0, 0), rule))
        return joined(broken_rules)

    def _key_rules(self) -> Iterator[tuple[KeySet, Unique | EdgesPerSource]]:
        for number, unique in enumerate(self.rules.uniques):
            yield unique_keys(self.owner.table, number, unique), unique
        if self.rules.cardinality is not None:
            yield source_keys(self.owner.table), self.rules.cardinality
