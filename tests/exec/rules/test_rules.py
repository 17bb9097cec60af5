"""One rule set: what each rule lets through, and what it says about the rest."""

import pickle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.catalog.accept import accept
from omnigraph.costs import COSTS
from omnigraph.errors import ConstraintViolated
from omnigraph.exec.rules import rules
from omnigraph.exec.rules.key_rules import check_keys
from omnigraph.exec.rules.row_rules import broken, check_rows, shown
from omnigraph.exec.rules.rules import (
    VIOLATIONS_LISTED,
    RuleViolations,
    joined,
    rules_by_table,
    rules_of,
)
from omnigraph.types import Kind
from tests.exec.town import COMPANY, KNOWS, LIVES, PERSON, SCHEMA, WORKS_AT

CATALOG = accept(SCHEMA)


def people(**columns: list[Any]) -> pa.Table:
    length = len(next(iter(columns.values())))
    return pa.table({"id": [f"p{number}" for number in range(length)], **columns})


# ---- derivation


def test_every_constraint_of_a_type_becomes_a_rule() -> None:
    person = rules_by_table(CATALOG)[PERSON]
    assert person.kind is Kind.NODE
    assert rules.Required("Person", "name", "name") in person.rows
    assert rules.OneOf("Person", "mood", ("calm", "cross")) in person.rows
    assert rules.Within("Person", "age", 0, 150) in person.rows
    assert rules.Within("Person", "score", -1.5, 1.5) in person.rows
    assert rules.Matching("Person", "code", "^[A-Z]+$") in person.rows
    assert rules.Dimension("Person", "place", 3) in person.rows
    assert {r.column for r in person.rows if isinstance(r, rules.WholeItems)} == {
        "tags",
        "marks",
        "place",
    }
    assert person.uniques == (
        rules.Unique("Person", ("email",)),
        rules.Unique("Person", ("first", "last")),
    )
    assert person.endpoints == ()
    assert person.cardinality is None


def test_an_edge_has_rules_for_its_ends_and_its_number() -> None:
    by_table = rules_by_table(CATALOG)
    works = by_table[WORKS_AT]
    assert works.endpoints == (
        rules.Endpoint("WorksAt", "src", "Person"),
        rules.Endpoint("WorksAt", "dst", "Company"),
    )
    assert works.endpoints[1].node_table == COMPANY
    assert works.cardinality == rules.EdgesPerSource("WorksAt", 0, 1)
    assert by_table[LIVES].cardinality == rules.EdgesPerSource("Lives", 1, 2)
    assert by_table[KNOWS].cardinality is None
    assert by_table[KNOWS].uniques == (rules.Unique("Knows", ("src", "dst")),)


def test_the_key_needs_no_unique_rule_because_the_id_follows_from_it() -> None:
    catalog = accept("node A {\n  k: String\n  @key(k)\n  @unique(k)\n}")
    assert rules_of(catalog.nodes["A"]).uniques == ()


def test_rules_can_be_sent_to_a_spark_task() -> None:
    by_table = rules_by_table(CATALOG)
    assert pickle.loads(pickle.dumps(by_table)) == by_table


# ---- row rules


