"""Write routes: mutations, loads, branches, merges and schema changes.

Invariant: a route is one call on the graph and one rendering. Its body is whole before it begins,
so that no slow client holds a lock.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import UNSET

from omnigraph.arguments import as_given
from omnigraph.errors import BadRequest, PreconditionFailed
from omnigraph.exec.load.request import LoadResult
from omnigraph.exec.merge.resolve import Resolve
from omnigraph.graph.source_text import USE_QUERY
from omnigraph.server import branch_leases, wire
from omnigraph.server.bodies import change_output, commit_output, load_output, merge_output
from omnigraph.server.call import JSON, Answer, RouteCall, answered, branch_or_main, require_media
from omnigraph.server.idempotency import WriteOnce, write_once
from omnigraph.server.lenient_params import with_known_parameters
from omnigraph.server.refusals import HttpRefusal
from omnigraph.server.row_formats import ARROW, CSV, PARQUET, column_batches
from omnigraph.server.status import head_moved, reworded

IF_COMMIT = "Omnigraph-If-Graph-Commit"


def mutate(call: RouteCall) -> Answer:
    """Run a mutation as one commit."""
    without_condition(call)
    return _mutate(call, None)


def without_condition(call: RouteCall) -> None:
    """Refuse a condition on a route that has none: it would be written whatever the head is."""
    if call.headers.getlist(IF_COMMIT):
        raise HttpRefusal(
            400, f"{IF_COMMIT} is not for this route; use mutate/if-graph-commit or its like"
        )


def mutate_if(call: RouteCall) -> Answer:
    """Run a mutation only if the branch is at the commit that the header names."""
    return _mutate(call, required_commit(call))


def required_commit(call: RouteCall) -> str:
    """The one commit id of the conditional header, or 400."""
    values = call.headers.getlist(IF_COMMIT)
    if not values:
        raise HttpRefusal(400, f"{IF_COMMIT} is required on this conditional mutation route")
    if len(values) > 1:
        raise HttpRefusal(400, f"{IF_COMMIT} must be sent exactly once")
    named = values[0].strip()
    if not named:
        raise HttpRefusal(400, f"{IF_COMMIT} must name a graph commit id")
    if not named.isalnum():
        raise HttpRefusal(
            400, f"{IF_COMMIT} must contain one raw graph commit id, not entity-tag syntax"
        )
    return named


def _mutate(call: RouteCall, if_commit: str | None) -> Answer:
    body = call.json(wire.ChangeRequest)
    text = _either(body.query, body.query_source, "query", "query_source")
    if text is None:
        raise HttpRefusal(400, "the request body is not as expected: it has no `query`")
    branch = branch_or_main(body.branch)
    call.facts.update(branch=branch)
    with write_once(call, branch) as once, _reads_elsewhere():
        done, warnings = with_known_parameters(
            call,
            body.params,
            lambda params: call.graph.mutate(
                text,
                params,
                _either(body.name, body.query_name, "name", "query_name"),
                branch=branch,
                actor=call.actor,
                if_commit=if_commit,
                message=body.message,
                metadata=once.metadata(body.metadata),
                once=once.mark,
                embed=as_given(body.embed or "now"),
            ),
        )
    call.facts.update(commit=None if done.commit is None else done.commit.id)
    return once.replayed(
        answered(change_output(done, warnings)), done.commit, repeated=done.repeated
    )


@contextmanager
def _reads_elsewhere() -> Iterator[None]:
    """Say of a read where HTTP has it, not where the shell and Python do."""
    try:
        yield
    except BadRequest as cause:
        if cause.hint != USE_QUERY:
            raise
        said = cause.text.partition(" — ")[0]
        raise reworded(cause, f"{said}; use POST /query for read queries") from None


def _either(new: str | None, old: str | None, *names: str) -> str | None:
    if new is not None and old is not None:
        raise BadRequest(f"{' and '.join(names)} are two names of one member", "send one")
    return new if new is not None else old


def load(call: RouteCall) -> Answer:
    """Load NDJSON of the older, forgiving format, or columns of one type: Parquet, Arrow, CSV."""
    media = require_media(call.headers, JSON, ARROW, PARQUET, CSV)
    if media != JSON:
        return _load_columns(call, media)
    return _load(call, call.json(wire.IngestRequest))


def ingest(call: RouteCall) -> Answer:
    """Load NDJSON of the older, forgiving format; a missing branch is made from main."""
    body = call.json(wire.IngestRequest)
    body.from_ = branch_or_main(body.from_)
    return _load(call, body)


def _load(call: RouteCall, body: wire.IngestRequest) -> Answer:
    # A patch is newer than the forgiving format, in which a property of a wrong type is null.
    permissive = body.mode != "patch"
    options = {"permissive": permissive, "message": body.message, "embed": body.embed or "now"}
    data = body.data.encode()
    done, once = _loaded(
        call, data, body.mode, body.branch, body.from_, body.metadata, options=options
    )
    return once.replayed(
        answered(load_output(done, call.graph.uri)), done.commit, repeated=done.repeated
    )


def _loaded(
    call: RouteCall,
    source: Any,
    mode: str | None,
    branch: str | None,
    base: str | None,
    metadata: dict[str, str] | None = None,
    *,
    options: dict[str, Any],
) -> tuple[LoadResult, WriteOnce]:
    without_condition(call)
    branch = branch_or_main(branch)
    call.facts.update(branch=branch)
    with write_once(call, branch) as once:
        done = call.graph.load(
            source,
            as_given("merge" if mode is None else mode),
            branch=branch,
            from_branch=base,
            engine="local",
            actor=call.actor,
            metadata=once.metadata(metadata),
            once=once.mark,
            progress=call.progress,
            **options,
        )
    call.facts.update(rows=done.total_entities, commit=done.commit.id)
    return done, once


def _load_columns(call: RouteCall, media: str) -> Answer:
    node, edge = call.one("type"), call.one("edge")
    if (node is None) == (edge is None):
        raise BadRequest("columns are of one type", "give the query parameter type or edge")
    with call.body_stream() as stream:
        columns = column_batches(stream, media, call.body_stream)
        done, once = _loaded_as_asked(call, columns, type=node, edge=edge)
    return once.replayed(
        answered(load_output(done, call.graph.uri)), done.commit, repeated=done.repeated
    )


def load_ndjson(call: RouteCall) -> Answer:
    """Load NDJSON that is the body: records, or with `type` or `edge` the rows of one type."""
    node, edge = call.one("type"), call.one("edge")
    with call.body_stream() as stream:
        done, once = _loaded_as_asked(call, stream, type=node, edge=edge)
    return once.replayed(answered(load_output(done)), done.commit, repeated=done.repeated)


def _loaded_as_asked(call: RouteCall, source: Any, **options: Any) -> tuple[LoadResult, WriteOnce]:
    """Load what the query parameters say of the body."""
    options |= {"message": call.one("message"), "on_duplicate": call.one("on_duplicate")}
    options["indexes"] = call.one("indexes") or "now"
    options["embed"] = call.one("embed") or "now"
    mode, branch, base = call.one("mode"), call.one("branch"), call.one("from")
    return _loaded(call, source, mode, branch, base, _texts(call), options=options)


def _texts(call: RouteCall) -> dict[str, str] | None:
    """The metadata of a load, from query parameters `meta=key=text`."""
    texts: dict[str, str] = {}
    for word in call.query.getlist("meta"):
        key, equals, text = word.partition("=")
        if not equals or not key or key in texts:
            raise BadRequest("query parameter 'meta' is key=text, each key once")
        texts[key] = text
    return texts or None


def new_branch(call: RouteCall) -> Answer:
    """Create a branch; with `lease_seconds` that of a transaction, which ends with its lease."""
    body = call.json(wire.BranchCreateRequest)
    base = branch_or_main(body.from_)
    call.facts.update(branch=body.name)
    seconds = body.lease_seconds
    if seconds is None:
        name = call.graph.branches.create(body.name, from_=base)
    elif body.renew:
        branch_leases.renew(call.whole_graph(), body.name, seconds, call.actor)
        name = body.name
    else:
        with branch_leases.leased(call.whole_graph(), body.name, seconds, call.actor):
            name = call.graph.branches.create(body.name, from_=base)
    made = wire.BranchCreateOutput(
        uri=call.graph.uri,
        from_=base,
        name=name,
        actor_id=call.actor,
        lease_seconds=UNSET if seconds is None else seconds,
    )
    return answered(made)


def delete_branch(call: RouteCall) -> Answer:
    """Delete a branch."""
    name = call.path["branch"]
    call.facts.update(branch=name)
    call.graph.branches.delete(name)
    branch_leases.forget(call.whole_graph(), name)
    gone = wire.BranchDeleteOutput(uri=call.graph.uri, name=name, actor_id=call.actor)
    return answered(gone)


_TAKEN = {"source": "theirs", "target": "ours"}


def resolved(resolutions: list[wire.MergeResolution] | None) -> Resolve:
    """Decisions of conflicts as the graph takes them."""
    if not resolutions:
        return None
    answers: dict[tuple[str, str], str | dict[str, Any]] = {}
    for each in resolutions:
        if isinstance(each.take, str) and each.take not in _TAKEN:
            raise BadRequest(f"'{each.take}' decides nothing", "take source, target or values")
        name = each.type_name, each.entity_id
        if name in answers:
            raise BadRequest(f"{each.type_name} '{each.entity_id}' is decided twice")
        answers[name] = _TAKEN[each.take] if isinstance(each.take, str) else each.take
    return answers


@contextmanager
def head_conflicts(*named: str | None) -> Iterator[None]:
    """Tell a head that the request named, and that moved (412), from one that it did not (409)."""
    try:
        yield
    except PreconditionFailed as cause:
        if cause.expected in named:
            raise
        raise head_moved(cause) from None


def merge(call: RouteCall) -> Answer:
    """Merge a branch into another as one commit."""
    body = call.json(wire.BranchMergeRequest)
    target = branch_or_main(body.target)
    call.facts.update(branch=target)
    named = (body.if_source_commit, body.if_target_commit)
    with write_once(call, target) as once, head_conflicts(*named):
        done = call.graph.branches.merge(
            body.source,
            target,
            actor=call.actor,
            delete_source=body.delete_branch,
            by=as_given(body.by or "entity"),
            resolve=resolved(body.resolutions),
            progress=call.progress,
            dry_run=body.dry_run,
            if_source=body.if_source_commit,
            if_target=body.if_target_commit,
            message=body.message,
            metadata=once.metadata(body.metadata),
            once=None if body.dry_run else once.mark,
        )
    if done.branch_deleted:
        branch_leases.forget(call.whole_graph(), body.source)
    call.facts.update(commit=None if done.commit is None else done.commit.id)
    return once.replayed(answered(merge_output(done)), done.commit, repeated=done.repeated)


def apply_schema(call: RouteCall) -> Answer:
    """Change the schema, and the data with it, as one commit; 409 for a graph of a cluster."""
    if call.is_clustered:
        raise HttpRefusal(
            409,
            "this graph belongs to a cluster, which declares its schema: change it there, "
            "then omnigraph cluster apply",
        )
    body = call.json(wire.SchemaApplyRequest)
    # With a line end it is a text: a name that ends in .pg would be read as a file.
    done = call.graph.schema.apply(
        f"{body.schema_source}\n" if body.schema_source.endswith(".pg") else body.schema_source,
        allow_data_loss=body.allow_data_loss,
        backfill=body.backfill,
        branch=branch_or_main(body.branch),
        actor=call.actor,
        message=body.message,
        metadata=body.metadata,
    )
    commit = UNSET if done.commit is None else commit_output(done.commit)
    return answered(wire.SchemaApplyOutput(uri=call.graph.uri, **done.to_json(), commit=commit))
