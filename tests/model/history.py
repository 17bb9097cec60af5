"""Random histories of one graph beside a model that keeps the rows of every branch.

A step is plain data, so that any part of a history can be run again: a step that does not apply to
the state it meets is skipped. After each step the branch that it wrote is read in every cheap way;
every 20th step the expensive oracles follow.
"""

import copy
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import omnigraph as og
from omnigraph.errors import OmnigraphError
from omnigraph.storage.manifest import manifest
from omnigraph.testing import lower_thresholds
from tests import forked
from tests.model import oracles
from tests.model.data import (
    EXTRAS,
    Key,
    Row,
    Rows,
    State,
    filled,
    orphans,
    person,
    schema_text,
    table,
    three_way,
    without_orphans,
)
from tests.model.other_process import OtherProcess, call

MAIN = "main"
BRANCHES = (MAIN, "a", "b", "c", "d")
PEOPLE = 160
"""Keys of P; a load takes a range of them."""

EVERY = 20
"""Steps between two runs of the expensive oracles."""


@dataclass(frozen=True)
class Setting:
    """Everything besides the steps that a run depends on."""

    seed: int
    cache_bytes: int = 1 << 31
    traversal: str = "auto"
    durability: str = "os"
    lowered: bool = True
    engine: str = "local"
    uri: str | None = None
    options: dict[str, str] | None = None
    has_other_process: bool = True

    @classmethod
    def drawn(cls, seed: int, **given: Any) -> "Setting":
        """The setting of a seed."""
        draw = random.Random(f"setting {seed}")
        return cls(
            seed,
            cache_bytes=draw.choice([0, 1 << 14, 1 << 20, 1 << 31, 1 << 31]),
            traversal=draw.choice(["auto", "auto", "indexed", "csr"]),
            durability=draw.choice(["os", "os", "os", "fsync"]),
            lowered=draw.random() < 0.9,
            has_other_process=draw.random() < 0.5,
            **given,
        )


@dataclass(frozen=True)
class Step:
    """One operation as plain data."""

    verb: str
    branch: str = MAIN
    how: str = ""
    n: int = 0
    m: int = 0
    value: int = 0
    via: str = "g"

    def __repr__(self) -> str:
        shown = {k: v for k, v in self.__dict__.items() if v != getattr(type(self), k, None)}
        return f"Step({', '.join(f'{k}={v!r}' for k, v in shown.items())})"


_WEIGHTS = {
    "people": 14,
    "edges": 10,
    "links": 5,
    "cities": 3,
    "insert": 4,
    "update": 6,
    "delete": 5,
    "delete_edges": 4,
    "update_edges": 3,
    "branch": 6,
    "drop_branch": 3,
    "merge": 8,
    "revert": 3,
    "restore": 3,
    "tag": 1,
    "schema": 4,
    "optimize": 3,
    "indices": 2,
    "cleanup": 2,
    "reopen": 3,
    "transaction": 2,
    "load_from": 2,
    "race": 2,
    "refresh": 1,
}
_MODES = ("append", "append", "merge", "merge", "patch", "overwrite")


def drawn_step(draw: random.Random, model: "Model") -> Step:
    """One random step that has a chance to apply."""
    verb = draw.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
    branch = draw.choice(sorted(model.branches))
    how, n, m = "", draw.randrange(PEOPLE), draw.choice([1, 2, 7, 20, 45, 70])
    if verb == "people":
        how = draw.choice(_MODES[: 5 + (draw.random() < 0.4)])
    elif verb in ("edges", "links", "cities"):
        how = draw.choice(["append", "append", "merge", "overwrite"][: 3 + (draw.random() < 0.2)])
    elif verb == "branch":
        how = draw.choice([name for name in BRANCHES if name != MAIN])
    elif verb in ("merge", "load_from"):
        how = draw.choice(sorted(model.branches))
        m = draw.choice([0, 0, 1, 2])
    elif verb == "schema":
        how = draw.choice(["add", "add", "drop", "rename"])
    elif verb == "race":
        how = draw.choice(["append", "append", "merge"])
    via = draw.choice(["g", "g", "g", "h", "w"])
    return Step(verb, branch, how, n, m, draw.randrange(1000), via)


