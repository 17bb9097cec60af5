"""Integrity check of the storage room: sidecars, forks, lineage, pinned versions, index files.

Invariant: nothing is written. Each problem is `(code, subject, what is wrong, what to do, facts)`.
A writer at work is no problem: a head or a sidecar that looks wrong is looked at once more after it
had time to finish.
"""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omnigraph.errors import OmnigraphError, Reclaimed, RecoveryRequired
from omnigraph.storage.lance.named_files import BRING_BACK, missing_files
from omnigraph.storage.manifest.state import LOCATION, State
from omnigraph.storage.names import MAIN, decode, owner_of
from omnigraph.storage.records import Commit, CommitId, TablePin, head_id
from omnigraph.storage.store import Store
from omnigraph.storage.upkeep.drift import SECOND_LOOK_S

Problem = tuple[str, str, str, str, dict[str, Any]]

_COPY = "bring its files back from a copy of the graph"

DELETION_MISPLACED, FILE_MISSING = "deletion-misplaced", "file-missing"
_LISTED_MAX = 10  # files in a finding


def inspect_graph(store: Store) -> Iterator[Problem]:
    """Sidecars, and forks that no branch names."""
    yield from _sidecars(store)
    yield from _forks(store)
    yield from _stray_folder(store)


def _stray_folder(store: Store) -> Iterator[Problem]:
    """A folder beside the graph that branches of earlier programs made, below a path that Lance
    took for a URL. Nothing is kept there."""
    encoded = Path(store.where.percent_encoded)
    if store.where.path is None or encoded == store.where.path or not encoded.is_dir():
        return
    if any(path.is_file() or path.is_symlink() for path in encoded.rglob("*")):
        return  # somebody's own
    text = "empty folders that branches of an earlier omnigraph left beside the graph"
    yield "stray-folder", str(encoded), text, "remove them: nothing is kept there", {}


def _sidecars(store: Store) -> Iterator[Problem]:
    try:
        pending = store.sidecars.pending()
    except OmnigraphError as cause:
        yield "sidecars", "__recovery", cause.fact, "look at the folder's permissions", {}
        return
    for operation in pending:
        try:
            sidecar = store.sidecars.read(operation)
        except OmnigraphError as cause:
            todo = "look at the file, and move it away once its tables are known to be in order"
            yield "sidecar-corrupt", operation, cause.fact, todo, {}
            continue
        if sidecar is None or _is_gone(store, operation):
            continue
        tables = [table.table_key for table in sidecar.tables]
        text = f"a {sidecar.intent.kind} on {sidecar.branch} is under way, or stopped half-way"
        todo = "open the graph read-write, which settles it unless its writer lives"
        yield (
            "sidecar-pending",
            operation,
            text,
            todo,
            {"tables": tables, "kind": sidecar.intent.kind},
        )


def _is_gone(store: Store, operation: Any) -> bool:
    time.sleep(SECOND_LOOK_S)
    return operation not in store.sidecars.pending()


def _forks(store: Store) -> Iterator[Problem]:
    try:
        live = {MAIN, *map(decode, store.datasets.refs(LOCATION))}
        locations = {
            pin.location: pin.table_key
            for branch in live
            for pin in store.manifest.state(branch).pins.values()
        }
    except OmnigraphError:
        return  # told for the branch
    for location, key in sorted(locations.items()):
        try:
            names = sorted(map(decode, store.datasets.refs(location)))
        except OmnigraphError as cause:
            yield "forks", key, cause.fact, _COPY, {}
            continue
        for name in names:
            if name not in live:
                text = f"its fork for '{name}' belongs to no branch"
                yield "fork-orphan", key, text, "run `omnigraph cleanup`", {"branch": name}


def inspect_branch(store: Store, branch: str) -> Iterator[Problem]:
    """The manifest of a branch, its lineage, and the tables it pins."""
    try:
        state = store.manifest.state(branch)
    except OmnigraphError:
        return  # told by the caller
    yield from _rows(store, state)
    yield from _lineage(store, state)
    for pin in state.pins.values():
        yield from _table(store, branch, pin)


def _rows(store: Store, state: State) -> Iterator[Problem]:
    with store.datasets.lance_call("scan_manifest", state.branch):
        ids = state.handle.to_table(columns=["object_id"])["object_id"].to_pylist()
    for name, count in Counter(ids).items():
        if count > 1:
            text = f"'{name}' is in the manifest of {state.branch} {count} times"
            todo = "restore __manifest from a copy, or export and load into a new graph"
            yield "manifest-duplicate", LOCATION, text, todo, {"object_id": name, "count": count}


