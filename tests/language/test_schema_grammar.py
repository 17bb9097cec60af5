"""The grammar itself: no conflicts, and nothing in it without a fixture."""

import logging
from importlib import resources
from pathlib import Path

import pytest
from lark import Lark, logger
from lark.exceptions import UnexpectedInput

FIXTURES = Path(__file__).parents[1] / "fixtures" / "schema"


def grammar(*, debug: bool = False) -> Lark:
    text = resources.files("omnigraph.language.schema").joinpath("grammar.lark").read_text("utf-8")
    return Lark(text, start="schema", parser="lalr", maybe_placeholders=True, debug=debug)


def test_no_choice_of_the_parser_is_settled_by_default(caplog: pytest.LogCaptureFixture) -> None:
    logger.addHandler(caplog.handler)
    before = logger.level
    logger.setLevel(logging.DEBUG)
    try:
        grammar(debug=True)  # reports shift/reduce conflicts; reduce/reduce ones raise
    finally:
        logger.setLevel(before)
        logger.removeHandler(caplog.handler)

    assert [record.getMessage() for record in caplog.records] == []


def test_every_rule_of_the_grammar_is_used_by_a_fixture() -> None:
    parser = grammar()
    used: set[str] = set()
    for path in FIXTURES.glob("*/*.pg"):
        try:
            tree = parser.parse(path.read_bytes().decode("utf-8", "surrogatepass"))
        except UnexpectedInput:
            continue
        used |= {str(node.data) for node in tree.iter_subtrees()}

    rules = {rule.alias or rule.origin.name for rule in parser.rules}
    inlined = {"core", "declaration", "literal", "limit", "name", "plain", "argument", "interval"}
    assert {rule for rule in rules if not rule.startswith("_")} - inlined == used - inlined
