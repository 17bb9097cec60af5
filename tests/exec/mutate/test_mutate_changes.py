"""Updating and deleting: what is matched, what is kept, what is counted."""

from datetime import date

import pytest

import omnigraph as og
from omnigraph.graph import Graph
from omnigraph.storage.names import MAIN
from tests.exec.town import (
    COMPANY,
    KNOWS,
    MENTIONS,
    NOTE,
    PERSON,
    WORKS_AT,
    do,
    everything,
    pairs,
    rows,
)

pytestmark = pytest.mark.consistent


@pytest.fixture
def town(people: Graph) -> Graph:
    """Four people, a company, edges between them."""
    do(
        people,
        """
        insert Person { name: "Ada", age: 36, score: 0.5, first: "Ada", last: "L" }
        insert Person { name: "Bob", age: 25 }
        insert Person { name: "Cid", age: 25, score: 0.1, tags: ["x", "y"] }
        insert Person { name: "Dan" }
        insert Company { name: "Acme" }
        insert WorksAt { from: "Ada", to: "Acme", title: "CTO" }
        insert WorksAt { from: "Bob", to: "Acme", title: "Dev" }
        insert Knows { from: "Ada", to: "Bob", since: date("2020-01-01") }
        insert Knows { from: "Bob", to: "Ada" }
        insert Knows { from: "Bob", to: "Bob" }
        insert Knows { from: "Cid", to: "Bob" }
        """,
    )
    return people


def ages(graph: Graph, branch: str = MAIN) -> dict[str, int | None]:
    return {name: row.get("age") for name, row in sorted(rows(graph, PERSON, branch).items())}


# ---- update


def test_an_update_sets_what_it_lists_and_keeps_the_rest(town: Graph) -> None:
    done = do(town, 'update Person set { age: 37, email: "a@b" } where name = "Ada"')
    assert (done.affected_nodes, done.affected_edges) == (1, 0)
    assert rows(town, PERSON)["Ada"] == {
        "name": "Ada",
        "age": 37,
        "email": "a@b",
        "score": 0.5,
        "first": "Ada",
        "last": "L",
    }
    assert len(rows(town, PERSON)) == 4


@pytest.mark.parametrize(
    ("condition", "names"),
    [
        ("age = 25", {"Bob", "Cid"}),
        ("age != 25", {"Ada"}),
        ("age > 25", {"Ada"}),
        ("age >= 25", {"Ada", "Bob", "Cid"}),
        ("age < 36", {"Bob", "Cid"}),
        ("age <= 36", {"Ada", "Bob", "Cid"}),
        ("age < 25.5", {"Bob", "Cid"}),
        ("score = 0.1", {"Cid"}),
        ("score > 0", {"Ada", "Cid"}),
        ('id = "Dan"', {"Dan"}),
        ('name >= "Cid"', {"Cid", "Dan"}),
        ("age is null", {"Dan"}),
        ("score is not null", {"Ada", "Cid"}),
        ("age in [36, 1]", {"Ada"}),
        ('tags contains "y"', {"Cid"}),
        ('not (name = "Ada") and age > 1', {"Bob", "Cid"}),
        ('name = "Dan" or score = 0.5', {"Ada", "Dan"}),
    ],
)
def test_an_update_matches_these(town: Graph, condition: str, names: set[str]) -> None:
    done = do(town, f"update Person set {{ count: 9 }} where {condition}")
    assert done.affected_nodes == len(names)
    assert {name for name, row in rows(town, PERSON).items() if "count" in row} == names


@pytest.mark.parametrize(
    "condition",
    ["age = 25", "score = 0.1", "age is null", 'name starts_with "n"', "age in [7, 25]"],
)
def test_pending_rows_match_as_committed_ones_do(people: Graph, condition: str) -> None:
    """The same rows, once committed and once inserted by the same query."""
    inserts = """
        insert Person { name: "n1", age: 25 } insert Person { name: "n2", score: 0.1 }
        insert Person { name: "m3", age: 7, score: 0.2 } insert Person { name: "n4", age: 25 }
    """
    update = f"update Person set {{ count: 9 }} where {condition}"
    together = do(people, inserts + update)
    seen = rows(people, PERSON)
    do(people, inserts)
    apart = do(people, update)
    assert together.affected_nodes == 4 > apart.affected_nodes > 0
    assert rows(people, PERSON) == seen