def _lineage(store: Store, state: State) -> Iterator[Problem]:
    todo = "restore __manifest from a copy, or export and load into a new graph"
    commits = {c.id: c for c in store.queries.commits(state)}
    try:
        head = state.head
    except OmnigraphError as cause:
        yield "head-missing", state.branch, cause.fact, todo, {}
        return
    if head not in commits:
        text = f"its head '{head}' is no commit of its lineage"
        yield (
            "head-unknown",
            state.branch,
            text,
            todo,
            {"commit": head, "row": head_id(state.branch)},
        )
        return
    yield from _walk(state.branch, commits, head, todo)


def _walk(
    branch: str, commits: dict[CommitId, Commit], head: CommitId, todo: str
) -> Iterator[Problem]:
    """Whether first parents lead from the head through every commit to the first, once."""
    reached: set[CommitId] = set()
    commit_id: CommitId | None = head
    while commit_id is not None and commit_id not in reached:
        if commit_id not in commits:
            text = f"the parent '{commit_id}' of a commit is missing"
            yield "commit-missing", branch, text, todo, {"commit": commit_id}
            break
        reached.add(commit_id)
        commit_id = commits[commit_id].parent
    else:
        if commit_id is not None:
            text = f"commit '{commit_id}' is its own ancestor"
            yield "lineage-cycle", branch, text, todo, {"commit": commit_id}
    beside = sorted(commits.keys() - reached)
    if beside:
        text = (
            f"{len(beside)} commit(s) do not lie on the way from its head: {', '.join(beside[:3])}"
        )
        yield "lineage-forked", branch, text, todo, {"commits": beside}


def _table(store: Store, branch: str, pin: TablePin) -> Iterator[Problem]:
    where = {"branch": branch, "version": pin.version}
    if pin.branch is not None:
        ref = store.datasets.ref(pin.location, pin.branch)
        if ref is None or ref.identity != pin.fork:
            text = f"its fork for '{pin.branch}' is gone or another one"
            yield "fork-missing", pin.table_key, text, _COPY, where
            return
    try:
        store.datasets.own(pin)
    except Reclaimed:
        text = f"version {pin.version}, which {branch} publishes, is missing"
        yield "version-missing", pin.table_key, text, _COPY, where
        return
    except OmnigraphError as cause:
        yield "version-unreadable", pin.table_key, cause.fact, _COPY, where
        return
    if pin.branch == owner_of(branch):
        yield from _head(store, branch, pin)
    yield from _files(store, pin)
    yield from _indexes(store, pin)


def _files(store: Store, pin: TablePin) -> Iterator[Problem]:
    """Whether the files of rows and of deletions exist, where the version expects them."""
    missing = missing_files(store.datasets, pin)
    for version in dict.fromkeys(each.version.version for each in missing):
        of_version = [each for each in missing if each.version.version == version]
        where = {"branch": pin.branch or MAIN, "version": version}
        found = [each for each in of_version if each.found is not None]
        if found:
            text = f"version {version} expects {_listed([each.path for each in found])}"
            text += f", in place of which there is {_listed([str(each.found) for each in found])}"
            files = {"files": [each.path for each in found], "found": [e.found for e in found]}
            todo = "run `omnigraph repair`"
            yield DELETION_MISPLACED, pin.table_key, text, todo, {**where, **files}
        gone = [each.path for each in of_version if each.found is None]
        if gone:
            text = f"version {version} names files that are missing: {_listed(gone)}"
            facts = {**where, "files": gone[:_LISTED_MAX], "total": len(gone)}
            yield FILE_MISSING, pin.table_key, text, BRING_BACK, facts


def _listed(paths: list[str]) -> str:
    more = len(paths) - _LISTED_MAX
    return ", ".join(paths[:_LISTED_MAX]) + (f" and {more} more" if more > 0 else "")


def _head(store: Store, branch: str, pin: TablePin) -> Iterator[Problem]:
    try:
        drift = store.drifts.seen(branch, pin.table_key)
    except RecoveryRequired:
        return  # told as a pending sidecar
    if drift is None:
        return
    facts = {"branch": branch, "published": drift.pin.version, "head": drift.head}
    text = f"its head {drift.head} on {branch} is ahead of the published {drift.pin.version}"
    yield "head-ahead", pin.table_key, text, "run `omnigraph repair`", facts


def _indexes(store: Store, pin: TablePin) -> Iterator[Problem]:
    """Whether the files of each index are there. What a branch inherited lies elsewhere."""
    handle = store.datasets.handle(pin)
    folder = store.datasets.folder(pin)
    folders = set(store.objects.folders(f"{folder}/_indices"))
    for index in handle.describe_indices():
        own = [s for s in index.segments if getattr(s, "base_id", None) is None]
        if any(str(segment.uuid) not in folders for segment in own):
            text = f"files of its index '{index.name}' are missing"
            todo = "bring them back from a copy of the graph, or export and load"
            yield "index-missing", pin.table_key, text, todo, {"index": index.name}
