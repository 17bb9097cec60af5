"""Policy and tokens files of a server: read at the start, and again when they change (live reload).

Invariant: what is in force changes as a whole or not at all. A file that cannot be used leaves what
was in force before, and says so once; it never leaves a graph without a policy that had one.
"""

import os
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from omnigraph.errors import OmnigraphError
from omnigraph.policy import Policy, PolicyKind
from omnigraph.server.access import Gate, ServedPolicies
from omnigraph.server.bearer import tokens_of_file
from omnigraph.server.oidc_trust import trust_of_file
from omnigraph.server.request_log import RequestLog
from omnigraph.server.serve_settings import ServerSettings

_Signature = tuple[tuple[int, int, int] | None, ...]


def policies_of(settings: ServerSettings) -> ServedPolicies:
    """The policies that the settings name, or `PolicyInvalid`. Graphs of one file share one."""
    paths = dict.fromkeys(settings.policies.values())
    read = {path: Policy.of_file(path, PolicyKind.GRAPH) for path in paths}
    texts = dict.fromkeys(e.policy for e in settings.extras.values() if e.policy is not None)
    applied = {text: Policy.of_text(text, "applied policy", PolicyKind.GRAPH) for text in texts}
    graphs = {graph_id: read[path] for graph_id, path in settings.policies.items()}
    for graph_id, extras in settings.extras.items():
        if extras.policy is not None:
            graphs[graph_id] = applied[extras.policy]
    return ServedPolicies(graphs, _server_policy(settings))


def _server_policy(settings: ServerSettings) -> Policy | None:
    """The policy that says who may list the graphs."""
    if settings.cluster_policy is not None:
        return Policy.of_text(settings.cluster_policy, "applied policy", PolicyKind.SERVER)
    if settings.server_policy is not None:
        return Policy.of_file(settings.server_policy, PolicyKind.SERVER)
    return None


def first_policies(settings: ServerSettings, log: RequestLog) -> ServedPolicies:
    """The policies of a worker that starts. Where a file has become unusable since the server
    started, those that were last in force in any worker."""
    try:
        policies = policies_of(settings)
    except OmnigraphError as cause:
        kept = [_kept(settings, path) for path in _named(settings)]
        if not all(path is not None and path.exists() for path in kept):
            raise
        log.event("policy_kept", cause=str(cause))
        by_path = dict(zip(_named(settings), map(str, kept), strict=True))
        named = settings.server_policy
        return policies_of(
            replace(
                settings,
                policies={name: by_path[path] for name, path in settings.policies.items()},
                server_policy=None if named is None else by_path[named],
            )
        )
    _keep(settings, policies)
    return policies


def _named(settings: ServerSettings) -> list[str]:
    """The policy files of the settings."""
    own = () if settings.server_policy is None else (settings.server_policy,)
    return [*dict.fromkeys((*settings.policies.values(), *own))]


def _kept(settings: ServerSettings, path: str) -> Path | None:
    """Where the text of a policy that is in force is kept while the server runs."""
    if not settings.run_folder:
        return None
    return Path(settings.run_folder) / f"policy-{sha256(path.encode()).hexdigest()[:16]}.yaml"


def _keep(settings: ServerSettings, policies: ServedPolicies) -> None:
    """Keep the texts of policies for workers that start later."""
    by_path = {path: policies.graphs[graph_id] for graph_id, path in settings.policies.items()}
    if settings.server_policy is not None and policies.server is not None:
        by_path[settings.server_policy] = policies.server
    for path, policy in by_path.items():
        kept = _kept(settings, path)
        if kept is not None:
            draft = kept.with_suffix(f".{os.getpid()}")
            draft.write_text(policy.text, encoding="utf-8")
            draft.replace(kept)


class ReloadedFiles:
    """Takes over changes of the tokens file and of policy files."""

    def __init__(self, settings: ServerSettings, gate: Gate, log: RequestLog) -> None:
        self.settings = settings  # replaced as a whole
        self.faults: dict[str, str] = {}  # by what could not be reloaded
        self._gate = gate
        self._log = log
        self._tokens = [settings.tokens_file] if settings.tokens_file is not None else []
        self._policies = _named(settings)
        self._seen = self._signatures()

    def _signatures(self) -> tuple[_Signature, _Signature, _Signature]:
        trust = self._gate.trust
        trusted = [] if trust is None else list(trust.files)
        return _signature(self._tokens), _signature(self._policies), _signature(trusted)

    def look(self) -> None:
        """Reload what has changed since the last look."""
        seen, self._seen = self._seen, self._signatures()
        tokens, policies, trust = (now != was for now, was in zip(self._seen, seen, strict=True))
        if tokens:
            self.reload_tokens()
        if policies:
            self._reload_policies()
        if trust:
            self._reload_trust()

    def reload(self) -> None:
        """Reload everything, as SIGHUP asks."""
        self._seen = self._signatures()
        self.reload_tokens()
        self._reload_policies()
        self._reload_trust()

    def reload_tokens(self) -> None:
        """Take the tokens of the file as they are now."""
        for path in self._tokens:
            try:
                self._gate.tokens.replace(tokens_of_file(path))
            except OmnigraphError as cause:
                self.faults["tokens"] = str(cause)
                self._log.event("tokens_kept", cause=str(cause))
            else:
                self.faults.pop("tokens", None)

    def _reload_trust(self) -> None:
        named = self.settings.oidc_trust
        if named is None:
            return
        try:
            self._gate.trust = trust_of_file(named)
        except OmnigraphError as cause:
            self.faults["oidc_trust"] = str(cause)
            self._log.event("trust_kept", cause=str(cause))
        else:
            self.faults.pop("oidc_trust", None)

    def _reload_policies(self) -> None:
        if not self._policies:
            return
        try:
            self._gate.policies = policies_of(self.settings)
            _keep(self.settings, self._gate.policies)
        except OmnigraphError as cause:
            self.faults["policies"] = str(cause)
            self._log.event("policy_kept", cause=str(cause))
        else:
            self.faults.pop("policies", None)
            self._log.event("policy_reloaded", files=len(self._policies))


def _signature(paths: list[str]) -> _Signature:
    return tuple(map(_stamp, paths))


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
