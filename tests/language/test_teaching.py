"""Syntax errors say what to write."""

import pytest

from omnigraph.catalog.accept import accept
from omnigraph.errors import ParseError
from omnigraph.language.query import ast
from omnigraph.language.query.parser import parse_queries


@pytest.mark.parametrize(
    ("body", "hint"),
    [
        ("match { $p: Person  $p.age == 3 } return { $p }", "one ="),
        ("match { : Person } return { .name }", "use single ones"),
        ("match { $p: Person  $p.age <> 3 } return { $p }", "write !="),
        ("match { $p: Person, $p.age = 3 } return { $p }", "without commas"),
        ("match { $p: Person  $p.name = 'x' } return { $p }", "double quotes"),
        ("match { $p: Person } return { $p } order by $p.name", "order {"),
        ("match { $p: Person } return { $p } order $p.name", "order {"),
        ("match { $p: Person } return $p.name", "return {"),
        ("match (p:Person) return { $p }", "match {"),
        ("match { $p Wrote $q } return { $p }", "$p wrote $other"),
        ("match { $p: Person  $p.age = 3 && $p.age = 4 } return { $p }", "write and"),
        ("match { $p: Person  3 < $p.age < 4 } return { $p }", "do not chain"),
        ("match { $p: Person } where $p.age = 3 return { $p }", "stand in match"),
        ("match { $p: Person } return { $p } limit 3 order { $p }", "before limit"),
        ("match { $p: Person  $p.name like 3 } return { $p }", "contains"),
        ("match { $p: Person } return { $p ", "line 1 is not closed"),
        ("match { $p: Person  $p.age > 3 return { $p } }", "before return is not closed"),
        ("match { ($p:Person) } return { $p }", "without parentheses"),
        ("match { $p-[:Knows]->$q } return { $p }", "$a knows $b"),
        ("match { $p: Person  $p.age between 3 and 4 } return { $p }", ">= 3 and"),
        ("match { $p: Person  $p.age is 3 } return { $p }", "compare with ="),
        ("delete Member", "where true to delete all of Member"),
        ("update Member set { age: 1 }", "where true to update all of Member"),
        ("match { $p: Person  $p.at > now() - 1y } return { $p }", "a year is 365d"),
        ("match { $p: Person  $p.at > now() - 30days } return { $p }", "written 30d"),
        ("match { $p: Person  $p.at > now() - 1 day } return { $p }", "written 30d"),
        ("match { $p: Person  $p knows+ $q } return { $p }", "knows* $b"),
        ("match { $p: Person  $p $k:contains+ $q } return { $p }", "knows* $b"),
        ("match { $p: Person  $p.age is none } return { $p }", "write is null"),
        ("match { $p: Person  $p.age is not None } return { $p }", "write is not null"),
        ("match { $p: Person  $p.age is not 3 } return { $p }", "compare with !="),
        ("match { $p: Person } return { $p } order { $p DESC }", "small letters: desc"),
        ("match { $p: Person } return { $p } order { $p.age DESC }", "small letters: desc"),
        ("match { $p: Person } return { $p } LIMIT 3", "small letters: limit"),
        ("match { $p: Person } return { $p } sort { $p.age }", "write order {"),
        ("match { $p: Person } return { p.name }", "with $: $p.name"),
        ('match { $p: Person { name = "x" } } return { $p }', "follows a colon: name: …"),
        ('match { $p: Person { age: 3, name = "x" } } return { $p }', "follows a colon: name: …"),
        ('match { $p: Person  $p.name startswith "A" } return { $p }', "write starts_with"),
        ("match { $p: Person } return { $p } skip 5", "write offset 5"),
        ("match { $p: Person } return { $p } limit 2 skip 5", "write offset 5"),
        ("match { $p: Person  $p knows{1..2} $q } return { $p }", "comma: knows{1,3}"),
        ("match { $p: Person } return { * }", "or $p for its id"),
        ("match { $p: Person } return { * }", "write $p.* for every property"),
        ("match { $p: Person } return { $p.name, * }", "write $p.* for every property"),
        ("match { $p: Person } return distinct { * }", "write $p.* for every property"),
        ("match { $a: A  $a e $b: B } return { $a }", "$a e $b  $b: Type"),
        ("match { $a: A  $a $k:e|f{1,6} $b: B } return { $a }", "$a $k:e|f{1,6} $b  $b: Type"),
        ("match { $a: A  $a -[parent]-> $b } return { $a }", "without an arrow, $a parent $b"),
        ("match { $a: A  $a <-[parent]- $b } return { $a }", "without an arrow, $a parent $b"),
        ("match { $a: A  $a -[parent*1..3]-> $b } return { $a }", "knows{1,3} $b"),
        ("match { $a: A  $a -[$k:parent]-> $b } return { $a }", "without an arrow"),
        ("match { $a: A  $a -parent-> $b } return { $a }", "without an arrow"),
        ("match { $a: A  $a --> $b } return { $a }", "without an arrow"),
        ("match { $a: A  $a parent*1..3 $b } return { $a }", "in braces: $a knows{1,3} $b"),
        ("match { $a: A  $a parent*..3 $b } return { $a }", "in braces: $a knows{1,3} $b"),
        ("insert near { x: 1 }", "with a capital letter: Near"),
        ("delete person where true", "with a capital letter: Person"),
    ],
)
def test_what_other_languages_write_is_answered_with_what_to_write(body: str, hint: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_queries(f"query q() {{ {body} }}")
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("head", "hint"),
    [
        ("query q", "even if there are none: query q() {"),
        ("query q($x: int)", "write I64, or I32"),
        ("query q($v: Vector(2), $x: [string])", "write String"),
    ],
)
def test_the_head_of_a_query_is_answered_with_what_to_write(head: str, hint: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_queries(f"{head} {{ match {{ $p: Person }} return {{ $p }} }}")
    assert hint in caught.value.hint
    assert f"help: {caught.value.hint}" in str(caught.value)


@pytest.mark.parametrize("word", ["contains", "starts_with", "ends_with", "matches", "in", "is"])
@pytest.mark.parametrize(
    ("written", "hops", "edges"),
    [
        ("{w}*", (1, None), 1),
        ("{w} /* far */ *", (1, None), 1),
        ("{w}|knows", None, 2),
        ("{w}|{w}*", (1, None), 2),
        ("knows|{w}*", (1, None), 2),
        ("$k:{w}*", (1, None), 1),
        ("<{w}>*", (1, None), 1),
        ("{w}", None, 1),
    ],
)
def test_an_edge_called_like_an_operator_is_walked_as_any_other(
    word: str, written: str, hops: tuple[int, int | None] | None, edges: int
) -> None:
    walk = written.replace("{w}", word)
    text = f"query q() {{ match {{ $p: Part  $b {walk} $p where $p.n > 1 }} return {{ $p }} }}"
    body = parse_queries(text).queries[0].body
    assert isinstance(body, ast.Read)
    traversal = body.clauses[1]
    assert isinstance(traversal, ast.Traversal)
    assert word in [name.text for name in traversal.edges]
    assert len(traversal.edges) == edges
    assert traversal.hops == (None if hops is None else ast.Hops(*hops))
    assert traversal.where is not None


def test_a_bare_match_is_told_that_queries_have_names() -> None:
    with pytest.raises(ParseError) as caught:
        parse_queries("match { $p: Person } return { $p }")
    assert "query name()" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("node A { t: string }", "write String"),
        ("node A { t: [int] }", "write I64, or I32"),
        ("node A { t: String; }", "leave it out"),
        ("node A { t: String };", "leave it out"),
        ("node A { t: I32 primary key }", "@key"),
        ("node A { t: I32 PRIMARY KEY }", "@key"),
        ("node A { t: I32 default 3 }", "with =: copies: I32 = 3"),
        ("node A { t: I32 not null }", "unless its type ends with ?"),
        ("node A { t: I32 unique }", "@unique"),
        ("node A { t: List[String] }", "written [String]"),
        ("node A { t: list[string] }", "written [String]"),
        ("node A { t: List<String> }", "written [String]"),
        ("node A { t: I32[] }", "written [I32]"),
        ('node A { t: enum("a", "b") }', "without quotes: enum("),
        ('node A { t: enum(a, "b") }', "without quotes: enum("),
        ("node A { t: Enum(a, b) }", "small letters: enum("),
        ("node A { t: Decimal(10,2) }", "write F64, or I64 of the smallest unit"),
        ("node A { t: Decimal }", "write F64, or I64 of the smallest unit"),
        ("node A { t: Duration }", "write I64, of milliseconds"),
        ("node A { t: String(20) }", "write String;"),
        ("node A { t: Date = 2024-01-01 }", 'in quotes: born: Date = "2024-01-31"'),
        ("node a { t: I32 }", "with a capital letter: node A"),
        ("node A { t: I32 } edge knows: A -> A", "with a capital letter: edge Knows"),
        ("type A { t: I32 }", "declared as node Book { … }"),
        ("node A { t: I32 } enum Colour { red }", "state: enum(open, closed)"),
        ("node A { t: I32 } edge About A -> A", "edge About: Book -> Author"),
        ("node A { t: I32 } node Subject { t: I32 } edge E: A -> Subjct", "'Subject'"),
    ],
)
def test_a_common_slip_in_a_schema_is_answered_with_what_to_write(text: str, hint: str) -> None:
    with pytest.raises(ParseError) as caught:
        accept(text)
    assert hint in caught.value.hint
