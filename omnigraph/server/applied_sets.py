"""Live reload of what graphs are served with: stored queries, checks, providers and policies.

    ledger or folder changed ─▶ read it ─▶ prepare each graph ─▶ swap, on the event loop

Invariant: for a graph a new set is in force as a whole or not at all, for every request that begins
after the swap. A set that cannot be used leaves the old one in force and is named until it is
mended. Which graphs are served, and the bases of external blobs, stay as they were at the start. A
worker that starts later begins with the sets that were last in force.
"""

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import orjson

from omnigraph.cluster.ledger import STATE
from omnigraph.errors import OmnigraphError
from omnigraph.server.access import Gate
from omnigraph.server.policy_files import ReloadedFiles, policies_of
from omnigraph.server.request_log import RequestLog
from omnigraph.server.serve_settings import SETTINGS_FILE, GraphExtras, ServerSettings
from omnigraph.server.served import ServedGraphs
from omnigraph.server.served_sets import CHECKS_FILE, ServedSet, extras_of_folder, set_of_cluster
from omnigraph.storage.cluster_objects import ClusterObjects

Swap = Callable[[], None]
_SERVER = "server"
_UNREAD = b""


class AppliedSets:
    """The sets of one worker's graphs, and what is wrong with newer ones."""

    def __init__(
        self,
        settings: ServerSettings,
        graphs: ServedGraphs,
        gate: Gate,
        files: ReloadedFiles,
        log: RequestLog,
    ) -> None:
        self.settings = settings  # with the sets that are in force
        self._graphs = graphs
        self._gate = gate
        self._files = files
        self._log = log
        self._seen: Any = None  # what was in the settings was read some time ago: look once
        self._looks = 0
        self._faults: dict[str, str] = {}

    @property
    def kept(self) -> list[str]:
        """The graphs, and files, whose newest set is not in force because it cannot be used."""
        return sorted({*self._faults, *self._files.faults})

    @property
    def digest(self) -> str:
        """The digest of all that is in force: sets, policies and tokens."""
        policies = self._gate.policies
        described = {
            "extras": {name: asdict(each) for name, each in self.settings.extras.items()},
            "policies": {name: repr(each.file) for name, each in policies.graphs.items()},
            "server": None if policies.server is None else repr(policies.server.file),
            "tokens": self._gate.tokens.digest,
        }
        return hashlib.sha256(orjson.dumps(described, option=orjson.OPT_SORT_KEYS)).hexdigest()

    def look(self) -> list[Swap]:
        """Read what has changed since the last look; the swaps that put it in force, to be made on
        the event loop."""
        if self._rests():
            return []
        try:
            seen = self._signature()
        except OmnigraphError as cause:
            self._note(_SERVER, cause)
            return []
        if seen == self._seen:
            return []
        self._seen = seen
        try:
            served = self._read()
        except OmnigraphError as cause:
            for graph_id in self.settings.graphs:
                self._note(graph_id, cause)
            return []
        self._faults.pop(_SERVER, None)
        return self._swaps(served)

    def _rests(self) -> bool:
        """Whether this look is left out: a ledger in a bucket costs a request, so every second one
        is enough."""
        self._looks += 1
        return "://" in (self.settings.cluster or "") and self._looks % 2 == 0

    def _signature(self) -> Any:
        """What tells that something changed, at the cost of one look at each."""
        cluster = self.settings.cluster
        if cluster is not None:
            return hashlib.sha256(ClusterObjects(cluster).read(STATE) or _UNREAD).digest()
        folders = (each.folder for each in self.settings.extras.values() if each.folder is not None)
        return [_stamps(folder) for folder in folders]

    def _read(self) -> ServedSet:
        settings = self.settings
        if settings.cluster is not None:
            return set_of_cluster(settings.cluster)
        extras = {
            graph_id: each if each.folder is None else extras_of_folder(each.folder)
            for graph_id, each in settings.extras.items()
        }
        return ServedSet(settings.graphs, extras)

    def _swaps(self, served: ServedSet) -> list[Swap]:
        swaps: list[Swap] = []
        target = self.settings
        if target.cluster is not None and served.cluster_policy != target.cluster_policy:
            candidate = replace(target, cluster_policy=served.cluster_policy)
            target = self._next(_SERVER, target, candidate, swaps, None)
        for graph_id in target.graphs:
            if graph_id not in served.graphs:
                fault = served.quarantined.get(graph_id, "the cluster has no such graph any more")
                self._note(graph_id, fault)
                continue
            extras = served.extras.get(graph_id, GraphExtras())
            if extras == target.extras.get(graph_id, GraphExtras()):
                self._faults.pop(graph_id, None)
                continue
            candidate = replace(target, extras={**target.extras, graph_id: extras})
            target = self._next(graph_id, target, candidate, swaps, extras)
        return swaps

    def _next(
        self,
        name: str,
        target: ServerSettings,
        candidate: ServerSettings,
        swaps: list[Swap],
        extras: GraphExtras | None,
    ) -> ServerSettings:
        """The settings with one more set, if it can be used; its swap is added."""
        try:
            policies = policies_of(candidate)
            install = None if extras is None else self._graphs.prepared(name, extras)
        except OmnigraphError as cause:
            self._note(name, cause)
            return target

        def swap() -> None:
            self._gate.policies = policies
            if install is not None:
                install()
            self.settings = candidate
            self._files.settings = candidate
            keep_settings(candidate)

        self._faults.pop(name, None)
        self._log.event("applied", graph=name)
        swaps.append(swap)
        return candidate

    def _note(self, name: str, cause: object) -> None:
        if self._faults.get(name) != str(cause):
            self._log.event("applied_kept", graph=name, cause=str(cause))
        self._faults[name] = str(cause)


def keep_settings(settings: ServerSettings) -> None:
    """Keep the settings with the sets in force, for a worker that starts later."""
    if settings.run_folder:
        file = Path(settings.run_folder) / SETTINGS_FILE
        draft = file.with_suffix(f".{os.getpid()}")
        draft.write_bytes(settings.to_json())
        draft.replace(file)


def _stamps(folder: str) -> list[tuple[str, int, int]] | None:
    """The names, moments and sizes of the files that a folder of queries is read from."""
    try:
        with os.scandir(folder) as entries:
            files = [e for e in entries if e.name.endswith(".gq") or e.name == CHECKS_FILE]
            stats = [(each.name, each.stat()) for each in files]
    except OSError:
        return None
    return sorted((name, each.st_mtime_ns, each.st_size) for name, each in stats)


def worker_document(sets: "AppliedSets | None") -> Mapping[str, Any]:
    """What `/readyz` says of a worker: its process, the digest in force, and what is kept back."""
    if sets is None:
        return {"worker": os.getpid(), "applied": "", "kept": []}
    return {"worker": os.getpid(), "applied": sets.digest, "kept": sets.kept}
