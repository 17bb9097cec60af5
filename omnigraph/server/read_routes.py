"""Read routes: queries, snapshots, commits and the schema.

Invariant: a route is one call on the graph and one rendering.
"""

from typing import Any

from msgspec import UNSET

from omnigraph.catalog import codec
from omnigraph.costs import COSTS
from omnigraph.errors import BadRequest, LimitExceeded
from omnigraph.exec.changes.tokens import sealed, unsealed
from omnigraph.exec.read.result import QueryResult
from omnigraph.graph.source_text import USE_MUTATE
from omnigraph.server import wire
from omnigraph.server.bodies import commit_output, read_output, snapshot_output
from omnigraph.server.call import Answer, RouteCall, answered, branch_or_main
from omnigraph.server.lenient_params import Warnings, with_known_parameters
from omnigraph.server.refusals import too_large
from omnigraph.server.row_formats import ARROW, arrow_bytes, chosen, csv_bytes
from omnigraph.server.status import reworded

PAGE_COMMITS_MAX = 8_192


def query(call: RouteCall) -> Answer:
    """Run a read query."""
    body = call.json(wire.QueryRequest)
    return read_answer(call, body.query, body.name, body.params, body.branch, body.snapshot)


def read_answer(
    call: RouteCall,
    text: str,
    name: str | None,
    params: object,
    branch: str | None,
    snapshot: str | None,
) -> Answer:
    """The rows of a read query, in the form that the request accepts."""
    result, named, warnings = _run(call, text, name, params, branch, snapshot)
    media = chosen(call.headers.get("accept"))
    if media is None:
        return _rows(call, read_output(result, named, snapshot, warnings=warnings))
    data = arrow_bytes(result) if media == ARROW else csv_bytes(result)
    headers = {"Omnigraph-Query-Name": result.query_name, "Omnigraph-Snapshot-Id": result.commit_id}
    if warnings:
        headers["Omnigraph-Warning"] = warnings[0].encode("ascii", "backslashreplace").decode()
    return _capped(call, Answer(data, media=media, headers=headers))


def legacy_read(call: RouteCall) -> Answer:
    """Run a read query, in the older spelling."""
    body = call.json(wire.LegacyReadRequest)
    result, branch, warnings = _run(
        call, body.query_source, body.query_name, body.params, body.branch, body.snapshot
    )
    output = read_output(result, branch, body.snapshot, legacy=True, warnings=warnings)
    return _rows(call, output)


def _run(
    call: RouteCall,
    text: str,
    name: str | None,
    params: object,
    branch: str | None,
    snapshot: str | None,
) -> tuple[QueryResult, str | None, Warnings]:
    if branch is not None and snapshot is not None:
        raise BadRequest("request may specify branch or snapshot, not both")
    named = None if snapshot is not None else branch_or_main(branch)
    call.facts.update(branch=named)

    def run(given: Any) -> QueryResult:
        return call.graph.query(
            text,
            given,
            name,
            branch=named,
            snapshot=snapshot,
            engine="local",
            stop=call.stop,
        )

    try:
        result, warnings = with_known_parameters(call, params, run)
    except BadRequest as cause:
        if cause.hint != USE_MUTATE:
            raise
        raise reworded(cause, f"{cause.text}; use POST /mutate for write queries") from None
    call.facts.update(rows=len(result), commit=result.commit_id)
    if len(result) > COSTS.answer_rows_unmeasured_max:
        size = result.to_arrow().nbytes
        if size > call.limits.answer_bytes:
            raise too_large("response_bytes", size, call.limits.answer_bytes)
    return result, named, warnings


def _rows(call: RouteCall, document: wire.LegacyReadOutput) -> Answer:
    return _capped(call, answered(document))


def _capped(call: RouteCall, answer: Answer) -> Answer:
    if len(answer.body) > call.limits.answer_bytes:
        raise too_large("response_bytes", len(answer.body), call.limits.answer_bytes)
    return answer


def snapshot(call: RouteCall) -> Answer:
    """Every type of a branch, or of a commit, with its version and count."""
    branch, commit = _branch_or_snapshot(call)
    return answered(snapshot_output(call.graph.snapshot(branch, commit=commit)))


def _branch_or_snapshot(call: RouteCall) -> tuple[str, str | None]:
    """The query parameters `branch`, main by default, and `snapshot`, of which one may be given."""
    branch, commit = call.one("branch"), call.one("snapshot")
    if branch is not None and commit is not None:
        raise BadRequest("request may specify branch or snapshot, not both")
    call.facts.update(branch=None if commit is not None else branch_or_main(branch))
    return branch_or_main(branch), commit


def commits(call: RouteCall) -> Answer:
    """The commits of a branch, or of every branch, newest first; all of them unless `limit` is
    given."""
    branch, actor = branch_or_main(call.one("branch")), call.one("actor")
    is_all = call.switch("all_branches")
    call.facts.update(branch=branch)
    limit, token = call.number("limit", least=1), call.one("page_token")
    if limit is not None and limit > PAGE_COMMITS_MAX:
        raise LimitExceeded("commits_page_commits", limit, PAGE_COMMITS_MAX)
    if token is not None and limit is None:
        raise BadRequest("page_token needs a limit", "repeat the limit of the first page")
    every = call.graph.commits.list(branch, actor=actor, all_branches=is_all)
    if limit is None:
        return answered(wire.CommitList(commits=[commit_output(each) for each in every]))
    start, kind = 0, [branch, actor, is_all]
    if token is not None:
        last = unsealed(token, "commits", kind)
        start = next((n for n, each in enumerate(every, start=1) if each.id == last), len(every))
    page = every[start : start + limit]
    more = len(every) > start + limit
    return answered(
        wire.CommitList(
            commits=[commit_output(each) for each in page],
            next_page_token=sealed("commits", kind, page[-1].id) if more else UNSET,
        )
    )


def one_commit(call: RouteCall) -> Answer:
    """One commit."""
    return answered(commit_output(call.graph.commits.get(call.path["commit_id"])))


def schema(call: RouteCall) -> Answer:
    """The schema of a branch, or of a commit, as it was written; with its catalog if asked."""
    branch, commit = _branch_or_snapshot(call)
    schemas = call.graph.schema
    accepted = schemas.on(branch) if commit is None else schemas.at(commit)
    if not call.switch("catalog"):
        return answered(wire.SchemaOutput(schema_source=accepted.text))
    return answered(
        wire.SchemaOutput(
            schema_source=accepted.text,
            schema_id=accepted.id,
            catalog=codec.encode(accepted.catalog),
        )
    )


def branches(call: RouteCall) -> Answer:
    """The names of all branches, with the commits of their heads if asked."""
    names = list(call.graph.branches.list())
    if not call.switch("heads"):
        return answered(wire.BranchList(branches=names))
    leads = {name: commit for commit, each in call.graph.commits.names().items() for name in each}
    heads = {name: leads[name] for name in names if name in leads}
    return answered(wire.BranchList(branches=names, heads=heads))
