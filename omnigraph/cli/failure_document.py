"""Failures as JSON, for commands whose result would have been JSON: an error and its fields.

Invariant: the document is the error body that a server sends for the same failure, with the facts
of the error whole: `error` is the message, `fault` the class and its fields; of a merge the
conflicts are all of them. It needs no server. A wrong call has no document: its status says it.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from omnigraph import errors as e

_CODES: tuple[tuple[type[e.OmnigraphError], str | None], ...] = (
    (e.NotFound, "not_found"),
    (e.Unauthenticated, "unauthorized"),
    (e.Forbidden, "forbidden"),
    (e.ApprovalsMissing, "forbidden"),
    (e.OwnReview, "forbidden"),
    (e.AlreadyExists, "conflict"),
    (e.InUse, "conflict"),
    (e.NotRevertible, "conflict"),
    (e.SchemaDiffers, "conflict"),
    (e.PreconditionFailed, None),
    (e.Conflict, "conflict"),
    (e.ServerBusy, "too_many_requests"),
    (e.Reclaimed, None),
    (e.ChangeFeedGap, None),
    (e.ConsumerLapsed, None),
    (e.ExternalBlobUnreadable, None),
    (e.RecoveryRequired, None),
    (e.UnsupportedVersion, "internal"),
    (e.GraphMoved, "internal"),
    (e.GraphClosed, "internal"),
    (e.PolicyInvalid, "internal"),
    (e.NotInstalled, "internal"),
    (e.EmbeddingFailed, "internal"),
    (e.ServerUnreachable, "internal"),
    (e.StorageFailed, "internal"),
    (e.SourceError, "bad_request"),
    (e.Refused, "bad_request"),
)
"""Code of a class and of those below it that no earlier row names; None: HTTP's status says it."""


def failure_document(text: str, cause: BaseException | None) -> dict[str, Any]:
    """A failure as one JSON document."""
    if not isinstance(cause, e.OmnigraphError):
        return {"error": text}
    code = failure_code(cause)
    document: dict[str, Any] = {"error": text} if code is None else {"error": text, "code": code}
    match cause:
        case e.MergeConflicts():
            document["merge_conflicts"] = [conflict_document(each) for each in cause.conflicts]
            return document
        case e.ChecksFailed():
            document["failed_checks"] = [check.to_json() for check in cause.checks]
        case e.PreconditionFailed():
            seen = {"expected": cause.expected, "actual": cause.actual}
            document["precondition_failure"] = seen
    facts = {each.name: _plain(getattr(cause, each.name)) for each in fields(cause)}
    return {**document, "fault": {"name": type(cause).__name__, "facts": facts}}


def failure_code(cause: e.OmnigraphError) -> str | None:
    """The word for a kind of failure that the HTTP API uses too."""
    if isinstance(cause, e.LimitExceeded) and cause.is_deadline:
        return None
    return next((code for kind, code in _CODES if isinstance(cause, kind)), "internal")


def conflict_document(conflict: e.MergeConflict) -> dict[str, Any]:
    """A conflict with the entity where the branches parted, and as each branch has it; null where
    it is not there."""
    sides = {"base": conflict.base, "source": conflict.theirs, "target": conflict.ours}
    return {**conflict.to_json(), **sides}


def _plain(value: Any) -> Any:
    """A fact as JSON has it."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    return str(value)
