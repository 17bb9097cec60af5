"""Policy: may this actor do this action, on this branch?"""

from omnigraph.policy.actions import Action, PolicyKind, action_of
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
