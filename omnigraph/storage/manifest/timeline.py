"""Timeline of a branch: which table versions it showed at which manifest version.

Invariant: what a past version of the manifest shows follows from the rows of a later one and the
versions they were created at, so no past version has to be opened.
"""

from collections.abc import Iterable

import pyarrow as pa

from omnigraph.storage.lance.columns import CREATED
from omnigraph.storage.records import (
    TABLE_VERSION,
    TablePin,
    Tombstone,
    decode_pin,
    decode_tombstone,
    visible,
)
from omnigraph.types import TableKey


class TableHistory:
    """The table versions a branch made visible, each with the manifest version that did."""

    def __init__(self, rows: pa.Table) -> None:
        stamps = rows[CREATED].to_pylist()
        self._pins: list[tuple[int, TablePin]] = []
        self._stones: list[tuple[int, Tombstone]] = []
        for created, row in zip(stamps, rows.to_pylist(), strict=True):
            if row["object_type"] == TABLE_VERSION:
                self._pins.append((created, decode_pin(row)))
            else:
                self._stones.append((created, decode_tombstone(row)))
        self._pins.sort(key=lambda each: each[0])

    @property
    def all(self) -> list[TablePin]:
        """Every version that was ever visible."""
        return [pin for _, pin in self._pins]

    def pins_at(self, versions: Iterable[int]) -> set[TablePin]:
        """Every table version that is visible at one of these manifest versions."""
        shown: set[TablePin] = set()
        latest: dict[tuple[TableKey, str], TablePin] = {}  # a name may live again elsewhere
        waiting = iter(self._pins)
        following = next(waiting, None)
        for version in sorted(set(versions)):
            while following is not None and following[0] <= version:
                pin = following[1]
                name = pin.table_key, pin.location
                if name not in latest or pin.version > latest[name].version:
                    latest[name] = pin
                following = next(waiting, None)
            stones = [stone for created, stone in self._stones if created <= version]
            shown |= set(visible(latest.values(), stones).values())
        return shown
