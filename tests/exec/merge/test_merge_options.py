"""Merging by property, resolving conflicts, deleting the source, and others who write meanwhile."""

import math
from collections import defaultdict
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.exec.merge import decide as deciding
from omnigraph.exec.merge import run as merging
from omnigraph.exec.progress import Progress
from omnigraph.graph import Graph
from omnigraph.storage.locks import turns
from omnigraph.storage.names import MAIN
from tests.exec.branching import PERSON, edit, knows, person, state, works_at
from tests.exec.town import blobs, do, rows


def start(graph: Graph) -> None:
    people = {name: person(name, 30) for name in ("Alice", "Bob", "Carol", "Dan")}
    edit(graph, Person=people, Knows={"bc": knows("bc", "Bob", "Carol", 2000)})
    graph.branches.create("b")


def conflicts(graph: Graph, **options: Any) -> dict[str | None, str]:
    with pytest.raises(og.MergeConflicts) as refused:
        graph.branches.merge("b", **options)
    return {c.entity_id: c.message for c in refused.value.conflicts}


# ---- by property


def test_different_properties_of_one_entity_merge_only_when_asked(small: Graph) -> None:
    start(small)
    edit(
        small, "b", Person={"Alice": person("Alice", 31)}, Knows={"bc": knows("bc", "Dan", "Carol")}
    )
    edit(
        small,
        Person={"Alice": person("Alice", 30, "a@b")},
        Knows={"bc": knows("bc", "Bob", "Alice", 2000)},
    )
    assert conflicts(small).keys() == {"Alice", "bc"}
    assert small.branches.merge("b", by="property").kind == "merged"
    assert state(small)["Person", "Alice"] == person("Alice", 31, "a@b")
    assert state(small)["Knows", "bc"] == knows("bc", "Dan", "Alice", None)


def test_one_property_changed_on_both_sides_is_named(small: Graph) -> None:
    start(small)
    edit(small, "b", Person={"Alice": person("Alice", 31, "s@b"), "Bob": person("Bob", 31)})
    edit(small, Person={"Alice": person("Alice", 32, "t@b"), "Bob": None})
    assert conflicts(small, by="property") == {
        "Alice": "divergent update for id 'Alice' in age, email",
        "Bob": "delete/update conflict for id 'Bob'",
    }


def test_a_merge_by_property_is_checked_against_every_row(small: Graph) -> None:
    start(small)
    edit(small, Person={"Dan": person("Dan", 30, "x@y")})
    small.branches.create("c")
    edit(small, "c", Person={"Dan": person("Dan", 30), "Alice": person("Alice", 30, "x@y")})
    edit(small, Person={"Alice": person("Alice", 31), "Dan": person("Dan", 31, "x@y")})
    small.branches.merge("c", by="property")
    assert state(small)["Person", "Alice"] == person("Alice", 31, "x@y")
    assert state(small)["Person", "Dan"] == person("Dan", 31)


# ---- resolve


def test_ours_and_theirs(small: Graph) -> None:
    start(small)
    edit(
        small,
        "b",
        Person={"Alice": person("Alice", 31), "Dan": None, "Eve": person("Eve", 1)},
    )
    edit(
        small,
        Person={"Alice": person("Alice", 32), "Dan": person("Dan", 9), "Eve": person("Eve", 2)},
    )
    small.branches.create("t")
    small.branches.merge("b", into="t", resolve="theirs")
    seen = state(small, "t")
    assert (seen["Person", "Alice"]["age"], seen["Person", "Eve"]["age"]) == (31, 1)
    assert ("Person", "Dan") not in seen
    before = state(small)
    assert small.branches.merge("b", resolve="ours").kind == "merged"
    assert state(small) == before
    assert small.branches.merge("b").kind == "already_up_to_date"


def test_each_entity_by_itself(small: Graph) -> None:
    start(small)
    names = ("Alice", "Bob", "Carol", "Dan")
    edit(small, "b", Person={name: person(name, 31) for name in names})
    edit(small, Person={name: person(name, 32) for name in names[:3]} | {"Dan": None})
    answers: dict[tuple[str, str], Any] = {
        ("Person", "Alice"): "theirs",
        ("Person", "Bob"): "ours",
        ("Person", "Carol"): {"age": 33, "email": "c@d"},
        ("Person", "Dan"): {"age": 34},
    }
    assert conflicts(small, resolve={("Person", "Alice"): "ours"}).keys() == {"Bob", "Carol", "Dan"}
    small.branches.merge("b", resolve=answers)
    seen = state(small)
    assert [seen["Person", name]["age"] for name in names] == [31, 32, 33, 34]
    assert seen["Person", "Carol"]["email"] == "c@d"


