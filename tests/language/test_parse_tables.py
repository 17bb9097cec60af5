"""Parse tables made in advance: those of the grammar, and a parser that reads as Lark does."""

import json
import os
import random
import subprocess
import sys
from importlib import resources

import pytest

from omnigraph.language.parse_tables import tables_of
from omnigraph.language.query.parser import _READER as QUERY_READER
from omnigraph.language.reader import TABLES, GrammarReader
from omnigraph.language.schema.parser import _READER as SCHEMA_READER
from tests import golden
from tests.language.fuzz import HARSH, mutated

READERS: dict[str, tuple[GrammarReader[object], str]] = {
    "query": (QUERY_READER, "gq"),  # type: ignore[dict-item]
    "schema": (SCHEMA_READER, "pg"),  # type: ignore[dict-item]
}


def texts_of(language: str) -> list[str]:
    _, suffix = READERS[language]
    return [golden.read(path) for path in sorted(golden.FIXTURES.glob(f"{language}/*/*.{suffix}"))]


@pytest.mark.parametrize("language", READERS)
def test_the_tables_are_those_of_the_grammar(language: str) -> None:
    reader, _ = READERS[language]
    package = resources.files(reader.package)
    grammar = package.joinpath("grammar.lark").read_text("utf-8")
    made = json.dumps(tables_of(grammar, reader.start), separators=(",", ":")) + "\n"
    path = reader._folder / TABLES
    if os.environ.get("OMNIGRAPH_UPDATE_GOLDEN"):
        path.write_text(made)
    assert path.read_text() == made, "run it again with OMNIGRAPH_UPDATE_GOLDEN=1"


def outcomes(reader: GrammarReader[object], text: str) -> tuple[str, str]:
    """What both parsers make of a text, errors included."""
    results = []
    for read in (reader.read, reader.read_by_grammar):
        try:
            results.append(repr(read(text)))
        except Exception as cause:  # noqa: BLE001
            results.append(f"{type(cause).__name__}: {cause}")
    return results[0], results[1]


def agree(language: str, rounds: int) -> None:
    reader, _ = READERS[language]
    texts, chance = texts_of(language), random.Random(7)
    assert len(texts) > 20
    assert reader._fast_parser is not None
    read = 0
    for text in texts:
        fast, reference = outcomes(reader, text)
        assert fast == reference, text
        read += "Error" not in fast
        for _ in range(rounds):
            other = mutated(text, chance, pieces=HARSH, seeds=texts)
            fast, reference = outcomes(reader, other)
            assert fast == reference, other
            read += "Error" not in fast
    assert read > len(texts) // 4


@pytest.mark.parametrize("language", READERS)
def test_generated_tables_read_every_text_as_the_grammar_does(language: str) -> None:
    agree(language, 1)


@pytest.mark.slow
@pytest.mark.parametrize("language", READERS)
def test_generated_tables_read_many_texts_as_the_grammar_does(language: str) -> None:
    agree(language, 300)


def test_tables_of_another_grammar_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = GrammarReader(SCHEMA_READER.package, "schema", SCHEMA_READER.builder)
    monkeypatch.setattr("omnigraph.language.reader.grammar_digest", lambda *_: "another")
    assert reader._fast_parser is None
    assert "Person" in repr(reader.read("node Person { name: String @key }"))


def test_a_right_text_is_read_without_lark() -> None:
    code = (
        "import sys; from omnigraph.language.query.parser import parse_queries;"
        "from omnigraph.language.schema.parser import parse_schema;"
        "parse_schema('node P { name: String @key }');"
        "parse_queries('query q() { match { $p: P } return { $p } }');"
        "print('lark' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
