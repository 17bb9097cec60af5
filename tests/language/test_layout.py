"""Formatting moves tokens and comments about, and changes nothing else."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.errors import ParseError
from omnigraph.language.query import ast
from omnigraph.language.query.format import _DIALECT as QUERIES
from omnigraph.language.query.format import format_query_text
from omnigraph.language.query.parser import parse_queries
from omnigraph.language.schema.ast import Schema
from omnigraph.language.schema.format import _DIALECT as SCHEMAS
from omnigraph.language.schema.format import format_schema_text
from omnigraph.language.schema.parser import parse_schema
from tests import golden
from tests.language.query_text import format_queries
from tests.language.query_trees import files
from tests.language.schema_text import format_schema
from tests.language.schema_trees import schemas

GAPS = (
    " ",
    "  ",
    "\n",
    "\n\n\n",
    "\t",
    "\r\n",
    " // why\n",
    "\n// a line\n",
    " /* b */ ",
    "/*\n x\n*/",
)
Parse = Callable[[str], object]
Format = Callable[[str], str]


def tokens(text: str, token: re.Pattern[str]) -> list[str]:
    """Tokens and comments in their order, without the space that may follow a comment."""
    return [match.group().rstrip() for match in token.finditer(text)]


def check(text: str, token: re.Pattern[str], parse: Parse, format_text: Format) -> None:
    laid_out = format_text(text)
    assert tokens(laid_out, token) == tokens(text, token)
    assert parse(laid_out) == parse(text)
    assert format_text(laid_out) == laid_out
    assert laid_out == "" or laid_out.endswith("\n")


@st.composite
def scattered(draw: st.DrawFn, text: str, token: re.Pattern[str]) -> str:
    """The tokens of a text with other space, and comments, between them."""
    choose = st.sampled_from(GAPS)
    pieces, end = [draw(choose)], 0
    rare = draw(st.integers(1, 6))
    for match in token.finditer(text):
        gap = text[end : match.start()]
        pieces.append(draw(choose) if draw(st.integers(0, rare)) == 0 else gap)
        pieces.append(match.group())
        end = match.end()
    return "".join([*pieces, draw(choose)])


@settings(max_examples=60, derandomize=True, deadline=None)
@given(file=files(), data=st.data())
def test_formatting_queries_moves_tokens_and_comments_only(
    file: ast.QueryFile, data: st.DataObject
) -> None:
    text = data.draw(scattered(format_queries(file), QUERIES.token))
    check(text, QUERIES.token, parse_queries, format_query_text)


@settings(max_examples=60, derandomize=True, deadline=None)
@given(schema=schemas, data=st.data())
def test_formatting_schemas_moves_tokens_and_comments_only(
    schema: Schema, data: st.DataObject
) -> None:
    text = data.draw(scattered(format_schema(schema), SCHEMAS.token))
    check(text, SCHEMAS.token, parse_schema, format_schema_text)


FIXTURES = sorted([*golden.FIXTURES.rglob("*.gq"), *golden.FIXTURES.rglob("*.pg")])


def test_formatting_changes_no_fixture_but_in_its_layout() -> None:
    seen = 0
    for path in FIXTURES:
        is_schema = path.suffix == ".pg"
        dialect = SCHEMAS if is_schema else QUERIES
        parse: Parse = parse_schema if is_schema else parse_queries
        text = golden.read(path)
        try:
            parse(text)
        except ParseError:
            continue
        check(text, dialect.token, parse, format_schema_text if is_schema else format_query_text)
        seen += 1
    assert seen > 50


LOOSE_QUERY = """\
/* header
   of the file */
query   a( $x:String,$y : I32 ?,$t:[String] )   @description( "d" ){ // opening
// first
match{$p:Person{name:$x,age : 3} // who
  not { $p  knows { 1 , 3 } $q   $p <  knows > $z }
  ( $p.age>3 or $p.age = -4 )   and $p.name!="x"


  // about edges
  $p $k : knows $q   $p $k2 : <knows>{1,2} $q
  exists{$p knows $q} $p.x in ["a","b" , /* c */ "d"]
  $p.age > 3
      and not ($p.age < 10)
  // the end of the block
  }
return distinct { $p.name as n , count ( distinct $q ), }
order { n desc , count($q) }
limit 3 offset 4
}
query b(){insert Person{name:"x"}
update Person set {age:1} where name="x" and (age<3)}
query c() { delete Person where name = "x" } // trailing
// last"""

