"""OmniGraph: a typed property-graph database on Lance tables, with a Spark pipeline.

What `__all__` lists is public; every other name is internal and may move. Importing the package
loads no engine: Spark, Lance, Arrow and the web server are each loaded by the call that needs them.
"""

from omnigraph.errors import (
    AlreadyExists,
    BadRequest,
    Conflict,
    ConstraintViolated,
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

__version__ = "0.1.0"

__all__ = [
    "AlreadyExists",
    "BadRequest",
    "Conflict",
    "ConstraintViolated",
    "Forbidden",
    "InUse",
    "KeyTaken",
    "LimitExceeded",
    "MergeConflict",
    "MergeConflicts",
    "MigrationUnsupported",
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
]