def test_a_function_decides(small: Graph) -> None:
    start(small)
    edit(small, "b", Person={"Alice": person("Alice", 40), "Bob": person("Bob", 1)})
    edit(small, Person={"Alice": person("Alice", 32), "Bob": person("Bob", 2)})

    def older(conflict: og.MergeConflict) -> str:
        assert conflict.ours is not None
        assert conflict.theirs is not None
        theirs, ours = conflict.theirs["properties"]["age"], conflict.ours["properties"]["age"]
        return "theirs" if theirs > ours else "ours"

    small.branches.merge("b", resolve=older)
    assert [state(small)["Person", name]["age"] for name in ("Alice", "Bob")] == [40, 2]


def test_a_resolution_that_breaks_a_rule_is_a_conflict(small: Graph) -> None:
    start(small)
    edit(small, Person={"Dan": person("Dan", 30, "x@y")})
    edit(small, "b", Person={"Alice": person("Alice", 31)}, Knows={"bc": knows("bc", "Dan", "Bob")})
    edit(small, Person={"Alice": person("Alice", 32)}, Knows={"bc": knows("bc", "Dan", "Carol")})
    answers: dict[tuple[str, str], Any] = {
        ("Person", "Alice"): {"email": "x@y"},
        ("Knows", "bc"): {"dst": "Nobody"},
    }
    assert conflicts(small, resolve=answers) == {
        "Dan": "@unique violation on Person.email: value 'x@y' held by 'Alice' and 'Dan'",
        "bc": "dst 'Nobody' not found in Person",
    }


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"name": "Other"}, "cannot change Person.name"),
        ({"id": "Other"}, "cannot change Person.id"),
        ({"size": 1}, "no property 'size'"),
        ({"age": "old"}, "does not fit"),
        ("both", "resolves nothing"),
        (5, "resolves nothing"),
        ([("age", 3)], "resolves nothing"),
        ({5: 3}, "no property '5'"),
    ],
)
def test_answers_that_make_no_sense(small: Graph, answer: Any, text: str) -> None:
    start(small)
    edit(small, "b", Person={"Alice": person("Alice", 31)})
    edit(small, Person={"Alice": person("Alice", 32)})
    head = small.snapshot()
    with pytest.raises(og.BadRequest, match=text):
        small.branches.merge("b", resolve=lambda conflict: answer)
    assert small.snapshot() == head


# ---- answers and types


ANSWERED = """
node Person {
    name: String @key
    age: I32?
    ratio: F64?
    born: Date?
    seen: DateTime?
    days: [Date]?
    place: Vector(2)?
    photo: Blob?
}
"""


def divided(folder: Path) -> Graph:
    """A graph of one person whose age two branches changed."""
    graph = og.init(folder / "g", schema=ANSWERED)
    do(graph, 'insert Person { name: "a", age: 1, photo: "base64:eHg=" }')
    graph.branches.create("s")
    do(graph, 'update Person set { age: 2 } where name = "a"', "s")
    do(graph, 'update Person set { age: 3 } where name = "a"')
    return graph


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"age": 2.5}, "must be an integer, not 2.5"),
        ({"age": 2**31}, "must lie between"),
        ({"age": True}, "must be an integer, not a boolean"),
        ({"ratio": math.nan}, "must be a finite number that fits F64"),
        ({"ratio": math.inf}, "must be a finite number that fits F64"),
        ({"ratio": 10**400}, "must be a finite number that fits F64"),
        ({"ratio": Decimal("sNaN")}, "must be a finite number that fits F64"),
        ({"ratio": "1.5"}, "must be a number, not a string"),
        ({"born": "2024-02-30"}, "is not a date"),
        ({"seen": "soon"}, "is not a moment"),
        ({"seen": "9999-12-31T23:59:59-14:00"}, "outside the years 1 to 9999"),
        ({"days": ["2024-01-31", None]}, "holds a null"),
        ({"place": [1.0]}, "needs 2 numbers, not 1"),
        ({"photo": "base64:%"}, "is not base64"),
        ({"photo": "https://example.org/a.png"}, "no configured base allows"),
    ],
)
def test_an_answer_that_its_property_cannot_hold_is_refused(
    tmp_path: Path, answer: dict[str, Any], reason: str
) -> None:
    graph = divided(tmp_path)
    head = graph.snapshot()
    (name,) = answer
    with pytest.raises(og.BadRequest) as refused:
        graph.branches.merge("s", resolve={("Person", "a"): answer})
    assert f"the value for Person.{name} of 'a' does not fit" in str(refused.value)
    assert reason in str(refused.value)
    assert refused.value.hint == "give a value of the property's type"
    assert graph.snapshot() == head


