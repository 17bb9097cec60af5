"""Hints for syntax errors of a schema: what people write who know SQL or an ORM, and what to write.

Invariant: a hint never changes whether a text is accepted; it looks at the text around the token
that the parser did not expect, and is empty where nothing is known.
"""

import re

from omnigraph.language.nearby_text import nearby
from omnigraph.types import Scalar

TYPE_WORDS = {
    **{str(scalar).lower(): str(scalar) for scalar in Scalar if scalar is not Scalar.VECTOR},
    **dict.fromkeys(("text", "str", "varchar", "char", "uuid"), "String"),
    **dict.fromkeys(("int", "integer", "long", "bigint"), "I64, or I32"),
    **dict.fromkeys(("float", "double", "real", "number"), "F64, or F32"),
    **dict.fromkeys(("json", "xml"), "String"),
    **dict.fromkeys(("decimal", "money", "numeric"), "F64, or I64 of the smallest unit"),
    **dict.fromkeys(("duration", "interval", "timedelta", "time"), "I64, of milliseconds"),
    **dict.fromkeys(("bytes", "binary"), "Blob"),
    "boolean": "Bool",
    "timestamp": "DateTime",
    "vector": "Vector(n)",
}
_SQL = {
    "primary": "a key is written @key after the type: isbn: String @key",
    "unique": "uniqueness is written @unique after the type: email: String @unique",
    "default": "a default is written with =: copies: I32 = 3",
    "not": "a property has a value unless its type ends with ?: title: String",
    "null": "a property that may be null has a type with ?: title: String?",
}
_DECLARATIONS = ("type", "class", "table", "entity", "struct", "model", "vertex", "object")
_RELATIONS = ("relationship", "relation", "link", "arc")
_LISTS = ("list", "array", "set", "seq", "sequence", "collection")
_ENUM = re.compile(r"\b(enum)\s*\([^()]*\Z", re.IGNORECASE)
_SPACE = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|\S")
_EDGE = re.compile(r"\bedge\s+([A-Z]\w*)\s*\Z")
_LAST_WORD = re.compile(r"([A-Za-z_]\w*)\s*\Z")


def type_hint(name: str) -> str:
    """What to write in the place of a type that other languages have."""
    return f"write {known}" if (known := TYPE_WORDS.get(name.lower())) else ""


def _of_declaration(before: str, token: str, word: str) -> str:
    """Hints for the first words of a declaration."""
    if word in ("node", "edge", "interface") and token[:1].islower():
        return f"types begin with a capital letter: {word} {token[0].upper()}{token[1:]}"
    if before.endswith("}") or not before:
        if token.lower() in _DECLARATIONS:
            return "a type is declared as node Book { … } or edge Wrote: Author -> Book"
        if token.lower() in _RELATIONS:
            return "a relation is declared as edge Wrote: Author -> Book"
        if token == "enum":
            return "an enum stands at its property: state: enum(open, closed)"
    return ""


def syntax_hint(source: str, position: int) -> str:
    """What to write in the place of the text at a position."""
    before = nearby(_SPACE.sub(" ", source[:position]).rstrip())
    match = _WORD.match(source, position)
    token = match[0] if match else ""
    if token == ";":
        return "leave it out: properties end with a comma or with the line, declarations with }"
    if before.endswith((":", "[")) and token.lower() in TYPE_WORDS:
        return f"types begin with a capital letter: write {TYPE_WORDS[token.lower()]}"
    previous = _LAST_WORD.search(before)
    word = previous[1] if previous else ""
    if declared := _of_declaration(before, token, word):
        return declared
    if re.search(r"=\s*[0-9]{4}\Z", before) and token.startswith("-"):
        return 'a date stands in quotes: born: Date = "2024-01-31"'
    if token == "," and (sized := re.search(r":\s*([A-Z]\w*)\s*\(\s*[0-9]+\Z", before)):
        return type_hint(sized[1])
    if before.endswith(":") and token.lower() in _LISTS:
        return "a list is written [String]"
    if token in ("[", "<") and word[:1].isupper():
        return f"a list is written [{'String' if word.lower() in _LISTS else word}]"
    if enum := _ENUM.search(before):
        if token == '"':
            return "values of an enum stand without quotes: enum(open, closed)"
        if token and token not in ",)" and not token[0].isalnum():
            return "a value of an enum has letters, digits, - and _; for others take String @check"
        if enum[1] != "enum":
            return "an enum is written in small letters: enum(open, closed)"
    edge = _EDGE.search(before)
    if edge and (token[:1].isupper() or token == "("):
        return f"a colon follows the name: edge {edge[1]}: Book -> Author"
    # A word behind a type is read as the next property, so the parser stops one token later.
    return _SQL.get(word.lower(), "") or _SQL.get(token.lower(), "")
