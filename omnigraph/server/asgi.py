"""ASGI application: dispatch, authentication, admission, deadlines, errors, log and metrics.

    route ─▶ actor ─▶ action ─▶ body whole ─▶ a thread runs the route ─▶ answer whole ─▶ log line

Invariant: every request is answered with a JSON body or the one its route promises, whatever it
holds, and leaves one log line. The event loop never calls the engine; routes run in bounded pools.
"""

import asyncio
import re
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from random import Random
from time import monotonic, perf_counter
from typing import Any

import msgspec
from msgspec import UNSET
from starlette.datastructures import QueryParams

from omnigraph import __version__
from omnigraph.errors import Forbidden
from omnigraph.exec.limits import Stop
from omnigraph.policy import Action
from omnigraph.server import feed_waiting, openapi, wire
from omnigraph.server.access import Gate, ServedPolicies
from omnigraph.server.agent_endpoint import AgentEndpoint
from omnigraph.server.answer_sender import AnswerSender, preflight
from omnigraph.server.applied_sets import AppliedSets, worker_document
from omnigraph.server.bearer import Tokens
from omnigraph.server.body_reader import BodyReader
from omnigraph.server.call import Answer, JobDesk, RouteCall, answered, branch_or_main
from omnigraph.server.connection import (
    PROGRESS,
    AnswerBroken,
    ClientGone,
    Receive,
    Scope,
    Send,
    refuse_scope,
    when_gone,
)
from omnigraph.server.endpoint import ApiEndpoint, BodySize, Lane
from omnigraph.server.host_check import HostCheck
from omnigraph.server.job_runner import JobRunner
from omnigraph.server.legacy import in_conflicts
from omnigraph.server.metrics import Metrics
from omnigraph.server.oidc_trust import OidcTrust
from omnigraph.server.pools import PATIENCE_S, BoundedPool, WriteAdmission
from omnigraph.server.refusals import HttpRefusal
from omnigraph.server.request_headers import RequestHeaders
from omnigraph.server.request_log import RequestLog
from omnigraph.server.route_table import FLAT, NESTED
from omnigraph.server.router import Router
from omnigraph.server.serve_settings import Access, ServerSettings
from omnigraph.server.served import ServedGraphs
from omnigraph.server.server_endpoints import server_endpoints
from omnigraph.server.status import error_answer
from omnigraph.server.stored_routes import in_lane
from omnigraph.server.ui.ui_events import commit_events
from omnigraph.server.ui.ui_front import ServerPages, address_of_page, kept_apart
from omnigraph.server.ui.ui_table import EVENTS, NO_PAGES, PAGES
from omnigraph.server.watchdog import Watchdog
from omnigraph.storage.stamp import INTERNAL_SCHEMA_VERSION

