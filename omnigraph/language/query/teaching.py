"""Hints for syntax errors: what people write who know another query language, and what to write.

Invariant: a hint never changes whether a text is accepted; it looks at the text around the token
that the parser did not expect, and is empty where nothing is known.
"""

import re

from omnigraph.language.nearby_text import nearby
from omnigraph.language.schema.slips import TYPE_WORDS

_WORDS = {
    "select": "a query is written query name() { match { … } return { … } }",
    "from": "a query is written query name() { match { … } return { … } }",
    "where": "conditions stand in match { … }, beside the pattern",
    "group": "beside an aggregate, the other columns of return are what rows are grouped by",
    "like": "write contains, starts_with, ends_with or matches",
    "create": "write insert Type { property: value }",
    "merge": "write upsert Type { property: value }",
    "detach": "delete takes the edges of a node along: delete Type where …",
    "xor": "write (a or b) and not (a and b)",
    "between": "write $p.age >= 3 and $p.age <= 4",
    "sort": "write order { $p.name desc, $p.age }",
    "startswith": 'write starts_with: $p.name starts_with "A"',
    "endswith": 'write ends_with: $p.name ends_with "a"',
    "skip": "write offset 5",
    "distinct": "distinct stands before the braces, return distinct { … }, or in count(distinct …)",
}
_SHOUTED = re.compile(
    "AND|AS|ASC|BY|CASE|CONTAINS|COUNT|DELETE|DESC|ELSE|END|ENDS_WITH|EXISTS|FALSE|HAVING|IN|INSERT|"
    "IS|LIMIT|MATCH|MATCHES|NOT|NULL|OFFSET|OPTIONAL|OR|ORDER|QUERY|RETURN|SET|STARTS_WITH|THEN|"
    "TRUE|UNION|UNWIND|UPDATE|UPSERT|VIA|WHEN|WITH"
)
"""Keywords in capital letters that `_WORDS` has no hint for."""

