"""Source formatter shared by both languages: indentation, line breaks and spaces, nothing else.

Brackets make groups, a group holds items, an item is a run of tokens and groups. A group that the
author wrote on one line, and that fits, stays on one line; any other gets a line for each item.
Line breaks inside an item are kept, blank lines between items are kept as one.

Invariant: the formatted text has the tokens and comments of the source in the same order, so it
parses to the same tree, and formatting it again changes nothing.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

LINE_MAX = 100
INDENT = "  "
_CLOSING = {"{": "}", "(": ")", "[": "]"}
_PASSES_MAX = 8


@dataclass(slots=True)
class LexedToken:
    """A token or a comment, with the line breaks that stand before it."""

    text: str
    start: int
    breaks: int  # before it, as the author wrote
    space: bool = True  # before it, when it stands on the line of the token before
    broken: bool = False  # a line of its own that the author did not give it

    @property
    def is_line_comment(self) -> bool:
        return self.text.startswith("//")

    @property
    def is_comment(self) -> bool:
        return self.text.startswith(("//", "/*"))


@dataclass(slots=True)
class Group:
    """Brackets and what is between them. The whole file is one without brackets."""

    opening: LexedToken
    elements: "list[LexedToken | Group]" = field(default_factory=list)
    closing: LexedToken | None = None
    items: "list[Item]" = field(default_factory=list)
    expanded: bool = False
    gap: str = " "  # between items on one line that no comma separates

    @property
    def is_compact(self) -> bool:
        """`{2,3}`: the bounds of a traversal, always on one line."""
        first = self.elements[0] if self.elements else None
        return (
            self.opening.text == "{"
            and isinstance(first, LexedToken)
            and first.text.isdecimal()
            and all(isinstance(e, LexedToken) and not e.is_comment for e in self.elements)
        )


Element = LexedToken | Group


@dataclass(slots=True)
class Item:
    """A member, clause or comment: one line of an expanded group."""

    elements: list[Element]
    is_comment: bool = False
    fitted: bool = False  # which groups have to be expanded is decided

    @property
    def breaks(self) -> int:
        return _first(self.elements[0]).breaks


@dataclass(frozen=True, slots=True)
class Dialect:
    """Lexing and spacing rules of one language."""

    token: re.Pattern[str]
    starts: Callable[[str], frozenset[int]]  # offsets at which an item begins; ParseError
    spaced: Callable[[Sequence[LexedToken], int], bool]  # whether a space precedes a token
    wide_gaps: Callable[[Group], bool]  # whether items on one line stand two spaces apart


def format_source(source: str, dialect: Dialect) -> str:
    """The text laid out, or `ParseError`."""
    text = source
    for _ in range(_PASSES_MAX):  # a group that was broken may let another one fit
        before, text = text, _Layout(text, dialect).text()
        if text == before:
            break
    return text


def _first(element: Element) -> LexedToken:
    return element.opening if isinstance(element, Group) else element


def _has_break(group: Group) -> bool:
    """Whether the author, or a comment, puts a line break between the brackets."""
    assert group.closing is not None
    for element in group.elements:
        token = _first(element)
        if token.breaks or token.is_line_comment or (token.is_comment and "\n" in token.text):
            return True
        if isinstance(element, Group) and _has_break(element):
            return True
    return bool(group.closing.breaks and group.elements)


class _Layout:
    """One pass over one text."""

    def __init__(self, source: str, dialect: Dialect) -> None:
        self._dialect = dialect
        self._starts = dialect.starts(source)
        self._eol = "\r\n" if re.match(r"[^\n]*\r\n", source) else "\n"
        self._file = self._grouped(list(_lexed(source, dialect)))

    def text(self) -> str:
        """The whole file: every line, and one line break at its end."""
        lines: list[str] = []
        previous: Item | None = None
        was_tall = False
        for item in self._file.items:
            rendered = self._fitted(item, "")
            is_tall = len(rendered) > 1 and not item.is_comment
            apart = was_tall or (is_tall and previous is not None and not previous.is_comment)
            if previous is not None and (apart or item.breaks > 1):
                lines.append("")
            lines += rendered
            previous, was_tall = item, is_tall
        return "".join(f"{line}{self._eol}" for line in lines)

    # Groups and items

    def _grouped(self, tokens: list[LexedToken]) -> Group:
        for position, token in enumerate(tokens):
            token.space = self._dialect.spaced(tokens, position)
        root = Group(LexedToken("", -1, 0))
        open_groups = [root]
        for token in tokens:
            if token.text in _CLOSING:
                group = Group(token)
                open_groups[-1].elements.append(group)
                open_groups.append(group)
            elif token.text in _CLOSING.values():
                group = open_groups.pop()
                group.closing = token
                group.items = self._items(group)
                group.expanded = bool(group.items) and not group.is_compact and _has_break(group)
                group.gap = "  " if self._dialect.wide_gaps(group) else " "
            else:
                open_groups[-1].elements.append(token)
        root.items = self._items(root)
        return root

    def _items(self, group: Group) -> list[Item]:
        items: list[Item] = []
        current: list[Element] = []
        waiting: list[LexedToken] = []  # comments on lines of their own since the last element
        ended = True
        for element in group.elements:
            if isinstance(element, LexedToken) and element.is_comment:
                trails = current and not element.breaks and not waiting
                (current if trails else waiting).append(element)
                continue
            if ended or self._begins(element):
                items += [Item(current)] if current else []
                leading = _leading(waiting, element)
                items += _comment_items(waiting)
                current = [*leading, element]
            else:
                current += [*waiting, element]
            waiting = []
            is_comma = isinstance(element, LexedToken) and element.text == ","
            ended = is_comma and bool(group.opening.text)
        items += [Item(current)] if current else []
        return [*items, *_comment_items(waiting)]

    def _begins(self, element: Element) -> bool:
        """Whether an item begins here. A condition's tree does not know of its parentheses."""
        while isinstance(element, Group):
            if element.opening.start in self._starts:
                return True
            code = [e for e in element.elements if not (isinstance(e, LexedToken) and e.is_comment)]
            if element.opening.text != "(" or not code:
                return False
            element = code[0]
        return element.start in self._starts

    # Lines

    def _fitted(self, item: Item, indent: str) -> list[str]:
        """The lines of an item, its groups expanded as far as it takes to fit."""
        if not item.fitted:
            item.fitted = True
            self._fit(item, indent)
        return self._lines(item.elements, indent)

    def _fit(self, item: Item, indent: str) -> None:
        elements = list(item.elements)
        while elements and isinstance(elements[-1], LexedToken) and elements[-1].is_comment:
            elements.pop()  # a comment may be as long as it is

        def width() -> int:
            lines = self._lines(elements, indent) if elements else [""]
            return max(len(part) for line in lines for part in line.split("\n"))

        groups = [e for e in elements if isinstance(e, Group) and e.items and not e.is_compact]
        for group in (g for g in groups if g.opening.text == "{"):
            if width() <= LINE_MAX:
                return
            group.expanded = True
        for element in elements[1:]:
            token = _first(element)
            if token.text == "@" and width() > LINE_MAX:
                token.broken = True
        for group in sorted(groups, key=lambda g: -len(g.elements)):
            before = width()
            if before <= LINE_MAX:
                return
            if not group.expanded and len(group.items) > 1:
                group.expanded = True
                group.expanded = width() < before

    def _lines(self, elements: Sequence[Element], indent: str) -> list[str]:
        lines = [indent]
        previous: LexedToken | None = None
        for element in elements:
            token = _first(element)
            if previous is not None and _breaks_line(previous, token):
                lines.append(indent + INDENT)
            elif previous is not None and token.space:
                lines[-1] += " "
            if isinstance(element, Group):
                # The body of a declaration stands at its margin, however many lines its head has.
                is_body = indent == "" and token.text == "{"
                margin = indent if is_body or len(lines) == 1 else indent + INDENT
                opening, *rest = self._group_lines(element, margin)
                lines[-1] += opening
                lines += rest
                assert element.closing is not None
                previous = element.closing
            else:
                lines[-1] += token.text
                previous = token
        return lines

    def _group_lines(self, group: Group, margin: str) -> list[str]:
        assert group.closing is not None
        opening, closing = group.opening.text, group.closing.text
        if group.is_compact:
            return [opening + "".join(_first(e).text for e in group.elements) + closing]
        if not group.expanded:
            inner = self._flat(group)
            pad = " " if inner and opening == "{" else ""
            return [f"{opening}{pad}{inner}{pad}{closing}"]
        lines = [opening]
        items = list(group.items)
        if items[0].is_comment and not items[0].breaks:
            lines[0] += "".join(f" {_first(e).text}" for e in items.pop(0).elements)
        for number, item in enumerate(items):
            if number and item.breaks > 1:
                lines.append("")
            lines += self._fitted(item, margin + INDENT)
        return [*lines, margin + closing]

    def _flat(self, group: Group) -> str:
        text = ""
        for item in group.items:
            if text:
                text += " " if text.endswith(",") else group.gap
            (line,) = self._lines(item.elements, "")
            text += line
        return text


def _breaks_line(previous: LexedToken, token: LexedToken) -> bool:
    """Whether a token of an item starts a line: after a line comment, or where the author broke
    between two words."""
    if previous.is_line_comment or token.broken:
        return True
    return bool(token.breaks and token.space and token.text != "{")


def _lexed(source: str, dialect: Dialect) -> Iterator[LexedToken]:
    end = 0
    for match in dialect.token.finditer(source):
        breaks = source.count("\n", end, match.start())
        text = match.group().rstrip() if match.group().startswith("//") else match.group()
        yield LexedToken(text, match.start(), breaks)
        end = match.end()


def _leading(waiting: list[LexedToken], element: Element) -> list[LexedToken]:
    """Take the comments that stand before an element on its own line."""
    leading: list[LexedToken] = []
    following = _first(element)
    while waiting and not following.breaks and not waiting[-1].is_line_comment:
        following = waiting.pop()
        leading.insert(0, following)
    return leading


def _comment_items(comments: Sequence[LexedToken]) -> list[Item]:
    items: list[Item] = []
    for comment in comments:
        if items and not comment.breaks:
            items[-1].elements.append(comment)
        else:
            items.append(Item([comment], is_comment=True))
    return items
