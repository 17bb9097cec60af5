"""Incremental key checks of a load that retries: only rows inserted since the first check are read.

Rows that were compared with every committed row need only be compared with rows inserted since. An
inserted node removes no endpoint, and an unchanged row breaks no rule it did not break before; so
after insertions three rules are left to check. After any other change all rules are checked in
full.

Invariant: a load that passes here would pass in full on the same version.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from omnigraph.costs import COSTS
from omnigraph.errors import OmnigraphError
from omnigraph.exec.load.checks import KeyCheck, committed, id_keys, unique_keys
from omnigraph.exec.load.committed import Committed
from omnigraph.exec.load.ndjson import Owner
from omnigraph.exec.rules.rules import rules_of
from omnigraph.storage.lance.reader import TableReader
from omnigraph.storage.lance.spans import AFTER, BEFORE
from omnigraph.storage.records import TablePin
from omnigraph.storage.store import Store
from omnigraph.types import TableKey


def inserted_since(
    store: Store,
    checked: Mapping[TableKey, TablePin],
    read: Callable[[TableKey], TableReader],
) -> dict[TableKey, pa.Array] | None:
    """The row ids inserted into each table since it was checked; None after any other change.

    Every table is read through the write that is prepared, so its version is fenced again.
    """
    inserted: dict[TableKey, pa.Array] = {}
    for table, before in checked.items():
        after = read(table).pin
        if after == before:
            continue
        try:
            touched = store.deltas.touched(before, after)
        except OmnigraphError:
            return None  # the checked version was cleaned up
        if (
            touched.num_rows > COSTS.recheck_inserted_rows_max
            or touched[BEFORE].null_count < touched.num_rows
        ):
            return None
        inserted[table] = touched[AFTER].combine_chunks()
    return inserted


@dataclass(slots=True)
class Rechecked(Committed):
    """Key checks of a load whose tables got only insertions since they were checked."""

    inserted: Mapping[TableKey, pa.Array] = field(default_factory=dict)

    def _of(self, owner: Owner) -> Iterator[KeyCheck]:
        new = self.inserted.get(owner.table)
        if new is None or self.mode == "overwrite":
            return
        rules, reader = rules_of(owner), self.reader(owner.table)
        ids = id_keys(owner.table)
        if self.mode == "append":
            stored = committed(ids)
            self._add(stored, reader.by_row_id(new, ["id"]))
            yield KeyCheck(rules.free, ids.name, (stored.name,))
        for number, unique in enumerate(rules.uniques):
            keys = unique_keys(owner.table, number, unique)
            stored = committed(keys)
            rows = reader.by_row_id(new, list(dict.fromkeys(keys.columns))).drop_null()
            self._keep(owner, stored, rows)
            yield KeyCheck(unique, keys.name, (stored.name,))
        if rules.cardinality is not None:
            # Counting needs the other edges of a source too.
            yield from (
                check for check in Committed._of(self, owner) if check.rule == rules.cardinality
            )
