"""Policy file: YAML of groups, protected branches and rules that allow, checked as a whole.

Invariant: a `PolicyFile` that exists is valid: every rule names a known group, has actions of one
kind, and at most the scope that all its actions take. Unknown members are refused everywhere.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from omnigraph.errors import PolicyInvalid
from omnigraph.light_dataclass import dataclass
from omnigraph.policy.actions import (
    BRANCH_SCOPE,
    SCOPE_KEYS,
    TARGET_SCOPE,
    Action,
    PolicyKind,
    kind_of,
)
from omnigraph.policy.document_members import Members, plain_text, read_document, require_version
from omnigraph.policy.merge_demands import NO_DEMANDS, MergeDemands, read_demands

_FILE = ("version", "groups", "protected_branches", "rules", "required_approvals", "checks")
_RULE = ("id", "allow")
_ALLOW = ("actors", "actions", BRANCH_SCOPE, TARGET_SCOPE)


class BranchScope(StrEnum):
    """The branches that a rule is about."""

    ANY = "any"
    PROTECTED = "protected"
    UNPROTECTED = "unprotected"


@dataclass(frozen=True, slots=True)
class AllowRule:
    """Actions that a group may do. `scope` is about the target branch where the actions say so."""

    id: str
    group: str
    actions: tuple[Action, ...]
    scope: BranchScope = BranchScope.ANY

    @property
    def kind(self) -> PolicyKind:
        """The kind of file it belongs into."""
        return kind_of(self.actions[0])


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """A whole file. `kind` is None where nothing is allowed, which suits either."""

    groups: Mapping[str, tuple[str, ...]]
    protected_branches: tuple[str, ...]
    rules: tuple[AllowRule, ...]
    kind: PolicyKind | None
    merges: MergeDemands = NO_DEMANDS

    @property
    def actors(self) -> frozenset[str]:
        """Every actor that is in a group."""
        return frozenset(actor for actors in self.groups.values() for actor in actors)


def parse_policy(text: str, where: str = "policy", kind: PolicyKind | None = None) -> PolicyFile:
    """A policy from its text, or `PolicyInvalid`. `kind` is the kind that is expected, else it is
    that of the first rule."""
    document = Members.of(read_document(text, where), where, _FILE)
    require_version(document)
    groups = _groups(document)
    protected = tuple(
        plain_text(each, f"{where}.protected_branches[{number}]", "blank_branch")
        for number, each in enumerate(document.items("protected_branches"))
    )
    rules: list[AllowRule] = []
    for number, each in enumerate(document.items("rules")):
        rule = _rule(each, f"{where}.rules[{number}]", groups)
        if any(rule.id == earlier.id for earlier in rules):
            raise PolicyInvalid(
                "duplicate_rule", f"{where}.rules[{number}]", f"rule '{rule.id}' is given twice"
            )
        kind = kind or rule.kind
        if rule.kind is not kind:
            raise PolicyInvalid(
                "wrong_kind",
                f"{where}.rules[{number}]",
                f"action '{rule.actions[0]}' is not for a {kind} policy",
                "graph_list has a file of its own, for the server",
            )
        rules.append(rule)
    merges = read_demands(document)
    if merges:
        kind = kind or PolicyKind.GRAPH
        if kind is not PolicyKind.GRAPH:
            raise PolicyInvalid(
                "wrong_kind", where, "a server has no merges", "write it in the file of a graph"
            )
    return PolicyFile(groups, protected, tuple(rules), kind if rules or merges else None, merges)


def _groups(document: Members) -> dict[str, tuple[str, ...]]:
    where = f"{document.where}.groups"
    given = document.values.get("groups")
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise PolicyInvalid("wrong_type", where, "a mapping is expected")
    groups = {}
    for name, actors in given.items():
        group = plain_text(name, where, "blank_group")
        if not isinstance(actors, list):
            raise PolicyInvalid("wrong_type", f"{where}.{group}", "a list of actors is expected")
        if not actors:
            raise PolicyInvalid("empty_group", f"{where}.{group}", "the group has no actor")
        groups[group] = tuple(
            plain_text(actor, f"{where}.{group}[{number}]", "blank_actor")
            for number, actor in enumerate(actors)
        )
    return groups


def _rule(value: Any, where: str, groups: Mapping[str, object]) -> AllowRule:
    members = Members.of(value, where, _RULE)
    name = members.text("id", "blank_rule")
    allow = Members.of(members.required("allow"), f"{where}.allow", _ALLOW)
    actors = Members.of(allow.required("actors"), f"{where}.allow.actors", ("group",))
    group = actors.text("group", "blank_group")
    if group not in groups:
        known = ", ".join(groups) or "none"
        raise PolicyInvalid(
            "unknown_group", f"{where}.allow", f"unknown group '{group}'", f"there are: {known}"
        )
    actions = tuple(_action(each, allow.where) for each in allow.items("actions"))
    if not actions:
        raise PolicyInvalid("no_actions", allow.where, f"rule '{name}' allows no action")
    if len({kind_of(action) for action in actions}) > 1:
        raise PolicyInvalid(
            "mixed_kinds",
            allow.where,
            f"rule '{name}' mixes actions of the server with those of a graph",
            "write graph_list in a file of its own",
        )
    return AllowRule(name, group, tuple(dict.fromkeys(actions)), _scope(allow, actions))


def _action(value: Any, where: str) -> Action:
    name = plain_text(value, f"{where}.actions", "blank_action")
    try:
        return Action(name)
    except ValueError:
        known = ", ".join(Action)
        raise PolicyInvalid(
            "unknown_action", where, f"'{name}' is no action", f"use {known}"
        ) from None


def _scope(allow: Members, actions: tuple[Action, ...]) -> BranchScope:
    given = [key for key in (BRANCH_SCOPE, TARGET_SCOPE) if allow.values.get(key) is not None]
    if len(given) > 1:
        raise PolicyInvalid(
            "both_scopes", allow.where, "a rule has one scope", "write two rules, one for each"
        )
    if not given:
        return BranchScope.ANY
    key = given[0]
    for action in actions:
        if SCOPE_KEYS.get(action) != key:
            raise PolicyInvalid(
                "scope_not_taken",
                allow.where,
                f"action '{action}' does not take {key}",
                f"it takes {SCOPE_KEYS[action]}" if action in SCOPE_KEYS else "leave it out",
            )
    word = plain_text(allow.values[key], f"{allow.where}.{key}", "blank_scope")
    try:
        return BranchScope(word)
    except ValueError:
        raise PolicyInvalid(
            "unknown_scope", allow.where, f"'{word}' is no scope", f"use {', '.join(BranchScope)}"
        ) from None
