"""Opening a store: create a new graph's storage, or open one that exists.

Invariant: opening reads the stamp before anything else. A graph exists once its manifest does.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph.deferred import deferred
from omnigraph.errors import AlreadyExists, BadRequest, NotFound, StorageFailed
from omnigraph.storage import failpoints, stamp
from omnigraph.storage.flushing import (
    checked_durability,
    chosen_durability,
    flush_path,
    stored_durability,
)
from omnigraph.storage.lance.datasets import Handle, no_panic
from omnigraph.storage.locks.locks import hold
from omnigraph.storage.manifest.state import LOCATION, read_state
from omnigraph.storage.names import (
    BACKUP_FOLDER,
    BACKUP_RUNNING,
    MAIN,
    lock_name,
    require_actor,
    table_location,
)
from omnigraph.storage.objects import Root, StorageOptions, root_of
from omnigraph.storage.protocol.power_cut import PowerCut
from omnigraph.storage.records import CommitId, SchemaId, Snapshot
from omnigraph.storage.store import Settings, Store
from omnigraph.types import TableKey

if TYPE_CHECKING:
    from ulid import ULID

    from omnigraph.storage.manifest import publish
else:
    publish = deferred("omnigraph.storage.manifest", "publish")
    ULID = deferred("ulid", "ULID")


def create(
    uri: str | os.PathLike[str],
    tables: Sequence[tuple[TableKey, pa.Schema]],
    *,
    files: Mapping[str, bytes] | None = None,
    remote_files: Mapping[str, bytes] | None = None,
    schema: SchemaId | None = None,
    actor: str | None = None,
    storage_options: StorageOptions | None = None,
    settings: Settings | None = None,
) -> Store:
    """A new graph of empty tables. Its manifest comes last: until then there is no graph. The
    `remote_files` are for an object store alone."""
    where = root_of(uri, storage_options)
    where.require_branchable()
    require_actor(actor)
    _require_distinct(tables)
    _require_no_graph(where)
    _make_folder(where)
    store_settings = settings or Settings()
    checked_durability(store_settings.durability)
    store = Store(where, read_only=False, settings=store_settings)
    _flush_folder(store)
    with hold(store.locks, [lock_name("init", "")]):
        _require_no_graph(where)
        pins = [store.tables.create(table_key, schema) for table_key, schema in tables]
        failpoints.hit("init.tables")
        store.audit.create()
        more = {} if where.is_local else remote_files or {}
        for path, data in {**(files or {}), **more}.items():
            store.objects.put_unflushed(path, data)
        failpoints.hit("init.objects")
        store.flusher.owe_below("")
        store.flusher.barrier()
        chosen = store_settings.durability
        publish.create(store.datasets, pins, CommitId(str(ULID())), actor, schema, chosen)
        store.flusher.owe_below(LOCATION)
        store.flusher.barrier()
        PowerCut(where, store.objects, store.locks, store.stats).mark()
        failpoints.hit("init.manifest")
    store.stats.event("graph.created", level=logging.INFO, uri=where.uri, tables=len(tables))
    return store


def open_store(
    uri: str | os.PathLike[str],
    *,
    read_only: bool = False,
    storage_options: StorageOptions | None = None,
    settings: Settings | None = None,
) -> Store:
    """An existing graph. Read-write settles what dead writers left; read-only never writes."""
    where = root_of(uri, storage_options)
    settings = settings or Settings()
    checked_durability(settings.durability)
    store = Store(where, read_only=read_only, settings=settings)
    power_cut = PowerCut(where, store.objects, store.locks, store.stats)
    store.datasets.is_wary = power_cut.is_possible()
    if not read_only and store.datasets.is_wary and os.access(where.uri, os.W_OK | os.X_OK):
        power_cut.settle()
        store.datasets.is_wary = False
    folders = None if where.is_local else frozenset(store.objects.folders(""))
    store.first = _require_graph(store, settings, folders)
    if not read_only:
        _require_writable_folder(where)
    if not read_only and (folders is None or store.sidecars.may_be_among(folders)):
        store.heal(if_room=True)  # a graph on a full disk must open, or nobody could clean it up
        if where.is_local:  # elsewhere it is a request more, which a transaction and cleanup make
            store.owned_branches.remove_ownerless()
    store.stats.event("graph.opened", uri=where.uri, read_only=read_only)
    return store


def first_snapshot(store: Store) -> Snapshot:
    """What the open of a graph saw of main, without a second look; what is there now if the open
    has read main since, or written to it."""
    handle, store.first = store.first, None
    manifest = store.manifest
    if handle is None or manifest.known(MAIN) is not None:
        return store.snapshot()
    state = read_state(
        store.datasets,
        handle,
        branch=MAIN,
        identity=None,
        known=None,
        uri=store.where.uri,
        copies=store.state_copies,
    )
    manifest.published(state)
    return manifest.snapshot(state)


def _require_distinct(tables: Sequence[tuple[TableKey, pa.Schema]]) -> None:
    if len({table_location(table_key) for table_key, _ in tables}) != len(tables):
        raise BadRequest("two types share one folder", "rename one of them")


def _require_graph(store: Store, settings: Settings, folders: frozenset[str] | None) -> Handle:
    """The newest version of the manifest of a graph that is there and whole. `folders` are those of
    an object store, which says by one call what need not be looked for."""
    missing = NotFound("graph", store.where.uri, "create it with init")
    if store.where.path is not None and not store.where.path.is_dir():
        raise missing
    if (folders is None or BACKUP_FOLDER in folders) and store.objects.has(BACKUP_RUNNING):
        raise NotFound(
            "graph", store.where.uri, "a backup to it was interrupted: run the backup again"
        )
    try:
        handle = store.datasets.open(LOCATION)
        with no_panic("read_schema", LOCATION):
            schema = handle.schema
    except NotFound as cause:
        raise missing from cause
    stamp.require_supported(schema, uri=store.where.uri)
    stored = stored_durability(schema.metadata)
    store.flusher.choose(chosen_durability(settings.durability, stored))
    return handle


def _require_no_graph(where: Root) -> None:
    store = Store(where, read_only=True, settings=Settings())
    if where.path is not None and not where.path.exists():
        return
    try:
        store.datasets.open(LOCATION)
    except NotFound:
        return
    raise AlreadyExists("graph", where.uri, "open it, or init elsewhere")


def _make_folder(where: Root) -> None:
    if where.path is None:
        return
    try:
        where.path.mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        raise StorageFailed(f"made the folder {where.path}", str(cause)) from cause
    _require_writable_folder(where)


def _flush_folder(store: Store) -> None:
    """The new folder's own name on disk: nothing below it would count without."""
    if store.flusher.is_on and store.where.path is not None:
        try:
            flush_path(str(store.where.path.parent))
        except OSError as cause:
            raise StorageFailed(f"flushed {store.where.path.parent}", str(cause)) from cause


def _require_writable_folder(where: Root) -> None:
    if where.path is not None and not os.access(where.path, os.W_OK | os.X_OK):
        raise StorageFailed(
            f"opened {where.path} for writing", "the folder is read-only; open it with read_only"
        )
