"""Declared checks of merges: stored reads by name, and the branches whose merges must pass them.

Invariant: shared by every handle of an open graph and replaced as a whole, so a merge that begins
after a change obeys all of it. A check whose query is not stored lets no merge through.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from omnigraph.arguments import checked
from omnigraph.deferred import deferred
from omnigraph.errors import BadRequest

if TYPE_CHECKING:
    from omnigraph.exec.merge.checked_merge import MergeCheck
    from omnigraph.policy.decisions import Policy
    from omnigraph.policy.merge_demands import TargetCheck, check_names
else:
    Policy = deferred("omnigraph.policy.decisions", "Policy")
    TargetCheck = deferred("omnigraph.policy.merge_demands", "TargetCheck")
    check_names = deferred("omnigraph.policy.merge_demands", "check_names")
    MergeCheck = deferred("omnigraph.exec.merge.checked_merge", "MergeCheck")


class MergeRules:
    """The checks of one open graph."""

    def __init__(self) -> None:
        self._declared: tuple[tuple[TargetCheck, ...], Mapping[str, str]] = ((), {})

    def declare(self, checks: Iterable[TargetCheck], queries: Mapping[str, str]) -> None:
        """Demand these checks from now on, in place of those before. `queries` are the texts that
        checks, also those of a policy, are looked for in, by the name of a query."""
        self._declared = tuple(checks), dict(queries)

    def checks(self, target: str, policy: Policy | None) -> tuple[MergeCheck, ...]:
        """The checks of a merge into a branch: those declared here and those of the policy."""
        branch = target.strip()
        declared, queries = self._declared
        demanded = () if policy is None else policy.file.merges.checks_for(branch)
        names = dict.fromkeys((*check_names(declared, branch), *demanded))
        return tuple(MergeCheck(name, _text(queries, name, branch)) for name in names)


def _text(queries: Mapping[str, str], name: str, branch: str) -> str:
    text = queries.get(name)
    if text is None:
        raise BadRequest(
            f"merges into '{branch}' are checked by the query '{name}', which is not stored",
            "store it, or take the check away; nothing was merged",
        )
    return text


class ChecksVerb:
    """Lets an open graph demand checks of merges."""

    _rules: MergeRules

    @checked
    def check_merges(
        self, checks: Iterable[TargetCheck] = (), queries: Mapping[str, str] | None = None
    ) -> None:
        """Demand these checks of merges from now on, through every handle of this open graph.
        `queries` are texts by the name of the query; the checks of a policy are of them too.

        >>> graph.check_merges([])
        """
        demanded = tuple(checks)
        for check in demanded:
            if not isinstance(check, TargetCheck):
                raise BadRequest(f"{check!r:.80} is no check", 'write TargetCheck("main", "name")')
        self._rules.declare(demanded, queries or {})