@pytest.mark.parametrize(
    ("rule", "values", "expected"),
    [
        (rules.Required("T", "p", "p"), pa.array(["a", None]), [False, True]),
        (rules.OneOf("T", "p", ("a", "b")), pa.array(["a", "c", None]), [False, True, False]),
        (rules.Matching("T", "p", "b+"), pa.array(["abc", "ac", None]), [False, True, False]),
        (
            rules.Within("T", "p", 0, 150),
            pa.array([-1, 0, 150, 151, None], pa.int32()),
            [True, False, False, True, False],
        ),
        (rules.Within("T", "p", None, 5), pa.array([5, 6], pa.uint64()), [False, True]),
        (rules.Within("T", "p", 5, None), pa.array([5, 4], pa.uint32()), [False, True]),
        (rules.Within("T", "p", -1, None), pa.array([0, 2**64 - 1], pa.uint64()), [False, False]),
        (
            rules.Within("T", "p", None, 2**63),
            pa.array([2**63, 2**63 + 1], pa.uint64()),
            [False, True],
        ),
        (rules.Within("T", "p", 0.5, 2.5), pa.array([0, 1, 2, 3]), [True, False, False, True]),
        (rules.Within("T", "p", 1e300, None), pa.array([2**63 - 1]), [True]),
        (
            rules.Within("T", "p", 0.1, None),
            pa.array([0.1, 0.09, float("nan"), float("inf")]),
            [False, True, True, False],
        ),
        # The float32 nearest to 0.1 is a little above it.
        (rules.Within("T", "p", None, 0.1), pa.array([0.1], pa.float32()), [True]),
        (rules.Within("T", "p", 2**53 + 1, None), pa.array([2.0**53]), [True]),
        (
            rules.WholeItems("T", "p"),
            pa.array([["a"], ["a", None], None, []]),
            [False, True, False, False],
        ),
        (
            rules.WholeItems("T", "p"),
            pa.array([[1.0, 2.0], [1.0, None], None], pa.list_(pa.float32(), 2)),
            [False, True, False],
        ),
        (
            rules.Dimension("T", "p", 2),
            pa.array([[1.0, 2.0], [1.0], None]),
            [False, True, False],
        ),
        (
            rules.Dimension("T", "p", 3),
            pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2)),
            [True, False],
        ),
    ],
)
def test_a_row_rule_is_broken_exactly_here(
    rule: rules.RowRule, values: pa.Array, expected: list[bool]
) -> None:
    assert broken(rule, values).to_pylist() == expected


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        ("name", None, "Person.name is non-nullable and has no value"),
        ("age", 200, "@range violation on Person.age: value 200 > max 150"),
        ("age", -1, "@range violation on Person.age: value -1 < min 0"),
        (
            "code",
            "x",
            "@check violation on Person.code: value 'x' does not match pattern '^[A-Z]+$'",
        ),
        ("mood", "sad", "invalid enum value 'sad' for Person.mood (expected: calm, cross)"),
        ("tags", ["a", None], "Person.tags holds a null: the items of a list cannot be null"),
        ("place", [1.0], "Person.place needs 3 numbers, not 1"),
    ],
)
def test_a_row_violation_says_what_is_wrong(column: str, value: Any, text: str) -> None:
    types = {"name": pa.utf8(), "age": pa.int32()}
    rows = people(**{column: pa.array([value], types.get(column))})
    found = check_rows(rules_of(CATALOG.nodes["Person"]).rows, rows)
    (violation,) = found.violations
    assert violation.text == text
    assert (violation.type_name, violation.property, violation.id) == ("Person", column, "p0")


def test_the_first_violations_are_listed_with_the_total() -> None:
    rows = people(age=pa.array([200] * 50, pa.int32()), mood=["sad"] * 50)
    found = check_rows(rules_of(CATALOG.nodes["Person"]).rows, rows)
    assert (len(found.violations), found.total) == (VIOLATIONS_LISTED, 100)
    with pytest.raises(
        ConstraintViolated, match=r"50 rows: .*; first: id 'p0'; 50 rows: .*; correct the data"
    ):
        found.require_none()


def test_finding_nothing_passes() -> None:
    joined([RuleViolations(), RuleViolations()]).require_none()


def test_a_long_value_is_cut() -> None:
    assert len(shown("x" * 10_000)) == 200


# ---- key rules


def edges(*triples: tuple[str | None, str, str]) -> pa.Table:
    names = ("id", "src", "dst")
    columns = zip(*triples, strict=True) if triples else ((), (), ())
    return pa.table({n: pa.array(list(c), pa.utf8()) for n, c in zip(names, columns, strict=True)})


def ids(*names: str) -> pa.Table:
    return pa.table({"id": pa.array(names, pa.utf8())})


def keyed(*rows: tuple[Any, ...], columns: tuple[str, ...] = ("email",)) -> pa.Table:
    names = ("id", *columns)
    return pa.table(
        {name: pa.array([r[i] for r in rows], pa.utf8()) for i, name in enumerate(names)}
    )


EMAIL = rules.Unique("Person", ("email",))
FULL_NAME = rules.Unique("Person", ("first", "last"))


def texts(found: RuleViolations) -> list[str]:
    return [violation.text for violation in found.violations]


def test_a_value_held_twice_among_the_incoming_is_named_with_both_holders() -> None:
    found = check_keys(keyed(("a", "x"), ("b", "x"), ("c", "y")), keyed(), EMAIL)
    assert texts(found) == ["@unique violation on Person.email: value 'x' held by 'a' and 'b'"]


def test_a_value_held_by_a_committed_row_is_a_violation() -> None:
    found = check_keys(keyed(("b", "x")), keyed(("a", "x"), ("c", "z")), EMAIL)
    assert texts(found) == ["@unique violation on Person.email: value 'x' held by 'a' and 'b'"]
    assert found.violations[0].value == "x"


def test_committed_rows_among_themselves_are_not_this_writes_affair() -> None:
    assert check_keys(keyed(("c", "y")), keyed(("a", "x"), ("b", "x")), EMAIL).total == 0


def test_a_tuple_with_a_null_is_exempt() -> None:
    both = ("first", "last")
    incoming = keyed(("a", "x", None), ("b", "x", None), ("c", None, None), columns=both)
    assert check_keys(incoming, incoming, FULL_NAME).total == 0


