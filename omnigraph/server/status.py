"""Table from error class to HTTP status, code and typed members of the error body.

Invariant: every class of `omnigraph.errors` has its own row. An error body never holds a path of
the server, a token or a traceback: what storage says stays in the log.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from itertools import islice
from typing import Any

from msgspec import UNSET

from omnigraph import errors as e
from omnigraph.server import wire_errors
from omnigraph.server.refusals import CODES, HttpRefusal
from omnigraph.types import parse_table_key

Members = dict[str, Any]


def _none(cause: Any) -> Members:
    return {}


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """How one class of errors is answered. `text` replaces a message that names storage."""

    status: int
    members: Callable[[Any], Members] = _none
    text: str | None = None


def _diagnostic(cause: e.SourceError) -> Members:
    shown = wire_errors.TextDiagnostic(
        code=cause.code,
        line=cause.line,
        column=cause.column,
        expected=_expected(cause.text),
        suggestion=cause.hint or None,
    )
    return {"diagnostic": shown}


def _expected(text: str) -> str | None:
    """What the parser could have gone on with, if it says so."""
    if not text.startswith("unexpected "):
        return None
    return text.rpartition("; expected ")[2] if "; expected " in text else None


def _limit(cause: e.LimitExceeded) -> Members:
    limit = wire_errors.ResourceLimit(
        resource=cause.resource, limit=cause.limit, actual=cause.actual
    )
    return {"resource_limit": limit}


def _moved(cause: e.VersionMismatch) -> Members:
    kind, type_name = parse_table_key(cause.table_key)
    return {
        "manifest_conflict": wire_errors.ManifestConflict(
            table_key=cause.table_key, expected=cause.expected, actual=cause.actual
        ),
        "read_set_conflict": wire_errors.ReadSetConflict(
            member=cause.table_key, expected=str(cause.expected), actual=str(cause.actual)
        ),
        "published_dataset_version_conflict": wire_errors.DatasetVersionConflict(
            entity_kind=str(kind),
            type_name=type_name,
            expected_published_dataset_version=cause.expected,
            actual_published_dataset_version=cause.actual,
        ),
    }


def _schema_moved(cause: e.SchemaChanged) -> Members:
    moved = wire_errors.ReadSetConflict(
        member="schema", expected=cause.expected, actual=cause.actual
    )
    return {"read_set_conflict": moved}


def _key(cause: e.KeyTaken) -> Members:
    taken = wire_errors.KeyConflict(
        entity_kind=cause.entity_kind, type_name=cause.type_name, entity_id=cause.entity_id
    )
    return {"key_conflict": taken}


def _precondition(cause: e.PreconditionFailed) -> Members:
    actual = UNSET if cause.actual is None else cause.actual
    return {
        "precondition_failure": wire_errors.PreconditionFailure(
            expected=cause.expected, actual=actual
        )
    }


def _conflicts(cause: e.MergeConflicts) -> Members:
    return {
        "merge_conflicts": [
            wire_errors.MergeConflictOutput(**conflict.to_json()) for conflict in cause.conflicts
        ]
    }


def _checks(cause: e.ChecksFailed) -> Members:
    return {
        "failed_checks": [
            wire_errors.FailedCheckOutput(**check.to_json()) for check in cause.checks
        ]
    }


def _approvals(cause: e.ApprovalsMissing) -> Members:
    review = UNSET if cause.review is None else cause.review
    missing = wire_errors.MissingApprovals(
        required=cause.required,
        approvals=cause.approvals,
        review_id=review,
        with_resolutions=cause.of_answers,
    )
    return {"missing_approvals": missing}


def _gap(cause: e.ChangeFeedGap) -> Members:
    cursor = UNSET if cause.cursor is None else cause.cursor
    first = cause.first_unreadable_commit_id
    return {"change_feed_gap": wire_errors.FeedGap(cursor=cursor, first_unreadable_commit_id=first)}


_DIFF_REASONS = ("parentless_commit", "schema_boundary")


def _no_diff(cause: e.NoChanges) -> Members:
    refusal = wire_errors.DiffRefusal(
        reason=cause.reason if cause.reason in _DIFF_REASONS else "unknown",
        graph_commit_id=cause.commit_id,
        type_name=UNSET if cause.type_name is None else cause.type_name,
    )
    return {"change_diff_refusal": refusal}


def _blob_source(cause: e.ExternalBlobUnreadable) -> Members:
    return {"external_blob_source": wire_errors.BlobSource(uri=cause.uri, reason=cause.reason)}


def _recovery(cause: e.RecoveryRequired) -> Members:
    return {"recovery_required": wire_errors.RecoveryNeeded(operation_id=cause.operation_id)}


_INTERNAL = "the server could not do this; its log says why, under the id of this request"
_RECLAIMED = "this was reclaimed and cannot be read any more; read a branch or a newer commit"

TABLE: dict[type[e.OmnigraphError], ErrorRow] = {
    e.OmnigraphError: ErrorRow(500, text=_INTERNAL),
    e.SourceError: ErrorRow(400, _diagnostic),
    e.ParseError: ErrorRow(400, _diagnostic),
    e.TypeCheckError: ErrorRow(400, _diagnostic),
    e.Refused: ErrorRow(400),
    e.ExpressionFailed: ErrorRow(400),
    e.BadRequest: ErrorRow(400),
    e.NotFound: ErrorRow(404),
    e.UnknownPoint: ErrorRow(404),
    e.AmbiguousPoint: ErrorRow(400),
    e.Reclaimed: ErrorRow(410, text=_RECLAIMED),
    e.AlreadyExists: ErrorRow(409),
    e.InUse: ErrorRow(409),
    e.LimitExceeded: ErrorRow(413, _limit),
    e.ConstraintViolated: ErrorRow(400),
    e.ExternalBlobDenied: ErrorRow(400),
    e.ExternalBlobUnreadable: ErrorRow(424, _blob_source),
    e.MigrationUnsupported: ErrorRow(400),
    e.UnsupportedVersion: ErrorRow(500),
    e.ChangeFeedGap: ErrorRow(410, _gap),
    e.ConsumerLapsed: ErrorRow(410, _gap),
    e.GraphMoved: ErrorRow(500, text=_INTERNAL),
    e.GraphClosed: ErrorRow(500, text=_INTERNAL),
    e.NotRevertible: ErrorRow(409),
    e.SchemaDiffers: ErrorRow(409),
    e.Forbidden: ErrorRow(403),
    e.ApprovalsMissing: ErrorRow(403, _approvals),
    e.OwnReview: ErrorRow(403),
    e.PolicyInvalid: ErrorRow(500, text=_INTERNAL),
    e.Unauthenticated: ErrorRow(401),
    e.NotServed: ErrorRow(400),
    e.Conflict: ErrorRow(409),
    e.VersionMismatch: ErrorRow(409, _moved),
    e.KeyTaken: ErrorRow(409, _key),
    e.PreconditionFailed: ErrorRow(412, _precondition),
    e.SchemaChanged: ErrorRow(409, _schema_moved),
    e.SchemaHeld: ErrorRow(409),
    e.MergeConflicts: ErrorRow(409, _conflicts),
    e.ChecksFailed: ErrorRow(409, _checks),
    e.ReviewEnded: ErrorRow(409),
    e.NoChanges: ErrorRow(409, _no_diff),
    e.NotInstalled: ErrorRow(500, text=_INTERNAL),
    e.EmbeddingFailed: ErrorRow(500, text="the embedding provider gave no usable answer"),
    e.ServerBusy: ErrorRow(429),
    e.ServerUnreachable: ErrorRow(500, text=_INTERNAL),
    e.RecoveryRequired: ErrorRow(503, _recovery),
    e.StorageFailed: ErrorRow(500, text=_INTERNAL),
}

_DATASET = "dataset"

MEMBERS = {
    "answer with resolve=": "answer with `resolutions`",
    "name one with name=, at a terminal as the first word: ": "pass --name, here member `name`: ",
    "pass from_branch= (`from` in a request)": "pass `from`",
    "type= or edge=, at a terminal --node or --edge": "`type` or `edge`",
}
"""What errors call an argument of the library, and the member of a request in its place."""


def in_members(text: str) -> str:
    """The message of an error with members of requests for arguments of the library."""
    for argument, member in MEMBERS.items():
        text = text.replace(argument, member)
    return text


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """An error as HTTP says it. `is_fault` is one that the log must explain."""

    status: int
    body: wire_errors.ErrorOutput
    headers: dict[str, str]
    is_fault: bool = False


def error_answer(cause: BaseException) -> ErrorAnswer:
    """The answer for anything that was raised."""
    if isinstance(cause, HttpRefusal):
        body = _body(cause.text, cause.code, dict(cause.members))
        return ErrorAnswer(cause.status, body, dict(cause.headers), cause.status >= 500)
    if not isinstance(cause, e.OmnigraphError):
        return ErrorAnswer(500, _body(_INTERNAL, CODES[500], {}), {}, True)
    row = next(TABLE[kind] for kind in type(cause).__mro__ if kind in TABLE)
    if isinstance(cause, e.NotFound | e.AlreadyExists) and cause.kind == _DATASET:
        row = ErrorRow(500, text=_INTERNAL)
    status = row.status
    if isinstance(cause, e.LimitExceeded) and cause.is_deadline:
        status = 504
    text = row.text or (cause.denied if type(cause) is e.Forbidden else in_members(str(cause)))
    members = {**row.members(cause), "fault": _fault(cause, is_named=row.text is None)}
    body = _body(text, CODES.get(status), members)
    return ErrorAnswer(status, body, {}, status in (500, 503))


def reworded(cause: e.OmnigraphError, text: str) -> HttpRefusal:
    """An error in the words of HTTP; a client makes the error of the library of it, as ever."""
    fault = _fault(cause, is_named=True)
    return HttpRefusal(TABLE[type(cause)].status, text, members={"fault": fault})


def head_moved(cause: e.PreconditionFailed) -> HttpRefusal:
    """A branch that others moved again and again under a write that named no head of it."""
    text = (
        f"branch '{cause.branch}' moved from {cause.expected} to {cause.actual} meanwhile; "
        "nothing was written, send it again"
    )
    moved = wire_errors.ReadSetConflict(
        member=cause.branch, expected=cause.expected, actual=cause.actual
    )
    fault = _fault(cause, is_named=True)
    return HttpRefusal(409, text, members={"read_set_conflict": moved, "fault": fault})


_IMAGES_MAX = 1_000


def _fault(cause: e.OmnigraphError, *, is_named: bool) -> wire_errors.ErrorFault:
    """The class of an error and its facts, of which a client makes the same error again. One whose
    message is replaced has no facts, unless they name a commit alone."""
    name = type(cause).__name__
    if not is_named and not (isinstance(cause, e.Reclaimed) and cause.kind == "commit"):
        return wire_errors.ErrorFault(name=name)
    facts = {each.name: getattr(cause, each.name) for each in fields(cause)}
    if isinstance(cause, e.MergeConflicts):
        bare = (replace(c, base=None, ours=None, theirs=None) for c in cause.conflicts)
        shown = cause.conflicts[:_IMAGES_MAX]
        facts["conflicts"] = (*shown, *islice(bare, _IMAGES_MAX, None))
    return wire_errors.ErrorFault(name=name, facts=facts)


def _body(text: str, code: str | None, members: Members) -> wire_errors.ErrorOutput:
    return wire_errors.ErrorOutput(error=text, code=UNSET if code is None else code, **members)
