"""Policy tests: cases of a YAML file, each with the decision that is expected.

Invariant: every case is decided, whatever the others gave, and a failure names its case.
"""

from dataclasses import dataclass
from typing import Any

from omnigraph.errors import PolicyInvalid
from omnigraph.policy.actions import Action
from omnigraph.policy.decisions import Policy
from omnigraph.policy.document_members import Members, plain_text, read_document, require_version

_CASE = ("id", "actor", "action", "branch", "target_branch", "expect")
_EXPECTED = {"allow": True, "deny": False}


@dataclass(frozen=True, slots=True)
class PolicyCase:
    """A question and its expected answer."""

    id: str
    actor: str
    action: Action
    branch: str | None
    target_branch: str | None
    allow: bool

    def failure(self, policy: Policy) -> str | None:
        """What is wrong with the decision of a policy, if anything is."""
        decision = policy.decide(self.actor, self.action, self.branch, self.target_branch)
        if decision.allowed is self.allow:
            return None
        actual = "allow" if decision.allowed else "deny"
        return f"{self.id}: expected {'Allow' if self.allow else 'Deny'} but got {actual}"


def parse_cases(text: str, where: str = "tests") -> tuple[PolicyCase, ...]:
    """The cases of a text, or `PolicyInvalid`."""
    document = Members.of(read_document(text, where), where, ("version", "cases"))
    require_version(document)
    cases: dict[str, PolicyCase] = {}
    for number, each in enumerate(document.items("cases")):
        case = _case(each, f"{where}.cases[{number}]")
        if case.id in cases:
            raise PolicyInvalid(
                "duplicate_case", f"{where}.cases[{number}]", f"case '{case.id}' is given twice"
            )
        cases[case.id] = case
    return tuple(cases.values())


def _case(value: Any, where: str) -> PolicyCase:
    members = Members.of(value, where, _CASE)
    name = members.text("action", "blank_action").replace("-", "_")
    if name not in set(Action):
        raise PolicyInvalid(
            "unknown_action", where, f"'{name}' is no action", f"use {', '.join(Action)}"
        )
    expected = plain_text(members.required("expect"), f"{where}.expect", "blank_expect")
    if expected not in _EXPECTED:
        raise PolicyInvalid(
            "unknown_expect", where, f"'{expected}' is no decision", "allow or deny"
        )
    return PolicyCase(
        members.text("id", "blank_case"),
        members.text("actor", "blank_actor"),
        Action(name),
        members.optional_text("branch"),
        members.optional_text("target_branch"),
        _EXPECTED[expected],
    )
