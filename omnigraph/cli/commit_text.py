"""Commit log for people: when, who, which rows, why, and the names that lead there.

Invariant: no word of the storage. The short id of a commit is a beginning that no other commit of
the listing shares, so it can be given back as a point in time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from omnigraph.cli.terminal import painted

if TYPE_CHECKING:
    from omnigraph.storage.records import Commit

Names = Mapping[str, Sequence[str]]
"""Branches and tags by the id of the commit they lead to."""

_SHORT_CHARS = 10
_WHO_CHARS_MAX = 24
_NOBODY = "-"


def commit_lines(commits: Sequence[Commit], names: Names) -> Iterator[str]:
    """A line a commit, columns below each other."""
    short = short_chars(commits)
    who_chars = min(max((len(_who(commit)) for commit in commits), default=0), _WHO_CHARS_MAX)
    for commit in commits:
        yield commit_line(commit, names.get(commit.id, ()), short, who_chars)


def commit_line(
    commit: Commit,
    names: Sequence[str],
    short: int,
    who_chars: int = 0,
) -> str:
    """One commit on one line: short id, when, who, names, rows, and the message's first line."""
    label = painted(f"({', '.join(names)})", "green") if names else ""
    said = (commit.message or "").partition("\n")[0]
    columns = (
        painted(commit.id[:short], "yellow"),
        commit.when,
        f"{_who(commit):{who_chars}}",
        label,
        commit.changed,
        said,
    )
    return "  ".join(filter(None, columns)).rstrip()


def described(commit: Commit, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """One commit as titles and texts."""
    yield "commit", commit.id
    if names:
        yield "names", ", ".join(names)
    yield "when", commit.when
    if commit.actor is not None:
        yield "who", commit.actor
    if commit.counts or commit.merged_from is not None:
        yield "what", replace(commit, schema_steps=()).changed
    for step in commit.schema_steps:
        yield "schema", str(step)
    if commit.parent is not None:
        yield "parent", commit.parent
    if commit.merged_parent is not None:
        of = "" if commit.merged_from is None else f" of {commit.merged_from[0]}"
        yield "merged", f"{commit.merged_parent}{of}"
    if commit.message is not None:
        yield "message", commit.message
    for key, text in commit.metadata.items():
        yield f"meta {key}", text


def short_chars(commits: Iterable[Commit]) -> int:
    """How much of an id tells these commits apart."""
    ids = sorted(commit.id for commit in commits)
    return max((_needed_chars(*pair) for pair in pairwise(ids)), default=_SHORT_CHARS)


def _needed_chars(one: str, other: str) -> int:
    chars = _SHORT_CHARS
    while one[:chars] == other[:chars] and chars < len(one):
        chars += 1
    return chars


def _who(commit: Commit) -> str:
    return commit.actor or _NOBODY
