"""Whatever the text, a schema is read or refused with a `ParseError`, never anything else."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.catalog.accept import accept
from omnigraph.errors import ParseError
from omnigraph.language.schema.parser import parse_schema
from tests import golden
from tests.language.fuzz import HARSH, mutated

TEXTS = 8_000
SEEDS = [golden.read(path) for path in sorted(golden.FIXTURES.glob("schema/*/*.pg"))]
SEEDS = [text for text in SEEDS if len(text) < 1500]
PIECES = [
    *HARSH,
    *("node ", "edge ", "interface ", " implements ", "A", "B", " -> ", "@key", "@unique("),
    *("@index(a)", "@range(x, 0..1)", '@check(s, "(")', "@card(1..1)", "@card(", "..", "enum("),
    *("Vector(", "String", "[I32]", "I32?", "x: I32 ", "_rowid", "id", "src", '@embed("a")'),
    *('@rename_from("A")', "@description()"),
]


def settles(text: str) -> bool:
    """Whether the text is accepted; anything but an answer or a `ParseError` fails the test."""
    try:
        parse_schema(text)
        accept(text)
    except ParseError as refusal:
        error = refusal
    else:
        return True
    assert min(error.line, error.column) >= 1
    assert error.byte_span[1] > error.byte_span[0]
    assert error.code
    assert str(error)
    return False


def test_mutated_schemas_are_accepted_or_refused() -> None:
    chance = random.Random(20_261_115)
    texts = (
        mutated(chance.choice(SEEDS), chance, pieces=PIECES, seeds=SEEDS) for _ in range(TEXTS)
    )
    accepted = sum(map(settles, texts))

    # Were nearly all refused, the rules behind the grammar would hardly be reached.
    assert accepted > TEXTS // 50


@settings(max_examples=300, derandomize=True, deadline=None)
@given(text=st.text(max_size=60) | st.lists(st.sampled_from(PIECES), max_size=25).map("".join))
def test_any_text_is_accepted_or_refused(text: str) -> None:
    settles(text)


def test_nesting_is_refused_long_before_it_can_hurt() -> None:
    for text in ("[" * 100_000, "node A " + "{" * 100_000, '@x("' + "(" * 100_000 + '")'):
        assert not settles(text)


def test_what_is_not_closed_is_refused_at_once() -> None:
    for text in ('"' + '\\"' * 100_000, '"' + '\\"' * 100_000 + "\\", "/* " * 100_000):
        assert not settles(text)  # in time that grows as the text does; its square is minutes


def test_a_large_schema_is_read() -> None:
    assert settles("\n".join(f"node N{i} {{ a: String @key b: [I32]? }}" for i in range(2000)))


def test_half_a_surrogate_pair_is_refused_wherever_it_stands() -> None:
    for text in ("\ud800", "// \udfff", 'node A { s: String @check(s, "\ud800") }'):
        assert not settles(text)
