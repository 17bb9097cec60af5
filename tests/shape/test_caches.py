"""Every cache has a row in `docs/invariants.md`, and `Store.forget` clears those of a store."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omnigraph.lru import Lru
from omnigraph.storage.derived.column_file import column_kind
from omnigraph.storage.derived.derived_folder import EDGES, NODES
from omnigraph.storage.derived.edge_delta_file import EDGE_DELTAS
from omnigraph.storage.manifest.state_copies import CHECKPOINT
from omnigraph.storage.store import Store
from tests.shape.caches import caches, called, uses
from tests.shape.modules import ROOT, Module
from tests.storage.world import Where

PAGE = (ROOT / "docs" / "invariants.md").read_text(encoding="utf-8")
ROWS = {
    name: cleared
    for name, cleared in re.findall(r"^\| `([\w/]+\.py:[\w.]+)` \|.*\| ([^|]+) \|$", PAGE, re.M)
}

OF_ONE_OPERATION = {
    "catalog/declarations.py:_Resolver",
    "cli/shell.py:Session",
    "cluster/apply_run.py:ApplyRun",
    "cluster/recovery_sweep.py:RecoverySweep",
    "exec/changes/neighbourhood.py:Neighbourhood",
    "exec/changes/neighbourhood.py:Surroundings",
    "exec/load/committed.py:Committed",
    "exec/load/finish.py:Finish",
    "exec/load/intake.py:FragmentSink",
    "exec/load/ndjson.py:Records",
    "exec/load/spill.py:Spill",
    "exec/load/upsert.py:Upsert",
    "exec/merge/ancestry.py:_Commits",
    "exec/mutate/staging.py:PendingTable",
    "exec/mutate/staging.py:Staging",
    "exec/profile.py:Profile",
    "exec/topology/end_numbers.py:EndNumbers",
    "exec/upkeep/check.py:_Seen",
    "exec/upkeep/retention.py:_Reasons",
    "pipeline/shuffle_exchange.py:Inbox",
    "pipeline/tasks.py:PartDone",
    "plan/lower.py:_Solver",
    "plan/lower.py:_Steps",
    "plan/lower.py:_Waiting",
    "plan/matched_writes.py:_RowValues",
    "plan/patterns.py:_Pattern",
    "plan/returns.py:_Return",
    "plan/scope.py:Names",
    "plan/scope.py:Scope",
    "plan/shares.py:_Leaves",
    "server/ui/query_pages.py:_Asked",
    "storage/external.py:ExternalBlobs",
    "storage/lance/named_files.py:_Present",
    "storage/protocol/schema_write.py:SchemaWrite",
    "storage/protocol/write.py:Write",
    "storage/upkeep/cleanup.py:_Needs",
}
"""Classes whose objects live for one request, one write, one parse or one run: what they keep is
of one snapshot."""

NO_CACHES = {
    "exec/mutate/coalesce.py:Coalescer._lanes": "mutations that wait for one commit",
    "graph/review_records.py:ReviewRecords._ended": "an ended review is never open again",
    "remote/branch_lease.py:BranchLeases._over": "leases that this client renews",
    "server/applied_sets.py:AppliedSets._faults": "faults that were reported",
    "server/branch_leases.py:LeaseWatch._looked": "when leases of a graph were looked at",
    "server/branch_leases.py:LeaseWatch._seen": "how long a lease has had its content",
    "server/idempotency.py:_running": "requests under way",
    "server/job_runner.py:JobRunner._active": "jobs under way",
    "server/kept_answers.py:_swept": "when old answers were removed",
    "server/metrics.py:Metrics._seconds": "counts since the start",
    "server/served.py:ServedGraphs._open": "the graphs that a server was given",
    "server/served.py:ServedGraphs._stored": "their stored queries, as applied",
    "server/served.py:ServedGraphs._tried": "when a graph was last tried",
    "storage/failpoints.py:_armed": "failpoints of a test",
    "storage/flushing.py:Flusher._heads": "what is on disk; removing a folder forgets it",
    "storage/flushing.py:Flusher._named": "what is on disk; removing a folder forgets it",
    "storage/flushing.py:_threads": "threads of the process",
    "storage/lance/id_index.py:_TableIds.seen": "a part of one entry of the index",
    "storage/lance/parallel.py:_threads": "threads of the process",
    "storage/locks/locks.py:LeaseLocks._removed": "leases that are still to be freed",
    "storage/locks/turns.py:Turns._crowds": "which writes had to wait a moment ago",
    "storage/locks/waiting_line.py:_lines": "threads that wait",
}
"""State that says nothing about stored content."""


def test_every_cache_of_the_package_is_listed() -> None:
    found = caches()
    excused = {name for name in found if name.rpartition(".")[0] in OF_ONE_OPERATION}
    assert sorted(found - excused - ROWS.keys() - NO_CACHES.keys()) == []
    assert sorted((ROWS.keys() | NO_CACHES.keys()) - found) == [], "listed, and not there"
    assert sorted(OF_ONE_OPERATION - {name.rpartition(".")[0] for name in excused}) == []


def test_a_cache_that_is_not_listed_is_found(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        "from functools import lru_cache\n"
        "_plans: dict[str, int] = {}\n"
        "def plan(text):\n    if text not in _plans:\n        _plans[text] = 1\n"
        "@lru_cache(8)\ndef parsed(text): ...\n"
        "class Store:\n"
        "    def __init__(self):\n"
        "        self._versions: dict[int, str] = {}\n"
        "        self._few = Lru[str, int](4)\n"
        "        self._rows: list[int] = []\n"
        "        self._queue: set[int] = set()\n"
        "    def get(self, n):\n"
        "        return self._versions.get(n)\n"
        "    def put(self, n):\n"
        "        self._versions[n] = 'x'\n"
        "        self._queue.add(n)\n"
    )
    module = Module(path)
    names = {*called(module), *uses(module.tree).memos()}
    assert names == {"_plans", "parsed", "Store._versions", "Store._few"}


def test_every_kind_of_derived_file_is_listed() -> None:
    kinds = re.findall(r"^\| `([\w<>/]+)`", PAGE, re.M)
    column = column_kind(7).replace("7", "<id>")
    assert {NODES, EDGES, EDGE_DELTAS, column, CHECKPOINT} <= set(kinds)


# What forget clears

SENTINEL: Any = ("sentinel",)


def test_forget_clears_every_cache_of_a_store(tmp_path: Path) -> None:
    """An entry that is put into each is gone afterwards."""
    store = Where(str(tmp_path / "g")).create()
    forgotten = {name for name, cleared in ROWS.items() if cleared == "`Store.forget`"}
    kept = dict(_kept_by(store, forgotten))
    # That of a graph on an object store has no object here.
    assert forgotten - kept.keys() == {"storage/derived/remote_copies.py:RemoteCopies._asked"}
    for values in kept.values():
        for each in values:
            _put(each)
    store.forget()
    again = dict(_kept_by(store, forgotten))
    assert [name for name, values in again.items() if any(map(_has, values))] == []
    store.close()


def _kept_by(store: Store, names: set[str]) -> Iterator[tuple[str, list[Any]]]:
    """The mappings of a store's objects by the names that the page gives them."""
    found: dict[str, list[Any]] = {}
    seen: dict[int, object] = {}
    waiting: list[object] = [store]
    while waiting:
        one = waiting.pop()
        module = type(one).__module__
        if id(one) in seen or not module.startswith("omnigraph.") or isinstance(one, Lru):
            continue
        seen[id(one)] = one
        slots = [name for each in type(one).__mro__ for name in getattr(each, "__slots__", ())]
        attributes = {name: getattr(one, name, None) for name in slots} | dict(
            getattr(one, "__dict__", {})
        )
        for owner in type(one).__mro__:
            path = f"{owner.__module__.removeprefix('omnigraph.').replace('.', '/')}.py"
            for name, value in attributes.items():
                full = f"{path}:{owner.__name__}.{name}"
                if full in names:
                    found.setdefault(full, []).append(value)
        waiting += attributes.values()
    yield from found.items()


def _put(kept: Any) -> None:
    if isinstance(kept, Lru):
        kept._entries[SENTINEL] = (None, 0)
    elif isinstance(kept, set):
        kept.add(SENTINEL)
    else:
        kept[SENTINEL] = None


def _has(kept: Any) -> bool:
    return SENTINEL in (kept._entries if isinstance(kept, Lru) else kept)