def test_a_later_statement_sees_an_earlier_one(town: Graph) -> None:
    done = do(
        town,
        """
        insert Person { name: "Eve", age: 25 }
        update Person set { age: 26 } where age = 25
        update Person set { age: 27 } where age = 26
        update Person set { count: 1 } where age = 25
        """,
    )
    assert done.affected_nodes == 3, "Bob, Cid and Eve, each once"
    assert ages(town) == {"Ada": 36, "Bob": 27, "Cid": 27, "Dan": None, "Eve": 27}


def test_a_pending_row_shadows_the_committed_one(town: Graph) -> None:
    done = do(
        town,
        """
        insert Person { name: "Bob", age: 1 }
        update Person set { count: 1 } where age = 25
        """,
    )
    assert done.affected_nodes == 1 + 1
    assert rows(town, PERSON)["Bob"] == {"name": "Bob", "age": 1}
    assert rows(town, PERSON)["Cid"]["count"] == 1


def test_an_insert_after_an_update_replaces_it(town: Graph) -> None:
    do(town, 'update Person set { age: 9 } where name = "Bob" insert Person { name: "Bob" }')
    assert rows(town, PERSON)["Bob"] == {"name": "Bob"}


def test_an_update_that_matches_nothing_writes_no_commit(town: Graph) -> None:
    before = town.commits.list()
    done = do(town, 'update Person set { age: 9 } where name = "Zoe"')
    assert (done.affected_nodes, done.commit) == (0, None)
    assert town.commits.list() == before


def test_a_matched_update_commits_although_nothing_differs(town: Graph) -> None:
    assert do(town, 'update Person set { age: 36 } where name = "Ada"').commit is not None
    do(town, 'update Person set { score: 0.0 } where name = "Ada"')
    again = do(town, 'update Person set { score: -0.0 } where name = "Ada"')
    assert again.commit is not None, "a matched update is a commit, and zero has one sign"
    assert list(town.commits.changes(again.commit.id)) == []


def test_an_update_may_set_null(town: Graph) -> None:
    done = town.mutate('query q($a: I32?) { update Person set { age: $a } where name = "Ada" }')
    assert done.affected_nodes == 1
    assert ages(town)["Ada"] is None


@pytest.mark.parametrize("operator", ["=", "!=", "<", ">="])
def test_a_null_never_matches(town: Graph, operator: str) -> None:
    text = f"query q($a: I32?) {{ update Person set {{ count: 1 }} where age {operator} $a }}"
    assert town.mutate(text).affected_nodes == 0
    assert (
        do(town, f"update Person set {{ count: 1 }} where count {operator} 1").affected_nodes == 0
    )


def test_a_key_cannot_be_updated(town: Graph) -> None:
    with pytest.raises(og.TypeCheckError, match="cannot update @key property 'name'; delete and"):
        do(town, 'update Person set { name: "x" } where name = "Ada"')


def test_an_edge_keeps_its_ends_and_may_change_its_properties(town: Graph) -> None:
    done = do(town, 'update WorksAt set { title: "CEO" } where title = "CTO"')
    assert (done.affected_nodes, done.affected_edges) == (0, 1)
    titles = {row["src"]: row["title"] for row in rows(town, WORKS_AT).values()}
    assert titles == {"Ada": "CEO", "Bob": "Dev"}
    done = do(town, 'update Knows set { weight: 2 } where from = "Bob"')
    assert done.affected_edges == 2
    assert pairs(town, KNOWS) == [("Ada", "Bob"), ("Bob", "Ada"), ("Bob", "Bob"), ("Cid", "Bob")]
    with pytest.raises(og.TypeCheckError, match="T16"):
        do(town, 'update Knows set { to: "Cid" } where from = "Bob"')


