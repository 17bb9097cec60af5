"""Whatever the text, a schema is read or refused with a `ParseError`, never anything else."""

import random
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.catalog.accept import accept
from omnigraph.errors import ParseError
from omnigraph.language.schema.parser import parse_schema

TEXTS = 24_000
FIXTURES = Path(__file__).parents[1] / "fixtures" / "schema"
SEEDS = [
    path.read_bytes().decode("utf-8", "surrogatepass") for path in sorted(FIXTURES.glob("*/*.pg"))
]
SEEDS = [text for text in SEEDS if len(text) < 1500]
PIECES = [
    *(
        "node ",
        "edge ",
        "interface ",
        " implements ",
        "A",
        "B",
        " -> ",
        ":",
        ",",
        "{",
        "}",
        "(",
        ")",
    ),
    *("[", "]", "?", "@", "@key", "@unique(", "@index(a)", "@range(x, 0..1)", '@check(s, "(")'),
    *(
        "@card(1..1)",
        "@card(",
        "..",
        "*",
        "=",
        "enum(",
        "Vector(",
        "String",
        "[I32]",
        '"',
        "\\",
        "//",
    ),
    *(
        "/*",
        "*/",
        "\n",
        "\r",
        "\t",
        "\0",
        "\ud800",
        "\udfff",
        "🙂",
        "é",
        "\u2028",
        "-",
        "0",
        "9" * 30,
    ),
    *("1.5", "." * 5, "{" * 80, "[" * 70, "(" * 70, "true", "_rowid", "id", "src", '@embed("a")'),
    *('@rename_from("A")', "@description()", "9" * 4400, "\x7f", "\ufeff", "I32?", "x: I32 "),
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


def mutated(text: str, chance: random.Random) -> str:
    for _ in range(chance.randint(1, 4)):
        start = chance.randint(0, len(text))
        end = min(len(text), start + chance.choice((0, 1, 1, 2, 5, 20)))
        match chance.randrange(6):
            case 0:
                text = text[:start] + text[end:]
            case 1:
                text = text[:start] + chance.choice(PIECES) + text[start:]
            case 2:
                text = text[:start] + chance.choice(PIECES) + text[end:]
            case 3:
                text = text[:end] + text[start:end] * chance.randint(1, 3) + text[end:]
            case 4:
                other = chance.choice(SEEDS)
                cut = chance.randint(0, len(other))
                text = text[:start] + other[cut : cut + 40] + text[end:]
            case _:
                text = text[:start] + chr(chance.randrange(0x110000)) + text[end:]
    return text


def test_mutated_schemas_are_accepted_or_refused() -> None:
    chance = random.Random(20_261_115)
    accepted = sum(settles(mutated(chance.choice(SEEDS), chance)) for _ in range(TEXTS))

    # Were nearly all refused, the rules behind the grammar would hardly be reached.
    assert accepted > TEXTS // 50


@settings(max_examples=300, derandomize=True, deadline=None)
@given(text=st.text(max_size=60) | st.lists(st.sampled_from(PIECES), max_size=25).map("".join))
def test_any_text_is_accepted_or_refused(text: str) -> None:
    settles(text)


def test_nesting_is_refused_long_before_it_can_hurt() -> None:
    for text in ("[" * 100_000, "node A " + "{" * 100_000, '@x("' + "(" * 100_000 + '")'):
        assert not settles(text)


def test_a_large_schema_is_read() -> None:
    assert settles("\n".join(f"node N{i} {{ a: String @key b: [I32]? }}" for i in range(2000)))


def test_half_a_surrogate_pair_is_refused_wherever_it_stands() -> None:
    for text in ("\ud800", "// \udfff", 'node A { s: String @check(s, "\ud800") }'):
        assert not settles(text)
