"""The analyser makes the terms that Lance's full-text index makes."""

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lance.file import LanceFileReader

from omnigraph.exec.values.analyse import INDEX_PARAMETERS, STOP_WORDS, analyse, terms

_SUFFIXES = """s es ed edly ing ingly eed ational tional enci abli entli izer ization ator alism
aliti alli fulness ousli ousness iveness iviti biliti bli ogi fulli lessli alize icate iciti ical
ful ness ative ement ment ent ance ence able ible ant ion ism ate iti ous ive ize y ies ied
ly"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Graph databases, and graphs!", ["graph", "databas", "graph"]),
        ("Learning to learn", ["learn", "learn"]),
        ("don't x_y a1b2", ["don", "t", "x", "y", "a1b2"]),
        ("Café Ørsted NAÏVE ﬁsh", ["cafe", "orsted", "naiv", "fish"]),
        ("the willing", []),  # the stem is a stop word
        ("", []),
        (" \t—…", []),
        ("x" * 39 + " " + "y" * 40, ["x" * 39]),
        ("\u212a" * 13 + " " + "\u212a" * 14, ["k" * 13]),  # 39 and 42 bytes as written
        ("cafe\u0301s", ["cafe", "s"]),  # an accent of its own separates
    ],
)
def test_a_text_has_these_terms(text: str, expected: list[str]) -> None:
    assert terms(text) == expected


def test_the_terms_of_english_words_are_those_of_lance(tmp_path: Path) -> None:
    words = _words()
    assert len(words) > 20_000
    assert _ours(words) == _of_lance(words, tmp_path)


def test_every_stop_word_is_one_of_lance(tmp_path: Path) -> None:
    words = sorted(STOP_WORDS | {"no", "not", "nor", "don", "s", "t", "us", "could", "would"})
    assert _ours(words) == _of_lance(words, tmp_path)


def test_every_character_is_treated_as_lance_treats_it(tmp_path: Path) -> None:
    # Each block's edges and a sample of its middle; the prefix keeps terms apart.
    codes = [*range(0x80, 0x3400), *range(0xF900, 0x10000), *range(0x10000, 0x20000, 7)]
    texts = [f"{code}q{chr(code)}z" for code in codes if not 0xD800 <= code < 0xE000]
    assert _ours(texts) == _of_lance(texts, tmp_path)


_TEXTS = st.text(
    st.one_of(
        st.characters(exclude_categories=("Cs",)),
        st.sampled_from("aeioustdnlyEIS  -.ßéİΣſœ\u0301\u0345"),
    ),
    max_size=30,
)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(texts=st.lists(_TEXTS, min_size=40, max_size=120))
def test_any_text_has_the_terms_of_lance(
    texts: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert _ours(texts) == _of_lance(texts, tmp_path_factory.mktemp("lance"))


@given(texts=st.lists(st.none() | _TEXTS, max_size=12), sliced=st.booleans())
def test_a_column_has_the_terms_of_its_texts(texts: list[str | None], sliced: bool) -> None:
    column = pa.array(texts, pa.utf8())
    if sliced:
        column, texts = column[1:], texts[1:]

    found = analyse(column)

    expected = [(n, each) for n, text in enumerate(texts) for each in terms(text or "")]
    vocabulary = found.vocabulary
    pairs = zip(found.text_of.tolist(), found.term_of.tolist(), strict=True)
    assert [(text, vocabulary[number]) for text, number in pairs] == expected
    assert len(set(vocabulary)) == len(vocabulary)


def _words() -> list[str]:
    root = Path(__file__).parents[3]
    texts = [
        p.read_text() for folder in ("docs", "omnigraph") for p in root.glob(f"{folder}/**/*.*y")
    ]
    texts += [p.read_text() for p in root.glob("docs/*.md")]
    seen = {word.lower() for text in texts for word in re.findall(r"[A-Za-z]{1,30}", text)}
    chance = random.Random(7)
    grown = {
        w + s for w in sorted(seen) if 2 < len(w) < 9 for s in chance.sample(_SUFFIXES.split(), 12)
    }
    return sorted(seen | grown)


def _ours(texts: Sequence[str]) -> Counter[str]:
    return Counter(term for text in texts for term in set(terms(text)))


# What Lance made of a text is read from its index: term by term, with the number of texts.


def _of_lance(texts: Sequence[str], folder: Path) -> Counter[str]:
    data = lance.write_dataset(pa.table({"text": pa.array(texts, pa.utf8())}), str(folder / "t"))
    data.create_scalar_index("text", "INVERTED", name="text", **INDEX_PARAMETERS)
    found: Counter[str] = Counter()
    for path in (folder / "t" / "_indices").glob("*/part_*_tokens.lance"):
        automaton = _read(path, "_token_fst_bytes")[0]
        counts = _read(path.with_name(path.name.replace("tokens", "invert")), "_length")
        for key, number in _entries(automaton):
            found[key.decode()] += counts[number]
    return found


def _read(path: Path, column: str) -> list[object]:
    return LanceFileReader(str(path)).read_all().to_table().column(column).to_pylist()


_COMMON = b"te/oasripcnw.hlm-du012g=:bf3y5&_4v9678k%?xCDASFIBEjPTzRNM+LOqHGWUV,YKJZXQ;)(~[]$!'*@"


def _entries(data: bytes) -> Iterator[tuple[bytes, int]]:
    """Keys and values of a finite state transducer as the Rust crate `fst` writes it."""
    waiting = [(_number(data[-12:-4]), b"", 0)]
    while waiting:
        address, prefix, value = waiting.pop()
        is_final, last, arrows = _node(data, address)
        if is_final:
            yield prefix, value + last
        waiting += [(to, prefix + bytes([byte]), value + out) for byte, out, to in arrows]


def _node(data: bytes, at: int) -> tuple[bool, int, list[tuple[int, int, int]]]:
    state = data[at]
    if at == 0:
        return True, 0, []
    if state >> 6 >= 2:
        return False, 0, [_one_arrow(data, at)]
    count, extra = (state & 63, 0) if state & 63 else (data[at - 1], 1)
    count = 256 if extra and count == 1 else count
    to_size, out_size = divmod(data[at - extra - 1], 16)
    inputs = at - extra - 1 - (256 if count > 32 else 0)
    targets = inputs - count
    outputs = targets - count * to_size
    is_final = bool(state & 64)
    end = outputs - count * out_size
    last = _number(data[end - out_size : end]) if is_final else 0
    end -= out_size if is_final else 0
    arrows = []
    for n in range(1, count + 1):
        delta = _number(data[targets - n * to_size :][:to_size])
        out = _number(data[outputs - n * out_size :][:out_size])
        arrows.append((data[inputs - n], out, end - delta if delta else 0))
    return is_final, last, arrows


def _one_arrow(data: bytes, at: int) -> tuple[int, int, int]:
    common = data[at] & 63
    byte = _COMMON[common - 1] if common else data[at - 1]
    at -= 0 if common else 1
    if data[at + (0 if common else 1)] >> 6 == 3:
        return byte, 0, at - 1
    to_size, out_size = divmod(data[at - 1], 16)
    target = at - 1 - to_size
    delta = _number(data[target : target + to_size])
    output = target - out_size
    return byte, _number(data[output:target]), output - delta if delta else 0


def _number(data: bytes) -> int:
    return int.from_bytes(data, "little")
