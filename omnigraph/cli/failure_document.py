"""Failures as JSON, for commands whose result would have been JSON: an error and its fields.

Invariant: the document is the error body that a server sends for the same failure, with the facts
of the error whole: `error` is the message, `fault` the class and its fields; of a merge the
conflicts are all of them. It needs no server. A wrong call has no document: its status says it.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from omnigraph import errors as e
from omnigraph.types import parse_table_key

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


_DIFF_REASONS = ("parentless_commit", "schema_boundary")


def failure_document(text: str, cause: BaseException | None) -> dict[str, Any]:
    """A failure as one JSON document."""
    if not isinstance(cause, e.OmnigraphError):
        return {"error": text}
    code = failure_code(cause)
    document: dict[str, Any] = {"error": text} if code is None else {"error": text, "code": code}
    document |= _members(cause)
    if isinstance(cause, e.MergeConflicts):
        return document
    facts = {each.name: _plain(getattr(cause, each.name)) for each in fields(cause)}
    return {**document, "fault": {"name": type(cause).__name__, "facts": facts}}


def _members(cause: e.OmnigraphError) -> dict[str, Any]:
    """The members of the document that tell its kind, as a server sends them."""
    match cause:
        case e.SourceError():
            return {"diagnostic": _diagnostic(cause)}
        case e.MergeConflicts():
            return {"merge_conflicts": [conflict_document(each) for each in cause.conflicts]}
        case e.ChecksFailed():
            return {"failed_checks": [check.to_json() for check in cause.checks]}
        case e.ApprovalsMissing():
            needs = {"required": cause.required, "approvals": cause.approvals}
            more: dict[str, Any] = _given(review_id=cause.review)
            if cause.of_answers:
                more["with_resolutions"] = True
            return {"missing_approvals": needs | more}
        case e.LimitExceeded():
            limit = {"resource": cause.resource, "limit": cause.limit, "actual": cause.actual}
            return {"resource_limit": limit}
        case e.KeyTaken():
            return {
                "key_conflict": {each.name: getattr(cause, each.name) for each in fields(cause)}
            }
        case e.VersionMismatch():
            return _moved(cause)
        case e.SchemaChanged():
            return {"read_set_conflict": _read_set("schema", cause.expected, cause.actual)}
        case e.PreconditionFailed():
            lost = {"expected": cause.expected, **_given(actual=cause.actual)}
            return {"precondition_failure": lost}
        case e.ChangeFeedGap():
            first = {"first_unreadable_commit_id": cause.first_unreadable_commit_id}
            return {"change_feed_gap": _given(cursor=cause.cursor) | first}
        case e.NoChanges():
            reason = cause.reason if cause.reason in _DIFF_REASONS else "unknown"
            refusal = {"reason": reason, "graph_commit_id": cause.commit_id}
            return {"change_diff_refusal": refusal | _given(type_name=cause.type_name)}
        case e.ExternalBlobUnreadable():
            return {"external_blob_source": {"uri": cause.uri, "reason": cause.reason}}
        case e.RecoveryRequired():
            return {"recovery_required": {"operation_id": cause.operation_id}}
    return {}


def _given(**values: str | None) -> dict[str, str]:
    return {name: value for name, value in values.items() if value is not None}


def _diagnostic(cause: e.SourceError) -> dict[str, Any]:
    """Where a text is wrong, what the parser could have gone on with, and what may help."""
    head, comes, expected = cause.text.rpartition("; expected ")
    is_told = bool(comes) and head.startswith("unexpected ")
    return {
        "code": cause.code,
        "line": cause.line,
        "column": cause.column,
        "expected": expected if is_told else None,
        "suggestion": cause.hint or None,
    }


def _read_set(member: str, expected: object, actual: object) -> dict[str, str]:
    return {"member": member, "expected": str(expected), "actual": str(actual)}


def _moved(cause: e.VersionMismatch) -> dict[str, Any]:
    """The table that moved, by its key and by its type."""
    kind, type_name = parse_table_key(cause.table_key)
    versions = {"expected": cause.expected, "actual": cause.actual}
    published = {f"{side}_published_dataset_version": n for side, n in versions.items()}
    return {
        "read_set_conflict": _read_set(cause.table_key, cause.expected, cause.actual),
        "manifest_conflict": {"table_key": cause.table_key, **versions},
        "published_dataset_version_conflict": {
            "entity_kind": str(kind),
            "type_name": type_name,
            **published,
        },
    }


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
