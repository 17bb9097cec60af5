"""Random mutations, branches and crashes against a graph of plain dictionaries."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

import omnigraph as og
from omnigraph.storage import failpoints
from tests.exec.model import Model, Refused
from tests.exec.town import COMPANY, KNOWS, PERSON, WORKS_AT, copy_of, make_template, pairs, rows

names = st.sampled_from(["Ada", "Bob", "Cid", "O'Hara"])
companies = st.sampled_from(["Acme", "Bolt"])
emails = st.sampled_from(["a@x", "b@x", "c'@x"])
ages = st.sampled_from([10, 20, 30, 30, 151])
branches = st.sampled_from(["main", "one", "two"])

PEOPLE = [("Ada", 10, None), ("Bob", 20, None), ("O'Hara", 30, None)]

Statement = tuple[str, tuple[Any, ...]]

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
        # Empty graphs refuse most statements: begin where every kind can succeed.
        self.mutate("main", [("insert_company", (name,)) for name in ("Acme", "Bolt")])
        self.mutate("main", [("insert_person", person) for person in PEOPLE])

    @rule(branch=branches, source=branches)
    def fork(self, branch: str, source: str) -> None:
        if branch not in self.models and source in self.models:
            self.graph.branches.create(branch, from_=source)
            self.models[branch] = self.models[source].copy()

    @rule(branch=branches, statements=mutations)
    def mutate(self, branch: str, statements: list[Statement]) -> None:
        if branch not in self.models:
            return
        text, params = written(statements)
        after, counts = self._expected(branch, statements)
        if after is None:
            with pytest.raises(og.ConstraintViolated):
                self.graph.mutate(text, params, branch=branch)
            return
        done = self.graph.mutate(text, params, branch=branch)
        assert (done.affected_nodes, done.affected_edges) == counts
        assert (done.commit is None) == (counts == (0, 0))
        self.models[branch] = after

    @rule(branch=branches, statements=mutations, place=st.sampled_from(sorted(failpoints.COMMIT)))
    def crash(self, branch: str, statements: list[Statement], place: str) -> None:
        """Fail somewhere in the protocol, and look again through a new handle."""
        if branch not in self.models:
            return
        text, params = written(statements)
        after, _ = self._expected(branch, statements)
        with failpoints.armed(place):
            try:
                self.graph.mutate(text, params, branch=branch)
            except og.OmnigraphError:
                pass
            except OSError:
                pass
        self.graph = og.open(self.graph.uri)
        now = self._seen(branch)
        if after is not None and now == after.seen():
            self.models[branch] = after

    def _expected(
        self, branch: str, statements: list[Statement]
    ) -> tuple[Model | None, tuple[int, int]]:
        after = self.models[branch].copy()
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
    run_machine(tmp_path_factory, examples=15, steps=30)


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
