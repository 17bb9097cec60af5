"""Parser driver that both grammars share: text to syntax tree, or an error with its position.

Invariant: `GrammarReader.read` returns a finished tree or raises `ParseError`, whatever the text.
Tree builders run while the parser reduces, so no step recurses over the text's nesting, and the
nesting itself is bounded so that no later step has to fear it either.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from omnigraph.errors import ParseError
from omnigraph.language.lalr_parser import LalrParser, NoSyntax, TooDeep, grammar_digest
from omnigraph.language.token import Token
from omnigraph.light_dataclass import dataclass
from omnigraph.query_limits import EXPRESSION_DEPTH_MAX, checkpoint
from omnigraph.types import Span

if TYPE_CHECKING:
    from lark import Lark

TABLES = "parse_tables.json"

NESTING_MAX = 64

Tree = TypeVar("Tree")


class Fault(Exception):
    """A fault that a tree builder raises. `GrammarReader` turns it into a `ParseError`."""

    def __init__(self, span: Span, text: str, *, code: str = "syntax", hint: str = "") -> None:
        super().__init__(text)
        self.span, self.text, self.code, self.hint = span, text, code, hint


def token_span(token: Token) -> Span:
    """Position of a token."""
    start = token.start_pos or 0
    return Span(start, token.end_pos if token.end_pos is not None else start + len(token))


@dataclass(frozen=True)
class GrammarReader(Generic[Tree]):
    """A grammar with its tree builder. The parser is built on first use, Lark's only for a text
    with a syntax error."""

    package: str
    start: str
    builder: Callable[[], Any]
    terminals: Mapping[str, str] = field(default_factory=dict)  # how a terminal is called in errors
    hint: Callable[[str, int], str] = lambda _source, _position: ""  # for an unexpected token
    end_hint: Callable[[str], str] = lambda _source: ""  # for a text that ends too early

    @property
    def _folder(self) -> Path:
        return Path(__file__).parent / self.package.rpartition(".")[2]

    @cached_property
    def _grammar(self) -> str:
        return (self._folder / "grammar.lark").read_text("utf-8")

    @cached_property
    def _parser(self) -> "Lark":
        tables = import_module("omnigraph.language.parse_table_cache")
        parser: Lark = tables.parser_of(self._grammar, self.start, self.builder())
        return parser

    @cached_property
    def _fast_parser(self) -> LalrParser | None:
        try:
            tables = json.loads((self._folder / TABLES).read_bytes())
        except (OSError, ValueError):
            return None
        if tables["digest"] != grammar_digest(self._grammar, self.start):
            return None
        return LalrParser(tables, self.builder())

    def read(self, source: str) -> Tree:
        """The tree of `source`, or `ParseError`."""
        _require_encodable(source)
        _require_shallow(source)
        if self._fast_parser is not None:
            try:
                tree: Tree = self._fast_parser.parse(source)
            except NoSyntax:
                pass  # Lark says what it expected
            except TooDeep as deep:
                raise _too_deep(source, token_span(deep.token)) from None
            except Fault as fault:
                raise _parse_error(source, fault) from None
            else:
                return tree
        return self.read_by_grammar(source)

    def read_by_grammar(self, source: str) -> Tree:
        """The same by Lark, without tables that were made in advance."""
        _require_encodable(source)
        _require_shallow(source)
        parser, lark = self._parser, import_module("lark.exceptions")
        try:
            tree = _parsed(parser, source)
        except Fault as fault:
            raise _parse_error(source, fault) from None
        except RecursionError:
            raise _too_deep(source, Span(0, 0)) from None
        except (lark.UnexpectedToken, lark.UnexpectedCharacters, lark.UnexpectedEOF) as cause:
            raise self._syntax_error(source, cause) from None
        return tree  # type: ignore[no-any-return]

    def _syntax_error(self, source: str, cause: Any) -> ParseError:
        kind = type(cause).__name__
        if kind == "UnexpectedToken" and cause.token.type != "$END":
            span = token_span(cause.token)
            unexpected = f"'{_shorten(str(cause.token))}'"
        elif kind == "UnexpectedCharacters":
            position = cause.pos_in_stream or 0
            span = Span(position, position + 1)
            broken = _broken_token(source, position)
            if broken:
                hint = self.hint(source, position)
                return ParseError.at(source, span, broken, code="syntax", hint=hint)
            unexpected = f"character {source[position]!r}"
        else:
            end = len(source.rstrip())
            span = Span(max(end - 1, 0), end)
            unexpected = "end of the text"
        names = _expected(cause, self.terminals)
        expected = f"; expected {names}" if names else ""
        ended = unexpected == "end of the text"
        hint = self.end_hint(source) if ended else self.hint(source, span.start)
        text = f"unexpected {unexpected}{expected}"
        return ParseError.at(source, span, text, code="syntax", hint=hint)


def _parsed(parser: "Lark", source: str) -> Any:
    """Parse with a check for the deadline between tokens."""
    steps = parser.parse_interactive(source)
    lark = import_module("lark.exceptions")
    try:
        for count, _ in enumerate(steps.iter_parse()):
            if not count % _CHECKED_EVERY:
                checkpoint()
        return steps.feed_eof()  # type: ignore[no-untyped-call]
    except lark.UnexpectedToken as cause:
        cause.interactive_parser = steps
        raise


_CHECKED_EVERY = 256  # tokens


def _too_deep(source: str, span: Span) -> ParseError:
    return ParseError.at(
        source,
        span,
        f"nested deeper than {EXPRESSION_DEPTH_MAX} operators",
        code="too-deep",
        hint="split the expression, or pass values as a list parameter",
    )


def _parse_error(source: str, fault: Fault) -> ParseError:
    return ParseError.at(source, fault.span, fault.text, code=fault.code, hint=fault.hint)


def _broken_token(source: str, position: int) -> str:
    """Message for a string, comment or number that is broken off; empty for anything else."""
    if source.startswith('"', position):
        return "the string that starts here is not closed"
    if source.startswith("/*", position):
        return "the comment that starts here is not closed"
    if source[position].isdecimal():
        return "a number must be digits, with a point between them or without"
    return _OTHER_LANGUAGES.get(source[position], "")


# Signs that start a comment or a string in other languages.
_OTHER_LANGUAGES = {
    "#": "a comment starts with //, not with #",
    "'": "a string stands in double quotes",
}


def _shorten(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}…"


_EXPECTED_SHOWN = 8


def _expected(cause: Any, terminals: Mapping[str, str]) -> str:
    """The tokens that the parser accepts here, in the words of the language."""
    match type(cause).__name__:
        case "UnexpectedToken":
            accepted = cause.accepts or cause.expected
        case "UnexpectedCharacters":
            accepted = cause.allowed or set()
        case _:
            accepted = set(cause.expected)
    if "IDENT" in accepted:  # any word will do, so the keywords among them say nothing
        accepted = {name for name in accepted if name in terminals}
    names = sorted({terminals.get(name, f"'{name.lower()}'") for name in accepted})
    if not names or len(names) > _EXPECTED_SHOWN:
        return ""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


# An unclosed string reaches to the end: looking again from each of its quotes would be quadratic.
_SURROGATE = re.compile("[\ud800-\udfff]")


def _require_encodable(source: str) -> None:
    """Half a surrogate pair cannot be stored as UTF-8, so no later step should meet one."""
    if match := _SURROGATE.search(source):
        raise ParseError.at(
            source,
            Span(match.start(), match.end()),
            f"the text is not UTF-8: it contains the lone surrogate U+{ord(match.group()):04X}",
            code="bad-encoding",
            hint="save the file as UTF-8",
        )


_BRACKET_OR_OPAQUE = re.compile(
    r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|//[^\n]*|/\*.*?(?:\*/|\Z)|[{}()\[\]]',
    re.DOTALL,
)


def _require_shallow(source: str) -> None:
    """Refuse text nested deeper than any later step is built for."""
    depth = 0
    for match in _BRACKET_OR_OPAQUE.finditer(source):
        char = match.group()
        if char in ("{", "(", "["):
            depth += 1
            if depth > NESTING_MAX:
                raise ParseError.at(
                    source,
                    Span(match.start(), match.end()),
                    f"nested deeper than {NESTING_MAX} levels",
                    code="too-deep",
                    hint="split the text into smaller parts",
                )
        elif char in ("}", ")", "]"):
            depth -= 1


_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


def unquote(token: Token) -> str:
    """The text between a string literal's quotes, escapes resolved."""
    body = str(token)[1:-1]
    if "\\" not in body:
        return body

    def resolve(match: re.Match[str]) -> str:
        char = match.group(1)
        if char not in _ESCAPES:
            start = token_span(token).start + 1 + match.start()
            raise Fault(
                Span(start, start + 2),
                f"unsupported escape sequence '\\{char}'",
                code="unsupported-escape",
                hint=r"write one of \" \\ \n \r \t",
            )
        return _ESCAPES[char]

    return _ESCAPE.sub(resolve, body)


def quote(text: str) -> str:
    """The string literal that reads as `text`."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    escaped = escaped.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return f'"{escaped}"'
