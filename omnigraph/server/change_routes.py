"""Change routes: changes of a commit, the change feed, baselines and exports.

Invariant: a route is one call on the graph and one rendering. A stream sends nothing before its
first chunk was read, so that what is refused is refused with a status.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, TypedDict

from omnigraph.errors import BadRequest, Forbidden, NotFound
from omnigraph.exec.changes.diff import OPS
from omnigraph.exec.changes.page_sizes import PAGE_CHANGES
from omnigraph.graph.export_verbs import exported_csv, exported_rows, pinned_export
from omnigraph.server import wire_changes
from omnigraph.server.bodies import block_output, cause_output, changes_page
from omnigraph.server.call import NDJSON, Answer, RouteCall, answered, branch_or_main
from omnigraph.server.row_formats import CSV, arrow_chunks, chosen
from omnigraph.types import parse_table_key

FILTERS = ("kind", "type", "op")
_WHOLE = wire_changes.BaselineRequest()


def commit_changes(call: RouteCall) -> Answer:
    """A page of what a commit changed against its first parent."""
    call.only("page_token", "limit", *FILTERS)
    commit_id = call.path["commit_id"]
    limit = listing_limit(call)
    try:
        cause = call.whole_graph().commits.get(commit_id)
    except NotFound:
        raise NotFound("commit", commit_id) from None
    try:
        changes = call.graph.commits.changes(commit_id, **listing_filters(call))
    except Forbidden as denial:
        raise NotFound("commit", commit_id) from denial  # as if it were not there
    shown = changes_page(call, changes, limit)
    return answered({"cause": cause_output(cause), **shown})


def poll(call: RouteCall) -> Answer:
    """The commits of a branch since a start or a cursor, with what each changed."""
    call.only("branch", "cursor", "start", "page_token", "limit", "wait_ms", *FILTERS)
    start = call.one("start")
    if start is not None and start not in ("now", "beginning") and not start.startswith("after:"):
        raise BadRequest(f"a feed cannot start at '{start}'", "use now, beginning or after:<id>")
    branch = branch_or_main(call.one("branch"))
    call.facts.update(branch=branch)
    page = call.graph.changes.poll(
        branch,
        start=start,
        cursor=call.one("cursor"),
        page_token=call.one("page_token"),
        limit=listing_limit(call),
        **listing_filters(call),
    )
    shown: dict[str, Any] = {"blocks": [block_output(call, block) for block in page.blocks]}
    ends = {
        "next_page_token": page.next_page_token,
        "cursor": page.cursor,
        "caught_up": page.caught_up,
    }
    return answered(shown | {name: value for name, value in ends.items() if value is not None})


def listing_limit(call: RouteCall) -> int:
    """How many changes a page may have."""
    limit = call.number("limit")
    return PAGE_CHANGES if limit is None else limit


class ChangeFilters(TypedDict):
    """The filters of a listing of changes, as the graph takes them."""

    kinds: list[str]
    types: list[str]
    ops: list[str]


def listing_filters(call: RouteCall) -> ChangeFilters:
    """The filters among the query parameters."""
    kinds, ops = call.query.getlist("kind"), call.query.getlist("op")
    _require_words("kind", kinds, ("node", "edge"))
    _require_words("op", ops, OPS)
    return {"kinds": kinds, "types": call.query.getlist("type"), "ops": ops}


def _require_words(name: str, given: list[str], known: tuple[str, ...]) -> None:
    for word in given:
        if word not in known:
            raise BadRequest(f"'{word}' is no {name}", f"use {', '.join(known)}")


def baseline(call: RouteCall) -> Answer:
    """Everything at the head of a branch, and the cursor from which the feed goes on."""
    body = call.json(wire_changes.BaselineRequest) if call.body else _WHOLE
    _require_words("kind", body.kind or [], ("node", "edge"))
    _require_words("op", body.op or [], OPS)
    branch = branch_or_main(body.branch)
    call.facts.update(branch=branch)
    whole = call.graph.changes.baseline(
        branch, kinds=body.kind or (), types=body.type or (), ops=body.op or ()
    )
    call.facts.update(commit=whole.commit_id)
    return _streamed(whole.lines())


def export(call: RouteCall) -> Answer:
    """One branch as NDJSON that loads again, or one type as Arrow or CSV where it is accepted."""
    return _exported(call, call.json(wire_changes.ExportRequest))


def flat_export(call: RouteCall) -> Answer:
    """One branch as NDJSON; types may be given by their table keys."""
    body = call.json(wire_changes.FlatExportRequest)
    return _exported(call, body, body.table_keys or ())


def _exported(
    call: RouteCall, body: wire_changes.ExportRequest, table_keys: Sequence[str] = ()
) -> Answer:
    if body.branch is not None and body.snapshot is not None:
        raise BadRequest("request may specify branch or snapshot, not both")
    pinned = pinned_export(call.graph, branch_or_main(body.branch), body.snapshot)
    call.facts.update(branch=pinned.branch, commit=pinned.commit_id)
    types = [*(body.type_names or ()), *_types_of_tables(call, pinned.commit_id, table_keys)]
    headers: dict[str, str] = {"Omnigraph-Snapshot-Id": pinned.commit_id}
    media = chosen(call.headers.get("accept"))
    if media == CSV:
        return _streamed(exported_csv(call.whole_graph(), types or None, pinned), headers, media)
    if media is not None:
        _, batches = exported_rows(call.whole_graph(), types or None, pinned)
        return _streamed(arrow_chunks(batches), headers, media)
    lines = call.whole_graph().export_lines(types=types or None, snapshot=pinned.commit_id)
    return _streamed(lines, headers)


def _types_of_tables(call: RouteCall, commit_id: str, keys: Sequence[str]) -> list[str]:
    known = call.whole_graph().snapshot(commit=commit_id).tables if keys else {}
    for key in keys:
        if key not in known:
            raise BadRequest(f"unknown export type '{key}'", f"known: {', '.join(sorted(known))}")
    return [parse_table_key(key)[1] for key in keys]


def _streamed(
    chunks: Iterator[bytes], headers: dict[str, str] | None = None, media: str = NDJSON
) -> Answer:
    first = next(chunks, b"")
    return Answer(media=media, headers=headers or {}, stream=chain([first], chunks))
