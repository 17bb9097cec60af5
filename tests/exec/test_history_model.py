"""Random histories agree with a model that keeps every state.

Writes, branches from any point, tags, merges, reverts, restores, schema changes on main and on
branches, upkeep and cleanup: after each step every branch and every tag reads as the model says,
and at the end every commit that was not cleaned up.
"""

import io
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.errors import OmnigraphError, Reclaimed
from omnigraph.storage.manifest import manifest
from tests.lowered import SEEDS, lowered_by

MAIN = "main"
EXTRAS = ("x1", "x2", "x3")
ADD = "query add($n: String, $a: I32?) { insert Person { name: $n, age: $a } }"
DROP = "query drop($n: String) { delete Person where name = $n }"
LINK = "query link($a: String, $b: String) { insert Knows { from: $a, to: $b } }"
UNLINK = "query unlink($a: String) { delete Knows where from = $a }"

Key = tuple[str, str]
Row = dict[str, Any]
State = dict[Key, Row]


def schema(extras: frozenset[str]) -> str:
    """The schema with some of the later properties."""
    more = "".join(f"    {name}: I32?\n" for name in sorted(extras))
    return (
        f"node Person {{\n    name: String @key\n    age: I32?\n{more}}}\n\n"
        "edge Knows: Person -> Person @key(src, dst)\n"
    )


# ---- steps

BRANCHES = (MAIN, "a", "b")
NAMES = st.sampled_from(("p1", "p2", "p3", "p4"))
BRANCH = st.sampled_from(BRANCHES)
NUMBER = st.integers(0, 999)

STEPS = st.one_of(
    st.tuples(st.just("put"), BRANCH, NAMES, st.integers(0, 3)),
    st.tuples(st.just("put"), BRANCH, NAMES, st.integers(0, 3)),
    st.tuples(st.just("set"), BRANCH, NAMES, st.integers(0, 3)),
    st.tuples(st.just("drop"), BRANCH, NAMES, st.none()),
    st.tuples(st.just("link"), BRANCH, NAMES, NAMES),
    st.tuples(st.just("unlink"), BRANCH, NAMES, st.none()),
    st.tuples(st.just("branch"), st.sampled_from(BRANCHES[1:]), NUMBER, st.none()),
    st.tuples(st.just("delete"), st.sampled_from(BRANCHES[1:]), st.none(), st.none()),
    st.tuples(st.just("tag"), st.sampled_from(("v1", "v2")), NUMBER, st.none()),
    st.tuples(st.just("untag"), st.sampled_from(("v1", "v2")), st.none(), st.none()),
    st.tuples(st.just("merge"), BRANCH, BRANCH, st.sampled_from((None, "ours", "theirs"))),
    st.tuples(st.just("revert"), BRANCH, NUMBER, st.none()),
    st.tuples(st.just("revert"), BRANCH, NUMBER, st.none()),
    st.tuples(st.just("restore"), BRANCH, NUMBER, st.none()),
    st.tuples(st.just("schema"), BRANCH, st.sampled_from(EXTRAS), st.none()),
    st.tuples(st.just("optimize"), BRANCH, st.none(), st.none()),
    st.tuples(st.just("cleanup"), st.just(MAIN), st.integers(1, 3), st.none()),
    st.tuples(st.just("reopen"), st.just(MAIN), st.none(), st.none()),
)
Step = tuple[str, str, Any, Any]


# ---- what a graph shows


def seen(graph: og.Graph, point: str) -> State:
    """Everything at a point, by type and id, without the nulls."""
    out = io.BytesIO()
    graph.export(out, branch=point)
    rows: State = {}
    for line in out.getvalue().splitlines():
        record = orjson.loads(line)
        if "edge" in record:
            key, row = ("Knows", f"{record['from']}>{record['to']}"), {}
        else:
            row = {name: v for name, v in record["data"].items() if v is not None and name != "id"}
            key = ("Person", row["name"])
        assert key not in rows, f"{key} is there twice"
        rows[key] = row
    return rows


# ---- the model


