"""Parse tables (LALR) generated from a grammar by Lark, for `lalr_parser`.

Invariant: tables are a function of the grammar alone. They lie beside it in `parse_tables.json`,
and a test makes them again and compares.
"""

import re
from collections.abc import Collection, Iterator
from re import _constants as codes
from re import _parser as regex_parser
from typing import Any

from lark import Lark
from lark.lexer import PatternRE, TerminalDef
from lark.parse_tree_builder import maybe_create_child_filter
from lark.parsers.lalr_analysis import Shift

from omnigraph.language.lalr_parser import grammar_digest


def tables_of(grammar: str, start: str) -> dict[str, Any]:
    """The tables of a grammar."""
    lark = Lark(grammar, start=start, parser="lalr", lexer="contextual", maybe_placeholders=True)
    table: Any = lark.parser.parser._parse_table
    rules = sorted(lark.rules, key=_rule_name)
    numbers = {rule: number for number, rule in enumerate(rules)}
    states = _numbered(table, start)
    return {
        "digest": grammar_digest(grammar, start),
        "start": states[table.start_states[start]],
        "end": states[table.end_states[start]],
        "terminals": list(_terminals(lark.terminals)),
        "ignored": sorted(lark.ignore_tokens),
        "rules": [_rule(rule) for rule in rules],
        "states": [_row(table.states[state], states, numbers) for state in states],
    }


def _rule_name(rule: Any) -> tuple[str, list[str], str]:
    return rule.origin.name, [symbol.name for symbol in rule.expansion], str(rule.alias)


def _numbered(table: Any, start: str) -> dict[Any, int]:
    """The states in the order in which they are reached: Lark numbers them as sets happen to be."""
    reached = [table.start_states[start]]
    numbers = {reached[0]: 0}
    for state in reached:
        for _, (action, arg) in sorted(table.states[state].items(), key=lambda item: item[0]):
            if action is Shift and arg not in numbers:
                numbers[arg] = len(reached)
                reached.append(arg)
    return numbers


def _row(row: dict[str, Any], states: dict[Any, int], numbers: dict[Any, int]) -> str:
    """What a state does at each symbol, as words: a text is read faster than a map of each."""
    words = (
        f"{symbol} {states[arg] if action is Shift else -1 - numbers[arg]}"
        for symbol, (action, arg) in sorted(row.items(), key=lambda item: item[0])
    )
    return " ".join(words)


def _rule(rule: Any) -> list[Any]:
    options = rule.options
    filtering: Any = maybe_create_child_filter(
        rule.expansion, options.keep_all_tokens, False, options.empty_indices
    )
    include, append = None, 0
    if filtering is not None:
        included, *rest = filtering.args
        include = [[*each, 0][:3] for each in included]
        append = rest[0] if rest else 0
    method = rule.alias or options.template_source or rule.origin.name
    is_single = bool(options.expand1 and not rule.alias)
    return [rule.origin.name, len(rule.expansion), method, is_single, include, append]


def _terminals(terminals: Collection[TerminalDef]) -> Iterator[list[Any]]:
    """Terminals in the order in which a lexer of Lark tries them."""
    ordered = sorted(
        terminals,
        key=lambda each: (
            -each.priority,
            -each.pattern.max_width,
            -len(each.pattern.value),
            each.name,
        ),
    )
    texts = [each for each in ordered if not isinstance(each.pattern, PatternRE)]
    for each in ordered:
        pattern = each.pattern
        if not isinstance(pattern, PatternRE):
            yield [each.name, pattern.value, False, pattern.value[0], {}]
            continue
        unless = {
            text.pattern.value: text.name
            for text in texts
            if text.priority == each.priority and _is_whole(pattern, text.pattern.value)
        }
        first = _first(pattern.to_regexp())
        yield [each.name, pattern.to_regexp(), True, first, dict(sorted(unless.items()))]


def _is_whole(pattern: PatternRE, text: str) -> bool:
    match = re.match(pattern.to_regexp(), text)
    return match is not None and match.group(0) == text


def _first(pattern: str) -> str | None:
    """The ASCII characters that a match may begin with; None when it may begin with any other."""
    chars = _beginnings(regex_parser.parse(pattern).data)
    return None if chars is None else "".join(sorted(chars))


def _beginnings(items: list[Any]) -> set[str] | None:
    for code, value in items:
        match code:
            case codes.ASSERT | codes.ASSERT_NOT | codes.AT:
                continue
            case codes.LITERAL:
                return {chr(value)}
            case codes.IN:
                return _members(value)
            case codes.SUBPATTERN:
                return _beginnings(value[-1].data)
            case codes.BRANCH:
                branches = [_beginnings(each.data) for each in value[1]]
                return None if None in branches else set[str]().union(*filter(None, branches))
            case codes.MAX_REPEAT if value[0] > 0:
                return _beginnings(value[2].data)
            case _:
                return None
    return None


def _members(values: list[tuple[Any, Any]]) -> set[str] | None:
    chars: set[str] = set()
    for code, value in values:
        if code == codes.LITERAL:
            chars.add(chr(value))
        elif code == codes.RANGE:
            chars.update(map(chr, range(value[0], value[1] + 1)))
        else:
            return None
    return chars if all(char.isascii() for char in chars) else None
