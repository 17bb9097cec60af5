"""Policy file of a bundle: whether it can be used for the scopes it is bound to.

Invariant: a fault is one line for a person; None is a file that a server can enforce.
"""

from collections.abc import Mapping

from omnigraph.cluster.yaml_mapping import DuplicateKey, strict_yaml


def policy_fault(content: bytes, kind: str) -> str | None:
    """Why a policy cannot be bound to graphs (`graph`) or to the cluster (`server`), or None."""
    try:
        document = strict_yaml(content.decode())
    except UnicodeDecodeError:
        return "it is not UTF-8"
    except (DuplicateKey, ValueError) as cause:
        return str(cause)
    if not isinstance(document, Mapping):
        return "it is no mapping"
    version = document.get("version")
    if isinstance(version, bool) or version != 1:
        return "version must be 1"
    actions = _actions(document)
    if actions is None:
        return "its rules are no list of {id, allow: {actors, actions}}"
    is_server = {action == "graph_list" for action in actions}
    if kind == "server" and False in is_server:
        return "a policy of the cluster may allow graph_list alone"
    if kind == "graph" and True in is_server:
        return "graph_list belongs in a policy of the cluster"
    return None


def _actions(document: Mapping[object, object]) -> list[str] | None:
    rules = document.get("rules") or []
    if not isinstance(rules, list):
        return None
    actions: list[str] = []
    for rule in rules:
        allowed = rule.get("allow") if isinstance(rule, Mapping) else None
        named = allowed.get("actions") if isinstance(allowed, Mapping) else None
        if not isinstance(named, list) or not all(isinstance(each, str) for each in named):
            return None
        actions += named
    return actions
