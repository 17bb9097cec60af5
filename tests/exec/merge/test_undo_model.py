"""Random histories with reverts and restores give what dictionaries give, and every state that was
is still read."""

from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.costs import COSTS
from omnigraph.graph import Graph
from omnigraph.storage.names import MAIN
from tests.exec.branching import State, copy_of, state
from tests.exec.merge.test_merge_model import EDITS, Edit, applied, commit, effect, three_way
from tests.lowered import SEEDS, lowered_by

PLACE = st.integers(0, 99)
STEPS = st.lists(
    st.one_of(
        EDITS,
        EDITS,
        st.tuples(st.just("revert"), st.sampled_from((MAIN, "b")), PLACE, PLACE),
        st.tuples(st.just("restore"), st.sampled_from((MAIN, "b")), PLACE, PLACE),
    ),
    min_size=4,
    max_size=12,
)
Undone = tuple[str, str, int, int]


@dataclass
class World:
    """A graph, and every state that a commit of it had."""

    graph: Graph
    heads: dict[str, State] = field(default_factory=dict)
    states: dict[str, State] = field(default_factory=dict)
    lines: dict[str, list[str]] = field(default_factory=dict)  # commits of a branch, oldest first

    def note(self, branch: str, now: State) -> None:
        """Remember the head of a branch."""
        head = self.graph.snapshot(branch).commit_id
        self.heads[branch] = self.states[head] = now
        self.lines[branch].append(head)

    def edit(self, step: Edit) -> None:
        changes = effect(step, self.heads[step.branch])
        if changes:
            commit(self.graph, step.branch, changes)
            self.note(step.branch, applied(self.heads[step.branch], changes))

    def revert(self, branch: str, first: int, last: int) -> None:
        """Revert one commit, or those of a range."""
        line = self.lines[branch]
        last = 1 + last % (len(line) - 1) if len(line) > 1 else 0
        if last == 0:
            return
        since = first % last
        base, theirs = self.states[line[last]], self.states[line[since]]
        merged, conflicts = three_way(base, theirs, self.heads[branch])
        words = (line[last],) if since == last - 1 else (line[since], line[last])
        if not conflicts:
            self.check(branch, self.graph.revert(*words, onto=branch), merged)
            return
        with pytest.raises(og.MergeConflicts) as refused:
            self.graph.revert(*words, onto=branch)
        seen = {(c.type_name, c.entity_id, c.kind) for c in refused.value.conflicts}
        assert seen == conflicts

    def restore(self, branch: str, of: int, which: int) -> None:
        """Restore everything to any commit of any branch."""
        points = sorted(self.states)
        point = points[which % len(points)]
        self.check(branch, self.graph.restore(point, branch=branch), self.states[point])

    def check(self, branch: str, done: og.UndoOutcome, expected: State) -> None:
        before = self.heads[branch]
        assert (done.commit is None) == (expected == before)
        assert {(c.type, c.id) for c in done.changes} == {
            key for key in before.keys() | expected.keys() if before.get(key) != expected.get(key)
        }
        assert state(self.graph, branch) == expected
        if done.commit is not None:
            self.note(branch, expected)


@pytest.fixture(scope="module")
def template(small_template: Path) -> Path:
    return small_template


@settings(max_examples=15, deadline=None)
@given(first=st.lists(EDITS, max_size=4), steps=STEPS, seed=SEEDS)
def test_reverts_and_restores_do_what_dictionaries_do(
    template: Path, first: list[Edit], steps: list[Edit | Undone], seed: int | None
) -> None:
    patched = pytest.MonkeyPatch.context()
    with lowered_by(seed), TemporaryDirectory() as folder, patched as patch:
        patch.setattr(COSTS, "fold_fragments_min", 5)
        world = World(copy_of(template, Path(folder) / "g"), {MAIN: {}}, {}, {MAIN: []})
        world.note(MAIN, {})
        for step in first:
            if step.branch == MAIN:
                world.edit(step)
        world.graph.branches.create("b")
        world.lines["b"] = list(world.lines[MAIN])
        world.heads["b"] = world.heads[MAIN]
        for each in steps:
            if isinstance(each, Edit):
                world.edit(each)
            elif each[0] == "revert":
                world.revert(*each[1:])
            else:
                world.restore(*each[1:])
        for commit_id, then in world.states.items():
            assert state(world.graph, commit=commit_id) == then
        assert world.graph.check().findings == ()
