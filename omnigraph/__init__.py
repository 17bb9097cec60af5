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
    from omnigraph.exec.diff import Change, Changes
    from omnigraph.exec.export import ExportResult
    from omnigraph.exec.feed import FeedPage
    from omnigraph.exec.images import Image
    from omnigraph.exec.merge import MergeOutcome
    from omnigraph.exec.migrate import SchemaApplied
    from omnigraph.exec.mutate import MutationResult
    from omnigraph.exec.request import LoadResult
    from omnigraph.exec.result import QueryResult
    from omnigraph.graph import Graph, init, open

__version__ = "0.1.0"

__all__ = [
    "AlreadyExists",
    "BadRequest",
    "Baseline",
    "BlobCell",
    "Change",
    "ChangeFeedGap",
    "Changes",
    "Conflict",
    "ConstraintViolated",
    "EmbeddingFailed",
    "ExportResult",
    "FeedPage",
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
    "ParseError",
    "PreconditionFailed",
    "QueryResult",
    "RecoveryRequired",
    "Refused",
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
    "Changes": "exec.diff",
    "ExportResult": "exec.export",
    "FeedPage": "exec.feed",
    "Graph": "graph",
    "Image": "exec.images",
    "LoadResult": "exec.request",
    "MergeOutcome": "exec.merge",
    "MutationResult": "exec.mutate",
    "QueryResult": "exec.result",
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
