"""Schema steps of commits: what each changed in the schema against its first parent.

Invariant: a commit whose schema is that of its parent costs no read. Each pair of schemas is
compared once for an open graph.
"""

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from omnigraph.errors import NotFound
from omnigraph.exec.schemas import Schemas
from omnigraph.storage.names import MAIN
from omnigraph.storage.records import Commit, CommitId
from omnigraph.storage.store import Store


def with_schema_steps(
    store: Store, schemas: Schemas, commits: Sequence[Commit]
) -> tuple[Commit, ...]:
    """Return the commits with the schema steps of each. A commit without a recorded schema, or
    whose parent was deleted with its branch, has none."""
    parents = _parents(store, commits)
    return tuple(stepped(schemas, each, parents.get(each.parent or "")) for each in commits)


def _parents(store: Store, commits: Sequence[Commit]) -> dict[str, Commit]:
    """First parents by id. Those that are not among the commits are looked up, once a branch."""
    known: dict[str, Commit] = {each.id: each for each in commits}
    missing: defaultdict[str, list[CommitId]] = defaultdict(list)
    for each in commits:
        if each.parent is not None and each.schema is not None and each.parent not in known:
            missing[each.branch or MAIN].append(each.parent)
    for branch, ids in missing.items():
        with suppress(NotFound):  # the branch was deleted
            known.update((each.id, each) for each in store.history.find(branch, ids))
    return known


def stepped(schemas: Schemas, commit: Commit, parent: Commit | None) -> Commit:
    """Return a commit with its schema steps against its first parent."""
    before, after = None if parent is None else parent.schema, commit.schema
    if before is None or after is None or before == after:
        return commit
    return replace(commit, schema_steps=schemas.steps(before, after))