@dataclass
class Model:
    """What every branch holds, and the commits that are remembered."""

    branches: dict[str, State]
    heads: dict[str, str]
    commits: dict[str, tuple[str, State]] = field(default_factory=dict)
    parents: dict[str, tuple[str, ...]] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    is_cleaned: bool = False

    def ancestors(self, commit: str) -> set[str]:
        """A commit and all commits before it."""
        reached, waiting = set[str](), [commit]
        while waiting:
            each = waiting.pop()
            if each not in reached:
                reached.add(each)
                waiting += self.parents.get(each, ())
        return reached

    def bases(self, ours: str, theirs: str) -> list[str]:
        """The best common ancestors."""
        both = self.ancestors(ours) & self.ancestors(theirs)
        below = {a for each in both for p in self.parents.get(each, ()) for a in self.ancestors(p)}
        return sorted(both - below)


class Disagreement(AssertionError):
    """The graph and the model differ, or the graph raised an error that was not expected."""


class Skipped(Exception):
    """The step does not apply."""


class History:
    """One graph beside its model."""

    def __init__(self, setting: Setting, folder: Path, spark: Any = None) -> None:
        self.setting = setting
        self.folder = folder
        self.spark = spark
        self.uri = setting.uri or str(folder / "g.omni")
        self.log: list[str] = []
        self.g = og.init(self.uri, schema_text(()), storage_options=setting.options)
        self.h = og.open(self.uri, storage_options=setting.options)
        self.reader: og.Graph | None = None
        self.w = OtherProcess(self.uri, setting.options) if setting.has_other_process else None
        self.probe = random.Random(f"probe {setting.seed}")
        first = self.g.snapshot().commit_id
        self.model = Model({MAIN: State()}, {MAIN: first})
        self.model.commits[first] = (MAIN, State())
        self.model.parents[first] = ()
        self.count = 0

    # ---- running

    def run(self, step: Step) -> bool:
        """Take one step and hold the graph against the model; whether the step applied."""
        self.count += 1
        try:
            touched = getattr(self, f"_{step.verb}")(step)
            applied = True
        except Skipped:
            touched, applied = None, False
        branches = [touched] if touched in self.model.branches else []
        if not branches or self.count % 5 == 0:
            branches = [*self.model.branches] if self.count % 5 == 0 else [MAIN]
        if applied:
            for branch in branches:
                self._check_branch(branch, str(step))
        if self.count % EVERY == 0:
            self._check_all()
        return applied

    def finish(self) -> None:
        """The expensive oracles once more, then close."""
        self._check_all()
        self.close()

    def close(self) -> None:
        """Close all handles and end the second process."""
        if self.w is not None:
            self.w.close()
        for graph in (self.g, self.h, self.reader):
            if graph is not None:
                graph.close()

    def _check_branch(self, branch: str, where: str) -> None:
        state, probe = self.model.branches[branch], self.probe.randrange(1 << 20)
        at = {"branch": branch}
        oracles.check_point(self.g, f"{where}: {branch}", at, state, probe)
        if probe % 2:
            oracles.check_point(self.h, f"{where}: {branch}, second handle", at, state, probe)
        if self.w is not None and probe % 3 == 0:
            self.w.check_point(f"{where}: {branch}, second process", branch, state, probe)
        if self.setting.options is None and probe % 5 == 0:
            if self.reader is None:
                self.reader = og.open(self.uri, read_only=True)
            oracles.check_point(self.reader, f"{where}: {branch}, read only", at, state, probe)

    def _check_all(self) -> None:
        model, probe = self.model, self.probe.randrange(1 << 20)
        for branch, state in model.branches.items():
            at = {"branch": branch}
            oracles.check_point(self.g, branch, at, state, probe)
            oracles.check_export(self.g, branch, branch, state)
            oracles.check_search(self.g, branch, at, state, probe)
        for name, commit in model.tags.items():
            self._check_commit(self.h, name, commit, probe)
        for commit in self.probe.sample(sorted(model.commits), min(3, len(model.commits))):
            self._check_commit(self.g, commit, commit, probe)
        self._check_elsewhere(probe)
        findings = self.g.check().findings
        assert not findings, f"check: {findings}"

    def _check_commit(self, graph: og.Graph, point: str, commit: str, probe: int) -> None:
        _, state = self.model.commits[commit]
        try:
            oracles.check_point(graph, f"commit {point}", {"snapshot": commit}, state, probe)
        except og.Reclaimed:
            if not self.model.is_cleaned:
                raise

    def _check_elsewhere(self, probe: int) -> None:
        """A fresh process, and a copy without derived files, give the same."""
        points = [(branch, branch, state) for branch, state in self.model.branches.items()]
        if self.setting.options is not None:
            fresh = og.open(self.uri, storage_options=self.setting.options)
            for where, branch, state in points:
                at = {"branch": branch}
                oracles.check_point(fresh, f"{where}, fresh handle", at, state, probe)
            fresh.close()
            return
        report = self.folder / "fresh.txt"
        report.unlink(missing_ok=True)
        code = forked.run(_read_elsewhere, self.uri, points, probe, str(report), timeout_s=300)
        failure = report.read_text() if report.exists() else ""
        assert code == 0, failure or f"the fresh process ended with {code}"

    # ---- calls

    def _call(self, via: str, method: str, *args: Any, **kwargs: Any) -> None:
        """Call a method of one of the handles, and log it as source text."""
        w = self.w
        via = "h" if via == "w" and (w is None or "spark" in kwargs) else via
        self.log.append(f"{via}.{method}({_source(args, kwargs)})")
        if via == "w":
            assert w is not None
            w.call(method, *args, **kwargs)
        else:
            call(self.g if via == "g" else self.h, method, *args, **kwargs)

    def _write(
        self,
        step: Step,
        expected: Rows | None,
        method: str,
        *args: Any,
        refusals: tuple[type[Exception], ...] = (),
        **kwargs: Any,
    ) -> str:
        """Make one write; `expected` rows, or None where one of the refusals must be raised."""
        try:
            self._call(step.via, method, *args, **kwargs)
        except refusals as error:
            if expected is not None:
                raise Disagreement(f"{step}: refused: {error}") from error
            return step.branch
        if expected is None:
            raise Disagreement(f"{step}: accepted, a refusal was expected")
        self._moved(step.branch, expected)
        return step.branch

    def _moved(
        self,
        branch: str,
        rows: Rows,
        *,
        extras: tuple[str, ...] | None = None,
        merged: str | None = None,
        before: State | None = None,
    ) -> None:
        """Take over what a write did to a branch, with the ids that it generated. `before` is the
        state after the first of its commits, where another writer came between."""
        state = self.model.branches[branch]
        known = State(rows, state.extras if extras is None else extras)
        if any(key[1].startswith("?") for key in rows):
            known = known.with_rows(self._identified(branch, rows))
        self.model.branches[branch] = known
        chain = self._new_commits(branch)
        for number, (commit, parent) in enumerate(chain):
            is_first = number == 0
            self.model.parents[commit] = (parent, merged) if merged and is_first else (parent,)
            self.model.commits[commit] = (branch, before if before and is_first else known)
            self.model.heads[branch] = commit

    def _new_commits(self, branch: str) -> list[tuple[str, str]]:
        """Commits since the head that the model knows, oldest first, each with its parent: a load
        is followed by a commit of indexes."""
        chain: list[tuple[str, str]] = []
        each = self.g.snapshot(branch).commit_id
        while each != self.model.heads[branch]:
            parent = self.g.commits.get(each).parent
            assert parent is not None, (
                f"{branch}: the head known to the model is not in its history"
            )
            chain.append((each, parent))
            each = parent
        return chain[::-1]

    def _identified(self, branch: str, rows: Rows) -> Rows:
        """Replace provisional ids (`?…`) of new edges by those that the graph generated."""
        seen = oracles.exported(self.h, branch)
        kept = {key: row for key, row in rows.items() if not key[1].startswith("?")}
        fresh = {key: row for key, row in seen.items() if key not in kept and key[0] == "K"}
        new = [row for key, row in rows.items() if key[1].startswith("?")]
        want = sorted(map(_as_text, new))
        assert sorted(map(_as_text, fresh.values())) == want, (
            f"{branch}: new edges are {list(fresh.values())[:5]}, expected {new[:5]}"
        )
        return kept | fresh

    # ---- loads

    def _options(self, step: Step) -> dict[str, Any]:
        if self.setting.engine == "spark" and step.value % 3 == 0:
            return {"engine": "spark", "spark": self.spark}
        return {"engine": "local"}

    def _people(self, step: Step) -> str:
        state = self.model.branches[step.branch]
        numbers = sorted({(step.n + i) % PEOPLE for i in range(step.m)})
        rows = [person(number, step.value) for number in numbers]
        if step.how == "patch":
            rows = [{"key": row["key"], "age": row["age"]} for row in rows]
        elif state.extras and step.value % 2:
            for row in rows:
                row |= {name: step.value % 9 for name in state.extras}
        expected, refusals = _loaded(state, "P", step.how, {row["key"]: row for row in rows})
        options = self._options(step)
        args = (table(rows), step.how)
        where = {"type": "P", "branch": step.branch, **options}
        return self._write(step, expected, "load", *args, refusals=refusals, **where)

    def _cities(self, step: Step) -> str:
        state = self.model.branches[step.branch]
        rows = [{"key": f"q{(step.n + i) % 20:02d}", "n": step.value} for i in range(step.m % 12)]
        if not rows:
            raise Skipped
        expected, refusals = _loaded(state, "Q", step.how, {row["key"]: row for row in rows})
        where = {"type": "Q", "branch": step.branch}
        return self._write(
            step, expected, "load", table(rows), step.how, refusals=refusals, **where
        )

    def _edges(self, step: Step) -> str:
        state = self.model.branches[step.branch]
        people = sorted(state.of("P"))
        if not people:
            raise Skipped
        size, known = len(people), state.of("K")
        rows: list[Row] = []
        for i in range(step.m):
            src, dst = people[(step.n + i) % size], people[(step.n * 3 + i * 7) % size]
            row: Row = {"src": src, "dst": dst, "w": (step.value + i) % 50}
            if step.how == "merge":
                row = {"id": f"k{(step.n + i) % 90:03d}", **row}
            rows.append(row)
        if step.how == "merge" and any(
            row["id"] in known and any(known[row["id"]][end] != row[end] for end in ("src", "dst"))
            for row in rows
        ):
            rows = [{**row, **_ends(known, row)} for row in rows]
        if step.value % 7 == 0:
            rows[-1] = {**rows[-1], "dst": "nobody"}
        identified = {str(row.get("id", f"?{i}")): row for i, row in enumerate(rows)}
        expected, refusals = _loaded(state, "K", step.how, identified)
        where = {"edge": "K", "branch": step.branch, **self._options(step)}
        return self._write(
            step, expected, "load", table(rows), step.how, refusals=refusals, **where
        )

    def _links(self, step: Step) -> str:
        state = self.model.branches[step.branch]
        people, cities = sorted(state.of("P")), sorted(state.of("Q"))
        if not people or not cities:
            raise Skipped
        rows: dict[str, Row] = {}
        for i in range(step.m):
            src, dst = people[(step.n + i) % len(people)], cities[i % len(cities)]
            rows[f'["{src}","{dst}"]'] = {"src": src, "dst": dst, "w": step.value % 50}
        expected, refusals = _loaded(state, "L", step.how, rows)
        where = {"edge": "L", "branch": step.branch}
        args = (table(list(rows.values())), step.how)
        return self._write(step, expected, "load", *args, refusals=refusals, **where)

    def _load_from(self, step: Step) -> str:
        """A load that makes its branch."""
        name = BRANCHES[1 + step.n % (len(BRANCHES) - 1)]
        if name in self.model.branches or step.how not in self.model.branches:
            raise Skipped
        source = self.model.branches[step.how]
        rows = [person((step.n + i) % PEOPLE, step.value) for i in range(step.m * 20 + 3)]
        expected, _ = _loaded(source, "P", "merge", {row["key"]: row for row in rows})
        where = {"type": "P", "branch": name, "from_branch": step.how, **self._options(step)}
        self._call(step.via, "load", table(rows), "merge", **where)
        self._started(name, step.how)
        assert expected is not None
        self._moved(name, expected)
        return name

    def _race(self, step: Step) -> str:
        """A load that another handle overtakes while it reads its input."""
        state = self.model.branches[step.branch]
        numbers = [n for n in range(PEOPLE) if f"p{n:04d}" not in state.of("P")]
        if len(numbers) < 3:
            raise Skipped
        taken, rest = numbers[0], numbers[1 : 1 + step.m]
        rows = {row["key"]: row for row in (person(n, step.value) for n in rest)}
        key, done = f"p{taken:04d}", list[bool]()

        def overtake(progress: Any) -> None:
            if progress.stage == "read" and not done:
                done.append(True)
                self.h.mutate(f'query q() {{ insert P {{ key: "{key}" }} }}', branch=step.branch)

        self.log.append(f"# while the load reads, h inserts {key} on {step.branch}")
        expected, _ = _loaded(state, "P", step.how, rows)
        assert expected is not None
        where = {"type": "P", "branch": step.branch, "progress": overtake, "engine": "local"}
        self._call("g", "load", table(list(rows.values())), step.how, **where)
        between = None
        if done:
            other = {("P", key): {"key": key}}
            between, expected = state.with_rows(state.rows | other), expected | other
        self._moved(step.branch, expected, before=between)
        return step.branch

    # ---- mutations

    def _insert(self, step: Step) -> str:
        state = self.model.branches[step.branch]
        row = filled({**person(step.n, step.value), "bio": None, "tags": None, "v": None})
        given = ", ".join(f"{n}: {_literal(value)}" for n, value in row.items())
        rows = state.rows | {("P", row["key"]): row}
        text = f"query q() {{ insert P {{ {given} }} }}"
        return self._write(step, rows, "mutate", text, branch=step.branch)

    def _update(self, step: Step) -> str:
        state = self.model.branches[step.branch]
        least = step.n % 23
        rows = {
            key: row | {"age": step.value} if key[0] == "P" and row.get("age", -1) >= least else row
            for key, row in state.rows.items()
        }
        text = f"query q() {{ update P set {{ age: {step.value} }} where age >= {least} }}"
        return self._write(step, rows, "mutate", text, branch=step.branch)

    def _delete(self, step: Step) -> str:
        state = self.model.branches[step.branch]
        age = step.n % 23
        gone = {key for key, row in state.rows.items() if key[0] == "P" and row.get("age") == age}
        rows = without_orphans({key: row for key, row in state.rows.items() if key not in gone})
        text = f"query q() {{ delete P where age = {age} }}"
        return self._write(step, rows, "mutate", text, branch=step.branch)

    def _update_edges(self, step: Step) -> str:
        state = self.model.branches[step.branch]
        least = step.n % 50
        rows = {
            key: row | {"w": step.value} if key[0] == "K" and row.get("w", -1) >= least else row
            for key, row in state.rows.items()
        }
        text = f"query q() {{ update K set {{ w: {step.value} }} where w >= {least} }}"
        return self._write(step, rows, "mutate", text, branch=step.branch)

    def _delete_edges(self, step: Step) -> str:
        state = self.model.branches[step.branch]
        least = 25 + step.n % 25
        type = "L" if step.value % 4 == 0 else "K"
        rows = {
            key: row
            for key, row in state.rows.items()
            if not (key[0] == type and row.get("w", -1) >= least)
        }
        text = f"query q() {{ delete {type} where w >= {least} }}"
        return self._write(step, rows, "mutate", text, branch=step.branch)

    def _transaction(self, step: Step) -> str:
        state = self.model.branches[step.branch]
        first = [person((step.n + i) % PEOPLE, step.value) for i in range(step.m)]
        age = step.value % 23
        loaded, _ = _loaded(state, "P", "merge", {row["key"]: row for row in first})
        assert loaded is not None
        gone = {key for key, row in loaded.items() if key[0] == "P" and row.get("age") == age}
        rows = without_orphans({key: row for key, row in loaded.items() if key not in gone})
        self.log.append(
            f"# g.transaction({step.branch!r}): merge {len(first)} of P, delete age {age}"
        )
        graph = self.g if step.via == "g" else self.h
        with graph.transaction(branch=step.branch) as work:
            work.load(table(first), "merge", type="P")
            work.mutate(f"query q() {{ delete P where age = {age} }}")
        self._moved(step.branch, rows)
        return step.branch

    # ---- branches

    def _started(self, name: str, source: str) -> None:
        self.model.branches[name] = copy.deepcopy(self.model.branches[source])
        self.model.heads[name] = self.model.heads[source]

    def _branch(self, step: Step) -> str:
        if step.how in self.model.branches:
            raise Skipped
        if step.m == 45:
            return self._branch_at_commit(step)
        self._call(step.via, "branches.create", step.how, from_=step.branch)
        self._started(step.how, step.branch)
        return step.how

    def _branch_at_commit(self, step: Step) -> str:
        """A branch of an earlier commit."""
        model, commit = self.model, self._nth_commit(step)
        try:
            self._call(step.via, "branches.create", step.how, from_=commit)
        except og.Reclaimed:
            if not model.is_cleaned:
                raise
            return step.branch
        model.branches[step.how] = copy.deepcopy(model.commits[commit][1])
        model.heads[step.how] = commit
        return step.how

    def _drop_branch(self, step: Step) -> str:
        model = self.model
        if step.branch == MAIN:
            raise Skipped
        try:
            self._call(step.via, "branches.delete", step.branch)
        except og.InUse:
            return step.branch
        del model.branches[step.branch], model.heads[step.branch]
        kept = {commit for commit, (branch, _) in model.commits.items() if branch != step.branch}
        model.commits = {commit: each for commit, each in model.commits.items() if commit in kept}
        return MAIN

    def _merge(self, step: Step) -> str:
        model, target, source = self.model, step.branch, step.how
        if source not in model.branches or source == target:
            raise Skipped
        ours, theirs = model.branches[target], model.branches[source]
        bases = model.bases(model.heads[target], model.heads[source])
        base = model.commits.get(bases[0]) if len(bases) == 1 else None
        is_exact = base is not None and base[1].extras == ours.extras == theirs.extras
        merged, conflicts = Rows(), set[Key]()
        if base is not None and is_exact:
            merged, conflicts = three_way(base[1].rows, theirs.rows, ours.rows)
        resolve = (None, "ours", "theirs")[step.m % 3]
        try:
            self._call(step.via, "branches.merge", source, into=target, resolve=resolve)
        except og.MergeConflicts as error:
            if is_exact and not conflicts:
                raise Disagreement(f"{step}: unexpected conflicts: {error}") from error
            return target
        except (og.Reclaimed, og.SchemaDiffers, og.MigrationUnsupported) as error:
            if is_exact and not model.is_cleaned:
                raise Disagreement(f"{step}: {type(error).__name__}: {error}") from error
            return target
        if is_exact and conflicts and resolve is None:
            raise Disagreement(f"{step}: merged, conflicts were expected: {sorted(conflicts)[:5]}")
        if is_exact and not conflicts:
            self._moved(target, merged, merged=model.heads[source])
        else:
            self._adopt(target, merged=model.heads[source])
        return target

    def _adopt(self, branch: str, *, merged: str | None = None) -> None:
        """Take rows from the graph where the model does not predict them."""
        rows = oracles.exported(self.h, branch)
        assert not orphans(rows), f"{branch}: edges without ends: {sorted(orphans(rows))[:5]}"
        text = self.h.schema.on(branch).text
        extras = tuple(name for name in EXTRAS if f"{name}:" in text)
        self._moved(branch, rows, extras=extras, merged=merged)

    def _nth_commit(self, step: Step) -> str:
        known = list(self.model.commits)
        return known[-1 - step.n % min(len(known), 12)]

    def _revert(self, step: Step) -> str:
        model, commit = self.model, self._nth_commit(step)
        parents = model.parents.get(commit, ())
        if len(parents) != 1 or parents[0] not in model.commits:
            raise Skipped
        point, before = model.commits[commit][1], model.commits[parents[0]][1]
        state = model.branches[step.branch]
        merged, conflicts = three_way(point.rows, before.rows, state.rows)
        is_exact = point.extras == before.extras == state.extras
        try:
            self._call(step.via, "revert", commit, onto=step.branch)
        except og.MergeConflicts as error:
            if is_exact and not conflicts:
                raise Disagreement(f"{step}: unexpected conflicts: {error}") from error
            return step.branch
        except OmnigraphError as error:
            if is_exact and not model.is_cleaned:
                raise Disagreement(f"{step}: {type(error).__name__}: {error}") from error
            return step.branch
        if is_exact and conflicts:
            raise Disagreement(f"{step}: reverted, conflicts were expected")
        if is_exact:
            self._moved(step.branch, merged)
        else:
            self._adopt(step.branch)
        return step.branch

    def _restore(self, step: Step) -> str:
        model, commit = self.model, self._nth_commit(step)
        point, state = model.commits[commit][1], model.branches[step.branch]
        is_exact = point.extras == state.extras
        try:
            self._call(step.via, "restore", commit, branch=step.branch)
        except OmnigraphError as error:
            if is_exact and not model.is_cleaned:
                raise Disagreement(f"{step}: {type(error).__name__}: {error}") from error
            return step.branch
        if is_exact:
            self._moved(step.branch, dict(point.rows))
        else:
            self._adopt(step.branch)
        return step.branch

    def _tag(self, step: Step) -> str:
        name = f"v{step.n % 3}"
        if name in self.model.tags:
            self._call(step.via, "tags.delete", name)
            del self.model.tags[name]
        else:
            self._call(step.via, "tags.create", name, step.branch)
            self.model.tags[name] = self.model.heads[step.branch]
        return step.branch

    # ---- schema

    def _schema(self, step: Step) -> str:
        state = self.model.branches[step.branch]
        name = EXTRAS[step.n % len(EXTRAS)]
        change = {
            "add": self._add_property,
            "drop": self._drop_property,
            "rename": self._rename_property,
        }[step.how]
        text, extras, rows = change(state, name)
        try:
            self._call(step.via, "schema.apply", text, branch=step.branch, allow_data_loss=True)
        except (og.SchemaHeld, og.InUse, og.MigrationUnsupported, og.SchemaDiffers):
            if len(self.model.branches) == 1:
                raise
            return step.branch
        self._moved(step.branch, rows, extras=extras)
        return step.branch

    def _add_property(self, state: State, name: str) -> tuple[str, tuple[str, ...], Rows]:
        if name in state.extras:
            raise Skipped
        extras = tuple(sorted((*state.extras, name)))
        return schema_text(extras), extras, state.rows

    def _drop_property(self, state: State, name: str) -> tuple[str, tuple[str, ...], Rows]:
        if name not in state.extras:
            raise Skipped
        extras = tuple(each for each in state.extras if each != name)
        rows = {
            key: {n: v for n, v in row.items() if n != name or key[0] not in ("P", "K")}
            for key, row in state.rows.items()
        }
        return schema_text(extras), extras, rows

    def _rename_property(self, state: State, name: str) -> tuple[str, tuple[str, ...], Rows]:
        if len(state.extras) != 1:
            raise Skipped
        (old,) = state.extras
        (new,) = (each for each in EXTRAS if each != old)
        rows = {
            key: {new if n == old else n: value for n, value in row.items()}
            for key, row in state.rows.items()
        }
        text = schema_text((new,)).replace(f"{new}: I32?", f'{new}: I32? @rename_from("{old}")')
        return text, (new,), rows

    # ---- maintenance

    def _optimize(self, step: Step) -> str:
        self._call(step.via, "optimize", step.branch)
        self._moved(step.branch, self.model.branches[step.branch].rows)
        return step.branch

    def _indices(self, step: Step) -> str:
        self._call(step.via, "ensure_indices", step.branch)
        self._moved(step.branch, self.model.branches[step.branch].rows)
        return step.branch

    def _cleanup(self, step: Step) -> str:
        self._call(step.via, "cleanup", keep=1 + step.n % 3, grace=0, confirm=True)
        self.model.is_cleaned = True
        return step.branch

    def _reopen(self, step: Step) -> str:
        self.log.append("g.close(); g = og.open(...)")
        self.g.close()
        self.g = og.open(self.uri, storage_options=self.setting.options)
        return step.branch

    def _refresh(self, step: Step) -> str:
        self._call(step.via, "refresh")
        return step.branch


