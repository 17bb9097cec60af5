"""The grammars themselves: no conflicts, and nothing in them without a fixture."""

import logging
from importlib import resources

import pytest
from lark import Lark, logger
from lark.exceptions import UnexpectedInput

from tests import golden

LANGUAGES = {"schema": ("schema", "pg"), "query": ("start", "gq")}


def grammar(language: str, *, debug: bool = False) -> Lark:
    package = resources.files(f"omnigraph.language.{language}")
    text = package.joinpath("grammar.lark").read_text("utf-8")
    start, _ = LANGUAGES[language]
    return Lark(text, start=start, parser="lalr", maybe_placeholders=True, debug=debug)


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_choice_of_the_parser_is_settled_by_default(
    language: str, caplog: pytest.LogCaptureFixture
) -> None:
    logger.addHandler(caplog.handler)
    before = logger.level
    logger.setLevel(logging.DEBUG)
    try:
        grammar(language, debug=True)  # reports shift/reduce conflicts; reduce/reduce ones raise
    finally:
        logger.setLevel(before)
        logger.removeHandler(caplog.handler)

    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_rule_of_a_grammar_is_used_by_a_fixture(language: str) -> None:
    parser = grammar(language)
    used: set[str] = set()
    for path in golden.FIXTURES.glob(f"{language}/*/*.{LANGUAGES[language][1]}"):
        try:
            tree = parser.parse(golden.read(path))
        except UnexpectedInput:
            continue
        used |= {str(node.data) for node in tree.iter_subtrees()}

    # A rule marked `?` leaves no node when it stands for one other, and some never do otherwise.
    always_inlined = {rule.origin.name for rule in parser.rules if rule.options.expand1}
    rules = {rule.alias or rule.origin.name for rule in parser.rules}
    rules = {rule for rule in rules if not rule.startswith("_")}
    assert rules - always_inlined == used - always_inlined
