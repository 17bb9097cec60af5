"""The definition of a policy decision, in plain Python: the three steps and nothing else."""

from dataclasses import dataclass, field


@dataclass
class PlainRule:
    """A rule as it is written."""

    id: str
    group: str
    actions: list[str]
    branch_scope: str | None = None
    target_branch_scope: str | None = None


@dataclass
class PlainPolicy:
    """A file as it is written."""

    groups: dict[str, list[str]]
    protected: list[str]
    rules: list[PlainRule]
    asked: dict[str, object] = field(default_factory=dict)


TARGETING = {"schema_apply", "branch_create", "branch_delete", "branch_merge"}


def is_protected(policy: PlainPolicy, branch: str) -> bool:
    """Plain names exactly; in a pattern `*` is any text, tried at every split."""
    return any(_matches(pattern, branch) for pattern in policy.protected)


def _matches(pattern: str, text: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "*":
        return any(_matches(pattern[1:], text[cut:]) for cut in range(len(text) + 1))
    return bool(text) and text[0] == pattern[0] and _matches(pattern[1:], text[1:])


def decided(
    policy: PlainPolicy, actor: str, action: str, branch: str | None, target: str | None
) -> tuple[str | None, str]:
    """The rule that allows, if one does, and the words of a denial."""
    groups = {name for name, actors in policy.groups.items() if actor in actors}
    if not groups:
        return None, f"policy denied action '{action}' for unknown actor '{actor}'"
    relevant = target if action in TARGETING else branch
    allowing = []
    for rule in policy.rules:
        scope = rule.branch_scope or rule.target_branch_scope or "any"
        if action not in rule.actions or rule.group not in groups:
            continue
        if scope == "any" or (
            relevant is not None and is_protected(policy, relevant) == (scope == "protected")
        ):
            allowing.append(rule.id)
    text = f"policy denied action '{action}'"
    if branch:
        text += f" on branch '{branch}'"
    if target:
        text += f" targeting branch '{target}'"
    return min(allowing, default=None), f"{text} for actor '{actor}'"