@dataclass
class Point:
    """One commit: what it holds, under which schema, and what it was made from."""

    id: str
    rows: State
    extras: frozenset[str]
    parents: tuple[str, ...]
    branch: str


@dataclass
class Model:
    """Every commit there ever was, what names it, and what cleanup may have taken."""

    commits: dict[str, Point]
    heads: dict[str, str]
    tags: dict[str, str] = field(default_factory=dict)
    starts: dict[str, str] = field(default_factory=dict)  # by branch, where it forks off
    is_cleaned: bool = False

    def head(self, branch: str) -> Point:
        return self.commits[self.heads[branch]]

    def nth(self, number: int) -> Point:
        """One of the commits, the newest more often."""
        points = list(self.commits.values())
        return points[-1 - number % len(points)]

    def name(self, point: Point, number: int) -> str:
        """One of the names of a commit."""
        names = [point.id, point.id[:20], f"{point.id}~0"]
        names += [
            name for name, id_ in (*self.heads.items(), *self.tags.items()) if id_ == point.id
        ]
        return names[number % len(names)]

    def ancestors(self, id_: str) -> dict[str, None]:
        reached, waiting = dict[str, None](), [id_]
        while waiting:
            each = waiting.pop()
            if each not in reached:
                reached[each] = None
                waiting += self.commits[each].parents if each in self.commits else ()
        return reached

    def bases(self, ours: str, theirs: str) -> list[str]:
        """The best common ancestors; none if some of history is gone with its branch."""
        left, right = self.ancestors(ours), self.ancestors(theirs)
        both = left.keys() & right.keys()
        if not all(id_ in self.commits for id_ in left.keys() | right.keys()):
            return []
        below = {a for id_ in both for p in self.commits[id_].parents for a in self.ancestors(p)}
        return sorted(both - below)

    def kept(self) -> set[str]:
        """What cleanup never takes."""
        merging = (
            base
            for one in self.heads.values()
            for other in self.heads.values()
            for base in self.bases(one, other)
        )
        return {*self.heads.values(), *self.tags.values(), *self.starts.values(), *merging}


def three_way(base: State, source: State, target: State) -> tuple[State, set[Key]]:
    """The merged rows, and what is in conflict."""
    merged, conflicts = State(), set[Key]()
    for key in base.keys() | source.keys() | target.keys():
        was, theirs, ours = base.get(key), source.get(key), target.get(key)
        if theirs in (ours, was):
            row = ours
        elif ours == was:
            row = theirs
        else:
            conflicts.add(key)
            continue
        if row is not None:
            merged[key] = row
    return merged, conflicts or orphans(merged)


def orphans(rows: State) -> set[Key]:
    edges = (key for key in rows if key[0] == "Knows")
    return {key for key in edges if any(("Person", p) not in rows for p in key[1].split(">"))}


def keys_of(refused: og.MergeConflicts) -> set[Key]:
    """Conflicts by the keys of the model: an edge's id follows from its ends."""
    keys = set[Key]()
    for each in refused.conflicts:
        assert each.entity_id is not None
        if each.type_name == "Person":
            keys.add(("Person", each.entity_id))
        else:
            keys.add(("Knows", ">".join(orjson.loads(each.entity_id))))
    return keys


# ---- both worlds, step by step


