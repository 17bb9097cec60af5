"""Random writes, branches, merges and upkeep agree with a model that knows nothing of upkeep."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.errors import Reclaimed
from omnigraph.storage.manifest import manifest
from tests.lowered import SEEDS, lowered_by

SCHEMA = "node Thing { name: String @key  n: I64 }"
ADD = "query add($k: String, $n: I64) { insert Thing { name: $k, n: $n } }"
SET = "query set($k: String, $n: I64) { update Thing set { n: $n } where name = $k }"
DROP = "query drop($k: String) { delete Thing where name = $k }"
ALL = "query all() { match { $t: Thing } return { $t.name, $t.n } }"

BRANCHES = ("main", "a", "b")
STEPS = st.one_of(
    st.tuples(st.just("add"), st.sampled_from(BRANCHES), st.integers(0, 9)),
    st.tuples(st.just("set"), st.sampled_from(BRANCHES), st.integers(0, 9)),
    st.tuples(st.just("drop"), st.sampled_from(BRANCHES), st.integers(0, 9)),
    st.tuples(st.just("branch"), st.sampled_from(BRANCHES[1:]), st.sampled_from(BRANCHES)),
    st.tuples(st.just("delete"), st.sampled_from(BRANCHES[1:]), st.none()),
    st.tuples(st.just("merge"), st.sampled_from(BRANCHES), st.sampled_from(BRANCHES)),
    st.tuples(st.just("optimize"), st.sampled_from(BRANCHES), st.none()),
    st.tuples(st.just("cleanup"), st.just("main"), st.integers(1, 3)),
    st.tuples(st.just("reopen"), st.just("main"), st.none()),
)

Rows = dict[str, int]


def rows(graph: og.Graph, branch: str | None = None, *, commit: str | None = None) -> Rows:
    found = graph.query(ALL, branch=branch, snapshot=commit).rows
    return {row["t.name"]: row["t.n"] for row in found}


@dataclass
class Model:
    """What each branch holds now, and held at each commit."""

    now: dict[str, Rows] = field(default_factory=lambda: {"main": {}})
    then: dict[str, tuple[str, Rows]] = field(default_factory=dict)  # commit: branch, rows
    count: int = 0

    def wrote(self, graph: og.Graph, branch: str) -> None:
        """Take what a merge made of two branches from the graph; all else is computed here."""
        self.then[graph.snapshot(branch).commit_id] = (branch, dict(self.now[branch]))


def step(graph: og.Graph, model: Model, verb: str, where: str, what: object) -> None:
    if where not in model.now and verb != "branch":
        return
    held = model.now.get(where, {})
    key = f"k{what}"
    model.count += 1
    if verb == "add" and key not in held:
        graph.mutate(ADD, {"k": key, "n": model.count}, branch=where)
        held[key] = model.count
    elif verb == "set" and key in held:
        graph.mutate(SET, {"k": key, "n": model.count}, branch=where)
        held[key] = model.count
    elif verb == "drop" and key in held:
        graph.mutate(DROP, {"k": key}, branch=where)
        del held[key]
    elif verb == "branch" and where not in model.now and what in model.now:
        graph.branches.create(where, str(what))
        model.now[where] = dict(model.now[str(what)])
    elif verb == "delete":
        try:
            graph.branches.delete(where)
        except og.InUse:
            return
        del model.now[where]
        model.then = {c: (b, r) for c, (b, r) in model.then.items() if b != where}
        return
    elif verb == "merge" and what in model.now and what != where:
        try:
            graph.branches.merge(str(what), into=where)
        except og.MergeConflicts:
            return
        model.now[where] = rows(graph, where)  # merges have a model of their own
    elif verb == "optimize":
        graph.optimize(where)
    elif verb == "cleanup":
        report = graph.cleanup(keep=int(str(what)), grace=0, confirm=True)
        assert report.errors == ()
    if where in model.now:
        model.wrote(graph, where)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody counts versions here, so that cleanup need not wait."""
    monkeypatch.setattr(manifest, "RECLAIM_AGE_S", 0.0)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEPS, min_size=8, max_size=30), seed=SEEDS)
def test_upkeep_is_seen_by_nobody(
    steps: list[tuple[str, str, object]],
    seed: int | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with lowered_by(seed):
        run(steps, tmp_path_factory.mktemp("model") / "g")


def run(steps: list[tuple[str, str, object]], path: Path) -> None:
    graph = og.init(path, SCHEMA, fold=False)
    model = Model()
    for verb, where, what in steps:
        if verb == "reopen":
            graph.close()
            graph = og.open(path, fold=False)
        else:
            step(graph, model, verb, where, what)
        for branch, held in model.now.items():
            assert rows(graph, branch) == held, (verb, where, branch)
    for commit, (_, held) in model.then.items():
        try:
            seen = rows(graph, commit=commit)
        except Reclaimed:
            continue
        assert seen == held, "a commit that can be read reads as it did"
    assert graph.check().findings == ()
