"""Texts that are nearly right: what a parser must survive."""

import random
import re
from collections.abc import Sequence

# What hurts a reader of any language: brackets, quotes, comments, odd characters, long numbers.
HARSH = (
    *("{", "}", "(", ")", "[", "]", "?", "@", ",", ":", ".", "=", "<", ">", "-", "*", '"', "\\"),
    *("//", "/*", "*/", "\n", "\r", "\t", "\0", "\x7f", "\ud800", "\udfff", "🙂", "é", "\u2028"),
    *("\ufeff", "0", "1.5", "9" * 30, "9" * 4400, "." * 5, "{" * 80, "[" * 70, "(" * 70, "true"),
)


def mutated(
    text: str, chance: random.Random, *, pieces: Sequence[str], seeds: Sequence[str]
) -> str:
    """`text` after a few random changes of characters, parts or words."""
    if chance.random() < 0.4:
        return _other_words(text, chance, seeds=seeds)
    for _ in range(chance.randint(1, 4)):
        start = chance.randint(0, len(text))
        end = min(len(text), start + chance.choice((0, 1, 1, 2, 5, 20)))
        match chance.randrange(6):
            case 0:
                text = text[:start] + text[end:]
            case 1:
                text = text[:start] + chance.choice(pieces) + text[start:]
            case 2:
                text = text[:start] + chance.choice(pieces) + text[end:]
            case 3:
                text = text[:end] + text[start:end] * chance.randint(1, 3) + text[end:]
            case 4:
                other = chance.choice(seeds)
                cut = chance.randint(0, len(other))
                text = text[:start] + other[cut : cut + 40] + text[end:]
            case _:
                text = text[:start] + chr(chance.randrange(0x110000)) + text[end:]
    return text


_WORD = re.compile(r"\$?\w+", re.ASCII)


def _other_words(text: str, chance: random.Random, *, seeds: Sequence[str]) -> str:
    """`text` with a word or two replaced, which mostly stays inside the grammar."""
    for _ in range(chance.randint(1, 2)):
        words = list(_WORD.finditer(text))
        others = _WORD.findall(chance.choice(seeds))
        if words and others:
            word = chance.choice(words)
            text = text[: word.start()] + chance.choice(others) + text[word.end() :]
    return text
