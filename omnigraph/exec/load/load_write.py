"""Write of a bulk load: begun before the input is read, and again when another writer came first.

Invariant: files that a load writes while it reads its input lie in the folder of the branch that it
is committed on. Another handle may make the first write of the branch to a table meanwhile; files
beside its version are as good, since the load is prepared on the newest one.
"""

from omnigraph.catalog.model import Catalog
from omnigraph.errors import VersionMismatch
from omnigraph.exec.load.request import LoadRequest
from omnigraph.storage.locks.turns import Turn
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.protocol.write import Write
from omnigraph.storage.records import WriteBase
from omnigraph.storage.store import Store
from omnigraph.types import TableKey


def begun(store: Store, catalog: Catalog, request: LoadRequest, turn: Turn | None = None) -> Write:
    """Begin a write of a load on the head of its branch."""
    return store.begin(
        request.branch,
        kind=WriterKind.LOAD,
        **request.note.stated,
        schema=catalog.schema_id,
        turn=turn,
    )


class LoadWrite:
    """The write of one load while its input is read."""

    def __init__(self, store: Store, catalog: Catalog, request: LoadRequest) -> None:
        self._store = store
        self._catalog = catalog
        self._request = request
        self.current = begun(store, catalog, request)

    def base(self, table: TableKey) -> WriteBase:
        """Return the version of a table that rows are written beside. Begins the write again if the
        branch forked the table since.

        Raises `VersionMismatch` for an overwrite, which replaces the rows that its caller has seen.
        """
        try:
            return self.current.base(table)
        except VersionMismatch:
            if self._request.mode == "overwrite":
                raise
        self.current = begun(self._store, self._catalog, self._request)
        return self.current.base(table)
