"""Routes of stored queries: their catalog, and a query run by its name.

Invariant: an actor who may not invoke queries is answered as if no query were there, whatever else
the request holds. Reads run in the pool of reads and mutations in the pool of writes, whichever way
they are called.
"""

from dataclasses import replace

from msgspec import UNSET

from omnigraph.cluster.query_catalog import StoredQuery
from omnigraph.plan.facts import Field
from omnigraph.policy import Action
from omnigraph.server import wire
from omnigraph.server.bodies import change_output
from omnigraph.server.call import Answer, RouteCall, answered, branch_or_main
from omnigraph.server.endpoint import ApiEndpoint, Lane
from omnigraph.server.idempotency import write_once
from omnigraph.server.lenient_params import with_known_parameters
from omnigraph.server.read_routes import read_answer
from omnigraph.server.refusals import HttpRefusal
from omnigraph.server.write_routes import required_commit, without_condition
from omnigraph.storage.names import MAIN

_NO_REQUEST = wire.InvokeStoredQueryRequest()


def stored_queries(call: RouteCall) -> Answer:
    """Every stored query of a graph, with its parameters."""
    call.require(Action.READ, MAIN)
    return answered(wire.QueryCatalog(queries=[_entry(query) for query in call.stored]))


def invoke(call: RouteCall) -> Answer:
    """Run a stored query by its name."""
    request = _request(call)
    query = _query(call, request)
    if query.is_mutation:
        without_condition(call)
    return _mutate(call, query, request, None) if query.is_mutation else _read(call, query, request)


def invoke_if(call: RouteCall) -> Answer:
    """Run a stored mutation only if the branch is at the commit that the header names."""
    commit = required_commit(call)
    request = _request(call)
    query = _query(call, request)
    if not query.is_mutation:
        raise HttpRefusal(400, f"stored query '{query.name}' is a read, which has no condition")
    return _mutate(call, query, request, commit)


def in_lane(endpoint: ApiEndpoint, call: RouteCall) -> ApiEndpoint:
    """The endpoint in the pool that its request belongs in."""
    if endpoint.route is not invoke:
        return endpoint
    query = call.stored.get(call.path["name"])
    is_mutation = query is not None and query.is_mutation
    return replace(endpoint, lane=Lane.WRITE) if is_mutation else endpoint


def _query(call: RouteCall, request: wire.InvokeStoredQueryRequest) -> StoredQuery:
    """The query that is meant, if it is what the request expects."""
    call.require(Action.INVOKE_QUERY)  # what the query itself needs is asked by the graph
    query = call.stored.get(call.path["name"])
    if query is None:
        raise HttpRefusal(404, "stored query not found")
    if request.expect_mutation not in (None, query.is_mutation):
        kind, verb = ("mutation", "mutate") if query.is_mutation else ("read", "query")
        raise HttpRefusal(400, f"'{query.name}' is a {kind} — use omnigraph {verb} {query.name}")
    if query.is_mutation and request.snapshot is not None:
        raise HttpRefusal(400, "stored mutation cannot target a snapshot")
    return query


def _request(call: RouteCall) -> wire.InvokeStoredQueryRequest:
    return call.json(wire.InvokeStoredQueryRequest) if call.body else _NO_REQUEST


def _read(call: RouteCall, query: StoredQuery, request: wire.InvokeStoredQueryRequest) -> Answer:
    return read_answer(
        call, query.source, query.name, request.params, request.branch, request.snapshot
    )


def _mutate(
    call: RouteCall,
    query: StoredQuery,
    request: wire.InvokeStoredQueryRequest,
    if_commit: str | None,
) -> Answer:
    branch = branch_or_main(request.branch)
    call.facts.update(branch=branch)
    with write_once(call, branch) as once:
        done, warnings = with_known_parameters(
            call,
            request.params,
            lambda params: call.graph.mutate(
                query.source,
                params,
                query.name,
                branch=branch,
                actor=call.actor,
                if_commit=if_commit,
                message=request.message,
                metadata=once.metadata(request.metadata),
                once=once.mark,
            ),
        )
    call.facts.update(commit=None if done.commit is None else done.commit.id)
    return once.replayed(
        answered(change_output(done, warnings)), done.commit, repeated=done.repeated
    )


def _entry(query: StoredQuery) -> wire.QueryCatalogEntry:
    declared = query.declaration
    return wire.QueryCatalogEntry(
        name=query.name,
        tool_name=query.name,
        description=UNSET if declared.description is None else declared.description,
        instruction=UNSET if declared.instruction is None else declared.instruction,
        mutation=query.is_mutation,
        params=[_parameter(each) for each in query.params],
    )


def _parameter(field: Field) -> wire.QueryParameter:
    return wire.QueryParameter(
        name=field.name,
        kind=field.kind,
        item_kind=UNSET if field.item_kind is None else field.item_kind,
        vector_dim=UNSET if field.vector_dim is None else field.vector_dim,
        nullable=field.nullable,
    )