API_VERSION = "0.10"
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_LEAVES_AFTER_S = 0.05
_LATE_S = 1.0
_GONE = 499
_random = Random()  # an id must differ from others, and need not be hard to guess
_CUT_OFF = (
    "the server stopped before this was done; a write may have been made: send it again with its "
    "idempotency key, or look first"
)
_NO_PARAMETERS = QueryParams()
_POLL = "cluster_pollChanges"
_FEED = frozenset({_POLL, "cluster_streamChanges"})
_UNBUFFERED = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class ServerApp:
    """The application of one worker."""

    def __init__(
        self,
        settings: ServerSettings,
        graphs: ServedGraphs,
        log: RequestLog,
        policies: ServedPolicies | None = None,
        trust: OidcTrust | None = None,
    ) -> None:
        self.settings = settings
        self.graphs = graphs
        self.log = log
        self.tokens = Tokens(settings.tokens)
        self.gate = Gate(settings.access, self.tokens, policies or ServedPolicies(), trust)
        self._default = settings.default_graph or graphs.only
        flat = FLAT if self._default is not None else ()
        self._pages = ServerPages(settings, graphs, self.gate)
        pages = PAGES if settings.ui else NO_PAGES
        self._router = Router((*server_endpoints(), *NESTED, *flat, *pages))
        limits = self._limits = settings.limits
        self.reads = BoundedPool("read", limits.read_threads, limits.read_queue, PATIENCE_S)
        self.writes = BoundedPool("write", limits.write_threads, limits.write_queue)
        self._watchdog = Watchdog()
        self._bodies = BodyReader(limits, settings.run_folder or None, self._watchdog)
        self.stopping = asyncio.Event()
        self._sender = AnswerSender(
            limits, settings.allow_origin, log, self._watchdog, self.stopping
        )
        self.jobs = JobRunner(limits.job_threads, limits.job_queue, log)
        self._desk = JobDesk(self.jobs, settings)
        self._admission = WriteAdmission(limits.actor_inflight, limits.actor_bytes)
        folder = Path(settings.run_folder) if settings.run_folder else None
        self.sets: AppliedSets | None = None  # reloaded by a worker
        self.metrics = Metrics(
            folder, self._gauges, self._totals, lambda: worker_document(self.sets)
        )
        self._document: bytes | None = None
        self._hosts = HostCheck.of(settings)
        self._agents = AgentEndpoint(self, settings, self.gate, self._default, self._hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await refuse_scope(scope, receive, send)
            return
        started = perf_counter()
        headers = RequestHeaders(scope["headers"])
        request_id = _request_id(headers)
        facts: dict[str, Any] = {"method": scope["method"], "route": None}
        status = 500
        try:
            status = await self._handle(scope, headers, receive, send, request_id, facts)
        except ClientGone:
            status = _GONE
        except asyncio.CancelledError:
            status = _GONE
            if not self.stopping.is_set():
                raise
            status = await self._cut_off(scope, receive, send, request_id)
        except AnswerBroken:
            status = _GONE
            raise
        finally:
            seconds = perf_counter() - started
            route = facts.pop("path", None) or "unknown"
            self.metrics.observe(route, status, seconds)
            facts["route"] = route
            facts["status"] = status
            facts["ms"] = round(seconds * 1000, 2)
            facts["request_id"] = request_id
            if self.log.request(facts):
                self._watchdog.loop.call_soon(self.log.flush)

    async def _cut_off(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> int:
        """Answer a request that was not done when the time to drain had passed. One whose answer
        was begun is left as it is: its connection is closed."""
        error = error_answer(HttpRefusal(503, _CUT_OFF, {"Retry-After": "5"}))
        answer = Answer(wire.encoded(error.body), error.status, headers=error.headers)
        with suppress(RuntimeError):
            return await self._sender.send(answer, scope, receive, send, request_id)
        return _GONE

    async def _handle(
        self,
        scope: Scope,
        headers: RequestHeaders,
        receive: Receive,
        send: Send,
        request_id: str,
        facts: dict[str, Any],
    ) -> int:
        """Answer one request; the status that was sent."""
        endpoint: ApiEndpoint | None = None
        try:
            self._hosts.require(scope["method"], scope["path"], headers)
            if self._agents.serves(scope):
                return await self._agents.answer(scope, headers, receive, send, request_id, facts)
            with ExitStack() as stack:
                if scope["method"] == "OPTIONS" and self._sender.is_allowed_origin(headers):
                    answer = preflight()
                else:
                    raw = scope.get("raw_path") or scope["path"].encode()
                    endpoint, path = self._router.find(scope["method"], raw)
                    facts["path"] = endpoint.path
                    answer = await self._answer(
                        endpoint, path, scope, headers, receive, facts, stack
                    )
            if endpoint is not None and endpoint.successor is not None:
                answer.headers.update(_succession(endpoint))
            return await self._sender.send(answer, scope, receive, send, request_id)
        except (ClientGone, AnswerBroken):
            raise
        except Exception as cause:  # noqa: BLE001  every failure is an answer
            error = error_answer(cause)
            self._count_denial(cause, facts)
            if error.is_fault:
                self.log.fault(request_id, cause)
            address = address_of_page(scope)
            if self.settings.ui and address.startswith("/ui/"):
                answer = self._pages.refusal(error, address, scope["method"])
                return await self._sender.send(answer, scope, receive, send, request_id)
            document = msgspec.to_builtins(error.body)
            if endpoint is not None and endpoint.flat:
                in_conflicts(document)
            body = wire.encoded(document)
            answer = Answer(body, error.status, headers={**error.headers, **_succession(endpoint)})
            return await self._sender.send(answer, scope, receive, send, request_id)

    def _count_denial(self, cause: Exception, facts: dict[str, Any]) -> None:
        """Count a denial, also one that the answer hides, and say its action in the log."""
        denial = cause if isinstance(cause, Forbidden) else cause.__cause__
        if isinstance(denial, Forbidden):
            facts["denied"] = str(denial.action)
        elif isinstance(cause, HttpRefusal) and cause.status == 401:
            facts["denied"] = "authentication"
        if "denied" in facts:
            self.metrics.denied(facts["denied"])

    async def _answer(
        self,
        endpoint: ApiEndpoint,
        path: dict[str, str],
        scope: Scope,
        headers: RequestHeaders,
        receive: Receive,
        facts: dict[str, Any],
        stack: ExitStack,
    ) -> Answer:
        _require_api(headers)
        if endpoint.is_page:
            return await self._page(endpoint, path, scope, headers, receive, facts, stack)
        if endpoint.action is None:
            return await self._own(endpoint)
        actor = self.gate.actor(headers)
        facts["actor"] = actor
        if endpoint.operation == "listGraphs":
            self.gate.require_listing(actor)
            entries = [wire.GraphEntry(graph_id=i, uri=uri) for i, uri in self.graphs.listed()]
            return answered(wire.GraphList(graphs=entries))
        if endpoint.operation == "whoami":
            access = "policy" if self.gate.policies.graphs else str(self.settings.access)
            return answered(wire.WhoamiOutput(actor_id=actor, access=access))
        graph_id = path.pop("graph_id", None) or self._default or ""
        facts["graph"] = graph_id
        graph = self.graphs.get(graph_id)
        text = scope["query_string"]
        query = QueryParams(text) if text else _NO_PARAMETERS
        call = RouteCall(
            graph_id,
            self.gate.graph(graph_id, graph, actor),
            actor,
            path,
            query,
            headers,
            limits=self._limits,
            facts=facts,
            jobs=self._desk,
            progress=scope.get(PROGRESS),
            stored=self.graphs.stored(graph_id),
            is_clustered=self.settings.cluster is not None,
            require=partial(self.gate.require, graph_id, actor),
        )
        try:
            denial = self.gate.denial(endpoint, call)
            if denial is None:
                return await self._run(endpoint, call, scope, receive, stack)
            return await self._denied(endpoint, call, scope, receive, stack, denial)
        except Forbidden as denied:
            if denied.action == Action.INVOKE_QUERY and graph_id in self.gate.policies.graphs:
                raise HttpRefusal(404, "stored query not found") from denied
            raise

    # ---- running

    async def _run(
        self,
        endpoint: ApiEndpoint,
        call: RouteCall,
        scope: Scope,
        receive: Receive,
        stack: ExitStack,
    ) -> Answer:
        if endpoint.size is not BodySize.NONE:
            await self._bodies.read(endpoint, call, scope, receive, stack)
        endpoint = in_lane(endpoint, call)
        if endpoint.lane is Lane.WRITE:
            size = len(call.body) if call.spooled is None else call.spooled.stat().st_size
            stack.enter_context(self._admission.admitted(call.actor, size))
            return await self._run_write(endpoint, call)
        if endpoint.operation in _FEED:
            return await self._run_feed(endpoint, call, receive)
        return await self._run_read(endpoint, call, receive)

    async def _page(
        self,
        endpoint: ApiEndpoint,
        path: dict[str, str],
        scope: Scope,
        headers: RequestHeaders,
        receive: Receive,
        facts: dict[str, Any],
        stack: ExitStack,
    ) -> Answer:
        """A page for people: known by a cookie, and its forms by a token of their own."""
        call = self._pages.call(endpoint, path, scope, headers, facts, self._limits)
        if endpoint.size is not BodySize.NONE:
            await self._bodies.read(endpoint, call, scope, receive, stack)
        self._pages.admit(endpoint, call)
        if endpoint.operation == EVENTS:
            stream = commit_events(self.reads.submit, call, self.stopping)
            return Answer(media="text/event-stream", headers=dict(_UNBUFFERED), events=stream)
        if endpoint.lane is Lane.WRITE:
            stack.enter_context(self._admission.admitted(call.actor, len(call.body)))
            return kept_apart(await self._run_write(endpoint, call), call)
        return kept_apart(await self._run_read(endpoint, call, receive), call)

    async def _denied(
        self,
        endpoint: ApiEndpoint,
        call: RouteCall,
        scope: Scope,
        receive: Receive,
        stack: ExitStack,
        denial: Forbidden,
    ) -> Answer:
        """Deny a request that no branch would allow: the graph does so when it is asked, and knows
        the branch. Whatever else is wrong with the request, its sender learns no more."""
        try:
            await self._run(endpoint, call, scope, receive, stack)
        except (Forbidden, ClientGone):
            raise
        except Exception:  # noqa: BLE001  it may not even know what is wrong
            pass
        raise denial

    async def _run_feed(self, endpoint: ApiEndpoint, call: RouteCall, receive: Receive) -> Answer:
        """Run a read of the feed: it may wait for a commit, or become a stream of events."""

        async def run(call: RouteCall) -> Answer:
            # A wait may be long: the actor and its rights are those of now.
            actor = self.gate.actor(call.headers)
            graph = self.graphs.get(call.graph_id)
            call.graph = self.gate.graph(call.graph_id, graph, actor)
            return await self._run_read(endpoint, call, receive)

        async def head() -> str:
            branch = branch_or_main(call.one("branch"))
            snapshot = await self.reads.submit(lambda: call.graph.snapshot(branch))
            return str(snapshot.commit_id)

        if endpoint.operation == _POLL:
            return await feed_waiting.long_poll(run, head, call, self.stopping)
        feed_waiting.resumed(call)
        first = await run(call)
        stream = feed_waiting.events(run, head, call, first, self.stopping)
        return Answer(media="text/event-stream", headers=dict(_UNBUFFERED), events=stream)

    async def _run_write(self, endpoint: ApiEndpoint, call: RouteCall) -> Answer:
        future = self.writes.submit(lambda: endpoint.route(call), wait_s=self._limits.write_seconds)
        # A client that leaves ends no write: it is committed, or refused, as if it had stayed.
        return await asyncio.shield(future)

    async def _run_read(self, endpoint: ApiEndpoint, call: RouteCall, receive: Receive) -> Answer:
        seconds = self._deadline(call.headers)
        call.stop = Stop(int(seconds * 1000), asked_at=monotonic())
        future = self.reads.submit(lambda: endpoint.route(call), wait_s=seconds)
        watcher: asyncio.Task[None] | None = None
        watching: int  # what the watchdog does next for this read

        def watch() -> None:
            nonlocal watcher, watching
            give_up = partial(_give_up, call.stop, future)
            watcher = self._watchdog.loop.create_task(when_gone(receive, give_up))
            watching = self._watchdog.add(seconds + _LATE_S - _LEAVES_AFTER_S, give_up)

        watching = self._watchdog.add(_LEAVES_AFTER_S, watch)
        try:
            return await future
        except asyncio.CancelledError:
            if not (future.cancelled() and call.stop.is_cancelled):  # the server ends
                call.stop.cancel()
                raise
            if call.stop.is_cancelled and watcher is not None and watcher.done():
                raise ClientGone from None
            limit = int(seconds * 1000)
            raise HttpRefusal(504, f"the read took longer than {limit} ms") from None
        except Exception:
            if call.stop.is_cancelled and watcher is not None and watcher.done():
                raise ClientGone from None
            raise
        finally:
            self._watchdog.remove(watching)
            if watcher is not None:
                watcher.cancel()

    def _deadline(self, headers: RequestHeaders) -> float:
        text = headers.get("omnigraph-timeout-ms")
        if text is None:
            return self._limits.query_seconds
        if not text.isascii() or not text.isdigit() or not int(text[:12]) > 0:
            raise HttpRefusal(400, "Omnigraph-Timeout-Ms is no whole number above 0")
        return min(int(text[:12]) / 1000, self._limits.query_seconds)

    # ---- what is about no graph

    async def _own(self, endpoint: ApiEndpoint) -> Answer:
        match endpoint.operation:
            case "health":
                return answered(
                    wire.HealthOutput(
                        status="ok",
                        version=__version__,
                        internal_schema_version=INTERNAL_SCHEMA_VERSION,
                    )
                )
            case "ready":
                states = self.graphs.readiness()
                policies = self.gate.policies.graphs
                listed = [
                    wire.GraphReadiness(
                        graph_id=graph_id,
                        open=is_open,
                        policy_digest=policies[graph_id].digest if graph_id in policies else UNSET,
                    )
                    for graph_id, is_open in states.items()
                ]
                pools = [
                    wire.PoolReadiness(
                        name=pool.name, stuck_ms=int(pool.stuck_s() * 1000), limit_ms=limit
                    )
                    for pool, limit in (
                        (self.reads, int(self._limits.query_seconds * 1000)),
                        (self.writes, None),  # a load may take as long as it needs
                    )
                ]
                ready = all(states.values()) and not any(
                    pool.limit_ms is not None and pool.stuck_ms > pool.limit_ms for pool in pools
                )
                workers = await asyncio.get_running_loop().run_in_executor(
                    None, self.metrics.workers
                )
                shown = [wire.WorkerReadiness(**each) for each in workers]
                answer = answered(
                    wire.ReadyOutput(ready=ready, graphs=listed, pools=pools, workers=shown)
                )
                answer.status = 200 if ready else 503
                return answer
            case "oauthProtectedResource":
                if self.gate.trust is None:
                    raise HttpRefusal(404, "this server gives out its own tokens")
                return answered(self.gate.trust.metadata)
            case "metrics":
                text = await asyncio.get_running_loop().run_in_executor(None, self.metrics.text)
                return Answer(text.encode(), media="text/plain; version=0.0.4; charset=utf-8")
            case _:
                if self._document is None:
                    self._document = wire.encoded(self.openapi())
                return Answer(self._document)

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document of what this worker serves."""
        is_open = self.settings.access is Access.OPEN
        return openapi.document(self._router.endpoints, with_tokens=not is_open)

    def _gauges(self) -> dict[str, float]:
        opened = self.graphs.opened()
        return {
            "omnigraph_cache_bytes": sum(graph.cache_bytes for graph in opened),
            'omnigraph_queue_depth{pool="read"}': self.reads.waiting,
            'omnigraph_queue_depth{pool="write"}': self.writes.waiting,
            "omnigraph_open_graphs": len(opened),
            "omnigraph_jobs_running": self.jobs.running,
            "omnigraph_applied_kept": 0 if self.sets is None else len(self.sets.kept),
        }

    def _totals(self) -> dict[str, float]:
        events = [graph.stats().events for graph in self.graphs.opened()]
        return self.jobs.totals() | {
            name: sum(each.get(event, 0) for each in events)
            for name, event in (
                ("omnigraph_commits_total", "phase_c.published"),
                ("omnigraph_retries_total", "phase_c.raced"),
                ("omnigraph_recoveries_total", "recover.classified"),
            )
        }


def _request_id(headers: RequestHeaders) -> str:
    given = headers.get("x-request-id")
    return given if given and _REQUEST_ID.fullmatch(given) else f"{_random.getrandbits(64):016x}"


def _succession(endpoint: ApiEndpoint | None) -> dict[str, str]:
    """The header fields of a deprecated route, whatever it answers."""
    if endpoint is None or endpoint.successor is None:
        return {}
    return {"Deprecation": "true", "Link": f'<{endpoint.successor}>; rel="successor-version"'}


def _require_api(headers: RequestHeaders) -> None:
    version = headers.get("omnigraph-http-api")
    if version is not None and version.strip() != API_VERSION:
        raise HttpRefusal(400, f"this server speaks Omnigraph-Http-Api {API_VERSION} and no other")


def _give_up(stop: Stop, future: "asyncio.Future[Answer]") -> None:
    stop.cancel()
    future.cancel()
