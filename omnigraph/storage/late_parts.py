"""Parts of a store that are made when it first writes, or looks after files.

Invariant: one of each for an open graph, however many threads ask first. Importing this module
imports none of them.
"""

from abc import abstractmethod
from threading import RLock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnigraph.storage.manifest.feed_claims import FeedClaims
    from omnigraph.storage.manifest.publish import Publisher
    from omnigraph.storage.protocol.audit import Audit
    from omnigraph.storage.protocol.auto_compaction import Folding
    from omnigraph.storage.protocol.commit import Committer
    from omnigraph.storage.protocol.recover import Recoverer
    from omnigraph.storage.upkeep.cleanup import Reclaimer
    from omnigraph.storage.upkeep.compaction import Compactor
    from omnigraph.storage.upkeep.drift import Drifts
    from omnigraph.storage.upkeep.leftovers import Leftovers
    from omnigraph.storage.upkeep.repair import Repairer
    from omnigraph.storage.write_parts import WriteParts


class LateParts:
    """The parts that write, by name."""

    def __init__(self) -> None:
        self._making = RLock()
        self._made: WriteParts | None = None

    @abstractmethod
    def _write_parts(self) -> "WriteParts":
        """Make them."""

    @property
    def _writing(self) -> "WriteParts":
        if self._made is None:
            with self._making:
                if self._made is None:
                    self._made = self._write_parts()
        return self._made

    @property
    def publisher(self) -> "Publisher":
        """The one that makes commits visible."""
        return self._writing.publisher

    @property
    def feed_claims(self) -> "FeedClaims":
        """Claims of readers of the change feed."""
        return self._writing.feed_claims

    @property
    def audit(self) -> "Audit":
        """The record of recoveries."""
        return self._writing.audit

    @property
    def drifts(self) -> "Drifts":
        """Table heads that ran ahead of what is published."""
        return self._writing.drifts

    @property
    def reclaimer(self) -> "Reclaimer":
        """Old versions, and files of none."""
        return self._writing.reclaimer

    @property
    def leftovers(self) -> "Leftovers":
        """What lies beside the tables and nobody needs."""
        return self._writing.leftovers

    @property
    def compactor(self) -> "Compactor":
        """Small fragments made large ones."""
        return self._writing.compactor

    @property
    def folding(self) -> "Folding":
        """Small fragments folded by the commits that make them."""
        return self._writing.folding

    @property
    def repairer(self) -> "Repairer":
        """Drifts that nothing explains, settled."""
        return self._writing.repairer

    @property
    def _recoverer(self) -> "Recoverer":
        return self._writing.recoverer

    @property
    def _committer(self) -> "Committer":
        return self._writing.committer
