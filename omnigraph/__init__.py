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
    from omnigraph.exec.mutate import MutationResult
    from omnigraph.graph import Graph, init, open

__version__ = "0.1.0"

__all__ = [
    "AlreadyExists",
    "BadRequest",
    "Conflict",
    "ConstraintViolated",
    "EmbeddingFailed",
    "Forbidden",
    "Graph",
    "InUse",
    "KeyTaken",
    "LimitExceeded",
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


def __getattr__(name: str) -> Any:
    """What needs an engine, loaded when it is first asked for."""
    if name == "MutationResult":
        return getattr(import_module("omnigraph.exec.mutate"), name)
    if name in ("Graph", "init", "open"):
        return getattr(import_module("omnigraph.graph"), name)
    raise AttributeError(f"module 'omnigraph' has no attribute '{name}'")