def test_an_answer_with_half_a_surrogate_pair_is_refused(small: Graph) -> None:
    start(small)
    edit(small, "b", Person={"Alice": person("Alice", 31)})
    edit(small, Person={"Alice": person("Alice", 32)})
    with pytest.raises(og.BadRequest, match="half of a surrogate pair"):
        small.branches.merge("b", resolve={("Person", "Alice"): {"email": "\ud800"}})


def test_an_answer_is_read_as_a_load_reads_it(tmp_path: Path) -> None:
    graph = divided(tmp_path)
    answer = {
        "ratio": 1,
        "born": "2024-01-31",
        "seen": "2024-01-31T10:00:00Z",
        "days": ["2024-01-31", 19_754],
        "place": [1, 2.5],
        "photo": "base64:eXk=",
    }
    graph.branches.merge("s", resolve={("Person", "a"): answer})
    names = ("age", "ratio", "born", "seen", "days", "place")
    returned = " ".join(f"$p.{name} as {name}" for name in names)
    query = f"query q() {{ match {{ $p: Person }} return {{ {returned} }} }}"
    (row,) = graph.query(query)
    assert row == {
        "age": 3,
        "ratio": 1.0,
        "born": "2024-01-31",
        "seen": "2024-01-31T10:00:00.000Z",
        "days": ["2024-01-31", "2024-02-01"],
        "place": [1.0, 2.5],
    }
    assert blobs(graph) == {"a": b"yy"}


@pytest.mark.parametrize("photo", [b"yy", "base64:eXk=", None])
def test_an_answer_may_set_a_blob(tmp_path: Path, photo: Any) -> None:
    graph = divided(tmp_path)
    graph.branches.merge("s", resolve={("Person", "a"): {"photo": photo}})
    assert blobs(graph) == {"a": None if photo is None else b"yy"}


@pytest.mark.parametrize(
    ("answers", "named"),
    [
        ({("Persson", "a"): "ours", ("Person", "a"): "ours"}, "Persson 'a'"),
        ({("Person", "A"): "ours", ("Person", "a"): "ours"}, "Person 'A'"),
        ({("Person", "b"): {"age": 5}}, "Person 'b'"),
        ({"a": "ours"}, "'a'"),
        ({("Person", "a", "x"): "ours"}, "('Person', 'a', 'x')"),
    ],
)
def test_answers_for_what_is_in_no_conflict_are_refused_by_name(
    tmp_path: Path, answers: Any, named: str
) -> None:
    graph = divided(tmp_path)
    head = graph.snapshot()
    with pytest.raises(og.BadRequest) as refused:
        graph.branches.merge("s", resolve=answers)
    assert named in str(refused.value)
    assert graph.snapshot() == head


def test_an_answer_for_what_merges_by_itself_is_refused(tmp_path: Path) -> None:
    graph = divided(tmp_path)
    do(graph, 'insert Person { name: "new" }', "s")
    graph.branches.create("t")
    fast = {("Person", "new"): "ours"}
    for into, answers in (("main", {("Person", "a"): "ours", **fast}), ("t", fast)):
        with pytest.raises(og.BadRequest, match="Person 'new'"):
            graph.branches.merge("s", into=into, resolve=answers)
    graph.branches.merge("s", resolve={("Person", "a"): "ours"})
    again = graph.branches.merge("s", resolve={("Person", "a"): "ours"})
    assert again.kind == "already_up_to_date", "the same call again harms nothing"


def test_answers_may_have_one_for_the_rest(small: Graph) -> None:
    start(small)
    edit(small, "b", Person={name: person(name, 31) for name in ("Alice", "Bob")})
    edit(small, Person={name: person(name, 32) for name in ("Alice", "Bob")})
    rest = defaultdict(lambda: "theirs", {("Person", "Zed"): "ours"})
    with pytest.raises(og.BadRequest, match="Person 'Zed'"):
        small.branches.merge("b", resolve=rest)
    answers = defaultdict(lambda: "theirs", {("Person", "Alice"): "ours"})
    small.branches.merge("b", resolve=answers)
    assert [state(small)["Person", name]["age"] for name in ("Alice", "Bob")] == [32, 31]


# ---- values of every type