def _loaded(
    state: State, type: str, mode: str, rows: dict[str, Row]
) -> tuple[Rows | None, tuple[type[Exception], ...]]:
    """The rows after a load, None if it must be refused; and how it may be refused."""
    known = {(type, id): row for id, row in state.of(type).items()}
    given = {
        (type, id): filled({n: v for n, v in row.items() if n != "id"}) for id, row in rows.items()
    }
    others = {key: row for key, row in state.rows.items() if key[0] != type}
    refusals = (og.KeyTaken, og.ConstraintViolated)
    if mode == "append":
        if known.keys() & given.keys():
            return None, refusals
        after = known | given
    elif mode == "merge":
        after = known | given
    elif mode == "patch":
        after = dict(known)
        for key, row in given.items():
            was = known.get(key, {})
            nulls = {n for n, v in rows[key[1]].items() if v is None}
            after[key] = {n: v for n, v in {**was, **row}.items() if n not in nulls}
    else:
        after = given
    result = others | after
    return (None if orphans(result) else result), refusals


def _ends(known: dict[str, Row], row: Row) -> Row:
    was = known.get(row["id"])
    return {} if was is None else {"src": was["src"], "dst": was["dst"]}


def _literal(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def _as_text(row: Row) -> str:
    return repr(sorted(row.items()))


def _source(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    shown = [_value(each) for each in args]
    shown += [f"{n}={_value(v)}" for n, v in kwargs.items() if n not in ("spark", "progress")]
    return ", ".join(shown)


def _value(value: Any) -> str:
    if isinstance(value, pa.Table):
        return f"pa.table({value.to_pydict()!r}, schema=...)"
    return repr(value)


def _read_elsewhere(
    uri: str, points: list[tuple[str, str, State]], probe: int, report: str
) -> None:
    """Read every branch in this process, as the graph is and without its derived files."""
    try:
        _read_all(uri, "fresh process", points, probe)
        # A graph with branches names its files by absolute paths, so the copy takes its place.
        graph, aside = Path(uri), Path(uri + ".aside")
        graph.rename(aside)
        try:
            shutil.copytree(aside, graph)
            shutil.rmtree(graph / "__derived", ignore_errors=True)
            _read_all(uri, "without derived files", points, probe)
        finally:
            shutil.rmtree(graph, ignore_errors=True)
            aside.rename(graph)
    except Exception as error:  # noqa: BLE001 - the parent reports whatever it is
        Path(report).write_text(f"{type(error).__name__}: {error}")
        raise SystemExit(1) from None


def _read_all(uri: str, what: str, points: list[tuple[str, str, State]], probe: int) -> None:
    with tempfile.TemporaryDirectory() as cache, og.open(uri, read_only=probe % 2 == 0) as graph:
        os.environ["XDG_CACHE_HOME"] = cache
        for where, branch, state in points:
            at = {"branch": branch}
            oracles.check_point(graph, f"{where}, {what}", at, state, probe)
            oracles.check_search(graph, f"{where}, {what}", at, state, probe)


# ---- whole runs


@contextmanager
def surroundings(setting: Setting, cache: Path) -> Iterator[None]:
    """The environment of a setting, with a cache folder for read-only handles."""
    given = {
        "XDG_CACHE_HOME": str(cache),
        "OMNIGRAPH_CACHE_BYTES_MAX": str(setting.cache_bytes),
        "OMNIGRAPH_TRAVERSAL_MODE": setting.traversal,
        "OMNIGRAPH_DURABILITY": setting.durability,
        "OMNIGRAPH_INDEX_ROWS_MIN": "20",
    }
    before = {name: os.environ.get(name) for name in given}
    age = manifest.RECLAIM_AGE_S
    os.environ.update(given)
    manifest.RECLAIM_AGE_S = 0.0  # no writer counts versions here, so cleanup need not wait
    try:
        if setting.lowered:
            with lower_thresholds(setting.seed):
                yield
        else:
            yield
    finally:
        manifest.RECLAIM_AGE_S = age
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value


@dataclass
class Failure:
    """A history that the graph did not follow."""

    setting: Setting
    steps: list[Step]
    error: str
    calls: list[str]

    def script(self) -> str:
        """A program that repeats the failure, with its calls as comments."""
        steps = "".join(f"    {step!r},\n" for step in self.steps)
        calls = "".join(f"# {line}\n" for line in self.calls)
        return (
            "from tests.model.history import Setting, Step, replay\n\n"
            f"STEPS = [\n{steps}]\n"
            f"replay({self.setting!r}, STEPS)\n\n"
            f"# {self.error}\n{calls}"
        )


def run_history(
    setting: Setting,
    steps: int | list[Step],
    *,
    spark: Any = None,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[int, Failure | None]:
    """Run drawn or given steps; how many were taken, and the failure if there was one."""
    taken: list[Step] = []
    folder = Path(tempfile.mkdtemp(prefix="model-"))
    draw = random.Random(f"steps {setting.seed}")
    with surroundings(setting, folder / "cache"):
        history = History(setting, folder, spark)
        try:
            for number in range(steps if isinstance(steps, int) else len(steps)):
                if stop():
                    break
                given = None if isinstance(steps, int) else steps[number]
                step = given or drawn_step(draw, history.model)
                if given is not None and step.branch not in history.model.branches:
                    continue
                taken.append(step)
                if not history.run(step):
                    taken.pop()
            history.finish()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
            text = f"{type(error).__name__}: {error}"
            return len(taken), Failure(setting, taken, text[:3000], history.log)
        finally:
            history.close()
            shutil.rmtree(folder, ignore_errors=True)
    return len(taken), None


def replay(setting: Setting, steps: list[Step]) -> None:
    """Run the steps of a printed script; raises where the graph and the model differ."""
    _, failure = run_history(setting, steps)
    if failure is not None:
        raise Disagreement(failure.error + "\n" + "\n".join(failure.calls))


def shrunk(failure: Failure, *, attempts: int = 60) -> Failure:
    """The same kind of failure with as few steps as a bounded search finds."""
    best, size = failure, max(1, len(failure.steps) // 2)
    while size and attempts > 0:
        start, smaller = 0, False
        while start < len(best.steps) and attempts > 0:
            part = best.steps[:start] + best.steps[start + size :]
            attempts -= 1
            _, other = run_history(best.setting, part) if part else (0, None)
            if other is not None:
                best, smaller = other, True
            else:
                start += size
        size = size // 2 if not smaller or size > 1 else 0
    return best