TIDY_QUERY = """\
/* header
   of the file */
query a($x: String, $y: I32?, $t: [String]) @description("d") { // opening
  // first
  match {
    $p: Person { name: $x, age: 3 } // who
    not { $p knows{1,3} $q  $p <knows> $z }
    ($p.age > 3 or $p.age = -4) and $p.name != "x"

    // about edges
    $p $k:knows $q
    $p $k2:<knows>{1,2} $q
    exists { $p knows $q }
    $p.x in ["a", "b", /* c */ "d"]
    $p.age > 3
      and not ($p.age < 10)
    // the end of the block
  }
  return distinct { $p.name as n, count(distinct $q), }
  order { n desc, count($q) }
  limit 3
  offset 4
}

query b() {
  insert Person { name: "x" }
  update Person set { age: 1 } where name = "x" and (age < 3)
}

query c() { delete Person where name = "x" } // trailing
// last
"""

LOOSE_SCHEMA = """\


node A{x:enum(b-1,a)@z(1),@index(x)}//c
edge E:A->A{}
edge F : A -> A @card( 0 .. ) @description("x")
{ since:Date? @unique(src , dst) }
interface N { /* only */ name : String @key }
node Long implements N
  , M
{
  v: Vector( 4 )? @embed ( title , model = "m" ) @index
  @range( age , .. 150 ) @check(email, "^[^@]+@[^@]+$")


  // tail
}
"""

TIDY_SCHEMA = """\
node A { x: enum(b-1, a) @z(1), @index(x) } //c
edge E: A -> A {}
edge F: A -> A @card(0..) @description("x") { since: Date?  @unique(src, dst) }
interface N { /* only */ name: String @key }

node Long implements N, M {
  v: Vector(4)? @embed(title, model="m") @index
  @range(age, ..150)
  @check(email, "^[^@]+@[^@]+$")

  // tail
}
"""


def test_a_query_file_is_laid_out() -> None:
    assert format_query_text(LOOSE_QUERY) == TIDY_QUERY
    assert format_query_text(TIDY_QUERY) == TIDY_QUERY


def test_a_schema_is_laid_out() -> None:
    assert format_schema_text(LOOSE_SCHEMA) == TIDY_SCHEMA
    assert format_schema_text(TIDY_SCHEMA) == TIDY_SCHEMA


def test_what_does_not_fit_gets_lines_of_its_own() -> None:
    names = [f"property_{number}" for number in range(8)]
    shown = ", ".join(f"$p.{name}" for name in names)
    text = f"query wide($p: String) {{ match {{ $p: A }} return {{ {shown} }} }}"

    lines = format_query_text(text).splitlines()

    assert lines[:3] == ["query wide($p: String) {", "  match { $p: A }", "  return {"]
    assert lines[3:-2] == [f"    $p.{n}{',' if n != names[-1] else ''}" for n in names]
    assert lines[-2:] == ["  }", "}"]


def test_a_long_comment_breaks_nothing() -> None:
    text = f"node A {{ x: String }} // {'word ' * 40}".rstrip() + "\n"
    assert format_schema_text(text) == text


def test_lines_end_as_the_first_one_does_and_strings_stay() -> None:
    text = 'query q() {\r\n match { $a: A { x: "one\ntwo  \r\n" } }\r\n return { $a } }'
    tidy = 'query q() {\r\n  match { $a: A { x: "one\ntwo  \r\n" } }\r\n  return { $a }\r\n}\r\n'
    assert format_query_text(text) == tidy


@pytest.mark.parametrize("text", ["", "  \n", "\n\n"])
def test_no_tokens_are_an_empty_text(text: str) -> None:
    assert format_query_text(text) == ""
    assert format_schema_text(text) == ""


def test_a_text_that_does_not_parse_is_refused() -> None:
    with pytest.raises(ParseError):
        format_query_text("query q( {")
    with pytest.raises(ParseError):
        format_schema_text("node {")
