"""Error bodies of HTTP answers, rebuilt as the errors of the library.

Invariant: an error that a server of ours answers is the same class with the same facts as the one
the engine raised. Of a server that sends no `fault` the class is told by the typed members, then by
the status; a status that nothing is known of is a `StorageFailed`, never a success.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any

import orjson

from omnigraph import errors as e
from omnigraph.types import TableKey

Body = Mapping[str, Any]

_VALUES: dict[str, Callable[[Any], Any]] = {
    "violations": lambda items: tuple(map(_violation, items)),
    "folded": lambda items: tuple((_violation(first), count) for first, count in items),
    "conflicts": lambda items: tuple(conflict(item) for item in items),
    "checks": lambda items: tuple(_check(item) for item in items),
    "table_key": TableKey,
}
"""Facts that are more than texts, numbers and lists of these."""


def conflict(item: Body) -> e.MergeConflict:
    """One conflict of a merge."""
    return e.MergeConflict(**_known(e.MergeConflict, item))


def _violation(item: Body) -> e.Violation:
    return e.Violation(**_known(e.Violation, item))


def _check(item: Body) -> e.FailedCheck:
    facts = _known(e.FailedCheck, item)
    return e.FailedCheck(**{**facts, "rows": tuple(facts["rows"])})


def _known(kind: type, facts: Body) -> dict[str, Any]:
    names = {each.name for each in fields(kind)}
    return {name: value for name, value in facts.items() if name in names}


def error_of(status: int, body: bytes, headers: Mapping[str, str], url: str) -> e.OmnigraphError:
    """The error that an answer stands for."""
    document = _document(body)
    text = str(document.get("error") or f"it answered {status}")
    if status == 401:
        return e.Unauthenticated(url, text)
    if status == 429:
        return e.ServerBusy(url, text, seconds_of(headers) or 1)
    return (
        _of_fault(document.get("fault"))
        or _of_members(document)
        or _of_status(status, text, url, headers.get("etag") or None)
    )


def seconds_of(headers: Mapping[str, str]) -> int | None:
    """The seconds of `Retry-After`, if there are any."""
    text = headers.get("retry-after", "")
    return int(text) if text.isascii() and text.isdigit() else None


def _document(body: bytes) -> dict[str, Any]:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return document if isinstance(document, dict) else {}


def _of_fault(fault: Any) -> e.OmnigraphError | None:
    if not isinstance(fault, dict) or not isinstance(fault.get("facts"), dict):
        return None
    kind = getattr(e, str(fault.get("name")), None)
    if not (isinstance(kind, type) and issubclass(kind, e.OmnigraphError)):
        return None  # of a newer server
    facts = _known(kind, fault["facts"])
    required = {
        each.name
        for each in fields(kind)
        if each.default is MISSING and each.default_factory is MISSING
    }
    if not required <= facts.keys():
        return None
    return kind(**{name: _fact(name, value) for name, value in facts.items()})


def _fact(name: str, value: Any) -> Any:
    made = _VALUES.get(name)
    return _tuples(value) if made is None else made(value)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


# ---- without a fault: as OmniGraph 0.10 answers


def _of_members(document: Body) -> e.OmnigraphError | None:
    text = str(document.get("error", ""))
    for member, made in _MEMBERS.items():
        facts = document.get(member)
        if facts:
            return made(text, facts)
    return None


def _conflicts(text: str, facts: Any) -> e.OmnigraphError:
    return e.MergeConflicts(tuple(map(conflict, facts)))


def _moved(text: str, facts: Any) -> e.OmnigraphError:
    return e.VersionMismatch(TableKey(facts["table_key"]), facts["expected"], facts["actual"])


def _key(text: str, facts: Any) -> e.OmnigraphError:
    return e.KeyTaken(facts["entity_kind"], facts["type_name"], facts.get("entity_id", ""))


def _precondition(text: str, facts: Any) -> e.OmnigraphError:
    branch = text.partition("branch '")[2].partition("'")[0]
    return e.PreconditionFailed(branch, facts["expected"], facts.get("actual"))


def _limit(text: str, facts: Any) -> e.OmnigraphError:
    return e.LimitExceeded(facts["resource"], facts["actual"], facts["limit"])


def _recovery(text: str, facts: Any) -> e.OmnigraphError:
    return e.RecoveryRequired(facts["operation_id"])


def _blob(text: str, facts: Any) -> e.OmnigraphError:
    return e.ExternalBlobUnreadable(facts["uri"], facts["reason"])


def _gap(text: str, facts: Any) -> e.OmnigraphError:
    commit = facts["first_unreadable_commit_id"]
    return e.ChangeFeedGap("commit", commit, cursor=facts.get("cursor"))


def _no_diff(text: str, facts: Any) -> e.OmnigraphError:
    return e.NoChanges(facts["reason"], facts["graph_commit_id"], facts.get("type_name"))


def _read_set(text: str, facts: Any) -> e.OmnigraphError:
    return e.PreconditionFailed(facts["member"], facts["expected"] or "", facts["actual"])


_MEMBERS: dict[str, Callable[[str, Any], e.OmnigraphError]] = {
    "merge_conflicts": _conflicts,
    "manifest_conflict": _moved,
    "key_conflict": _key,
    "precondition_failure": _precondition,
    "resource_limit": _limit,
    "recovery_required": _recovery,
    "external_blob_source": _blob,
    "change_feed_gap": _gap,
    "change_diff_refusal": _no_diff,
    "read_set_conflict": _read_set,
}

_SERVED = "answered a request"
_NO_STORED_QUERY = "stored query not found"  # whether there is none, or the actor may not run it


def _of_status(status: int, text: str, url: str, tag: str | None) -> e.OmnigraphError:
    match status:
        case 403:
            return e.Forbidden(_quoted(text, "action") or "this", _quoted(text, "actor") or None)
        case 404:
            kind, quote, rest = text.partition(" '")
            if text == _NO_STORED_QUERY:
                return e.NotFound("stored query", "")
            return e.NotFound(kind, rest.partition("'")[0]) if quote else e.NotFound("it", text)
        case 409:
            return e.BadRequest(text)
        case 410:
            return e.Reclaimed("data", "that was asked for")
        case 412:
            return e.PreconditionFailed("", "If-Match", tag)
        case 504:
            return e.LimitExceeded(e.QUERY_TIME, 0, 0, text)
        case _ if 400 <= status < 500:
            return e.BadRequest(text)
        case 502 | 503:
            return e.ServerUnreachable(url, text)
        case _:
            return e.StorageFailed(_SERVED, f"the server at {url} says: {text}")


def _quoted(text: str, word: str) -> str:
    return text.partition(f"{word} '")[2].partition("'")[0]
