"""Random edits on two branches merge to what a merge of dictionaries gives, or to its conflicts.

And a diff applied to the first point gives the second.
"""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.costs import COSTS
from omnigraph.graph import Graph
from omnigraph.storage.names import MAIN
from tests.exec.branching import Row, State, copy_of, edit, knows, person, state
from tests.lowered import SEEDS, lowered_by

Key = tuple[str, str]
PEOPLE, EDGES = ("p1", "p2", "p3", "p4"), ("e1", "e2", "e3")
BRANCHES = (MAIN, "b")


# ---- edits that leave each side as the schema wants it


@dataclass(frozen=True)
class Edit:
    """One statement on one branch."""

    branch: str
    verb: str
    name: str
    value: int
    ends: tuple[str, str]


NODES = st.sampled_from(PEOPLE)
EDITS = st.one_of(
    st.builds(
        Edit,
        st.sampled_from(BRANCHES),
        st.sampled_from(["person", "person", "no person"]),
        NODES,
        st.integers(0, 3),
        st.just(("", "")),
    ),
    st.builds(
        Edit,
        st.sampled_from(BRANCHES),
        st.sampled_from(["edge", "edge", "no edge"]),
        st.sampled_from(EDGES),
        st.integers(0, 1),
        st.tuples(NODES, NODES),
    ),
)


def effect(step: Edit, before: State) -> dict[Key, Row | None]:
    """What a statement does to a consistent graph: nothing, if it would break it."""
    match step.verb:
        case "person":
            email = f"mail-{step.value}" if step.value else None
            taken = {row.get("email") for key, row in before.items() if key[1] != step.name}
            if email is not None and email in taken:
                return {}
            return {("Person", step.name): person(step.name, step.value, email)}
        case "no person":
            touching = [
                key
                for key, row in before.items()
                if key[0] == "Knows" and step.name in (row["src"], row["dst"])
            ]
            gone: dict[Key, Row | None] = dict.fromkeys([("Person", step.name), *touching])
            return {key: row for key, row in gone.items() if key in before}
        case "edge":
            if any(("Person", end) not in before for end in step.ends):
                return {}
            return {("Knows", step.name): knows(step.name, *step.ends, step.value)}
        case _:
            key = ("Knows", step.name)
            return {key: None} if key in before else {}


def commit(graph: Graph, branch: str, changes: dict[Key, Row | None]) -> None:
    tables: dict[str, dict[str, Row | None]] = {}
    for (type_name, entity_id), row in changes.items():
        tables.setdefault(type_name, {})[entity_id] = row
    edit(graph, branch, **tables)


def applied(before: State, changes: dict[Key, Row | None]) -> State:
    after = {key: row for key, row in before.items() if key not in changes}
    return after | {key: row for key, row in changes.items() if row is not None}


# ---- the model


def three_way(base: State, source: State, target: State) -> tuple[State, set[tuple[Any, ...]]]:
    """The merged graph, and the conflicts."""
    merged: State = {}
    conflicts: set[tuple[Any, ...]] = set()
    for key in base.keys() | source.keys() | target.keys():
        was, theirs, ours = base.get(key), source.get(key), target.get(key)
        if theirs in (ours, was):
            kept = ours
        elif ours == was:
            kept = theirs
        else:
            both = theirs is not None and ours is not None
            kind = "divergent_insert" if was is None else "divergent_update"
            conflicts.add((*key, kind if both else "delete_vs_update"))
            continue
        if kept is not None:
            merged[key] = kept
    return merged, conflicts or broken(merged)


def broken(merged: State) -> set[tuple[Any, ...]]:
    found: set[tuple[Any, ...]] = set()
    emails: dict[str, list[str]] = {}
    for (type_name, entity_id), row in merged.items():
        if type_name == "Knows":
            missing = [e for e in (row["src"], row["dst"]) if ("Person", e) not in merged]
            found |= {(type_name, entity_id, "orphan_edge") for _ in missing}
        elif row["email"] is not None:
            emails.setdefault(row["email"], []).append(entity_id)
    taken = (max(ids) for ids in emails.values() if len(ids) > 1)
    return found | {("Person", entity_id, "unique_violation") for entity_id in taken}


def from_images(graph: Graph, before: str, after: str) -> dict[Key, Row | None]:
    changes: dict[Key, Row | None] = {}
    for change in graph.diff(before, after):
        row = None
        if change.after is not None:
            row = {"id": change.id, **change.after.properties}
            if change.after.endpoints is not None:
                row["src"], row["dst"] = change.after.endpoints
        changes[change.type, change.id] = row
    return changes


# ---- the properties


@pytest.fixture(scope="module")
def template(small_template: Path) -> Path:
    return small_template


@settings(max_examples=12, deadline=None)
@given(
    first=st.lists(EDITS, max_size=5),
    rounds=st.lists(st.lists(EDITS, max_size=7), max_size=3),
    seed=SEEDS,
)
def test_a_merge_is_the_merge_of_the_dictionaries(
    template: Path, first: list[Edit], rounds: list[list[Edit]], seed: int | None
) -> None:
    patched = pytest.MonkeyPatch.context()
    with lowered_by(seed), TemporaryDirectory() as folder, patched as patch:
        patch.setattr(COSTS, "fold_fragments_min", 5)
        graph = copy_of(template, Path(folder) / "g")
        model: dict[str, State] = {MAIN: {}}
        for step in first:
            write(graph, model, MAIN, step)
        graph.branches.create("b")
        base = model["b"] = model[MAIN]
        for number, steps in enumerate(rounds):
            for step in steps:
                write(graph, model, step.branch, step)
            source, target = BRANCHES[(number + 1) % 2], BRANCHES[number % 2]
            diffs_hold(graph, model, base)
            base = merge(graph, model, base, source, target)


def write(graph: Graph, model: dict[str, State], branch: str, step: Edit) -> None:
    changes = effect(step, model[branch])
    if changes:
        commit(graph, branch, changes)
        model[branch] = applied(model[branch], changes)


def merge(graph: Graph, model: dict[str, State], base: State, source: str, target: str) -> State:
    """Merge in both worlds; the base of the next merge."""
    merged, conflicts = three_way(base, model[source], model[target])
    before = graph.snapshot(target)
    try:
        outcome = graph.branches.merge(source, into=target)
    except og.MergeConflicts as refused:
        found = {(c.type_name, c.entity_id, c.kind) for c in refused.conflicts}
        assert found == conflicts
        assert graph.snapshot(target) == before
        return base
    assert state(graph, source) == model[source]
    if outcome.kind != "already_up_to_date":
        assert conflicts == set()
        model[target] = merged
        base = model[source]
    assert state(graph, target) == model[target]
    assert graph.branches.merge(source, into=target).kind == "already_up_to_date"
    return base


def diffs_hold(graph: Graph, model: dict[str, State], base: State) -> None:
    for before, after in ((MAIN, "b"), ("b", MAIN)):
        changes = from_images(graph, before, after)
        assert applied(model[before], changes) == model[after]
        assert all(model[before].get(k) != row for k, row in changes.items()), "no equal rows"
