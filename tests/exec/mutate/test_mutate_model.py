"""Random mutations, branches, transactions and crashes against a graph of plain dictionaries.

A crash is an error raised inside the protocol, or kill -9 of a child process there. Whatever it
stopped is then there wholly or not at all.
"""

import shutil
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import omnigraph as og
from omnigraph.graph.handles import Transaction
from omnigraph.storage import failpoints
from tests.exec import child
from tests.exec.model import Model, Refused
from tests.exec.town import COMPANY, KNOWS, PERSON, WORKS_AT, copy_of, make_template, pairs, rows
from tests.forked import KILLED, run

names = st.sampled_from(["Ada", "Bob", "Cid", "O'Hara"])
companies = st.sampled_from(["Acme", "Bolt"])
emails = st.sampled_from(["a@x", "b@x", "c'@x"])
ages = st.sampled_from([10, 20, 30, 30, 151])
branches = st.sampled_from(["main", "one", "two"])

PEOPLE = [("Ada", 10, None), ("Bob", 20, None), ("O'Hara", 30, None)]
FRIENDS = [("Ada", "Bob"), ("Bob", "O'Hara"), ("O'Hara", "O'Hara")]
KILLS_MAX = 2
"""Children that are killed in one run: each takes longer than all else."""

places = st.sampled_from(
    [*failpoints.COMMIT, *failpoints.CONFIRM, *failpoints.FORK, *failpoints.BRANCH]
)

Statement = tuple[str, tuple[Any, ...]]


class Left(Exception):
    """What a caller raises inside a transaction."""


WRITES = {
    "insert_person": "insert Person { name: $a, age: $b, email: $c }",
    "insert_company": "insert Company { name: $a }",
    "insert_knows": "insert Knows { from: $a, to: $b }",
    "insert_works": "insert WorksAt { from: $a, to: $b }",
    "update_age": "update Person set { age: $a } where age < $b",
    "update_email": "update Person set { email: $a } where name = $b",
    "delete_person": "delete Person where age >= $a",
    "delete_named": "delete Person where name = $a",
    "delete_company": "delete Company where name = $a",
    "delete_knows": "delete Knows where from = $a",
}

inserts_and_updates: st.SearchStrategy[Statement] = st.one_of(
    st.tuples(st.just("insert_person"), st.tuples(names, ages | st.none(), emails | st.none())),
    st.sampled_from([("insert_person", person) for person in PEOPLE]),
    st.tuples(st.just("insert_company"), st.tuples(companies)),
    st.tuples(st.just("insert_knows"), st.tuples(names, names)),
    st.tuples(st.just("insert_works"), st.tuples(names, companies)),
    st.tuples(st.just("update_age"), st.tuples(ages, ages)),
    st.tuples(st.just("update_email"), st.tuples(emails, names)),
)
deletes: st.SearchStrategy[Statement] = st.one_of(
    st.tuples(st.just("delete_person"), st.tuples(ages)),
    st.tuples(st.just("delete_named"), st.tuples(names)),
    st.tuples(st.just("delete_company"), st.tuples(companies)),
    st.tuples(st.just("delete_knows"), st.tuples(names)),
)
mutations = st.one_of(
    st.lists(inserts_and_updates, min_size=1, max_size=1),
    st.lists(inserts_and_updates, min_size=2, max_size=4),
    st.lists(deletes, min_size=1, max_size=3),
)


def written(statements: list[Statement]) -> tuple[str, dict[str, Any]]:
    """The text of a query and its parameters."""
    declared, body = list[str](), list[str]()
    params: dict[str, Any] = {}
    for number, (kind, values) in enumerate(statements):
        text = WRITES[kind]
        for letter, value in zip("abc", values, strict=False):
            text = text.replace(f"${letter}", f"$p{number}{letter}")
            numeric = kind in ("update_age", "delete_person") or (kind, letter) == (
                "insert_person",
                "b",
            )
            declared.append(f"$p{number}{letter}: {'I32' if numeric else 'String'}?")
            params[f"p{number}{letter}"] = value
        body.append(text)
    return f"query q({', '.join(declared)}) {{ {' '.join(body)} }}", params


