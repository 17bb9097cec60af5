"""Random histories with tags, feed consumers, cleanups and backups against a model of every state.

After each cleanup the commits that the report lists as kept are exactly those that read as the
model says, every tag and every consumer within its lag among them; every backup reads as its source
did, with the source's folder out of the way.
"""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.storage.manifest import manifest
from tests.exec.upkeep.test_upkeep_model import ADD, BRANCHES, DROP, SCHEMA, Rows, rows
from tests.lowered import SEEDS, lowered_by

STEPS = st.one_of(
    st.tuples(st.just("add"), st.sampled_from(BRANCHES), st.integers(0, 9)),
    st.tuples(st.just("add"), st.sampled_from(BRANCHES), st.integers(0, 9)),
    st.tuples(st.just("drop"), st.sampled_from(BRANCHES), st.integers(0, 9)),
    st.tuples(st.just("branch"), st.sampled_from(BRANCHES[1:]), st.integers(0, 9)),
    st.tuples(st.just("delete"), st.sampled_from(BRANCHES[1:]), st.none()),
    st.tuples(st.just("merge"), st.sampled_from(BRANCHES), st.sampled_from(BRANCHES)),
    st.tuples(st.just("tag"), st.sampled_from(["t", "u"]), st.integers(0, 9)),
    st.tuples(st.just("untag"), st.sampled_from(["t", "u"]), st.none()),
    st.tuples(st.just("consumer"), st.sampled_from(BRANCHES), st.integers(1, 4)),
    st.tuples(st.just("ack"), st.sampled_from(BRANCHES), st.none()),
    st.tuples(st.just("optimize"), st.sampled_from(BRANCHES), st.none()),
    st.tuples(st.just("cleanup"), st.just("main"), st.integers(1, 3)),
    st.tuples(st.just("backup"), st.just("main"), st.none()),
)
Step = tuple[str, str, object]


@dataclass
class World:
    """A graph, and every state it ever had by commit."""

    graph: og.Graph
    copy: Path
    states: dict[str, Rows] = field(default_factory=dict)
    count: int = 0

    def note(self, branch: str) -> None:
        self.states[self.graph.snapshot(branch).commit_id] = rows(self.graph, branch)

    def step(self, verb: str, name: str, what: object) -> None:
        graph = self.graph
        branches = graph.branches.list()
        if verb in ("add", "drop", "merge", "optimize", "ack", "consumer") and name not in branches:
            return
        self.count += 1
        try:
            if verb == "add":
                graph.mutate(ADD, {"k": f"k{what}", "n": self.count}, branch=name)
            elif verb == "drop":
                graph.mutate(DROP, {"k": f"k{what}"}, branch=name)
            elif verb == "branch":
                graph.branches.create(name, self.some(what))
            elif verb == "delete":
                graph.branches.delete(name)
                return
            elif verb == "merge" and what in branches and what != name:
                graph.branches.merge(str(what), into=name)
            elif verb == "tag":
                graph.tags.create(name, self.some(what))
            elif verb == "untag":
                graph.tags.delete(name)
            elif verb == "consumer":
                graph.changes.register(f"of-{name}", name, max_lag_commits=int(str(what)))
            elif verb == "ack":
                page = graph.changes.poll(consumer=f"of-{name}")
                graph.changes.ack(f"of-{name}", page.cursor or "")
            elif verb == "optimize":
                graph.optimize(name)
            elif verb == "cleanup":
                self.cleanup(int(str(what)))
            elif verb == "backup":
                self.backup()
        except (og.AlreadyExists, og.NotFound, og.InUse, og.KeyTaken, og.MergeConflicts):
            return
        except og.Reclaimed:
            assert verb in ("ack", "branch", "tag"), verb
            return
        if name in graph.branches.list():
            self.note(name)

    def some(self, number: object) -> str:
        """A commit of the past, or the head of main."""
        commits = self.graph.commits.list(all_branches=True)
        return commits[int(str(number)) % len(commits)].id

    def cleanup(self, keep: int) -> None:
        report = self.graph.cleanup(keep=keep, grace=0, confirm=True)
        assert report.errors == ()
        kept = {each.commit.id for each in report.kept}
        assert {tag.commit_id for tag in self.graph.tags.list()} <= kept
        for consumer in self.graph.changes.consumers():
            if consumer.state == "active":
                assert consumer.acknowledged in kept
                self.graph.changes.poll(consumer=consumer.name)
            elif consumer.state == "lapsed":
                with pytest.raises(og.ConsumerLapsed):
                    self.graph.changes.poll(consumer=consumer.name)
        with og.open(self.graph.uri, read_only=True) as fresh:
            for commit in fresh.commits.list(all_branches=True):
                if commit.id in kept:
                    self.same(fresh, commit.id)
                else:
                    with pytest.raises(og.Reclaimed):
                        rows(fresh, commit=commit.id)

    def same(self, graph: og.Graph, commit: str) -> None:
        seen = rows(graph, commit=commit)
        assert self.states.setdefault(commit, seen) == seen

    def backup(self) -> None:
        self.graph.backup(self.copy, check=False)
        aside = Path(f"{self.graph.uri}.aside")
        Path(self.graph.uri).rename(aside)
        try:
            with og.open(self.copy, read_only=True) as copy:
                assert copy.check().findings == ()
                theirs = {b: rows(copy, b) for b in copy.branches.list()}
                tags = {tag.name: tag.commit_id for tag in copy.tags.list()}
                past = {}
                for commit in copy.commits.list(all_branches=True):
                    try:
                        past[commit.id] = rows(copy, commit=commit.id)
                    except og.Reclaimed:
                        past[commit.id] = None
        finally:
            aside.rename(self.graph.uri)
        assert theirs == {b: rows(self.graph, b) for b in self.graph.branches.list()}
        assert tags == {tag.name: tag.commit_id for tag in self.graph.tags.list()}
        for commit_id, seen in past.items():
            if seen is None:
                with pytest.raises(og.Reclaimed), og.open(self.graph.uri) as fresh:
                    rows(fresh, commit=commit_id)
            else:
                self.same(self.graph, commit_id)
                assert self.states[commit_id] == seen


def check(steps: list[Step], folder: Path) -> None:
    with og.init(folder / "g.omni", SCHEMA, fold=False) as graph:
        world = World(graph, folder / "copy.omni")
        world.note("main")
        for verb, name, what in steps:
            world.step(verb, name, what)
        world.cleanup(1)
        world.backup()
        assert graph.check().findings == ()
    shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody counts versions here, so that cleanup need not wait."""
    monkeypatch.setattr(manifest, "RECLAIM_AGE_S", 0.0)


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEPS, min_size=10, max_size=25), seed=SEEDS)
def test_kept_points_and_backups_read_as_the_model_says(
    steps: list[Step], seed: int | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with lowered_by(seed):
        check(steps, tmp_path_factory.mktemp("model"))


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEPS, min_size=15, max_size=40), seed=SEEDS)
def test_kept_points_and_backups_read_as_the_model_says_often(
    steps: list[Step], seed: int | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with lowered_by(seed):
        check(steps, tmp_path_factory.mktemp("model"))
