"""Demands of a policy on merges: approvals of a review, and checks of the merged graph, by target.

    required_approvals: { main: 2, "release/*": 1 }
    checks: [{ target: main, query: no_orphans }]

Invariant: a target is a branch's name, or a pattern in which `*` is any text. Where several match,
the greatest number of approvals is needed, and every check.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from omnigraph.errors import PolicyInvalid
from omnigraph.light_dataclass import dataclass
from omnigraph.policy.document_members import Members, plain_text
from omnigraph.policy.protected_branches import ProtectedBranches

_APPROVALS_MAX = 100


@dataclass(frozen=True, slots=True)
class TargetCheck:
    """A stored read that must give no rows on what a merge into a branch would publish.

    >>> og.TargetCheck("main", "no_orphans").target
    'main'
    """

    target: str
    query: str


@dataclass(frozen=True, slots=True)
class MergeDemands:
    """What a merge into a branch needs."""

    approvals: tuple[tuple[str, int], ...] = ()
    checks: tuple[TargetCheck, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.approvals or self.checks)

    def approvals_for(self, target: str) -> int:
        """How many approvals a merge into a branch needs."""
        counts = (count for name, count in self.approvals if target in ProtectedBranches([name]))
        return max(counts, default=0)

    def checks_for(self, target: str) -> tuple[str, ...]:
        """The names of the checks of a merge into a branch, each once."""
        return check_names(self.checks, target)


NO_DEMANDS = MergeDemands()


def check_names(checks: Iterable[TargetCheck], target: str) -> tuple[str, ...]:
    """The names of those checks that are for a branch, each once."""
    names = (each.query for each in checks if target in ProtectedBranches([each.target]))
    return tuple(dict.fromkeys(names))


def read_demands(document: Members) -> MergeDemands:
    """The demands of a policy file."""
    return MergeDemands(_approvals(document), read_checks(document))


def read_checks(document: Members) -> tuple[TargetCheck, ...]:
    """The member `checks` of a document."""
    return tuple(
        _check(each, f"{document.where}.checks[{number}]")
        for number, each in enumerate(document.items("checks"))
    )


def _check(value: Any, where: str) -> TargetCheck:
    members = Members.of(value, where, ("target", "query"))
    return TargetCheck(members.text("target", "blank_branch"), members.text("query", "blank_query"))


def _approvals(document: Members) -> tuple[tuple[str, int], ...]:
    where = f"{document.where}.required_approvals"
    given = document.values.get("required_approvals")
    if given is None:
        return ()
    if not isinstance(given, Mapping):
        raise PolicyInvalid("wrong_type", where, "a mapping is expected", "write `main: 1`")
    return tuple((_target(name, where), _count(count, where)) for name, count in given.items())


def _target(name: Any, where: str) -> str:
    return plain_text(name, where, "blank_branch")


def _count(count: Any, where: str) -> int:
    if type(count) is not int or not 0 < count <= _APPROVALS_MAX:
        raise PolicyInvalid(
            "wrong_count",
            where,
            f"{count!r} is no number of approvals",
            f"write a whole number from 1 to {_APPROVALS_MAX}",
        )
    return count