class Mutations(RuleBasedStateMachine):
    """The graph and the model take the same steps."""

    template: Path

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.graph = copy_of(self.template, self.folder / "graph.omni")
        self.models = {"main": Model()}
        self.kills = 0
        # Empty graphs refuse most statements: begin where every kind can succeed, and where people
        # stand at either end of an edge alone.
        self.mutate("main", [("insert_company", (name,)) for name in ("Acme", "Bolt")])
        self.mutate("main", [("insert_person", person) for person in PEOPLE])
        self.mutate("main", [("insert_knows", pair) for pair in FRIENDS])
        self.mutate("main", [("insert_works", ("Bob", "Acme"))])

    @rule(branch=branches, source=branches)
    def fork(self, branch: str, source: str) -> None:
        if branch not in self.models and source in self.models:
            self.graph.branches.create(branch, from_=source)
            self.models[branch] = self.models[source].copy()

    @rule(branch=branches, statements=mutations)
    def mutate(self, branch: str, statements: list[Statement]) -> None:
        if branch in self.models:
            after = self._mutated(statements, self.models[branch], branch=branch)
            self.models[branch] = after or self.models[branch]

    @rule(
        parts=st.lists(mutations, min_size=1, max_size=3),
        ends=st.sampled_from(["merged", "merged", "merged", "raised"]),
        company=st.none() | companies,
    )
    def transact(self, parts: list[list[Statement]], ends: str, company: str | None) -> None:
        """A block that is left, with an error or without, while main may get a company."""
        inside = self.models["main"].copy()
        before = set(self.graph.branches.list())  # a process that was killed leaves its branch
        with suppress(Left), self.graph.transaction() as block:
            for statements in parts:
                inside = self._mutated(statements, inside, block=block) or inside
            if company is not None and company in inside.companies:
                self.mutate("main", [("insert_company", (company,))])
            if ends == "raised":
                raise Left
        if ends == "merged":
            self.models["main"] = inside
        assert set(self.graph.branches.list()) == before

    @rule(branch=branches, statements=mutations, place=places, nth=st.integers(1, 2))
    def crash(self, branch: str, statements: list[Statement], place: str, nth: int) -> None:
        """Fail somewhere in the protocol, and look again through a new handle."""
        if branch not in self.models:
            return
        text, params = written(statements)
        with failpoints.armed(place, nth=nth), suppress(og.OmnigraphError, OSError):
            self.graph.mutate(text, params, branch=branch)
        self._reopen(branch, [statements])

    @rule(parts=st.lists(mutations, min_size=1, max_size=2), place=places, nth=st.integers(1, 4))
    def crash_in_transaction(self, parts: list[list[Statement]], place: str, nth: int) -> None:
        ended = suppress(og.OmnigraphError, OSError)
        with failpoints.armed(place, nth=nth), ended, self.graph.transaction() as block:
            for statements in parts:
                block.mutate(*written(statements))
        self._reopen("main", parts)

    @precondition(lambda self: self.kills < KILLS_MAX)
    @rule(
        branch=branches,
        parts=st.lists(mutations, min_size=1, max_size=2),
        inside=st.booleans(),
        place=places,
        nth=st.integers(1, 3),
    )
    def kill(
        self, branch: str, parts: list[list[Statement]], inside: bool, place: str, nth: int
    ) -> None:
        """Kill -9 a process in the middle of a mutation, or of a transaction."""
        if branch not in self.models:
            return
        self.kills += 1
        parts = parts if inside else parts[:1]
        changes = [written(statements) for statements in parts]
        where = None if inside else branch
        code = run(child.mutate, self.graph.uri, changes, where, place, nth)
        assert code in (0, KILLED)
        self._reopen("main" if inside else branch, parts)

    def _reopen(self, branch: str, parts: list[list[Statement]]) -> None:
        """Find the branch as it was, or with everything; nothing in between."""
        self.graph = og.open(self.graph.uri)
        after: Model | None = self.models[branch]
        for statements in parts:
            if after is not None:
                after, _ = self._expected(after, statements)
        seen = self._seen(branch)
        if after is not None and seen == after.seen():
            self.models[branch] = after
        assert seen == self.models[branch].seen()

    def _mutated(
        self,
        statements: list[Statement],
        before: Model,
        *,
        branch: str = "main",
        block: Transaction | None = None,
    ) -> Model | None:
        """Mutate, and what must be there then; None when it must be refused."""
        text, params = written(statements)
        run = partial(self.graph.mutate, branch=branch) if block is None else block.mutate
        after, counts = self._expected(before, statements)
        if after is None:
            with pytest.raises(og.ConstraintViolated):
                run(text, params)
            return None
        done = run(text, params)
        assert (done.affected_nodes, done.affected_edges) == counts
        assert (done.commit is None) == (counts == (0, 0))
        return after

    def _expected(
        self, before: Model, statements: list[Statement]
    ) -> tuple[Model | None, tuple[int, int]]:
        after = before.copy()
        counts = [getattr(after, kind)(*values) for kind, values in statements]
        try:
            after.require_valid()
        except Refused:
            return None, (0, 0)
        return after, (sum(nodes for nodes, _ in counts), sum(edges for _, edges in counts))

    def _seen(self, branch: str) -> object:
        kept = {
            name: {k: v for k, v in row.items() if k != "name"}
            for name, row in rows(self.graph, PERSON, branch).items()
        }
        works = pairs(self.graph, WORKS_AT, branch)
        return kept, set(rows(self.graph, COMPANY, branch)), pairs(self.graph, KNOWS, branch), works

    @invariant()
    def every_branch_is_as_the_model_says(self) -> None:
        for branch, model in self.models.items():
            assert self._seen(branch) == model.seen()

    def teardown(self) -> None:
        self.graph.close()
        shutil.rmtree(self.folder)


def test_mutations_do_what_the_model_does(tmp_path_factory: pytest.TempPathFactory) -> None:
    run_machine(tmp_path_factory, examples=4, steps=30)


@pytest.mark.slow
def test_many_mutations_do_what_the_model_does(tmp_path_factory: pytest.TempPathFactory) -> None:
    run_machine(tmp_path_factory, examples=150, steps=50)


def run_machine(folders: pytest.TempPathFactory, *, examples: int, steps: int) -> None:
    Mutations.template = make_template(folders.mktemp("model") / "graph.omni")
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(Mutations, settings=chosen)
