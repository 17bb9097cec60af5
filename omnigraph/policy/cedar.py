"""Cedar evaluator (`cedarpy`): rules as `permit` policies, a request as principal, action, context.

    Omnigraph::Actor in [Omnigraph::Group]    Omnigraph::Graph::"<id>"    Omnigraph::Server::"root"

One `permit` stands for one action of one rule. The policies of an action are parsed once; a request
brings its own actor with the groups it is in, so no entity is read that it does not need.

Invariant: the answer is that of the three steps of the policy's definition, which the tests state
in plain Python and hold equal (`test_cedar_decides_as_the_definition`).
"""

import re
from collections.abc import Iterable
from typing import Any

from omnigraph.errors import NotInstalled
from omnigraph.light_dataclass import dataclass
from omnigraph.policy.actions import SCOPE_KEYS, TARGET_SCOPE, Action
from omnigraph.policy.policy_file import AllowRule, BranchScope, PolicyFile

_NAMESPACE = "Omnigraph"
_ORDINARY = re.compile(r"[A-Za-z0-9 _./:@-]")


@dataclass(frozen=True, slots=True)
class CedarRequest:
    """One question. A branch that is None is absent from the request."""

    actor: str
    groups: tuple[str, ...]
    action: Action
    branch: str | None
    target_branch: str | None
    branch_is_protected: bool
    target_is_protected: bool


class CedarRules:
    """The rules of one file, as Cedar has them."""

    def __init__(self, file: PolicyFile, graph_id: str) -> None:
        self._cedar = _cedarpy()
        self._resource = _uid("Graph", graph_id)
        self._rules = file.rules
        self._policies = {
            action: self._cedar.PolicySet.from_str(policy_text(file.rules, action))
            for action in {action for rule in file.rules for action in rule.actions}
        }
        # The first question of a process makes parts of the engine: it is nobody's.
        self.allowing(CedarRequest("", (), Action.READ, None, None, False, False))

    def allowing(self, request: CedarRequest) -> list[str]:
        """The ids of the rules that allow a request."""
        policies = self._policies.get(request.action)
        if policies is None:
            return []
        result = self._cedar.is_authorized(
            {
                "principal": _uid("Actor", request.actor),
                "action": _uid("Action", request.action),
                "resource": _SERVER if request.action is Action.GRAPH_LIST else self._resource,
                "context": _context(request),
            },
            policies,
            [
                {
                    "uid": _uid("Actor", request.actor),
                    "attrs": {},
                    "parents": [_uid("Group", group) for group in request.groups],
                }
            ],
        )
        if not result.allowed:
            return []
        numbers = result.diagnostics.id_annotations_by_reason.values()
        return [self._rules[int(number)].id for number in numbers]


def policy_text(rules: Iterable[AllowRule], action: Action) -> str:
    """The policies of one action in Cedar's language. `@id` is the number of the rule."""
    return "".join(
        f'@id("{number}")\n'
        f"permit(\n"
        f'  principal in {_NAMESPACE}::Group::"{_escaped(rule.group)}",\n'
        f'  action == {_NAMESPACE}::Action::"{action}",\n'
        f"  resource\n"
        f"){_condition(rule.scope, action)};\n"
        for number, rule in enumerate(rules)
        if action in rule.actions
    )


def _condition(scope: BranchScope, action: Action) -> str:
    word = "target_branch" if SCOPE_KEYS.get(action) == TARGET_SCOPE else "branch"
    match scope:
        case BranchScope.ANY:
            return ""
        case BranchScope.PROTECTED:
            return f" when {{ context.has_{word} && context.{word}_is_protected }}"
        case BranchScope.UNPROTECTED:
            return f" when {{ context.has_{word} && !context.{word}_is_protected }}"


def _context(request: CedarRequest) -> dict[str, Any]:
    return {
        "has_branch": request.branch is not None,
        "branch": request.branch or "",
        "has_target_branch": request.target_branch is not None,
        "target_branch": request.target_branch or "",
        "branch_is_protected": request.branch_is_protected,
        "target_branch_is_protected": request.target_is_protected,
    }


def _uid(kind: str, name: str) -> dict[str, str]:
    return {"type": f"{_NAMESPACE}::{kind}", "id": str(name)}


_SERVER = _uid("Server", "root")


def _escaped(name: str) -> str:
    """A name inside Cedar's quotes, whatever it holds."""
    return "".join(char if _ORDINARY.fullmatch(char) else f"\\u{{{ord(char):x}}}" for char in name)


def _cedarpy() -> Any:
    try:
        import cedarpy  # noqa: PLC0415  a process without a policy loads no engine
    except ImportError:
        raise NotInstalled("policies", "import cedarpy", "pip install cedarpy") from None
    return cedarpy
