"""OmniGraph: a typed property-graph database on Lance tables, with a Spark pipeline.

What `__all__` lists is public; every other name is internal and may move. Importing the package
loads no engine: Spark, Lance, Arrow and the web server are each loaded by the call that needs them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from omnigraph.errors import (
    AlreadyExists,
    BadRequest,
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
    NotFound,
    NotInstalled,
    OmnigraphError,
    ParseError,
    PreconditionFailed,
    RecoveryRequired,
    Refused,
    SourceError,
    StorageFailed,
    TypeCheckError,
    UnsupportedVersion,
    VersionMismatch,
    Violation,
)

if TYPE_CHECKING:
    from omnigraph.exec.export import ExportResult
    from omnigraph.exec.load import LoadResult
    from omnigraph.exec.mutate import MutationResult
    from omnigraph.graph import Graph, init, open

__version__ = "0.1.0"

__all__ = [
    "AlreadyExists",
    "BadRequest",
    "Conflict",
    "ConstraintViolated",
    "EmbeddingFailed",
    "ExportResult",
    "Forbidden",
    "Graph",
    "InUse",
    "KeyTaken",
    "LimitExceeded",
    "LoadResult",
    "MergeConflict",
    "MergeConflicts",
    "MigrationUnsupported",
    "MutationResult",
    "NotFound",
    "NotInstalled",
    "OmnigraphError",
    "ParseError",
    "PreconditionFailed",
    "RecoveryRequired",
    "Refused",
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


_RESULTS = {
    "ExportResult": "omnigraph.exec.export",
    "LoadResult": "omnigraph.exec.load",
    "MutationResult": "omnigraph.exec.mutate",
}


def __getattr__(name: str) -> Any:
    """What needs an engine, loaded when it is first asked for."""
    if name in _RESULTS:
        return getattr(import_module(_RESULTS[name]), name)
    if name in ("Graph", "init", "open"):
        return getattr(import_module("omnigraph.graph"), name)
    raise AttributeError(f"module 'omnigraph' has no attribute '{name}'")
