"""OmniGraph: a typed property-graph database on Lance tables, with a Spark pipeline.

What `__all__` lists is public; every other name is internal and may move. Importing the package
loads no engine: Spark, Lance, Arrow and the web server are each loaded by the call that needs them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from omnigraph.errors import (
    AlreadyExists,
    BadRequest,
    ChangeFeedGap,
    Conflict,
    ConstraintViolated,
    EmbeddingFailed,
    ExternalBlobDenied,
    ExternalBlobUnreadable,
    Forbidden,
    InUse,
    KeyTaken,
    LimitExceeded,
    MergeConflict,
    MergeConflicts,
    MigrationUnsupported,
    NoChanges,
    NotFound,
    NotInstalled,
    OmnigraphError,
    ParseError,
    PreconditionFailed,
    Reclaimed,
    RecoveryRequired,
    Refused,
    SchemaChanged,
    SchemaHeld,
    SourceError,
    StorageFailed,
    TypeCheckError,
    UnsupportedVersion,
    VersionMismatch,
    Violation,
)

if TYPE_CHECKING:
    from omnigraph.exec.baseline import Baseline
    from omnigraph.exec.blobs import BlobCell
    from omnigraph.exec.check import CheckReport
    from omnigraph.exec.cleanup import CleanupReport
    from omnigraph.exec.diff import Change, ChangedType, Changes
    from omnigraph.exec.export import ExportResult
    from omnigraph.exec.feed import FeedPage
    from omnigraph.exec.findings import Finding
    from omnigraph.exec.images import Image
    from omnigraph.exec.merge import MergeOutcome
    from omnigraph.exec.migrate import SchemaApplied
    from omnigraph.exec.mutate import MutationResult
    from omnigraph.exec.optimize import OptimizeReport
    from omnigraph.exec.request import LoadResult
    from omnigraph.exec.result import QueryResult
    from omnigraph.graph import Graph, init, open
    from omnigraph.storage.repair import RepairReport

__version__ = "0.1.0"

__all__ = [
    "AlreadyExists",
    "BadRequest",
    "Baseline",
    "BlobCell",
    "Change",
    "ChangeFeedGap",
    "ChangedType",
    "Changes",
    "CheckReport",
    "CleanupReport",
    "Conflict",
    "ConstraintViolated",
    "EmbeddingFailed",
    "ExportResult",
    "ExternalBlobDenied",
    "ExternalBlobUnreadable",
    "FeedPage",
    "Finding",
    "Forbidden",
    "Graph",
    "Image",
    "InUse",
    "KeyTaken",
    "LimitExceeded",
    "LoadResult",
    "MergeConflict",
    "MergeConflicts",
    "MergeOutcome",
    "MigrationUnsupported",
    "MutationResult",
    "NoChanges",
    "NotFound",
    "NotInstalled",
    "OmnigraphError",
    "OptimizeReport",
    "ParseError",
    "PreconditionFailed",
    "QueryResult",
    "Reclaimed",
    "RecoveryRequired",
    "Refused",
    "RepairReport",
    "SchemaApplied",
    "SchemaChanged",
    "SchemaHeld",
    "SourceError",
    "StorageFailed",
    "TypeCheckError",
    "UnsupportedVersion",
    "VersionMismatch",
    "Violation",
    "__version__",
    "init",
    "open",
]

_LOADED_LATER = {
    "Baseline": "exec.baseline",
    "BlobCell": "exec.blobs",
    "Change": "exec.diff",
    "ChangedType": "exec.diff",
    "Changes": "exec.diff",
    "CheckReport": "exec.check",
    "CleanupReport": "exec.cleanup",
    "ExportResult": "exec.export",
    "FeedPage": "exec.feed",
    "Finding": "exec.findings",
    "Graph": "graph",
    "Image": "exec.images",
    "LoadResult": "exec.request",
    "MergeOutcome": "exec.merge",
    "MutationResult": "exec.mutate",
    "OptimizeReport": "exec.optimize",
    "QueryResult": "exec.result",
    "RepairReport": "storage.repair",
    "SchemaApplied": "exec.migrate",
    "init": "graph",
    "open": "graph",
}


def __getattr__(name: str) -> Any:
    """What needs an engine, loaded when it is first asked for."""
    home = _LOADED_LATER.get(name)
    if home is not None:
        return getattr(import_module(f"omnigraph.{home}"), name)
    raise AttributeError(f"module 'omnigraph' has no attribute '{name}'")
