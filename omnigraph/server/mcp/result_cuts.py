"""Truncation of tool results: rows, bytes, vectors and blobs that a model has no use for.

Invariant: a result that was cut says so in `truncated`, with how to go on, and has at most the
bytes of its session; what remains is what the API answered.
"""

from collections.abc import Collection
from typing import Any

import orjson

from omnigraph.catalog.model import Catalog

_IMAGES = ("properties", "base", "ours", "theirs", "before", "after")
_TEXT_CHARACTERS = (4_000, 1_000, 250, 60)
_ITEMS = (200, 40, 8, 2)
_TOKENS = frozenset({"next_page_token", "cursor", "resume_cursor"})
"""Members that go on with a listing: a part of one is of no use."""
_CUT_TEXT = "… (cut: ask for less with a limit, a filter or fewer properties, or page by page)"
_LONG = "long texts and lists are cut; read one entity, fewer properties or one page at a time"


def size_of(document: Any) -> int:
    """The bytes of a document as JSON."""
    return len(orjson.dumps(document, option=orjson.OPT_NON_STR_KEYS))


def hidden_properties(catalog: Catalog) -> frozenset[str]:
    """Names of properties that are vectors or blobs wherever they occur."""
    hidden: set[str] = set()
    shown: set[str] = set()
    for owner in catalog.types:
        for prop in owner.properties:
            is_hidden = prop.type.is_vector or prop.type.is_blob
            (hidden if is_hidden else shown).add(prop.name)
    return frozenset(hidden - shown)


def without_properties(value: Any, names: Collection[str], *, inside: bool = False) -> Any:
    """A document without some properties of the entities in it."""
    if isinstance(value, list):
        return [without_properties(each, names, inside=inside) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: without_properties(each, names, inside=name in _IMAGES)
        for name, each in value.items()
        if not (inside and name in names)
    }


def rows_that_fit(rows: list[Any], rows_max: int, bytes_max: int) -> int:
    """How many of the first rows may be shown: one at least, if there is one."""
    total, number = 0, 0
    for row in rows[:rows_max]:
        total += size_of(row) + 1
        if number and total > bytes_max:
            break
        number += 1
    return number


def fitted(document: dict[str, Any], bytes_max: int) -> dict[str, Any]:
    """A document of at most so many bytes: its long texts and lists are cut as far as needed."""
    if size_of(document) <= bytes_max:
        return document
    notice = {**document.get("truncated", {}), "hint": _LONG}
    rest = {name: value for name, value in document.items() if name != "truncated"}
    for characters, items in zip(_TEXT_CHARACTERS, _ITEMS, strict=True):
        cut: dict[str, Any] = _shortened(rest, characters, items)
        if size_of(cut) + size_of(notice) <= bytes_max:
            break
    return {**cut, "truncated": notice}


def json_text(document: dict[str, Any], bytes_max: int) -> str:
    """Return a document as JSON of at most so many bytes. One that cannot be cut to them ends with
    how to ask for less."""
    data = orjson.dumps(fitted(document, bytes_max), option=orjson.OPT_NON_STR_KEYS)
    if len(data) <= bytes_max:
        return data.decode()
    shown = data[: max(0, bytes_max - len(_CUT_TEXT.encode()))].decode(errors="ignore")
    return f"{shown}{_CUT_TEXT}"


def _shortened(value: Any, characters: int, items: int) -> Any:
    if isinstance(value, str) and len(value) > characters:
        return f"{value[:characters]}… ({len(value) - characters} characters more)"
    if isinstance(value, list):
        return [_shortened(each, characters, items) for each in value[:items]]
    if isinstance(value, dict):
        return {
            name: each if name in _TOKENS else _shortened(each, characters, items)
            for name, each in value.items()
        }
    return value