def test_blobs_vectors_and_lists_merge_by_content(people: Graph) -> None:
    do(people, 'insert Person { name: "a", photo: "base64:eHg=", place: [1.0, 2.0, 3.0] }')
    do(people, 'insert Person { name: "b", photo: "base64:eHg=", tags: ["x"] }')
    people.branches.create("s")
    do(people, 'update Person set { photo: "base64:eXk=" } where name = "a"', "s")
    do(people, 'update Person set { age: 1 } where name = "a"')
    with pytest.raises(og.MergeConflicts):
        people.branches.merge("s")
    # Written again with equal bytes: no change.
    do(people, 'update Person set { photo: "base64:eHg=" } where name = "a"', "s")
    do(people, 'update Person set { photo: "base64:enp6" } where name = "b"', "s")
    do(people, 'insert Person { name: "c", photo: "base64:", place: [0.0, 0.0, 1.0] }', "s")
    assert [c.id for c in people.diff("main", "s")] == ["a", "b", "c"]
    assert people.branches.merge("s", delete_source=True).kind == "merged"
    assert blobs(people) == {"a": b"xx", "b": b"zzz", "c": b""}
    seen = rows(people, PERSON)
    assert seen["a"]["age"] == 1
    assert seen["a"]["place"] == [1.0, 2.0, 3.0]
    assert seen["c"]["place"] == [0.0, 0.0, 1.0]
    assert seen["b"]["tags"] == ["x"]


def test_a_blob_merges_by_property(people: Graph) -> None:
    do(people, 'insert Person { name: "a", photo: "base64:eHg=", age: 1 }')
    people.branches.create("s")
    do(people, 'update Person set { photo: "base64:eXk=" } where name = "a"', "s")
    do(people, 'update Person set { age: 2 } where name = "a"')
    people.branches.merge("s", by="property")
    assert blobs(people) == {"a": b"yy"}
    assert rows(people, PERSON)["a"]["age"] == 2


# ---- others who write meanwhile


def meanwhile(monkeypatch: pytest.MonkeyPatch, work: Any) -> None:
    """Run something between the decision of a merge and its commit."""
    decided = merging.decided

    def and_then(*arguments: Any) -> Any:
        found = decided(*arguments)
        work()
        return found

    monkeypatch.setattr(merging, "decided", and_then)


