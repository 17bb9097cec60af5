"""Blob route: bytes of one cell with ETag, byte ranges (RFC 9110) and conditional requests.

Invariant: a range header that is malformed or of another unit than bytes is ignored; a range that
no byte satisfies is 416. HEAD has the headers of a whole GET and no body.
"""

import contextlib
import re

from omnigraph.errors import BadRequest, OmnigraphError, PreconditionFailed
from omnigraph.exec.changes.blobs import BlobCell, Selector
from omnigraph.server.bodies import change_output
from omnigraph.server.call import Answer, RouteCall, answered, branch_or_main
from omnigraph.server.idempotency import write_once
from omnigraph.server.refusals import HttpRefusal, too_large

_BYTES = "application/octet-stream"
_SELECTOR = ("entity", "type", "id", "property")
_RANGE = re.compile(r"bytes=([0-9]{1,4000})?-([0-9]{1,4000})?", re.IGNORECASE)
_FAR = 2**63 - 1  # no blob is as long, and JSON readers have no larger numbers


def get_blob(call: RouteCall) -> Answer:
    """The bytes of a blob, or a part of them."""
    cell = _cell(call)
    if cell.uri is not None:
        return _elsewhere(cell)
    early = _conditional(call, cell)
    if early is not None:
        return early
    size = cell.size or 0
    part = _part(call, cell, size)
    if part is None:
        _require_small(call, size)
        return Answer(cell.read() if size else b"", media=_BYTES, headers=_headers(cell))
    start, end = part
    _require_small(call, end - start)
    headers = {**_headers(cell), "Content-Range": f"bytes {start}-{end - 1}/{size}"}
    return Answer(cell.read(start, end - start), 206, _BYTES, headers)


def put_blob(call: RouteCall) -> Answer:
    """Set a blob to the bytes of the body, as one commit; with `If-Match` if it has that ETag."""
    kind, type_name, entity, name = _selector(call)
    branch = branch_or_main(call.one("branch"))
    call.facts.update(branch=branch)
    tags = _tags(call, "if-match")
    with call.body_stream() as stream:
        data = stream.read()
    selector = kind, type_name, entity, name
    with write_once(call, branch) as once:
        try:
            done = call.graph.put_blob(
                *selector,
                data,
                branch=branch,
                if_match=tags,
                actor=call.actor,
                message=call.one("message"),
                metadata=once.metadata(None),
                once=once.mark,
            )
        except PreconditionFailed as moved:
            tag = moved.actual if moved.actual and moved.actual.startswith('"') else ""
            raise HttpRefusal(
                412, "the blob is not the one that If-Match names", {"ETag": tag}, code="conflict"
            ) from None
    assert done.commit is not None
    call.facts.update(commit=done.commit.id)
    answer = answered(change_output(done))
    with contextlib.suppress(OmnigraphError):  # it may have changed again, or its commit be gone
        cell = call.graph.blob(*selector, snapshot=done.commit.id)
        answer.headers["ETag"] = cell.etag or ""
    return once.replayed(answer, done.commit, repeated=done.repeated)


def head_blob(call: RouteCall) -> Answer:
    """The headers of a blob, without reading it."""
    cell = _cell(call)
    if cell.uri is not None:
        return _elsewhere(cell)
    early = _conditional(call, cell)
    if early is not None:
        return early
    return Answer(media=_BYTES, headers={**_headers(cell), "Content-Length": str(cell.size or 0)})


def _selector(call: RouteCall) -> Selector:
    given = {name: call.one(name) for name in _SELECTOR}
    missing = [name for name, value in given.items() if not value and (name, value) != ("id", "")]
    if missing:
        raise BadRequest(f"query parameter '{missing[0]}' is missing", "name the cell")
    kind, type_name, entity, name = (given[each] or "" for each in _SELECTOR)
    return kind, type_name, entity, name


def _cell(call: RouteCall) -> BlobCell:
    selector = _selector(call)
    branch, snapshot = call.one("branch"), call.one("snapshot")
    call.facts.update(branch=branch)
    return call.graph.blob(*selector, branch=branch, snapshot=snapshot)


def _headers(cell: BlobCell) -> dict[str, str]:
    return {
        "ETag": cell.etag or "",
        "Accept-Ranges": "bytes",
        "Omnigraph-Snapshot-Id": cell.commit_id,
    }


def _elsewhere(cell: BlobCell) -> Answer:
    headers = {
        "Location": cell.uri or "",
        "Cache-Control": "no-store",
        "Omnigraph-Snapshot-Id": cell.commit_id,
    }
    return Answer(status=302, media=None, headers=headers)


def _conditional(call: RouteCall, cell: BlobCell) -> Answer | None:
    """The answer of `If-Match` or `If-None-Match`, if one decides."""
    etag = cell.etag or ""
    demanded = _tags(call, "if-match")
    if demanded is not None and "*" not in demanded and etag not in demanded:
        raise HttpRefusal(
            412, "the blob is not the one that If-Match names", {"ETag": etag}, code="conflict"
        )
    known = _tags(call, "if-none-match")
    if known is not None and ("*" in known or etag in {tag.removeprefix("W/") for tag in known}):
        return Answer(status=304, media=None, headers=_headers(cell))
    return None


def _tags(call: RouteCall, header: str) -> list[str] | None:
    values = call.headers.getlist(header)
    if not values:
        return None
    return [tag.strip() for value in values for tag in value.split(",")]


def _part(call: RouteCall, cell: BlobCell, size: int) -> tuple[int, int] | None:
    """Start and end of the range that is asked for; None for the whole."""
    values = call.headers.getlist("range")
    condition = call.headers.get("if-range")
    if len(values) != 1 or (condition is not None and condition.strip() != cell.etag):
        return None
    match = _RANGE.fullmatch(values[0].strip())
    if match is None or match[1] is match[2] is None:
        return None
    if match[1] is None:
        count = int(match[2])
        start, end = max(0, size - count), size
        if count == 0 or size == 0:
            raise _unsatisfiable(size, size, size)
        return start, end
    start = min(int(match[1]), _FAR)
    end = size if match[2] is None else min(int(match[2]) + 1, size)
    if match[2] is not None and int(match[2]) < int(match[1]):
        return None
    if start >= size:
        raise _unsatisfiable(start, max(start, end), size)
    return start, end


def _unsatisfiable(start: int, end: int, size: int) -> HttpRefusal:
    return HttpRefusal(
        416,
        f"the blob has {size} bytes and none in this range",
        {"Content-Range": f"bytes */{size}"},
        {"blob_range": {"start": start, "end": end, "length": size}},
    )


def _require_small(call: RouteCall, size: int) -> None:
    if size > call.limits.answer_bytes:
        raise too_large("response_bytes", size, call.limits.answer_bytes)