_WRITES = ("insert", "upsert", "update", "delete")
_NOTHING = ("none", "nil", "nothing", "undefined", "missing", "empty")
_SIGNS = {
    "&": "write and",
    "|": "write or",
    "!": "write not, or != between two values",
    ";": "statements follow one another without a sign between them",
    "'": "a string stands in double quotes",
    "`": "names stand without quotes",
}
_DURATION = "a duration is written 30d, its unit ms, s, m, h, d or w; a year is 365d"
_LONG_UNITS = ("day", "hour", "minute", "month", "second", "week", "year")
_UNITS = frozenset((*_LONG_UNITS, *(f"{unit}s" for unit in _LONG_UNITS), "y", "mo", "min", "sec"))
_AMOUNT = re.compile(r"[0-9]+([A-Za-z]+)")
_BEGINNINGS = ("match", "return", "insert", "update", "delete", "upsert")
_SECTIONS = ("return", "having", "order")
_PATTERNS = ("match", "not", "optional", "exists", "count")
_COMPARATORS = ("=", "!=", "<", "<=", ">", ">=", "contains", "starts_with", "ends_with", "matches")
_OPAQUE = re.compile(r'"(?:[^"\\]|\\.)*"?|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_WRITTEN = re.compile(r"\b(update|delete)\s+([A-Z]\w*)(?:\s+set\s*\{[^{}]*\})?\s*\Z")
_NULL_TEST = re.compile(r"\bis\s+(not\s+)?\Z")
_ARROW = re.compile(r"-\s*\[[^\[\]{}()]*\Z|-\s*\w*\s*-\s*\Z")
_WALKED = re.compile(
    r"(\$\w+\s+(?:\$\w+\s*:\s*)?<?\w+(?:\s*\|\s*\w+)*>?\s*(?:\*|\{[^{}]*\})?\s*(\$\w+))\s*\Z"
)
_STARRED = re.compile(r"\$\w+\s+(?:\$\w+\s*:\s*)?<?\w+(?:\s*\|\s*\w+)*>?\s*\*\s*\Z")
_BARE_WORD = re.compile(r"(?<![.$\w])([a-z_]\w*)\s*\Z")
_NODE_BRACES = re.compile(r":\s*[A-Z]\w*\s*\{[^{}]*\Z")
_ASSIGNED = re.compile(r"[a-z_]\w*\s*=")
_PARAMETER = re.compile(r"\bquery\s+\w+\s*\([^{}]*:\s*\[?\s*\Z")
_BEFORE = re.compile(r"(\$?[A-Za-z_][A-Za-z0-9_]*|[^\sA-Za-z0-9_$])\s*\Z")


def syntax_hint(source: str, position: int) -> str:
    """What to write in the place of the text at a position."""
    before = _OPAQUE.sub(lambda match: '"' if match[0][0] == '"' else " ", source[:position])
    near = nearby(before)
    token = _token(source, position)
    previous = match[1] if (match := _BEFORE.search(near)) else ""
    if token in (":", ".", ",", "}") and "$" not in source and "match" in before:
        return "variables begin with $; a shell takes them out of double quotes, so use single ones"
    unit = _AMOUNT.match(source, position)
    if unit and unit[1].lower() in _UNITS:
        return _DURATION
    if _NODE_BRACES.search(near) and _ASSIGNED.match(source, position):
        return f"in the braces of a node a value follows a colon: {token}: …; leave out the ="
    return (
        (_of_capitals(token) if before.strip() else "")
        or _of_pair(previous, token)
        or _of_place(before, near, token)
        or _WORDS.get(token.lower(), "")
        or _SIGNS.get(token, "")
    )


def word_hint(word: str) -> str:
    """What to write in the place of a word that stands alone in a pattern."""
    if word.lower() in _UNITS:
        return _DURATION
    return _WORDS.get(word.lower()) or value_hint(word)


def value_hint(word: str) -> str:
    """What to write in the place of a word that stands where a value is compared or given."""
    return f"a variable is written ${word}, a text in quotes"


def end_hint(source: str) -> str:
    """What is still open where a text ends."""
    opened: list[int] = []
    for match in re.finditer(_OPAQUE.pattern + r"|[{}()\[\]]", source, re.DOTALL):
        if match[0] in "{([":
            opened.append(match.start())
        elif match[0] in "})]" and opened:
            opened.pop()
    if not opened:
        return ""
    line = source.count("\n", 0, opened[-1]) + 1
    closing = {"{": "}", "(": ")", "[": "]"}[source[opened[-1]]]
    return f"the '{source[opened[-1]]}' of line {line} is not closed: write '{closing}'"


def _token(source: str, position: int) -> str:
    match = re.compile(r"\$?[A-Za-z_][A-Za-z0-9_]*|[!<>]?=|\S").match(source, position)
    return match[0] if match else ""


def _of_capitals(token: str) -> str:
    """The hint for a keyword in capital letters."""
    is_keyword = _SHOUTED.fullmatch(token) is not None
    return f"keywords are written in small letters: {token.lower()}" if is_keyword else ""


def _of_pair(previous: str, token: str) -> str:
    """Hints that two tokens give together."""
    if token == "=" and previous == "=":
        return "equality is written with one ="
    if token == ">" and previous == "<":
        return "write !="
    if previous == "order" and token != "{":
        return "write order { $p.name desc, $p.age }"
    if previous in ("return", "distinct") and token != "{":
        return "write return { $p.name, $p.age as years }"
    if previous in _SECTIONS and token == "{":
        return f"the block before {previous} is not closed: write '}}' before it"
    if previous == "[" and token == ":":
        return "an edge is written $a knows $b, with its variable $a $k:knows $b"
    if previous == "match" and token != "{":
        return "write match { $p: Person  $p knows $f }"
    if previous == "having" and token != "{":
        return "write having { n > 3 }"
    if previous.startswith("$") and token[:1].isupper():
        lower = token[0].lower() + token[1:]
        return f"an edge is written with a small letter: {previous} {lower} $other"
    if previous in _WRITES and token[:1].islower():
        declared = token[0].upper() + token[1:]
        return f"a type is written as the schema declares it, with a capital letter: {declared}"
    if token[:1].isupper() and previous == "$":
        return "variables begin with a small letter"
    return ""


def _of_place(before: str, near: str, token: str) -> str:  # noqa: C901 - one match over all cases
    """Hints that the surroundings of a token give; `near` is the end of the text before it."""
    block = _block_of(before)
    if token == "{" and (named := re.search(r"\bquery\s+(\w+)\s*\Z", near)):
        return f"parameters stand in parentheses, even if there are none: query {named[1]}() {{"
    if token == "." and (hops := re.search(r"(\w+)\s*\{\s*([0-9]+)\s*\.?\Z", near)):
        return f"hops are written with a comma: {hops[1]}{{{hops[2]},3}}"
    if token.lower() in TYPE_WORDS and _PARAMETER.search(near):
        return f"types begin with a capital letter: write {TYPE_WORDS[token.lower()]}"
    if token == ":" and re.search(r"\(\s*\$?\w*\s*\Z", near):
        return "a node is written $a: Person, an edge $a knows $b, without parentheses"
    if _ARROW.search(near) and (token in (":", ".", ">") or token.isdigit()):
        return "an edge is written without an arrow: $a knows $b, of several hops $a knows{1,3} $b"
    if _STARRED.search(near) and (token == "." or token.isdigit()):
        return "a range of hops stands in braces: $a knows{1,3} $b; knows* is one hop or more"
    if token == ":" and block in _PATTERNS and (walked := _WALKED.search(near)):
        return f"the type of a node stands beside the edge: {walked[1]}  {walked[2]}: Type"
    if token == "{" and re.search(r"[(,]\s*(?:distinct\s+)?\$\w+\s*\Z", near):
        return "an object is a column of return, not a value: $p as person { name, age }"
    if token == "+" and re.search(r"\$\w+\s*:?\s*<?[a-z_]\w*(?:\s*\|\s*\w+)*>?\s*\Z", near):
        return "one hop or more is written with *: $a knows* $b"
    if test := _NULL_TEST.search(near):
        if token.lower() in _NOTHING:
            return f"write is {'not ' if test[1] else ''}null"
        return f"is stands before null: compare with {'!=' if test[1] else '='}"
    if token == "." and (bare := _BARE_WORD.search(near)):
        return f"a variable is written with $: ${bare[1]}.name"
    if (
        token == "*"
        and block in ("return", "distinct", "with")
        and near.rstrip().endswith(("{", ","))
    ):
        variable = match[0] if (match := re.search(r"\$\w+", before)) else "$p"
        return f"write {variable}.* for every property, or {variable} for its id"
    if token == "," and block in _PATTERNS:
        return "clauses of match follow one another without commas"
    if not before.strip() and token.lower() in _BEGINNINGS:
        return f"a query has a name: query name() {{ {token.lower()} … }}"
    if token in _COMPARATORS and block in (*_PATTERNS, "where"):
        return "comparisons do not chain: join them with and; a - after a value subtracts"
    if token == "order" and re.search(r"\b(limit|offset)\b[^{}]*\Z", near):
        return "order comes before limit and offset"
    written = _WRITTEN.search(near)
    if token == "match" and written:
        return f"name what is written: {written[1]} $x … match {{ $x: {written[2]} … }}"
    if token == "}" and written:
        return f'say which: … where name = "x", or where true to {written[1]} all of {written[2]}'
    if token == "having":
        return "having comes after return { … } and before order"
    return ""


def _block_of(before: str) -> str:
    """The word that opened the block around the end of a text."""
    opened: list[str] = []
    word = ""
    for match in re.finditer(r"[A-Za-z_][A-Za-z0-9_]*|[{}]|where\b", before):
        if match[0] == "{":
            opened.append(word)
        elif match[0] == "}":
            del opened[-1:]
        else:
            word = match[0]
    return opened[-1] if opened else ""