class History:
    """One graph beside its model."""

    def __init__(self, path: Any) -> None:
        self.path = path
        self.graph = og.init(path, schema(frozenset()), fold=False)
        first = self.graph.snapshot().commit_id
        self.model = Model({first: Point(first, {}, frozenset(), (), MAIN)}, {MAIN: first})

    def step(self, verb: str, where: str, what: Any, more: Any) -> None:
        if where in self.model.heads or verb in ("branch", "tag", "untag"):
            getattr(self, f"_{verb}")(where, what, more)

    # writes

    def _put(self, branch: str, name: str, age: int) -> None:
        head = self.model.head(branch)
        self.graph.mutate(ADD, {"n": name, "a": age or None}, branch=branch)
        row = {"name": name} | ({"age": age} if age else {})
        self._wrote(branch, head.rows | {("Person", name): row})

    def _set(self, branch: str, name: str, value: int) -> None:
        head = self.model.head(branch)
        if not head.extras or ("Person", name) not in head.rows:
            return
        extra = sorted(head.extras)[value % len(head.extras)]
        sets = f"update Person set {{ {extra}: $v }} where name = $n"
        text = f"query set($n: String, $v: I32) {{ {sets} }}"
        self.graph.mutate(text, {"n": name, "v": value}, branch=branch)
        row = head.rows["Person", name] | {extra: value}
        self._wrote(branch, head.rows | {("Person", name): row})

    def _drop(self, branch: str, name: str, _: Any) -> None:
        head = self.model.head(branch)
        self.graph.mutate(DROP, {"n": name}, branch=branch)
        left = {k: row for k, row in head.rows.items() if k != ("Person", name)}
        gone = orphans(left)
        self._wrote(branch, {k: row for k, row in left.items() if k not in gone})

    def _link(self, branch: str, one: str, other: str) -> None:
        head = self.model.head(branch)
        if any(("Person", end) not in head.rows for end in (one, other)):
            return
        self.graph.mutate(LINK, {"a": one, "b": other}, branch=branch)
        self._wrote(branch, head.rows | {("Knows", f"{one}>{other}"): {}})

    def _unlink(self, branch: str, name: str, _: Any) -> None:
        head = self.model.head(branch)
        self.graph.mutate(UNLINK, {"a": name}, branch=branch)
        gone = {k for k in head.rows if k[0] == "Knows" and k[1].split(">")[0] == name}
        self._wrote(branch, {k: row for k, row in head.rows.items() if k not in gone})

    def _schema(self, branch: str, extra: str, _: Any) -> None:
        head = self.model.head(branch)
        self.graph.schema.apply(schema(head.extras | {extra}), branch=branch)
        self._wrote(branch, head.rows, extras=head.extras | {extra})

    # names

    def _branch(self, name: str, number: int, _: Any) -> None:
        point = self.model.nth(number)
        if name in self.model.heads:
            return
        try:
            self.graph.branches.create(name, from_=self.model.name(point, number))
        except OmnigraphError as error:
            self._is_gone(point, error)
            return
        self.model.heads[name] = self.model.starts[name] = point.id

    def _delete(self, branch: str, _what: Any, _more: Any) -> None:
        try:
            self.graph.branches.delete(branch)
        except og.InUse:
            return
        del self.model.heads[branch]
        self.model.starts.pop(branch, None)
        left = {id_: p for id_, p in self.model.commits.items() if p.branch != branch}
        assert not set(self.model.tags.values()) - left.keys(), "a tag keeps its branch"
        self.model.commits = left

    def _tag(self, name: str, number: int, _: Any) -> None:
        point = self.model.nth(number)
        if name in self.model.tags:
            return
        try:
            self.graph.tags.create(name, self.model.name(point, number))
        except OmnigraphError as error:
            self._is_gone(point, error)
            return
        self.model.tags[name] = point.id

    def _untag(self, name: str, _what: Any, _more: Any) -> None:
        if self.model.tags.pop(name, None) is not None:
            self.graph.tags.delete(name)

    # merges and their kin

    def _merge(self, target: str, source: str, resolve: str | None) -> None:
        model = self.model
        if source not in model.heads or source == target:
            return
        ours, theirs = model.head(target), model.head(source)
        bases = model.bases(ours.id, theirs.id)
        merged, conflicts = State(), None
        if len(bases) == 1:
            base = model.commits[bases[0]]
            merged, conflicts = three_way(base.rows, theirs.rows, ours.rows)
        try:
            outcome = self.graph.branches.merge(source, into=target, resolve=resolve)
        except og.MergeConflicts as error:
            refused = keys_of(error)
            assert refused == conflicts or conflicts is None or resolve is not None
            return
        if outcome.commit is None:
            return
        rows = seen(self.graph, target)
        if conflicts is not None:
            assert rows == merged if not conflicts else resolve is not None
        assert not orphans(rows)
        self._wrote(target, rows, extras=ours.extras | theirs.extras, merged=theirs.id)

    def _revert(self, branch: str, number: int, _: Any) -> None:
        model = self.model
        point, head = model.nth(number), model.head(branch)
        if not point.parents or point.parents[0] not in model.commits:
            return
        before = model.commits[point.parents[0]]
        merged, conflicts = three_way(point.rows, before.rows, head.rows)
        is_like = point.extras == before.extras == head.extras
        try:
            outcome = self.graph.revert(point.id, onto=branch)
        except og.MergeConflicts as error:
            refused = keys_of(error)
            assert refused == conflicts or not is_like
            return
        except OmnigraphError as error:
            if is_like:
                self._is_gone(point, error)
            return
        if is_like:
            assert not conflicts
            self._wrote(branch, merged)
        elif outcome.commit is not None:
            self._wrote(branch, seen(self.graph, branch))

    def _restore(self, branch: str, number: int, _: Any) -> None:
        point, head = self.model.nth(number), self.model.head(branch)
        try:
            self.graph.restore(self.model.name(point, number), branch=branch)
        except OmnigraphError as error:
            if point.extras <= head.extras:
                self._is_gone(point, error)
            return
        rows = seen(self.graph, branch) if point.extras - head.extras else point.rows
        self._wrote(branch, rows)

    # upkeep

    def _optimize(self, branch: str, _what: Any, _more: Any) -> None:
        self.graph.optimize(branch)
        self._wrote(branch, self.model.head(branch).rows)

    def _cleanup(self, _where: str, keep: int, _: Any) -> None:
        report = self.graph.cleanup(keep=keep, grace=0, confirm=True)
        assert report.errors == ()
        self.model.is_cleaned = True

    def _reopen(self, _where: str, _what: Any, _more: Any) -> None:
        self.graph.close()
        self.graph = og.open(self.path, fold=False)

    # what holds

    def _wrote(
        self,
        branch: str,
        rows: State,
        *,
        extras: frozenset[str] | None = None,
        merged: str | None = None,
    ) -> None:
        """Take the head's new commit into the model, if there is one; then its rows are these."""
        head, now = self.model.head(branch), self.graph.snapshot(branch).commit_id
        if now == head.id:
            assert rows == head.rows
            return
        parents = (head.id,) if merged is None else (head.id, merged)
        extras = head.extras if extras is None else extras
        self.model.commits[now] = Point(now, rows, extras, parents, branch)
        self.model.heads[branch] = now

    def _is_gone(self, point: Point, error: OmnigraphError) -> None:
        """A step may fail because cleanup took a commit, and for no other reason."""
        parents = self.model.commits[point.id].parents
        assert isinstance(error, Reclaimed | og.ChangeFeedGap), error
        assert self.model.is_cleaned
        assert {point.id, *parents[:1]} - self.model.kept(), "a kept commit is there"

    def names_hold(self) -> None:
        for name, id_ in (*self.model.heads.items(), *self.model.tags.items()):
            assert seen(self.graph, name) == self.model.commits[id_].rows, name

    def commits_hold(self) -> None:
        kept = self.model.kept()
        for point in self.model.commits.values():
            try:
                rows = seen(self.graph, point.id)
            except Reclaimed:
                assert self.model.is_cleaned
                assert point.id not in kept
                continue
            assert rows == point.rows, "a commit that can be read reads as it did"


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody counts versions here, so that cleanup need not wait."""
    monkeypatch.setattr(manifest, "RECLAIM_AGE_S", 0.0)


def _run(steps: list[Step], path: Any) -> None:
    history = History(path)
    for step in steps:
        history.step(*step)
        history.names_hold()
    history.commits_hold()
    assert history.graph.check().findings == ()
    history.graph.close()


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEPS, min_size=8, max_size=30), seed=SEEDS)
def test_every_kept_point_reads_as_it_was(
    steps: list[Step], seed: int | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with lowered_by(seed):
        _run(steps, tmp_path_factory.mktemp("history") / "g")


@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEPS, min_size=10, max_size=60), seed=SEEDS)
def test_every_kept_point_reads_as_it_was_in_long_histories(
    steps: list[Step], seed: int | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with lowered_by(seed):
        _run(steps, tmp_path_factory.mktemp("history") / "g")
