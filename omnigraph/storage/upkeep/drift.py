"""Drift: a table head that is not the version the manifest publishes.

Invariant: a drift is told only when it was seen under the table's lock (or, by a reader, twice)
with no sidecar that explains it, so a writer at work, or one that died and will be settled, is not
taken for one.
"""

import time

from omnigraph.errors import NotFound, RecoveryRequired
from omnigraph.light_dataclass import dataclass
from omnigraph.storage.lance.datasets import Datasets
from omnigraph.storage.lance.tables import Tables
from omnigraph.storage.locks.locks import Locks, hold
from omnigraph.storage.manifest.manifest import Manifest
from omnigraph.storage.names import lock_name, owner_of
from omnigraph.storage.protocol.sidecars import Sidecar, Sidecars
from omnigraph.storage.records import TablePin
from omnigraph.types import TableKey

SECOND_LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class Drift:
    """A table whose head is not what is published, and nobody's work under way."""

    pin: TablePin
    head: int

    @property
    def is_behind(self) -> bool:
        """Whether versions that were published are gone."""
        return self.head < self.pin.version


class Drifts:
    """Looks for drift."""

    def __init__(
        self,
        datasets: Datasets,
        tables: Tables,
        manifest: Manifest,
        sidecars: Sidecars,
        locks: Locks,
        *,
        read_only: bool,
    ) -> None:
        self._read_only = read_only
        self._datasets = datasets
        self._tables = tables
        self._manifest = manifest
        self._sidecars = sidecars
        self._locks = locks

    def of(self, branch: str, table_key: TableKey) -> Drift | None:
        """The drift of a table on a branch that has it for its own."""
        if self._read_only:
            return self.seen(branch, table_key)
        pin = self._pin(branch, table_key)
        if pin is None or self.head(pin) == pin.version:
            return None
        with hold(self._locks, [lock_name(table_key, branch)]):
            return self.under_lock(branch, table_key)

    def seen(self, branch: str, table_key: TableKey) -> Drift | None:
        """The same without a lock, for those who may not write one: a second look, after a writer
        at work had time to publish."""
        try:
            if self.under_lock(branch, table_key) is None:
                return None
        except RecoveryRequired:
            pass
        time.sleep(SECOND_LOOK_S)
        return self.under_lock(branch, table_key)

    def under_lock(self, branch: str, table_key: TableKey) -> Drift | None:
        """The same, while the caller holds the table's lock."""
        pin = self._pin(branch, table_key)
        if pin is None or (head := self.head(pin)) == pin.version:
            return None
        sidecar = self.explained(branch, table_key)
        if sidecar is not None:
            raise RecoveryRequired(
                sidecar.operation_id, f"it left {table_key} at version {head}, unpublished"
            )
        return Drift(pin, head)

    def head(self, pin: TablePin) -> int:
        """The table head, also when it is behind its pin."""
        head = self._tables.head(pin)
        if head != pin.version:
            return head
        try:
            self._datasets.open(pin.location, pin.branch, pin.version)
        except NotFound:
            return self._datasets.head(pin.location, pin.branch)
        return head

    def _pin(self, branch: str, table_key: TableKey) -> TablePin | None:
        pin = self._manifest.state(branch).pins.get(table_key)
        return pin if pin is not None and pin.branch == owner_of(branch) else None

    def explained(self, branch: str, table_key: TableKey) -> Sidecar | None:
        """The pending sidecar that names a table of a branch."""
        for operation in self._sidecars.pending():
            sidecar = self._sidecars.read(operation)
            if sidecar is None or sidecar.branch != branch:
                continue
            if any(table.table_key == table_key for table in sidecar.tables):
                return sidecar
        return None
