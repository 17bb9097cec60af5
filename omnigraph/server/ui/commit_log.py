"""Commits of every branch in order, kept while no branch moves: a page does not sort a history.

Invariant: what is kept is of the heads that it was made for; heads that moved meanwhile are not
kept. Commits never change, and a commit id is of one commit, so whoever has the same heads has the
same history.
"""

from dataclasses import dataclass

from omnigraph.draw.commit_order import in_order
from omnigraph.lru import Lru
from omnigraph.server.call import RouteCall
from omnigraph.storage.records import Commit

_LOGS_MAX = 8


@dataclass(frozen=True, slots=True)
class CommitLog:
    """The history of a graph: what each commit is called, commits by id, and newest first."""

    names: dict[str, tuple[str, ...]]
    commits: dict[str, Commit]
    order: tuple[Commit, ...]


_KEPT: Lru[tuple[str, frozenset[tuple[str, tuple[str, ...]]]], CommitLog] = Lru(_LOGS_MAX)


def commit_log(call: RouteCall) -> CommitLog:
    """The commits of every live branch."""
    names = call.graph.commits.names()
    key = call.graph_id, frozenset(names.items())
    log = _KEPT.get(key)
    if log is not None:
        return log
    commits: dict[str, Commit] = {
        commit.id: commit for commit in call.graph.commits.list(all_branches=True)
    }
    log = CommitLog(names, commits, tuple(in_order(commits)))
    if call.graph.commits.names() == names:
        _KEPT.put(key, log)
    return log
