"""Reclaim: the past of a table, deleted for good after a commit that may lose data; and what a
refused write had staged.

Invariant: only versions that the branch does not show any more are removed, after the commit that
stopped showing them is published and before its sidecar is gone. Doing it twice removes nothing
more. A reader of an earlier commit is told that those tables are gone, as was asked for.
"""

from collections.abc import Collection, Sequence
from datetime import timedelta

from omnigraph.errors import StorageFailed
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

    def drop_refused(self, paths: Sequence[str]) -> None:
        """Delete files that were staged for a write which was refused before its sidecar, so no
        version can come to name them. A failure costs room until a later cleanup, no more."""
        if not paths:
            return
        try:
            self._objects.delete(*paths)
        except StorageFailed as cause:
            self._stats.event("reclaim.refused_left", cause=cause)

    def _drop_versions(self, location: str) -> None:
        head = self._datasets.open(location)
        with self._datasets.lance_call("cleanup", location):
            head.cleanup_old_versions(older_than=timedelta(0), delete_unverified=False)
