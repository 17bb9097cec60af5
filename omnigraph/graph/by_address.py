"""Graphs by address: `init`, `open`, `check_at` and `backup`.

Invariant: a graph exists once its manifest does, so an init that stopped half-way left none, and
init can be run again.
"""

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from omnigraph.arguments import checked, require_address
from omnigraph.deferred import deferred
from omnigraph.errors import StorageFailed
from omnigraph.exec.progress import UpkeepProgress
from omnigraph.exec.schemas import Schemas, accepted, schema_tables
from omnigraph.graph.door import Graph
from omnigraph.graph.policy_guard import policy_of
from omnigraph.graph.schema import stored_catalog
from omnigraph.graph.source_text import schema_text
from omnigraph.storage.names import require_actor
from omnigraph.storage.opening import create, open_store
from omnigraph.storage.store import Settings
from omnigraph.types import Durability

if TYPE_CHECKING:
    from omnigraph.catalog.accept import accept
    from omnigraph.exec.upkeep.backup import BackupReport
    from omnigraph.exec.upkeep.check import CheckReport, check
    from omnigraph.policy.decisions import Policy
else:
    accept = deferred("omnigraph.catalog.accept", "accept")
    BackupReport = deferred("omnigraph.exec.upkeep.backup", "BackupReport")
    CheckReport = deferred("omnigraph.exec.upkeep.check", "CheckReport")
    check = deferred("omnigraph.exec.upkeep.check", "check")
    Policy = deferred("omnigraph.policy.decisions", "Policy")


@checked
def init(
    uri: str | os.PathLike[str],
    schema: str | os.PathLike[str],
    *,
    storage_options: dict[str, str] | None = None,
    fold: bool = True,
    external_blobs: Iterable[str] = (),
    durability: Durability | None = None,
) -> Graph:
    """A new graph. `schema` is the path of a `.pg` file, or its text. `durability` is kept with the
    graph: `fsync`, where a commit is on disk when it is acknowledged, or `os`.

    >>> made = og.init("new.omni", schema="node City { name: String @key }")
    >>> made.close()
    """
    require_address(uri)
    text = schema_text(schema)
    first = accepted(text, accept(text))
    store = create(
        uri,
        schema_tables(first.catalog),
        files=first.files(),
        remote_files=first.joined(),
        schema=first.id,
        storage_options=storage_options,
        settings=Settings(fold=fold, external_blobs=tuple(external_blobs), durability=durability),
    )
    return Graph(store)


@checked
def check_at(
    uri: str | os.PathLike[str], *, storage_options: dict[str, str] | None = None
) -> CheckReport:
    """Check a graph that may be too damaged to be opened."""
    require_address(uri)
    store = open_store(uri, read_only=True, storage_options=storage_options)
    return check(store, Schemas(store), lambda: stored_catalog(store))


@checked
def open(
    uri: str | os.PathLike[str],
    *,
    read_only: bool = False,
    storage_options: dict[str, str] | None = None,
    fold: bool = True,
    external_blobs: Iterable[str] = (),
    durability: Durability | None = None,
    coalesce_ms: int | None = None,
    policy: str | os.PathLike[str] | Policy | None = None,
    actor: str | None = None,
) -> Graph:
    """An existing graph. Read-write settles what dead writers left; read-only never writes.

    `fold=False` leaves small fragments as they are, for `optimize` to fold. A Blob may be given as
    the address of a file below one of `external_blobs`, such as `file:///photos/` or
    `s3://bucket/photos/`; its bytes are copied in. `durability` is `fsync` or `os` for this
    process, else that of OMNIGRAPH_DURABILITY, else the graph's own. With
    `coalesce_ms` mutations that threads of this process make at the same time share one commit,
    each waiting that long for others.

    With `policy`, one that was read or the path of its file, every verb first asks whether the
    `actor` may do it, and raises `Forbidden` where it may not. `actor` is who writes, where a verb
    is not told otherwise; under a policy it is nobody else.

    >>> with og.open("people.omni", read_only=True) as opened:
    ...     opened.read_only
    True
    """
    require_address(uri)
    require_actor(actor)
    rules = policy_of(policy)
    settings = Settings(fold=fold, external_blobs=tuple(external_blobs), durability=durability)
    store = open_store(uri, read_only=read_only, storage_options=storage_options, settings=settings)
    return Graph(store, coalesce_ms=coalesce_ms, policy=rules, actor=actor)


@checked
def backup(
    uri: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    storage_options: dict[str, str] | None = None,
    target_options: dict[str, str] | None = None,
    check: bool = True,
    dry_run: bool = False,
    progress: Callable[[UpkeepProgress], None] | None = None,
) -> BackupReport:
    """Copy a graph to an empty folder or bucket prefix, or bring an earlier backup up to date.

    As `Graph.backup`. A graph that may not be written to is copied without a lock, so a cleanup of
    it meanwhile can make the copy fail.

    >>> og.backup("people.omni", "people.backup").check.ok
    True
    """
    try:
        graph = open(uri, storage_options=storage_options, read_only=dry_run)
    except StorageFailed:
        graph = open(uri, storage_options=storage_options, read_only=True)
    with graph:
        return graph.backup(
            target,
            storage_options=target_options,
            check=check,
            dry_run=dry_run,
            progress=progress,
        )
