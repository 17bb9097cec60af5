"""Token of a grammar: a piece of the text with its type and its position.

Invariant: a token is its text, as those of Lark are, so a tree builder reads both alike.
"""

from typing import TypeGuard


class Token(str):
    """A piece of the text, from `start_pos` to before `end_pos`."""

    __slots__ = ("end_pos", "start_pos", "type")

    type: str
    start_pos: int
    end_pos: int

    def __new__(cls, type: str, value: str, start_pos: int, end_pos: int) -> "Token":
        token = super().__new__(cls, value)
        token.type, token.start_pos, token.end_pos = type, start_pos, end_pos
        return token


def is_token(part: object) -> TypeGuard[Token]:
    """Whether a part of a rule is a token, Lark's or ours: what builders make is no text."""
    return isinstance(part, str)
