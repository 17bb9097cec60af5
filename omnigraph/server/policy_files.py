"""Policy and tokens files of a server: read at the start, and again when they change (live reload).

Invariant: what is in force changes as a whole or not at all. A file that cannot be used leaves what
was in force before, and says so once; it never leaves a graph without a policy that had one.
"""

import os

from omnigraph.errors import OmnigraphError
from omnigraph.policy import Policy, PolicyKind
from omnigraph.server.access import Gate, ServedPolicies
from omnigraph.server.bearer import tokens_of_file
from omnigraph.server.request_log import RequestLog
from omnigraph.server.serve_settings import ServerSettings

_Signature = tuple[tuple[int, int, int] | None, ...]


def policies_of(settings: ServerSettings) -> ServedPolicies:
    """The policies that the settings name, or `PolicyInvalid`. Graphs of one file share one."""
    paths = dict.fromkeys(settings.policies.values())
    read = {path: Policy.of_file(path, PolicyKind.GRAPH) for path in paths}
    named = settings.server_policy
    return ServedPolicies(
        {graph_id: read[path] for graph_id, path in settings.policies.items()},
        None if named is None else Policy.of_file(named, PolicyKind.SERVER),
    )


class ReloadedFiles:
    """Takes over changes of the tokens file and of policy files."""

    def __init__(self, settings: ServerSettings, gate: Gate, log: RequestLog) -> None:
        self._settings = settings
        self._gate = gate
        self._log = log
        self._tokens = [settings.tokens_file] if settings.tokens_file is not None else []
        named = () if settings.server_policy is None else (settings.server_policy,)
        self._policies = [*dict.fromkeys((*settings.policies.values(), *named))]
        self._seen = _signature(self._tokens), _signature(self._policies)

    def look(self) -> None:
        """Reload what has changed since the last look."""
        tokens, policies = _signature(self._tokens), _signature(self._policies)
        seen, self._seen = self._seen, (tokens, policies)
        if tokens != seen[0]:
            self._reload_tokens()
        if policies != seen[1]:
            self._reload_policies()

    def reload(self) -> None:
        """Reload everything, as SIGHUP asks."""
        self._seen = _signature(self._tokens), _signature(self._policies)
        self._reload_tokens()
        self._reload_policies()

    def _reload_tokens(self) -> None:
        for path in self._tokens:
            try:
                self._gate.tokens.replace(tokens_of_file(path))
            except OmnigraphError as cause:
                self._log.event("tokens_kept", cause=str(cause))

    def _reload_policies(self) -> None:
        if not self._policies:
            return
        try:
            self._gate.policies = policies_of(self._settings)
        except OmnigraphError as cause:
            self._log.event("policy_kept", cause=str(cause))
        else:
            self._log.event("policy_reloaded", files=len(self._policies))


def _signature(paths: list[str]) -> _Signature:
    return tuple(map(_stamp, paths))


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
