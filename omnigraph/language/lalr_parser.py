"""Fast path of: Lark's LALR parser — the same automaton, driven by tables that are made in advance.

Lark works its tables out when a process starts, or reads them back into some ten thousand objects;
either takes longer than a point query. Here they are lists and dictionaries of numbers and names,
and what a text does not need is not made: regular expressions are compiled when a character first
asks for them.

Reference: Lark itself, over the same grammar (`GrammarReader.read_by_grammar`).
Held equal by: `test_generated_tables_read_every_text_as_the_grammar_does` and
`test_the_tables_are_those_of_the_grammar`.
Falls back: at the first syntax error, which Lark then describes, and when the tables are not those
of the grammar.

Invariant: a text that this parser accepts gives the calls of the tree builder that Lark would make,
in that order. A token is chosen among the terminals that the parser's state accepts: the first that
matches, in Lark's order of priority and length.
"""

import hashlib
import json
import re
from collections.abc import Callable
from typing import Any

from omnigraph.language.token import Token
from omnigraph.light_dataclass import dataclass
from omnigraph.query_limits import EXPRESSION_DEPTH_MAX, checkpoint

LAYOUT = 1
_END = "$END"
_BEYOND = "\x80"
"""Stands for every character that is not ASCII: no terminal lists one."""

Row = dict[str, int]
"""What a state does at each symbol: shift to a state, or reduce by rule `-1 - n`."""

_Match = Callable[[str, int], int]
"""The end of a terminal that begins at a position, or -1."""


_CHECKED_EVERY = 1024  # tokens


class NoSyntax(Exception):
    """A text that the grammar does not accept: Lark is asked why."""


class TooDeep(Exception):
    """A tree with more levels than later steps can follow; `token` is where the level begins."""

    def __init__(self, token: Token) -> None:
        super().__init__()
        self.token = token


@dataclass(frozen=True, slots=True)
class _Terminal:
    """A terminal: its name, its matcher, the characters it may begin with (None: any), and the
    texts that are another terminal where that one is accepted."""

    name: str
    match: _Match
    first: str | None
    unless: dict[str, str]


def grammar_digest(grammar: str, start: str) -> str:
    """A hash of what tables depend on."""
    return hashlib.sha256(json.dumps([LAYOUT, start, grammar]).encode()).hexdigest()


class _Rows(dict[int, Row]):
    """What each state does, read from its words when the state is first reached."""

    def __init__(self, states: list[str]) -> None:
        self._words = states

    def __missing__(self, state: int) -> Row:
        words = self._words[state].split()
        row = self[state] = dict(zip(words[::2], map(int, words[1::2]), strict=True))
        return row


class LalrParser:
    """A parser over tables; safe to share between threads."""

    def __init__(self, tables: dict[str, Any], builder: Any) -> None:
        self._rows = _Rows(tables["states"])
        self._start: int = tables["start"]
        self._end: int = tables["end"]
        self._terminals = [_terminal(*each) for each in tables["terminals"]]
        self._ignored = frozenset(tables["ignored"])
        self._rules = [_Rule(builder, *each) for each in tables["rules"]]
        self._choices: dict[tuple[int, str], tuple[_Terminal, ...]] = {}

    def parse(self, text: str) -> Any:
        """The tree of a text, or `NoSyntax`."""
        states, values, depths = [self._start], list[Any](), list[int]()
        position = count = 0
        rows, rules = self._rows, self._rules
        while True:
            token = self._token(text, position, states[-1])
            count += 1
            if not count % _CHECKED_EVERY:
                checkpoint()
            position = token.end_pos
            kind = token.type
            while True:
                action = rows[states[-1]].get(kind)
                if action is None:
                    raise NoSyntax
                if action >= 0:
                    states.append(action)
                    values.append(token)
                    depths.append(0)
                    break
                rule = rules[-1 - action]
                size = rule.size
                parts: list[Any] = []
                depth = 0
                if size:
                    parts = values[-size:]
                    depth = max(depths[-size:])
                    del states[-size:]
                    del values[-size:]
                    del depths[-size:]
                if rule.makes_node and size > 1:
                    depth += 1
                    if depth > EXPRESSION_DEPTH_MAX:
                        raise TooDeep(token)
                values.append(rule.value(parts))
                depths.append(depth)
                states.append(rows[states[-1]][rule.origin])
                if kind == _END and states[-1] == self._end:
                    return values[-1]

    def _token(self, text: str, position: int, state: int) -> Token:
        size = len(text)
        while position < size:
            for terminal in self._choice(state, text[position]):
                end = terminal.match(text, position)
                if end >= 0:
                    break
            else:
                raise NoSyntax
            if terminal.name in self._ignored:
                position = end
                continue
            value = text[position:end]
            other = terminal.unless.get(value)
            kind = other if other is not None and other in self._rows[state] else terminal.name
            return Token(kind, value, position, end)
        return Token(_END, "", size, size)

    def _choice(self, state: int, char: str) -> tuple[_Terminal, ...]:
        """The terminals that may begin with a character in a state."""
        char = char if char.isascii() else _BEYOND
        key = (state, char)
        choice = self._choices.get(key)
        if choice is None:
            accepted = self._ignored.union(self._rows[state])
            own = [each for each in self._terminals if each.name in accepted]
            # A keyword that a name's pattern matches too is told from it by its text.
            replaced = {name for each in own for name in each.unless.values()}
            choice = tuple(
                each
                for each in own
                if each.name not in replaced and (each.first is None or char in each.first)
            )
            self._choices[key] = choice
        return choice


def _terminal(
    name: str, text: str, is_pattern: bool, first: str | None, unless: dict[str, str]
) -> _Terminal:
    return _Terminal(name, _pattern(text) if is_pattern else _literal(text), first, unless)


def _literal(text: str) -> _Match:
    size = len(text)
    return lambda source, start: start + size if source.startswith(text, start) else -1


def _pattern(text: str) -> _Match:
    compiled: list[re.Pattern[str]] = []

    def match(source: str, position: int) -> int:
        if not compiled:
            compiled.append(re.compile(text))
        hit = compiled[0].match(source, position)
        return -1 if hit is None else hit.end()

    return match


class _Rule:
    """A production: how many symbols it replaces, and what becomes of their values."""

    __slots__ = ("_append", "_build", "_include", "_is_single", "makes_node", "origin", "size")

    def __init__(
        self,
        builder: Any,
        origin: str,
        size: int,
        method: str,
        is_single: bool,
        include: list[tuple[int, bool, int]] | None,
        append: int,
    ) -> None:
        self.origin = origin
        self.size = size
        self._is_single = is_single
        self._include = include
        self._append = append
        self._build: Callable[[list[Any]], Any] | None = getattr(builder, method, None)
        self.makes_node = self._build is not None

    def value(self, parts: list[Any]) -> Any:
        """The value of the production: what the builder makes of the parts that stay."""
        if self._include is not None:
            parts = self._kept(self._include, parts)
        if self._is_single and len(parts) == 1:
            return parts[0]
        # A helper rule, as repetitions have them, is its parts, taken over by the rule around it.
        return parts if self._build is None else self._build(parts)

    def _kept(self, include: list[tuple[int, bool, int]], parts: list[Any]) -> list[Any]:
        kept: list[Any] = []
        for index, is_spread, nones in include:
            if nones:
                kept += [None] * nones
            if is_spread:
                # The first list is taken over as it is: a long repetition is not copied each time.
                kept = kept + parts[index] if kept else parts[index]
            else:
                kept.append(parts[index])
        if self._append:
            kept += [None] * self._append
        return kept