def test_an_edge_of_the_same_query_is_updated(town: Graph) -> None:
    done = do(
        town,
        """
        insert Knows { from: "Dan", to: "Ada", since: date("2024-05-05") }
        update Knows set { weight: 2 } where to = "Ada"
        """,
    )
    assert done.affected_edges == 2, "the new one counts once"
    weighed = [r for r in rows(town, KNOWS).values() if "weight" in r]
    assert {row["src"] for row in weighed} == {"Bob", "Dan"}
    assert date(2024, 5, 5) in {row.get("since") for row in weighed}


def test_many_rows_are_updated_at_once(people: Graph) -> None:
    do(people, " ".join(f'insert Company {{ name: "c{n}", size: {n} }}' for n in range(500)))
    assert do(people, "update Company set { size: 0 } where size >= 100").affected_nodes == 400
    assert sum(row["size"] == 0 for row in rows(people, COMPANY).values()) == 401


# ---- delete


def test_deleting_a_node_takes_its_edges(town: Graph) -> None:
    done = do(town, 'delete Person where name = "Bob"')
    assert (done.affected_nodes, done.affected_edges) == (1, 5)
    assert sorted(rows(town, PERSON)) == ["Ada", "Cid", "Dan"]
    assert pairs(town, KNOWS) == []
    assert pairs(town, WORKS_AT) == [("Ada", "Acme")]


def test_a_cascade_reaches_edges_of_any_type_at_either_end(town: Graph) -> None:
    do(town, 'insert Note { text: "n" }')
    (note,) = rows(town, NOTE)
    do(town, 'insert Mentions { from: $n, to: "Ada", line: 1 }', n=note)
    done = do(town, 'delete Company where name = "Acme"')
    assert (done.affected_nodes, done.affected_edges) == (1, 2)
    done = do(town, 'delete Note where text = "n"')
    assert (done.affected_nodes, done.affected_edges) == (1, 1)
    assert pairs(town, MENTIONS) == []
    assert len(pairs(town, KNOWS)) == 4


def test_a_delete_that_matches_nothing_writes_nothing(town: Graph) -> None:
    before, seen = town.commits.list(), everything(town)
    for body in ('delete Person where name = "Zoe"', 'delete Knows where from = "Zoe"'):
        done = do(town, body)
        assert (done.affected_nodes, done.affected_edges, done.commit) == (0, 0, None)
    assert (town.commits.list(), everything(town)) == (before, seen)


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        ('from = "Bob"', [("Ada", "Bob"), ("Cid", "Bob")]),
        ('to = "Bob"', [("Bob", "Ada")]),
        ('since = date("2020-01-01")', [("Bob", "Ada"), ("Bob", "Bob"), ("Cid", "Bob")]),
        ('since != date("2020-01-02")', [("Bob", "Ada"), ("Bob", "Bob"), ("Cid", "Bob")]),
    ],
)
def test_deleting_edges_leaves_the_nodes(
    town: Graph, condition: str, left: list[tuple[str, str]]
) -> None:
    done = do(town, f"delete Knows where {condition}")
    assert (done.affected_nodes, done.affected_edges) == (0, 4 - len(left))
    assert pairs(town, KNOWS) == left
    assert len(rows(town, PERSON)) == 4


def test_overlapping_deletes_count_once(town: Graph) -> None:
    done = do(
        town,
        """
        delete Knows where from = "Bob"
        delete Person where age = 25
        delete Person where name = "Bob"
        delete Person where age < 30
        delete Knows where to = "Bob"
        """,
    )
    assert (done.affected_nodes, done.affected_edges) == (2, 5)
    assert sorted(rows(town, PERSON)) == ["Ada", "Dan"]
    assert pairs(town, WORKS_AT) == [("Ada", "Acme")]


def test_a_table_that_changes_often_is_written_once(town: Graph) -> None:
    before = {key: pin.version for key, pin in town.snapshot().tables.items()}
    do(town, 'delete Person where name = "Ada" delete Person where name = "Bob"')
    after = {key: pin.version for key, pin in town.snapshot().tables.items()}
    moved = {key: after[key] - before[key] for key in after if after[key] != before[key]}
    assert moved == {PERSON: 1, KNOWS: 1, WORKS_AT: 1}


