"""Reclaim: the past of a table, deleted for good after a commit that may lose data.

Invariant: only versions that the branch does not show any more are removed, after the commit that
stopped showing them is published and before its sidecar is gone. Doing it twice removes nothing
more. A reader of an earlier commit is told that those tables are gone, as was asked for.
"""

from collections.abc import Collection
from datetime import timedelta

from omnigraph.storage import failpoints
from omnigraph.storage.lance.datasets import Datasets
from omnigraph.storage.manifest.manifest import Manifest
from omnigraph.storage.objects import Objects
from omnigraph.storage.stats import Stats


class Reclaims:
    """Removes the past of tables."""

    def __init__(
        self, datasets: Datasets, manifest: Manifest, objects: Objects, stats: Stats
    ) -> None:
        self._datasets = datasets
        self._manifest = manifest
        self._objects = objects
        self._stats = stats

    def reclaim(self, branch: str, locations: Collection[str]) -> None:
        """Leave of each folder the version that the branch shows, or nothing. Its tables' locks are
        held, and no other branch exists."""
        if not locations:
            return
        shown = {pin.location for pin in self._manifest.state(branch).pins.values()}
        for location in locations:
            failpoints.hit("reclaim.table")
            self._datasets.forget(location)
            if location in shown:
                self._drop_versions(location)
            else:
                self._objects.delete_prefix(location)
            self._stats.event("reclaim.table", location=location)

    def _drop_versions(self, location: str) -> None:
        head = self._datasets.open(location)
        with self._datasets.lance_call("cleanup", location):
            head.cleanup_old_versions(older_than=timedelta(0), delete_unverified=False)
