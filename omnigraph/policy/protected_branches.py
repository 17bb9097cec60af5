"""Protected branches: names that are matched exactly, and patterns in which `*` is any text.

Invariant: a name without `*` protects the branch of that name and no other. Every other character,
also `?`, `[` and `.`, stands for itself; case counts. `*` goes over slashes, so that `release/*`
protects `release/1` and `release/1/fix`.
"""

import re
from collections.abc import Iterable

_ANY = "*"


class ProtectedBranches:
    """The branches that a file protects."""

    def __init__(self, names: Iterable[str]) -> None:
        every = tuple(names)
        self._exact = frozenset(name for name in every if _ANY not in name)
        patterns = [_expression(name) for name in every if _ANY in name]
        self._patterns = re.compile("|".join(patterns), re.DOTALL) if patterns else None

    def __contains__(self, branch: str) -> bool:
        """Whether a branch is protected."""
        if branch in self._exact:
            return True
        return self._patterns is not None and self._patterns.fullmatch(branch) is not None


def _expression(pattern: str) -> str:
    """A regular expression without a step back over what `*` took, whatever the text."""
    first, *others = (re.escape(part) for part in re.sub(r"\*+", _ANY, pattern).split(_ANY))
    if not others:
        return first
    *middle, last = others
    # Each middle part is taken where it comes first, and never again: linear in the text.
    taken = "".join(f"(?>.*?{part})" for part in middle if part)
    return f"(?:{first}{taken}.*{last})"