def test_a_deleted_node_may_come_back_without_its_edges(town: Graph) -> None:
    do(town, 'delete Person where name = "Bob"')
    do(town, 'insert Person { name: "Bob" }')
    assert rows(town, PERSON)["Bob"] == {"name": "Bob"}
    assert pairs(town, KNOWS) == []


def test_where_a_node_and_an_edge_share_a_name_the_node_is_meant(tmp_path: object) -> None:
    graph = og.init(f"{tmp_path}/g", schema="node Tag {\n  n: String @key\n}\nedge Tag: Tag -> Tag")
    do(graph, 'insert Tag { n: "a" }')
    done = do(graph, 'delete Tag where n = "a"')
    assert (done.affected_nodes, done.affected_edges) == (1, 0)


# ---- atomicity


def test_a_failing_statement_leaves_nothing_and_the_next_mutation_works(town: Graph) -> None:
    before, commits = everything(town), town.commits.list()
    with pytest.raises(og.ConstraintViolated):
        do(
            town,
            """
            insert Company { name: "New" }
            update Person set { age: 1 } where name = "Ada"
            insert WorksAt { from: "Ada", to: "Nowhere" }
            """,
        )
    with pytest.raises(og.BadRequest):
        do(town, 'insert Company { name: "New" } insert Company { name: "x", size: $v }', v=1.5)
    assert (everything(town), town.commits.list()) == (before, commits)
    assert do(town, 'insert Company { name: "New" }').commit is not None
    assert "New" in rows(town, COMPANY)


# ---- branches and conditions


def test_a_branch_is_written_alone(town: Graph) -> None:
    town.branches.create("review/x")
    before = everything(town)
    review = town.branch("review/x")
    done = review.mutate('query q() { delete Person where name = "Bob" }', actor="act-me")
    assert done.branch == "review/x"
    assert (done.affected_nodes, done.affected_edges) == (1, 5)
    assert everything(town) == before
    assert sorted(rows(town, PERSON, "review/x")) == ["Ada", "Cid", "Dan"]
    assert review.snapshot().tables[PERSON].row_count == 3
    review.delete()
    with pytest.raises(og.NotFound):
        town.branch("review/x")


def test_a_condition_on_the_head_holds_or_stops_the_write(town: Graph) -> None:
    head = town.snapshot().commit_id
    insert = 'query q() { insert Company { name: "New" } }'
    done = town.mutate(insert, if_commit=head)
    assert done.commit is not None
    assert done.commit.parent == head
    for body in ('insert Company { name: "B" }', 'delete Person where name = "Zoe"'):
        with pytest.raises(og.PreconditionFailed) as caught:
            town.mutate(f"query q() {{ {body} }}", if_commit=head)
        assert (caught.value.expected, caught.value.actual) == (head, done.commit.id)
    assert "B" not in rows(town, COMPANY)


def test_a_condition_that_holds_lets_a_mutation_that_changes_nothing_pass(town: Graph) -> None:
    head = town.snapshot().commit_id
    done = town.mutate('query q() { delete Person where name = "Zoe" }', if_commit=head)
    assert done.commit is None


def test_a_row_that_two_statements_touch_counts_once(town: Graph) -> None:
    done = do(
        town,
        """
        update Person set { age: 1 } where name = "Ada"
        update Person set { count: 2 } where name = "Ada"
        """,
    )
    assert (done.affected_nodes, done.affected_edges) == (1, 0)


@pytest.mark.parametrize(("column", "end"), [("src", "from"), ("dst", "to")])
def test_an_end_by_the_name_of_its_column_is_told_the_word_for_it(
    people: Graph, column: str, end: str
) -> None:
    with pytest.raises(
        og.TypeCheckError, match=f"(?s)no property '{column}'.*did you mean '{end}'"
    ):
        people.mutate(f'query q() {{ delete Knows where {column} = "a" }}')
