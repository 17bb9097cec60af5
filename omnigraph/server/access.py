"""Authorization at the HTTP boundary: who sends a request, and what is refused before its body.

    tokens ─▶ actor ─▶ may it ever? ─▶ body ─▶ the graph, opened for that actor, asks about branches

Invariant: asked before a body is read. In the open state nobody is asked who they are and writes
carry no actor; in the trusted state every known actor may do everything; a graph with a policy asks
it; else every known actor may read and nothing more. What a client says about itself is ignored.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from omnigraph.errors import Forbidden
from omnigraph.graph import Graph
from omnigraph.graph.door import graph_for
from omnigraph.graph.policy_guard import ask
from omnigraph.policy import Action, Policy
from omnigraph.server.bearer import ASK, Tokens, bearer_of
from omnigraph.server.call import JSON, RouteCall, branch_or_main
from omnigraph.server.endpoint import ApiEndpoint, BodySize
from omnigraph.server.oidc_trust import OidcTrust
from omnigraph.server.refusals import HttpRefusal
from omnigraph.server.request_headers import RequestHeaders
from omnigraph.server.serve_settings import Access

_READS_ONLY = (
    "no policy is for this graph, so known actors may read it and nothing more; "
    "the server allows writes when it is started with --policy FILE or --trust-tokens"
)
METADATA_PATH = "/.well-known/oauth-protected-resource"


@dataclass(frozen=True, slots=True)
class ServedPolicies:
    """The policies in force: of graphs by id, and of the server itself."""

    graphs: Mapping[str, Policy] = field(default_factory=dict)
    server: Policy | None = None


class Gate:
    """Knows actors by their tokens and decides what they may do."""

    def __init__(
        self,
        access: Access,
        tokens: Tokens,
        policies: ServedPolicies,
        trust: OidcTrust | None = None,
    ) -> None:
        self.access = access
        self.trust = trust  # replaced as a whole
        self.tokens = tokens
        self.policies = policies  # replaced as a whole

    def actor(self, headers: RequestHeaders) -> str | None:
        """Who sends a request, or 401."""
        if self.access is Access.OPEN:
            return None
        sent = headers.getlist("authorization")
        if len(sent) > 1:
            raise HttpRefusal(400, "Authorization must be sent once")
        token = bearer_of(sent[0] if sent else None, self._ask)
        actor = self.tokens.actor_of(token)
        if actor is None and self.trust is not None:
            actor = self.trust.actor(token)
        if actor is None:
            raise HttpRefusal(401, "invalid bearer token", self._ask)
        return actor

    @property
    def _ask(self) -> dict[str, str]:
        """The header of a 401: where a client learns who gives out tokens, if anybody does."""
        if self.trust is None:
            return ASK
        where = f"{(self.trust.resource or '').rstrip('/')}{METADATA_PATH}"
        return {"WWW-Authenticate": f'Bearer realm="omnigraph", resource_metadata="{where}"'}

    def require_listing(self, actor: str | None) -> None:
        """Pass if the actor may list the graphs."""
        policy = self.policies.server
        if policy is not None:
            policy.decide(actor, Action.GRAPH_LIST).require()
        elif self.access is Access.READ_ONLY or self.policies.graphs:
            raise Forbidden(Action.GRAPH_LIST, actor)

    def graph(self, graph_id: str, graph: Graph, actor: str | None) -> Graph:
        """A graph as one actor may use it."""
        policy = self.policies.graphs.get(graph_id)
        return graph if policy is None else graph_for(graph, actor, policy)

    def require(
        self,
        graph_id: str,
        actor: str | None,
        action: str,
        branch: str | None = None,
        target: str | None = None,
    ) -> None:
        """Pass if the actor may do the action, else `Forbidden`."""
        policy = self.policies.graphs.get(graph_id)
        if policy is not None:
            ask(policy, actor, Action(action), branch, target)
        elif self.access is Access.READ_ONLY and action != Action.READ:
            raise Forbidden(action, actor, hint=_READS_ONLY)

    def require_ever(self, graph_id: str, actor: str | None, action: str) -> None:
        """Pass if the actor may do the action on any branch; the graph asks about the one."""
        policy = self.policies.graphs.get(graph_id)
        if policy is None or not policy.may_ever(actor, Action(action)):
            self.require(graph_id, actor, action)

    def denial(self, endpoint: ApiEndpoint, call: RouteCall) -> Forbidden | None:
        """Ask what can be asked before a body is read. What no branch could allow is raised, or,
        where the body is small and names the branch, is the denial that the request ends with."""
        assert endpoint.action is not None
        policy = self.policies.graphs.get(call.graph_id)
        if policy is None:
            try:
                self.require(call.graph_id, call.actor, endpoint.action)
            except Forbidden as denied:
                if endpoint.also and _is_small(endpoint, call):
                    return denied  # the body says which of its actions it is
                raise
            return None
        action = Action(endpoint.action)
        branch = (
            branch_or_main(call.one("branch")) if _is_in_query(endpoint, call.headers) else None
        )
        if any(policy.may_ever(call.actor, Action(each)) for each in (action, *endpoint.also)):
            if branch is not None:
                self.require(call.graph_id, call.actor, action, branch)
            return None
        denial = policy.decide(call.actor, action, branch).denial
        if not denial.is_known or not _is_small(endpoint, call):
            raise denial
        return denial


def _is_in_query(endpoint: ApiEndpoint, headers: RequestHeaders) -> bool:
    """Whether a request names its branch outside of its body."""
    if endpoint.size in (BodySize.SPOOLED, BodySize.BLOB):
        return True
    return bool(endpoint.other_bodies) and _media(headers) in endpoint.other_bodies


def _is_small(endpoint: ApiEndpoint, call: RouteCall) -> bool:
    """Whether a request has no body, or a small one of JSON."""
    if endpoint.size is BodySize.NONE:
        return True
    length = call.headers.get("content-length")
    is_short = length is not None and length.isdigit() and int(length) <= call.limits.body_bytes
    return is_short and _media(call.headers) == JSON


def _media(headers: RequestHeaders) -> str:
    return (headers.get("content-type") or "").partition(";")[0].strip().lower()
