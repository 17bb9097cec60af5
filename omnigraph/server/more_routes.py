"""Routes beyond 0.10: tags, revert, restore, transactions, diffs, lint and explain.

Invariant: a route is one call on the graph and one rendering.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from omnigraph.arguments import as_given
from omnigraph.errors import BadRequest, Forbidden, NotFound
from omnigraph.exec.limits import Limits, watched
from omnigraph.exec.read.result import json_rows
from omnigraph.graph.handles import Transaction
from omnigraph.graph.source_text import USE_QUERY
from omnigraph.plan.compile import compile_query
from omnigraph.plan.explain import explain as explain_plan
from omnigraph.plan.lint import lint as lint_text
from omnigraph.server import wire_beyond
from omnigraph.server.bodies import changes_page, commit_output, undo_output
from omnigraph.server.call import Answer, RouteCall, answered, branch_or_main
from omnigraph.server.change_routes import FILTERS, listing_filters, listing_limit
from omnigraph.server.idempotency import is_running, mark_of, write_once
from omnigraph.server.kept_answers import ANSWER, keep_answer, kept_answer
from omnigraph.server.wire import decoded_list, encoded
from omnigraph.server.write_routes import head_conflicts, resolved
from omnigraph.storage.manifest.tags import Tag
from omnigraph.storage.protocol.intent import noted
from omnigraph.storage.records import Commit

_STATEMENTS_MAX = 1_000


def tags(call: RouteCall) -> Answer:
    """Every tag, by name."""
    return answered(wire_beyond.TagList(tags=[_tag(each) for each in call.graph.tags.list()]))


def tag_point(call: RouteCall) -> Answer:
    """Name a commit, that of any point in time."""
    body = call.json(wire_beyond.TagCreateRequest)
    return answered(_tag(call.graph.tags.create(body.name, branch_or_main(body.point))))


def untag(call: RouteCall) -> Answer:
    """Delete a tag."""
    name = call.path["tag"]
    call.graph.tags.delete(name)
    return answered(wire_beyond.TagDeleteOutput(name=name, actor_id=call.actor))


def _tag(tag: Tag) -> wire_beyond.TagOutput:
    return wire_beyond.TagOutput(
        name=tag.name,
        graph_branch=tag.branch,
        graph_manifest_version=tag.manifest_version,
        graph_commit_id=tag.commit_id,
    )


def revert(call: RouteCall) -> Answer:
    """Undo a commit, or several, as one new commit."""
    body = call.json(wire_beyond.RevertRequest)
    branch = branch_or_main(body.branch)
    call.facts.update(branch=branch)
    with head_conflicts():
        done = call.graph.revert(
            body.commit,
            body.to,
            onto=branch,
            by=as_given(body.by or "entity"),
            resolve=resolved(body.resolutions),
            dry_run=body.dry_run,
            actor=call.actor,
            message=body.message,
            metadata=body.metadata,
        )
    return answered(undo_output(done))


def go_back(call: RouteCall) -> Answer:
    """Make a branch what it was at a point in time, as one new commit."""
    body = call.json(wire_beyond.RestoreRequest)
    branch = branch_or_main(body.branch)
    call.facts.update(branch=branch)
    with head_conflicts():
        done = call.graph.restore(
            body.point,
            body.types,
            branch=branch,
            dry_run=body.dry_run,
            actor=call.actor,
            message=body.message,
            metadata=body.metadata,
        )
    return answered(undo_output(done))


def transact(call: RouteCall) -> Answer:
    """Run several reads and mutations as one commit, or none; reads see what came before them."""
    body = call.json(wire_beyond.TransactionRequest)
    branch = branch_or_main(body.branch)
    call.facts.update(branch=branch)
    if not 0 < len(body.statements) <= _STATEMENTS_MAX:
        raise BadRequest(f"a transaction has 1 to {_STATEMENTS_MAX} statements")
    with write_once(call, branch) as once:
        note = noted(call.actor, body.message, once.metadata(body.metadata))
        block = Transaction(call.graph, note, branch, body.if_commit, once.mark)
        done = block.done_before()
        if done is not None:
            return once.replayed(_first_answer(call, branch, done), done, repeated=True)
        with block:
            results = [_statement(block, each) for each in body.statements]
            if once.mark is not None:
                block.annotate({ANSWER: keep_answer(call.graph, encoded(results))})
    outcome = block.outcome
    commit = None if outcome is None else outcome.commit
    if outcome is not None and outcome.repeated and commit is not None:
        return once.replayed(_first_answer(call, branch, commit), commit, repeated=True)
    return _transacted(call, branch, results, commit)


def _first_answer(call: RouteCall, branch: str, commit: Commit) -> Answer:
    """The answer of the transaction that made a commit; without results once they are forgotten."""
    kept = kept_answer(call.graph, commit.metadata.get(ANSWER, ""))
    results = [] if kept is None else decoded_list(kept, wire_beyond.TransactionResult)
    return _transacted(call, branch, results, commit)


def _transacted(
    call: RouteCall,
    branch: str,
    results: list[wire_beyond.TransactionResult],
    commit: Commit | None,
) -> Answer:
    call.facts.update(commit=None if commit is None else commit.id)
    return answered(
        wire_beyond.TransactionOutput(
            branch=branch,
            results=results,
            actor_id=call.actor,
            commit=None if commit is None else commit_output(commit),
        )
    )


def _statement(
    block: Transaction, statement: wire_beyond.TransactionStatement
) -> wire_beyond.TransactionResult:
    try:
        done = block.mutate(statement.query, statement.params, statement.name)
    except BadRequest as cause:
        if cause.hint != USE_QUERY:
            raise
        rows = block.query(statement.query, statement.params, statement.name, engine="local")
        return wire_beyond.TransactionResult(
            query_name=rows.query_name,
            row_count=len(rows),
            columns=rows.columns,
            rows=json_rows(rows),
        )
    return wire_beyond.TransactionResult(
        query_name=done.query_name,
        affected_nodes=done.affected_nodes,
        affected_edges=done.affected_edges,
    )


def diff(call: RouteCall) -> Answer:
    """A page of the changes that turn one point in time into another."""
    call.only("from", "to", "page_token", "limit", *FILTERS)
    before, after = call.one("from"), call.one("to")
    if before is None or after is None:
        raise BadRequest("a diff is between two points", "give the query parameters from and to")
    changes = call.graph.diff(before, after, **listing_filters(call))
    old, new = changes.between
    shown: dict[str, object] = {"from_commit_id": old, "to_commit_id": new}
    if steps := changes.schema_steps:
        shown["schema_steps"] = [step.to_json() for step in steps]
    return answered(shown | changes_page(call, changes, listing_limit(call)))


def lint(call: RouteCall) -> Answer:
    """Check every query of a text against the schema."""
    body = call.json(wire_beyond.TextRequest)
    with watched(Limits.from_environment(), call.stop):
        report = lint_text(body.query, call.graph.schema.catalog)
    return answered(report.to_json())


def explain(call: RouteCall) -> Answer:
    """The plan of a query: what would be done, in which order."""
    body = call.json(wire_beyond.TextRequest)
    with watched(Limits.from_environment(), call.stop):
        plan = compile_query(body.query, call.graph.schema.catalog, body.name)
    text = explain_plan(plan).rstrip("\n")
    return answered(wire_beyond.ExplainOutput(query_name=plan.name, plan=text.splitlines()))


def indexes(call: RouteCall) -> Answer:
    """Every index that the schema asks for, and what it covers."""
    call.only("branch", "snapshot")
    branch, snapshot = call.one("branch"), call.one("snapshot")
    if branch is not None and snapshot is not None:
        raise BadRequest("request may specify branch or snapshot, not both")
    head = call.graph.snapshot(branch_or_main(branch), commit=snapshot).commit_id
    listed = [each.to_json() for each in call.graph.indexes(snapshot=head)]
    return answered({"indexes": listed, "graph_commit_id": head})


def operation(call: RouteCall) -> Answer:
    """What became of the write with an idempotency key, on one branch or on any: committed, running
    or unknown."""
    key, branch = call.path["key"], call.one("branch")
    names = call.graph.branches.list() if branch is None else [branch]
    commit = next(_made_with(call, key, names, is_given=branch is not None), None)
    if commit is not None:
        state, shown = "committed", commit_output(commit)
        return answered(wire_beyond.OperationOutput(key=key, state=state, commit=shown))
    state = "running" if any(is_running(call, name, key) for name in names) else "unknown"
    return answered(wire_beyond.OperationOutput(key=key, state=state, commit=None))


def _made_with(
    call: RouteCall, key: str, branches: Sequence[str], *, is_given: bool
) -> Iterator[Commit]:
    """The commits that writes with a key have made; a branch that was not asked for may have gone
    meanwhile, or be one that the actor may not read."""
    for name in branches:
        with suppress(*(() if is_given else (Forbidden, NotFound))):
            commit = call.graph.commits.once(mark_of(call, key), name)
            if commit is not None:
                yield commit
