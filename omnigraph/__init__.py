"""OmniGraph: a typed property-graph database on Lance tables, with a Spark pipeline.

Names in `__all__` are public; every other one is internal and may move. Importing the package
loads no engine: Spark, Lance, Arrow and the web server are each loaded by the call that needs them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from omnigraph.errors import (
    AlreadyExists,
    AmbiguousPoint,
    ApprovalsMissing,
    BadRequest,
    ChangeFeedGap,
    ChecksFailed,
    Conflict,
    ConstraintViolated,
    ConsumerLapsed,
    EmbeddingFailed,
    ExpressionFailed,
    ExternalBlobDenied,
    ExternalBlobUnreadable,
    FailedCheck,
    Forbidden,
    GraphClosed,
    GraphMoved,
    InUse,
    KeyTaken,
    LimitExceeded,
    MergeConflict,
    MergeConflicts,
    MigrationUnsupported,
    NoChanges,
    NotFound,
    NotInstalled,
    NotRevertible,
    NotServed,
    OmnigraphError,
    OwnReview,
    ParseError,
    PolicyInvalid,
    PreconditionFailed,
    Reclaimed,
    RecoveryRequired,
    Refused,
    ReviewEnded,
    SchemaChanged,
    SchemaDiffers,
    SchemaHeld,
    ServerBusy,
    ServerUnreachable,
    SourceError,
    StorageFailed,
    TypeCheckError,
    Unauthenticated,
    UnknownPoint,
    UnsupportedVersion,
    VersionMismatch,
    Violation,
)
from omnigraph.extras import defer_pandas, require_posix

if TYPE_CHECKING:
    from omnigraph.exec.changes.baseline import Baseline
    from omnigraph.exec.changes.blobs import BlobCell
    from omnigraph.exec.changes.consumers import FeedConsumer
    from omnigraph.exec.changes.diff import Change, ChangedType, Changes
    from omnigraph.exec.changes.entity_history import EntityHistory, EntityRevision
    from omnigraph.exec.changes.entity_view import EdgeCount, EntityView
    from omnigraph.exec.changes.export import ExportResult
    from omnigraph.exec.changes.feed import FeedPage
    from omnigraph.exec.changes.images import Image
    from omnigraph.exec.load.request import LoadResult
    from omnigraph.exec.merge.run import MergeOutcome
    from omnigraph.exec.merge.undo import UndoOutcome
    from omnigraph.exec.mutate.run import MutationResult
    from omnigraph.exec.read.result import QueryResult
    from omnigraph.exec.schema.migrate import SchemaApplied
    from omnigraph.exec.upkeep.backup import BackupReport
    from omnigraph.exec.upkeep.check import CheckReport
    from omnigraph.exec.upkeep.cleanup import CleanupReport
    from omnigraph.exec.upkeep.findings import Finding
    from omnigraph.exec.upkeep.index_states import IndexState
    from omnigraph.exec.upkeep.optimize import OptimizeReport
    from omnigraph.graph import Graph, backup, init, open
    from omnigraph.graph.embed_verb import EmbedResult
    from omnigraph.graph.review_records import Review, ReviewApproval, ReviewComment
    from omnigraph.policy import Policy, TargetCheck
    from omnigraph.remote import connect
    from omnigraph.storage.manifest.tags import Tag
    from omnigraph.storage.upkeep.repair import RepairReport
    from omnigraph.types import SchemaStep

__version__ = "0.1.0"

__all__ = [
    "AlreadyExists",
    "AmbiguousPoint",
    "ApprovalsMissing",
    "BackupReport",
    "BadRequest",
    "Baseline",
    "BlobCell",
    "Change",
    "ChangeFeedGap",
    "ChangedType",
    "Changes",
    "CheckReport",
    "ChecksFailed",
    "CleanupReport",
    "Conflict",
    "ConstraintViolated",
    "ConsumerLapsed",
    "EdgeCount",
    "EmbedResult",
    "EmbeddingFailed",
    "EntityHistory",
    "EntityRevision",
    "EntityView",
    "ExportResult",
    "ExpressionFailed",
    "ExternalBlobDenied",
    "ExternalBlobUnreadable",
    "FailedCheck",
    "FeedConsumer",
    "FeedPage",
    "Finding",
    "Forbidden",
    "Graph",
    "GraphClosed",
    "GraphMoved",
    "Image",
    "InUse",
    "IndexState",
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
    "NotRevertible",
    "NotServed",
    "OmnigraphError",
    "OptimizeReport",
    "OwnReview",
    "ParseError",
    "Policy",
    "PolicyInvalid",
    "PreconditionFailed",
    "QueryResult",
    "Reclaimed",
    "RecoveryRequired",
    "Refused",
    "RepairReport",
    "Review",
    "ReviewApproval",
    "ReviewComment",
    "ReviewEnded",
    "SchemaApplied",
    "SchemaChanged",
    "SchemaDiffers",
    "SchemaHeld",
    "SchemaStep",
    "ServerBusy",
    "ServerUnreachable",
    "SourceError",
    "StorageFailed",
    "Tag",
    "TargetCheck",
    "TypeCheckError",
    "Unauthenticated",
    "UndoOutcome",
    "UnknownPoint",
    "UnsupportedVersion",
    "VersionMismatch",
    "Violation",
    "__version__",
    "backup",
    "connect",
    "init",
    "open",
]

_LOADED_LATER = {
    "BackupReport": "exec.upkeep.backup",
    "Baseline": "exec.changes.baseline",
    "BlobCell": "exec.changes.blobs",
    "Change": "exec.changes.diff",
    "ChangedType": "exec.changes.diff",
    "Changes": "exec.changes.diff",
    "CheckReport": "exec.upkeep.check",
    "CleanupReport": "exec.upkeep.cleanup",
    "EdgeCount": "exec.changes.entity_view",
    "EntityHistory": "exec.changes.entity_history",
    "EntityRevision": "exec.changes.entity_history",
    "EmbedResult": "graph.embed_verb",
    "EntityView": "exec.changes.entity_view",
    "ExportResult": "exec.changes.export",
    "FeedConsumer": "exec.changes.consumers",
    "FeedPage": "exec.changes.feed",
    "Finding": "exec.upkeep.findings",
    "Graph": "graph",
    "Image": "exec.changes.images",
    "IndexState": "exec.upkeep.index_states",
    "LoadResult": "exec.load.request",
    "MergeOutcome": "exec.merge.run",
    "MutationResult": "exec.mutate.run",
    "OptimizeReport": "exec.upkeep.optimize",
    "Policy": "policy",
    "QueryResult": "exec.read.result",
    "RepairReport": "storage.upkeep.repair",
    "Review": "graph.review_records",
    "ReviewApproval": "graph.review_records",
    "ReviewComment": "graph.review_records",
    "SchemaApplied": "exec.schema.migrate",
    "SchemaStep": "types",
    "Tag": "storage.manifest.tags",
    "TargetCheck": "policy",
    "UndoOutcome": "exec.merge.undo",
    "backup": "graph",
    "connect": "remote",
    "init": "graph",
    "open": "graph",
}


def __getattr__(name: str) -> Any:
    """Names that need an engine, imported on first use."""
    home = _LOADED_LATER.get(name)
    if home is not None:
        require_posix()
        defer_pandas()
        return getattr(import_module(f"omnigraph.{home}"), name)
    raise AttributeError(f"module 'omnigraph' has no attribute '{name}'")


def __dir__() -> list[str]:
    """The public names, also those that are not loaded yet."""
    return sorted({*__all__, "__doc__", "__file__", "__name__", "__path__"})
