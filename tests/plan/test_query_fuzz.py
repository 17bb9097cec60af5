"""Whatever the text, a query file compiles or is refused with a position, never anything else."""

import random
import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.catalog.accept import accept
from omnigraph.errors import ParseError, SourceError, TypeCheckError
from omnigraph.language.query.parser import parse_queries
from omnigraph.plan.compile import plan_query
from omnigraph.plan.explain import explain
from tests import golden
from tests.language.fuzz import HARSH, mutated
from tests.language.query_text import format_queries

TEXTS = 8_000
QUERIES = golden.FIXTURES / "query"
CATALOG = accept(golden.read(QUERIES / "schema.pg"))
SEEDS = [
    f"query {text}"
    for path in sorted(QUERIES.glob("*/*.gq"))
    for text in re.split(r"(?m)^query ", golden.read(path))[1:]
    if len(text) < 1500
]
PIECES = [
    *HARSH,
    *("query ", "match {", "return {", "order {", "limit 3", "offset 2", "not {", "optional {"),
    *("exists {", "count {", "count(", "sum(", " and ", " or ", "not (", " is null", " in [1]"),
    *(
        "$p",
        "$p.age",
        "$k",
        "$_",
        "$_:knows",
        "$p: Person",
        "$p knows $f",
        "$p <knows> $f",
        "{1,3}",
    ),
    *(
        "insert Person { ",
        "update Person set { ",
        "delete Knows where ",
        "name: $n",
        "from: ",
        "to: ",
    ),
    *("where ", " as x", "distinct ", "desc", "null", "now()", 'date("2024-01-31")', "[1, 2]"),
    *("nearest($d.emb, [1, 0])", 'bm25($d.title, "x")', 'search($d.title, "x")', "rrf("),
]


def outcome(text: str) -> str:
    """What became of a text; nothing but the two source errors may come out of it."""
    try:
        file = parse_queries(text)
        for query in file.queries:
            explain(plan_query(query, CATALOG, text))
    except (ParseError, TypeCheckError) as cause:
        check_told(cause)
        return type(cause).__name__
    assert parse_queries(format_queries(file)) == file
    return "compiled"


def check_told(error: SourceError) -> None:
    assert min(error.line, error.column) >= 1
    assert error.byte_span[1] > error.byte_span[0]
    assert str(error).startswith(error.headline)
    assert error.excerpt


def test_mutated_queries_compile_or_are_refused() -> None:
    chance = random.Random(20_261_115)
    texts = (
        mutated(chance.choice(SEEDS), chance, pieces=PIECES, seeds=SEEDS) for _ in range(TEXTS)
    )
    outcomes = Counter(map(outcome, texts))

    # Were nearly all refused by the grammar, the checker behind it would hardly be reached.
    assert outcomes["TypeCheckError"] > TEXTS // 20
    assert outcomes["compiled"] > TEXTS // 100


@settings(max_examples=300, derandomize=True, deadline=None)
@given(text=st.text(max_size=60) | st.lists(st.sampled_from(PIECES), max_size=25).map("".join))
def test_any_text_compiles_or_is_refused(text: str) -> None:
    assert outcome(text)


@pytest.mark.parametrize(
    "text",
    [
        "query q() { match { " + "not { " * 100_000,
        "query q() { match { $p: Person " + "(" * 100_000,
        "query q() { match { $p: Person $p.age in " + "[" * 100_000,
        "query q() { match { $p: Person } return { " + "count(" * 100_000,
        "query q() { delete Person where " + "not (" * 100_000,
    ],
)
def test_nesting_is_refused_long_before_it_can_hurt(text: str) -> None:
    with pytest.raises(ParseError, match="nested deeper") as caught:
        parse_queries(text)

    assert caught.value.code == "too-deep"


def test_nesting_up_to_the_limit_compiles() -> None:
    blocks = "$p: Person " + "".join(f"not {{ $p knows $f{i} " for i in range(61)) + "}" * 61
    parts = "$p: Person " + "(" * 61 + "$p.age = 1" + ")" * 61

    assert outcome(f"query q() {{ match {{ {blocks} }} return {{ $p }} }}") == "compiled"
    assert outcome(f"query q() {{ match {{ {parts} }} return {{ $p }} }}") == "compiled"


def test_a_long_flat_query_compiles() -> None:
    conditions = " or ".join(f"$p.age = {i}" for i in range(3000))
    steps = " ".join(f"$p knows $f{i}" for i in range(300))

    text = f"query q() {{ match {{ $p: Person {steps} {conditions} }} return {{ $p }} }}"
    assert outcome(text) == "compiled"
