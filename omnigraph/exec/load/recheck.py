"""The key rules once more after another writer came first: only what changed is looked at.

Rows that were compared with everything committed then need only be compared with what was inserted
since. A node that was inserted takes no edge's end away, and a row that stays breaks no rule it did
not break before; so after insertions three rules are left to ask. After anything else all of them
are asked again of everything.

Invariant: a load that passes here would pass in full on the same version.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from omnigraph.errors import OmnigraphError
from omnigraph.exec.load.checks import Check, committed, id_keys, unique_keys
from omnigraph.exec.load.committed import Committed
from omnigraph.exec.load.records import Owner
from omnigraph.exec.rules.rules import rules_of
from omnigraph.storage.lance.reader import TableReader
from omnigraph.storage.lance.spans import AFTER, BEFORE
from omnigraph.storage.records import TablePin
from omnigraph.storage.store import Store
from omnigraph.types import TableKey

INSERTED_MAX = 100_000
"""Rows of one table above which reading everything again is no worse."""


def inserted_since(
    store: Store,
    checked: Mapping[TableKey, TablePin],
    read: Callable[[TableKey], TableReader],
) -> dict[TableKey, pa.Array] | None:
    """The row ids that each table got since it was checked; None when more than that happened.

    Every table is read through the write that is prepared, so its version is fenced again.
    """
    found: dict[TableKey, pa.Array] = {}
    for table, before in checked.items():
        after = read(table).pin
        if after == before:
            continue
        try:
            touched = store.deltas.touched(before, after)
        except OmnigraphError:
            return None  # the version that was checked is gone
        if touched.num_rows > INSERTED_MAX or touched[BEFORE].null_count < touched.num_rows:
            return None
        found[table] = touched[AFTER].combine_chunks()
    return found


@dataclass(slots=True)
class Rechecked(Committed):
    """The checks of a load whose tables only got new rows since they were checked."""

    inserted: Mapping[TableKey, pa.Array] = field(default_factory=dict)

    def _of(self, owner: Owner) -> Iterator[Check]:
        new = self.inserted.get(owner.table)
        if new is None or self.mode == "overwrite":
            return
        rules, reader = rules_of(owner), self.reader(owner.table)
        ids = id_keys(owner.table)
        if self.mode == "append":
            held = committed(ids)
            self._add(held, [reader.by_row_id(new, ["id"])])
            yield Check(rules.free, ids.name, (held.name,))
        for number, unique in enumerate(rules.uniques):
            keys = unique_keys(owner.table, number, unique)
            held = committed(keys)
            rows = reader.by_row_id(new, list(dict.fromkeys(keys.columns))).drop_null()
            self._add(held, [self._without_replaced(owner, rows)])
            yield Check(unique, keys.name, (held.name,))
        if rules.cardinality is not None:
            # Counting needs the other edges of a source too.
            yield from (
                check for check in Committed._of(self, owner) if check.rule == rules.cardinality
            )
