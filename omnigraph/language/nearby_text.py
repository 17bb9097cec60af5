"""The end of a text, for the regular expressions of hints: bounded, since those can backtrack.

Invariant: `nearby` is never longer than `NEARBY_CHARS_MAX` and has no two spaces in a row, however
long the text is. A pattern that is searched for up to the end of a text can take time by the square
of its length, or by more of a run of spaces; over what `nearby` gives that is a constant.
"""

import re

NEARBY_CHARS_MAX = 500
_SPACES = re.compile(r"\s+")
_WORD = re.compile(r"\w*")


def nearby(text: str) -> str:
    """The last words and signs of a text, with one space for each run of white space."""
    whole = _SPACES.sub(" ", text)
    if len(whole) <= NEARBY_CHARS_MAX:
        return whole
    last = whole[1 - NEARBY_CHARS_MAX :]
    return _WORD.sub(" ", last, count=1)  # the first word may be the rest of another one
