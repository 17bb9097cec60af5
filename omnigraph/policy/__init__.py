"""Policy: may this actor do this action, on this branch?

Importing the room loads the names of actions alone: most graphs have no policy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from omnigraph.policy.actions import Action, PolicyKind, action_of

if TYPE_CHECKING:
    from omnigraph.policy.decisions import Policy, PolicyDecision
    from omnigraph.policy.merge_demands import TargetCheck
    from omnigraph.policy.policy_file import PolicyFile, parse_policy

__all__ = [
    "Action",
    "Policy",
    "PolicyDecision",
    "PolicyFile",
    "PolicyKind",
    "TargetCheck",
    "action_of",
    "parse_policy",
]

_LOADED_LATER = {
    "Policy": "decisions",
    "PolicyDecision": "decisions",
    "PolicyFile": "policy_file",
    "TargetCheck": "merge_demands",
    "parse_policy": "policy_file",
}


def __getattr__(name: str) -> Any:
    """Names that need more than the names of actions, imported on first use."""
    home = _LOADED_LATER.get(name)
    if home is None:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(import_module(f"{__name__}.{home}"), name)
