"""Actions of a policy: their names, the kind of file that may grant them, and the branch they ask.

Invariant: closed. An action that is not here exists nowhere, neither in a file nor at a route.
"""

from enum import StrEnum

from omnigraph.errors import BadRequest


class Action(StrEnum):
    """What an actor may be allowed to do."""

    READ = "read"
    EXPORT = "export"
    CHANGE = "change"
    SCHEMA_APPLY = "schema_apply"
    BRANCH_CREATE = "branch_create"
    BRANCH_DELETE = "branch_delete"
    BRANCH_MERGE = "branch_merge"
    REVIEW = "review"
    INVOKE_QUERY = "invoke_query"
    ADMIN = "admin"
    GRAPH_LIST = "graph_list"


class PolicyKind(StrEnum):
    """What a file is about: one graph, or the server as a whole."""

    GRAPH = "graph"
    SERVER = "server"


BRANCH_SCOPE, TARGET_SCOPE = "branch_scope", "target_branch_scope"

SCOPE_KEYS: dict[Action, str] = {
    Action.READ: BRANCH_SCOPE,
    Action.EXPORT: BRANCH_SCOPE,
    Action.CHANGE: BRANCH_SCOPE,
    Action.SCHEMA_APPLY: TARGET_SCOPE,
    Action.BRANCH_CREATE: TARGET_SCOPE,
    Action.BRANCH_DELETE: TARGET_SCOPE,
    Action.BRANCH_MERGE: TARGET_SCOPE,
    Action.REVIEW: TARGET_SCOPE,
}
"""The scope that a rule about an action may have; those that are missing take none."""


def kind_of(action: Action) -> PolicyKind:
    """The kind of file that may grant an action."""
    return PolicyKind.SERVER if action is Action.GRAPH_LIST else PolicyKind.GRAPH


def action_of(name: str) -> Action:
    """The action of a name, spelled `branch_merge` or `branch-merge`, or `BadRequest`."""
    try:
        return Action(name.replace("-", "_"))
    except ValueError:
        raise BadRequest(f"'{name}' is no action", f"use {', '.join(Action)}") from None