def test_a_composite_tuple_is_shown_in_brackets() -> None:
    both = ("first", "last")
    incoming = keyed(("a", "x", "y"), ("b", "x", "y"), ("c", "x", "z"), columns=both)
    assert texts(check_keys(incoming, keyed(columns=both), FULL_NAME)) == [
        "@unique violation on Person.(first, last): value '(x, y)' held by 'a' and 'b'"
    ]


def test_a_missing_end_is_named_once() -> None:
    rule = rules.Endpoint("WorksAt", "dst", "Company")
    found = check_keys(
        edges(("1", "a", "y"), ("2", "b", "y"), ("3", "a", "x")), ids("x", "z"), rule
    )
    assert texts(found) == ["dst 'y' not found in Company"]
    assert (found.violations[0].rule, found.violations[0].id) == ("endpoint", "1")


def test_too_many_and_too_few_edges_are_counted_with_the_committed_ones() -> None:
    rule = rules.EdgesPerSource("Lives", 1, 2)
    incoming = edges(("1", "a", "x"), (None, "b", "x"), ("2", "c", "x"))
    committed = edges(("7", "a", "y"), ("8", "a", "z"), ("9", "d", "y"))
    assert texts(check_keys(incoming.select(["id", "src"]), committed, rule)) == [
        "@card violation on edge Lives: source 'a' has 3 edges (max 2)",
        "@card violation on edge Lives: source 'b' has 0 edges (min 1)",
    ]


def test_ids_that_come_twice_or_are_taken() -> None:
    twice = check_keys(ids("a", "b", "a"), ids(), rules.DistinctIds("Person", ("name",)))
    assert texts(twice) == ["@key violation on Person.name: value 'a' comes twice"]
    taken = check_keys(ids("a", "b"), ids("b", "c"), rules.FreeIds("Person", Kind.NODE))
    assert texts(taken) == ["node type 'Person' already has id 'b'"]


def test_a_column_may_have_any_name() -> None:
    rule = rules.Unique("T", ('or"der', "select"))
    incoming = keyed(("a", "x", "y"), ("b", "x", "y"), columns=rule.columns)
    assert check_keys(incoming, keyed(columns=rule.columns), rule).total == 1


small = st.sampled_from(["a", "b", "c", None])
rows_of_keys = st.lists(st.tuples(small, small), max_size=12)


@given(incoming=rows_of_keys, committed=rows_of_keys, buckets=st.integers(1, 4))
def test_unique_bucket_by_bucket_finds_what_the_whole_finds(
    incoming: list[tuple[str | None, str | None]],
    committed: list[tuple[str | None, str | None]],
    buckets: int,
) -> None:
    both = FULL_NAME.columns
    fresh = keyed(*((f"i{n}", *row) for n, row in enumerate(incoming)), columns=both)
    old = keyed(*((f"c{n}", *row) for n, row in enumerate(committed)), columns=both)
    whole = check_keys(fresh, old, FULL_NAME)
    parts = [
        check_keys(bucket(fresh, both, buckets, n), bucket(old, both, buckets, n), FULL_NAME)
        for n in range(buckets)
    ]
    assert sorted(texts(joined(parts))) == sorted(texts(whole))
    assert joined(parts).total == whole.total == len(doubled(incoming, committed))


def bucket(table: pa.Table, columns: tuple[str, ...], count: int, number: int) -> pa.Table:
    keys = zip(*(table.column(name).to_pylist() for name in columns), strict=True)
    return table.filter(pa.array([hash(key) % count == number for key in keys], pa.bool_()))


def doubled(
    incoming: list[tuple[str | None, str | None]], committed: list[tuple[str | None, str | None]]
) -> set[tuple[str | None, str | None]]:
    everything = [*incoming, *committed]
    return {key for key in incoming if None not in key and everything.count(key) > 1}


KEY_RULES = (
    rules.DistinctIds("Knows", ()),
    rules.FreeIds("Knows", Kind.EDGE),
    rules.Unique("Knows", ("src",)),
    rules.Unique("Knows", ("src", "dst")),
    rules.Endpoint("Knows", "dst", "Person"),
    rules.EdgesPerSource("Knows", 1, 2),
)
few_edges = st.lists(st.tuples(st.sampled_from("abcd"), small, small), max_size=4)


@pytest.mark.parametrize("rule", KEY_RULES, ids=lambda rule: type(rule).__name__)
@given(incoming=few_edges, committed=few_edges)
def test_a_few_rows_are_judged_as_the_statement_judges_them(
    rule: rules.KeyRule,
    incoming: list[tuple[str, str | None, str | None]],
    committed: list[tuple[str, str | None, str | None]],
) -> None:
    fresh, old = (keyed(*each, columns=("src", "dst")) for each in (incoming, committed))
    quick = check_keys(fresh, old, rule)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(COSTS, "key_reason_rows_max", -1)
        assert check_keys(fresh, old, rule) == quick