def test_a_target_that_moves_meanwhile_is_merged_as_it_is_then(
    small: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(small)
    edit(small, "b", Person={"Alice": person("Alice", 31)})
    other = og.open(small.uri)
    moves = iter([{"Knows": {"ab": knows("ab", "Alice", "Bob")}}])
    meanwhile(monkeypatch, lambda: [edit(other, **move) for move in moves])
    outcome = small.branches.merge("b")
    assert outcome.kind == "merged"
    assert state(small)["Person", "Alice"]["age"] == 31
    assert ("Knows", "ab") in state(small)
    assert outcome.commit is not None
    assert small.commits.get(outcome.commit.parent or "").parent is not None
    assert small._store.sidecars.pending() == ()


def test_a_target_that_moves_onto_the_same_rows_is_a_conflict(
    small: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(small)
    edit(small, "b", Person={"Alice": person("Alice", 31)})
    other = og.open(small.uri)
    moves = iter([{"Person": {"Alice": None, "Dan": None}}])
    meanwhile(monkeypatch, lambda: [edit(other, **move) for move in moves])
    with pytest.raises(og.MergeConflicts):
        small.branches.merge("b")
    assert ("Person", "Alice") not in state(small)
    assert small._store.sidecars.pending() == ()


def moving(
    small: Graph, monkeypatch: pytest.MonkeyPatch, change: Callable[[str], Any]
) -> list[str]:
    """Let another writer of the target come between each preparation of a merge and its commit, if
    it can; how it went."""
    other = og.open(small.uri)
    monkeypatch.setattr(other._store._committer, "_wait_s", 0.1)
    stage = deciding.stage_part
    went: list[str] = []

    def and_then(*arguments: Any) -> None:
        stage(*arguments)
        try:
            edit(other, **change(f"n{len(went)}"))
        except og.StorageFailed:
            went.append("waited in vain")
        else:
            went.append("came first")

    monkeypatch.setattr(deciding, "stage_part", and_then)
    return went


def test_C2_a_merge_into_a_target_that_never_stands_still_gets_its_turn(
    small: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(small)
    edit(small, "b", Person={"Alice": person("Alice", 31)})
    went = moving(small, monkeypatch, lambda name: {"Person": {name: person(name, 1)}})
    assert small.branches.merge("b").kind == "merged"
    assert went.count("came first") == turns.FREE_ATTEMPTS
    assert went[-1] == "waited in vain"
    assert state(small)["Person", "Alice"]["age"] == 31
    assert state(small)["Person", "n0"]["age"] == 1


def test_a_target_that_never_stands_still_stops_a_merge_that_takes_long(
    small: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(small)
    edit(small, "b", Person={"Alice": person("Alice", 31)})
    monkeypatch.setattr(turns, "LONGEST_TURN_S", 0.0)
    went = moving(small, monkeypatch, lambda name: {"Knows": {name: knows(name, "Alice", "Bob")}})
    with pytest.raises(og.PreconditionFailed):
        small.branches.merge("b")
    assert set(went) == {"came first"}
    assert state(small)["Person", "Alice"]["age"] == 30
    monkeypatch.undo()
    assert small.branches.merge("b").kind == "merged"


def test_a_source_that_moves_meanwhile_is_merged_as_it_was(
    small: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(small)
    first = edit(small, "b", Person={"Alice": person("Alice", 31)})
    other = og.open(small.uri)
    meanwhile(monkeypatch, lambda: edit(other, "b", Person={"Alice": person("Alice", 32)}))
    outcome = small.branches.merge("b", delete_source=True)
    assert outcome.commit is not None
    assert outcome.commit.merged_parent == first.id
    assert state(small)["Person", "Alice"]["age"] == 31
    assert outcome.branch_deleted is False
    assert outcome.branch_delete_error == "branch 'b' has commits that are not merged"
    monkeypatch.undo()
    assert small.branches.merge("b", delete_source=True).branch_deleted is True
    assert state(small)["Person", "Alice"]["age"] == 32


def test_a_source_another_branch_needs_is_kept(small: Graph) -> None:
    start(small)
    edit(small, "b", Person={"Alice": person("Alice", 31)})
    small.branches.create("c", from_="b")
    outcome = small.branches.merge("b", delete_source=True)
    assert outcome.kind == "fast_forward"
    assert outcome.branch_deleted is False
    assert "descendant branch 'c'" in (outcome.branch_delete_error or "")
    assert outcome.to_json()["branch_deleted"] is False


def test_the_target_reads_on_after_the_source_is_gone(small: Graph) -> None:
    start(small)
    edit(
        small,
        "b",
        Person={name: person(name, 40) for name in ("Alice", "Eve")},
        Company={"Acme": {"id": "Acme", "name": "Acme"}},
        WorksAt={"w": works_at("w", "Alice", "Acme")},
    )
    edit(small, Person={"Bob": person("Bob", 41)})
    commit = small.branches.merge("b", delete_source=True).commit
    assert commit is not None
    again = og.open(small.uri)
    seen = state(again)
    assert seen["Person", "Eve"]["age"] == 40
    assert seen["WorksAt", "w"]["dst"] == "Acme"
    assert state(again, commit=commit.id) == seen
    again.branches.create("b")
    edit(again, "b", Person={"Eve": person("Eve", 41)})
    edit(again, Person={"Dan": None})
    again.branches.merge("b")
    assert state(again)["Person", "Eve"]["age"] == 41


def test_a_merge_writes_only_what_changed(small: Graph) -> None:
    people = {f"p{i}": person(f"p{i}", i) for i in range(500)}
    edit(small, Person=people)
    small.branches.create("b")
    edit(small, "b", Person={"p1": person("p1", 1_000), "p2": None})
    tables = small.snapshot().tables
    commit = small.branches.merge("b").commit
    assert commit is not None
    after = small.snapshot().tables
    assert after[PERSON].version == tables[PERSON].version + 1, "one version a table"
    assert {k: v for k, v in after.items() if k != PERSON} == {
        k: v for k, v in tables.items() if k != PERSON
    }
    touched = small._store.deltas.touched(tables[PERSON], after[PERSON])
    assert touched["id"].to_pylist() == ["p1", "p2"]
    assert small.snapshot().branch == MAIN


def test_progress_tells_the_rows_that_were_compared(small: Graph) -> None:
    edit(small, Person={f"p{number}": person(f"p{number}", 1) for number in range(20)})
    small.branches.create("b")
    edit(small, "b", Person={f"p{number}": person(f"p{number}", 2) for number in range(12)})
    edit(small, Person={"p19": person("p19", 3)})
    told: list[Progress] = []
    small.branches.merge("b", progress=told.append)
    assert [each.stage for each in told] == ["compare", "compare", "check", "write", "done"]
    assert [each.rows for each in told] == [0, 12, 12, 12, 12]
    told.clear()
    assert small.branch("b").merge_into(MAIN, progress=told.append).kind == "already_up_to_date"
    assert [(each.stage, each.rows) for each in told] == [("compare", 0), ("done", 0)]
