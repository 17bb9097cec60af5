"""How long a policy decision takes, warm and cold, by the number of actors.

    python bench/policy.py [--actors N] [--rules N]

Cold is the first question of its kind: no answer of these groups, action and protection is kept.
Warm is a question whose answer is kept. Both are processor time, which others cannot lengthen.
"""

import argparse
import statistics
import time
from collections.abc import Callable

from omnigraph.policy import Action, Policy

ACTIONS = ("read", "export", "change")


def policy_text(actors: int, groups: int) -> str:
    """A policy whose actors are spread over groups, each with rules of its own."""
    lines = ["version: 1", "groups:"]
    for group in range(groups):
        members = ", ".join(f"act-{n}" for n in range(group, actors, groups))
        lines.append(f"  g{group}: [{members}]")
    lines += ["protected_branches: [main, 'release/*']", "rules:"]
    for group in range(groups):
        for action, scope in zip(ACTIONS, ("any", "protected", "unprotected"), strict=True):
            allow = f"actors: {{group: g{group}}}, actions: [{action}], branch_scope: {scope}"
            lines.append(f"  - {{id: r{group}-{action}, allow: {{{allow}}}}}")
    return "\n".join(lines)


def timed(calls: list[Callable[[], object]]) -> list[float]:
    """Milliseconds of processor time of each call."""
    spent = []
    for call in calls:
        before = time.thread_time()
        call()
        spent.append((time.thread_time() - before) * 1000)
    return spent


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--actors", type=int, default=10_000)
    parser.add_argument("--rules", type=int, default=150)
    given = parser.parse_args()
    groups = max(1, given.rules // len(ACTIONS))
    before = time.process_time()
    policy = Policy.of_text(policy_text(given.actors, groups))
    print(
        f"{given.actors} actors, {groups * 3} rules: read in {time.process_time() - before:.2f} s"
    )
    policy.decide("act-0", Action.BRANCH_MERGE)  # loads the engine

    def asking(actor: int, action: Action, branch: str) -> Callable[[], object]:
        return lambda: policy.decide(f"act-{actor}", action, branch)

    cold = timed(
        [
            asking(actor, Action(action), branch)
            for actor in range(groups)
            for action in ACTIONS
            for branch in ("main", "draft")
        ]
    )
    warm = timed(
        [asking(n % given.actors, Action(ACTIONS[n % 3]), "release/7") for n in range(20_000)]
    )
    for name, spent in (("cold", cold), ("warm", warm[1_000:])):
        at_99 = statistics.quantiles(spent, n=100)[98]
        print(f"{name}: median {statistics.median(spent):.4f} ms, 99 of 100 below {at_99:.4f} ms")


if __name__ == "__main__":
    main()
