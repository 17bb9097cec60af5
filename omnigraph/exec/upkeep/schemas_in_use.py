"""Schemas in use: which archived schemas a commit that stays readable names.

Every commit names its schema, so the answer is in the history that cleanup has read anyway. Commits
of earlier programs do not; the few of them that stay are read, and while there are many of them all
schemas count as in use.

Invariant: a schema that a readable commit has is in use, also when the commit came after retention
was decided or a table could not be cleaned up.
"""

from collections.abc import Iterable

from omnigraph.costs import COSTS
from omnigraph.errors import NotFound, Reclaimed
from omnigraph.exec.upkeep.retention import Retained
from omnigraph.storage.records import Commit, SchemaId
from omnigraph.storage.store import Store


def schemas_in_use(
    store: Store, retained: Retained, schemas: frozenset[SchemaId], *, reclaimed: bool
) -> frozenset[SchemaId]:
    """Those of the schemas that commits name. Once the commits that do not stay are `reclaimed`,
    those that can be read now are asked too; no schema changes meanwhile."""
    kept = [each.commit for each in retained.kept]
    others = schemas - {commit.schema for commit in kept}
    if not others:
        return schemas
    in_use = _named(store, kept, others)
    if reclaimed and others - in_use:
        in_use |= _named(store, _readable(store), others)
    return schemas - (others - in_use)


def _readable(store: Store) -> list[Commit]:
    """The commits of live branches that can be read."""
    is_there = store.history.lost.presence()
    return [commit for commit in store.history.everything().values() if is_there(commit)]


def _named(
    store: Store, commits: Iterable[Commit], schemas: frozenset[SchemaId]
) -> frozenset[SchemaId]:
    """Those of the schemas that these commits have, or all when too many do not say."""
    named = {commit.schema for commit in commits}
    unnamed = [commit for commit in commits if commit.schema is None]
    if len(unnamed) > COSTS.unnamed_commits_max:
        return schemas
    for commit in unnamed:
        try:
            named.add(store.history.snapshot_at(commit).schema)
        except (NotFound, Reclaimed):
            continue  # nobody else can read it either
    return schemas & named
