"""Parse table cache: Lark's LALR tables, kept in the user's cache folder.

Working out the table of a grammar takes a large part of a short command; reading it back takes
hardly any. A table is kept under everything it depends on: the grammar, Lark's version and how we
ask it.

Invariant: what is kept is never trusted to be there or to be whole. A table that is missing, cut
short or foreign is worked out again from the grammar, which alone decides what the language is.
"""

import hashlib
import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import lark
from lark import Lark
from lark.grammar import Rule
from lark.lexer import TerminalDef

from omnigraph.user_cache import lasting_folder

_LAYOUT = 1
_OPTIONS: dict[str, Any] = {"parser": "lalr", "lexer": "contextual", "maybe_placeholders": True}


def parser_of(grammar: str, start: str, builder: Any) -> Lark:
    """The parser of a grammar, whose tree builder runs while it reduces."""
    path = _cache_path(grammar, start)
    if path is not None and (kept := _kept(path, builder)) is not None:
        return kept
    parser = Lark(grammar, start=start, transformer=builder, **_OPTIONS)
    if path is not None:
        _keep(path, parser)
    return parser


def _cache_path(grammar: str, start: str) -> Path | None:
    folder = lasting_folder()
    if folder is None:
        return None
    facts = json.dumps([_LAYOUT, lark.__version__, start, _OPTIONS, grammar])
    return folder / "grammars" / f"{hashlib.sha256(facts.encode()).hexdigest()[:32]}.json"


def _kept(path: Path, builder: Any) -> Lark | None:
    try:
        digest, _, body = path.read_bytes().partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != digest:
            return None
        data, memo = json.loads(body)
    except (OSError, ValueError):
        return None
    table = data["parser"]["parser"]
    table["tokens"] = _numbered(table["tokens"])
    table["states"] = {k: _numbered(row) for k, row in _numbered(table["states"]).items()}
    load: Any = Lark._load_from_dict  # what Lark's generated parsers start with
    parser: Lark = load(data, _numbered(memo), transformer=builder)
    return parser


def _numbered(members: dict[str, Any]) -> dict[int, Any]:
    """JSON has no keys that are numbers."""
    return {int(key): value for key, value in members.items()}


def _keep(path: Path, parser: Lark) -> None:
    """Write a table as a whole or not at all: many processes may do so at once."""
    data, memo = parser.memo_serialize([TerminalDef, Rule])
    # The builder is code and is given anew; so is every option that Lark takes with it.
    data["options"] = {"start": data["options"]["start"], **_OPTIONS}
    body = json.dumps([data, memo], separators=(",", ":")).encode()
    digest = hashlib.sha256(body).hexdigest().encode()
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(digest + b"\n" + body)
            os.replace(name, path)
        except OSError:
            os.unlink(name)
