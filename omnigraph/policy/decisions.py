"""Policy decisions: allow or deny, the rule that allowed, and the words of a denial; cached.

Invariant: nothing is allowed unless a rule allows it. What is asked of Cedar depends only on the
groups of the actor, the action, and whether each branch is there and protected, so an answer is
kept under those and holds for every actor and branch that share them.
"""

import os
from collections import defaultdict
from hashlib import sha256
from pathlib import Path

from omnigraph.costs import COSTS
from omnigraph.errors import Forbidden, PolicyInvalid
from omnigraph.light_dataclass import dataclass
from omnigraph.lru import Lru
from omnigraph.policy.actions import Action, PolicyKind
from omnigraph.policy.cedar import CedarRequest, CedarRules
from omnigraph.policy.policy_file import PolicyFile, parse_policy
from omnigraph.policy.protected_branches import ProtectedBranches

_Key = tuple[tuple[str, ...], Action, bool, bool, bool, bool]


@dataclass(frozen=True, slots=True)
class PolicyDecision:
    """The answer to one question. `matched_rule` is the smallest id that allowed it."""

    actor: str | None
    action: Action
    branch: str | None
    target_branch: str | None
    matched_rule: str | None
    is_known: bool = True  # whether the actor is in a group

    @property
    def allowed(self) -> bool:
        return self.matched_rule is not None

    @property
    def denial(self) -> Forbidden:
        """The error of a denied request."""
        if self.actor is not None and not self.is_known:
            return Forbidden(self.action, self.actor, is_known=False)
        return Forbidden(self.action, self.actor, self.branch, self.target_branch)

    def require(self) -> None:
        """Pass if it is allowed, else raise `Forbidden`."""
        if not self.allowed:
            raise self.denial


class Policy:
    """Decides by the rules of one file. Safe to share between threads.

    >>> policy = og.Policy  # read from a file: og.open("people.omni", policy="policy.yaml")
    """

    def __init__(self, file: PolicyFile, graph_id: str = "graph", text: str = "") -> None:
        self.file = file
        self.text = text  # as it was read
        self.protected = ProtectedBranches(file.protected_branches)
        members: defaultdict[str, list[str]] = defaultdict(list)
        for group, actors in file.groups.items():
            for actor in dict.fromkeys(actors):
                members[actor].append(group)
        self._groups = {actor: tuple(sorted(groups)) for actor, groups in members.items()}
        self._cedar = CedarRules(file, graph_id)
        self._kept: Lru[_Key, str | None] = Lru(COSTS.decisions_max)
        self._granted = {(rule.group, action) for rule in file.rules for action in rule.actions}

    @classmethod
    def of_text(cls, text: str, where: str = "policy", kind: PolicyKind | None = None) -> "Policy":
        """A policy from the text of a file."""
        return cls(parse_policy(text, where, kind), text=text)

    @classmethod
    def of_file(cls, path: str | os.PathLike[str], kind: PolicyKind | None = None) -> "Policy":
        """A policy from a file, or `PolicyInvalid`."""
        return cls.of_text(policy_file_text(path), f"{os.fspath(path)}", kind)

    @property
    def digest(self) -> str:
        """The SHA-256 digest of its text."""
        return sha256(self.text.encode()).hexdigest()

    def decide(
        self,
        actor: str | None,
        action: Action,
        branch: str | None = None,
        target_branch: str | None = None,
    ) -> PolicyDecision:
        """Whether an actor may do an action. A branch that is None is absent from the request."""
        groups = () if actor is None else self._groups.get(actor, ())
        if actor is None or not groups:
            return PolicyDecision(actor, action, branch, target_branch, None, is_known=False)
        is_protected = branch is not None and branch in self.protected
        is_target_protected = target_branch is not None and target_branch in self.protected
        key = (
            groups,
            action,
            branch is not None,
            is_protected,
            target_branch is not None,
            is_target_protected,
        )
        rule = self._kept.get(key, "")
        if rule == "":
            request = CedarRequest(
                actor, groups, action, branch, target_branch, is_protected, is_target_protected
            )
            rule = min(self._cedar.allowing(request), default=None)
            self._kept.put(key, rule)
        return PolicyDecision(actor, action, branch, target_branch, rule)

    def may_ever(self, actor: str | None, action: Action) -> bool:
        """Whether an actor may do an action on any branch at all."""
        groups = () if actor is None else self._groups.get(actor, ())
        return any((group, action) in self._granted for group in groups)


def policy_file_text(path: str | os.PathLike[str]) -> str:
    """The text of a policy file, or `PolicyInvalid`."""
    where = os.fspath(path)
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise PolicyInvalid("unreadable", where, "it is not UTF-8 text") from None
    except OSError as cause:
        reason = cause.strerror or str(cause)
        raise PolicyInvalid("unreadable", where, f"it cannot be read: {reason}") from None
    except ValueError as cause:  # no path at all: a NUL, half a surrogate pair
        raise PolicyInvalid("unreadable", repr(where), f"it cannot be read: {cause}") from None
