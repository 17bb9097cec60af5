"""Points in time of a page: the branch, tag or commit that it shows, and the branches to choose.

Invariant: a page shows one point from its first row to its last.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from omnigraph.errors import OmnigraphError
from omnigraph.graph import Graph
from omnigraph.server.call import RouteCall
from omnigraph.server.ui.ui_forms import required
from omnigraph.storage.names import MAIN
from omnigraph.storage.records import Commit


@dataclass(frozen=True, slots=True)
class ShownPoint:
    """The point that a page shows: as it was asked for, and its commit."""

    text: str
    commit: Commit
    is_branch: bool

    @property
    def branch(self) -> str | None:
        """The branch to write to, if the point is one."""
        return self.text if self.is_branch else None


def shown_point(call: RouteCall) -> ShownPoint:
    """The point that the parameter `point` names; main by default."""
    text = call.one("point") or MAIN
    commit = call.graph.commits.get(text)
    call.facts.update(branch=text)
    return ShownPoint(text, commit, text in call.graph.branches.list())


@contextmanager
def branch_of_form(call: RouteCall, form: Mapping[str, str], point: str = MAIN) -> Iterator[str]:
    """The branch that a form writes to. A new one is made at a point, and is gone again if nothing
    could be written to it."""
    if form.get("branch"):
        yield form["branch"]
        return
    made = call.graph.branches.create(
        required(form, "new_branch", "the branch to write to"), from_=point
    )
    try:
        yield made
    except OmnigraphError:
        with suppress(OmnigraphError):  # the error that ends the block is what must be seen
            call.whole_graph().branches.delete(made)
        raise


def branch_names(graph: Graph) -> list[str]:
    """Every branch, main first."""
    return sorted(graph.branches.list(), key=lambda name: (name != MAIN, name))
