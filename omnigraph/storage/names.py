"""Names on disk: table folders, Lance branches, locks.

Invariant: an encoded name is one flat path segment of letters, digits, `-` and `_`, and two names
never share one. Flat, because Lance cannot recreate a branch whose name is a path prefix of another
one's; and free of `.`, because Lance refuses `..` and `.lock`.
"""

import re
from collections.abc import Collection

from omnigraph.errors import BadRequest
from omnigraph.types import TableKey, parse_table_key

BACKUP_FOLDER = "__backup"
BACKUP_RUNNING = f"{BACKUP_FOLDER}/running.json"  # a backup to this root has not ended
MANIFEST = "__manifest"
MAIN = "main"
RESERVED_ACTORS = "omnigraph:"
"""How the names of the engine's own actors begin: the commits of a recovery carry one."""

RESERVED_BRANCHES = frozenset({"__schema_apply_lock__"})
POINT_MARKS = ("~", "@{")
"""What follows a name in the text of a point in time (`main~3`), and so is in no new name."""

_ENCODED_MAX = 180  # a path segment holds 255 bytes, and temporary names add a little

_FNV_OFFSET = 0xCBF29CE484222325
_FNV_PRIME = 0x100000001B3


def fnv1a64(text: str) -> str:
    """The 64-bit FNV-1a hash of UTF-8 text, as 16 hex digits."""
    value = _FNV_OFFSET
    for byte in text.encode():
        value = ((value ^ byte) * _FNV_PRIME) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def table_location(table_key: TableKey, nth: int = 1) -> str:
    """Where a new table lives below the graph's root; the `nth` of that name, elsewhere again."""
    try:
        kind, type_name = parse_table_key(table_key)
    except ValueError as cause:
        raise BadRequest(str(cause), "write node:<Type> or edge:<Type>") from None
    return f"{kind}s/{fnv1a64(type_name if nth == 1 else f'{type_name}#{nth}')}"


def encode(name: str) -> str:
    """A name as one flat path segment."""
    return "".join(
        char if (char.isascii() and char.isalnum()) or char == "-" else _escape(char)
        for char in name
    )


def _escape(char: str) -> str:
    # Half a surrogate pair is in no name, so looking for one finds nothing.
    return "".join(f"_{byte:02x}" for byte in char.encode("utf-8", "surrogatepass"))


def decode(segment: str) -> str:
    """The name an encoded segment stands for."""
    head, *parts = segment.split("_")
    data = head.encode() + b"".join(bytes.fromhex(p[:2]) + p[2:].encode() for p in parts)
    return data.decode()


def owner_of(branch: str) -> str | None:
    """The `table_branch` of a table written on a graph branch: None for `main`."""
    return None if branch == MAIN else branch


def lock_name(subject: str, branch: str) -> str:
    """The lock of one subject (a table key, or a word of ours) on one branch.

    Locks are taken in the order of their names: `a-retention`, `a-schema-change`, `branches`, then
    `crowd`, then tables (`edge…`, `node…`), then `publish`. A long name keeps its beginning, and
    with it its place in that order.
    """
    segment = encode(f"{subject}@{branch}")
    return segment if len(segment) <= _ENCODED_MAX else f"{segment[:60]}--{fnv1a64(segment)}"


BRANCH_MARK = encode("@")
_OF_BRANCHES = re.compile(f"crowd|publish|transaction|({encode('node:')}|{encode('edge:')}).*")
_SHORTENED = re.compile("(.*)--[0-9a-f]{16}")


def branch_mark(branch: str) -> str:
    """How the names of a branch's locks end, but for long ones."""
    return f"{BRANCH_MARK}{encode(branch)}"


def is_lock_of_gone(name: str, live: Collection[str]) -> bool:
    """Whether a lock belongs to a branch that is none of the live ones, which are given encoded. A
    name that was shortened shows only how that of its branch begins: it stays while a live one
    begins so."""
    subject, _, branch = name.partition(BRANCH_MARK)
    if not branch or branch in live or not _OF_BRANCHES.fullmatch(subject):
        return False
    shortened = _SHORTENED.fullmatch(branch)
    return shortened is None or not any(each.startswith(shortened[1]) for each in live)


def checked_branch(name: str) -> str:
    """A name a new branch may have, trimmed, or `BadRequest`."""
    name = name.strip()
    if not name:
        raise BadRequest("branch name cannot be empty")
    if name == MAIN:
        raise BadRequest("cannot create branch 'main'")
    if name in RESERVED_BRANCHES:
        raise BadRequest(f"branch name '{name}' is reserved")
    _require_plain(name, "branch")
    return name


def checked_tag(name: str) -> str:
    """A name a new tag may have, trimmed, or `BadRequest`."""
    name = name.strip()
    if not name:
        raise BadRequest("tag name cannot be empty")
    if name == MAIN:
        raise BadRequest("cannot create tag 'main'", "a branch has that name")
    _require_plain(name, "tag")
    return name


def _require_plain(name: str, kind: str) -> None:
    segments = name.split("/")
    if ".." in name or "" in segments or any(not c.isprintable() or c.isspace() for c in name):
        raise BadRequest(
            f"'{name}' cannot name a {kind}",
            "use segments of visible characters with single slashes between them, without '..'",
        )
    if any(mark in name for mark in POINT_MARKS):
        raise BadRequest(
            f"'{name}' cannot name a {kind}", "leave out '~' and '@{', which name points in time"
        )
    if len(encode(name)) > _ENCODED_MAX:
        raise BadRequest(f"the {kind} name is too long", "use a shorter one")


def require_actor(actor: object) -> None:
    """Pass for nobody, or a text that can be written down and is no name of our own."""
    if actor is None:
        return
    require_text("an actor", actor)
    if str(actor).strip().lower().startswith(RESERVED_ACTORS):
        raise BadRequest(
            f"the actor '{actor}' is reserved",
            f"names that begin with '{RESERVED_ACTORS}' are those of the engine itself; "
            "use another one",
        )


def require_text(what: str, value: object) -> None:
    """Pass for a text that UTF-8 can write."""
    if not isinstance(value, str):
        raise BadRequest(f"{what} is a text, not {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadRequest(f"{what} cannot be written as UTF-8") from None
