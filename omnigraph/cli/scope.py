"""Global flags, which may stand before a command or after it: which graph, and how to behave.

One table lists the flags that each command can use; a flag that it cannot use is refused, never
ignored.

Invariant: `GlobalFlags` are set before the command runs, read anywhere below it, and reset after.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, takewhile

import typer

TARGETS = ("--server", "--graph", "--cluster", "--profile", "--durability", "--policy")
SWITCHES = ("--yes", "--debug")
# Taken by the commands themselves, but allowed before them too.
_LEADING = ("--store", "--as", "--policy")
_LEADING_SWITCHES = ("--quiet",)
# Commands of two words.
_DATA_GROUPS = ("blob", "branch", "changes", "commit", "draw", "jobs", "review", "schema", "tag")
_OTHER_GROUPS = ("cluster", "graphs", "policy", "profile", "queries", "spark", "token")
_GROUPS = frozenset((*_DATA_GROUPS, *_OTHER_GROUPS))


@dataclass(frozen=True, slots=True)
class GlobalFlags:
    """Values of the global flags."""

    server: str | None = None
    graph: str | None = None
    cluster: str | None = None
    profile: str | None = None
    durability: str | None = None
    policy: str | None = None
    actor: str | None = None  # of `--as`, where a policy asks about it
    yes: bool = False
    debug: bool = False
    json: bool = False  # a failure is a document too


_current = GlobalFlags()


def scope() -> GlobalFlags:
    """The flags of this call."""
    return _current


def forget() -> None:
    """The call is over."""
    global _current
    _current = GlobalFlags()


_ANY = frozenset({"--server", "--graph", "--profile", "--durability", "--policy"})
_UNASKED = _ANY - {"--policy"}
_DIRECT = frozenset({"--cluster", "--graph", "--profile", "--durability"})
_OWN = frozenset({"--durability"})
_NONE: frozenset[str] = frozenset()

_ALLOWED = {
    **dict.fromkeys(
        ("query", "mutate", "load", "ingest", "blob", "branch", "snapshot", "export", "commit"),
        _ANY,
    ),
    **dict.fromkeys(("changes", "diff", "schema", "shell", "recoveries", "tag", "review"), _ANY),
    "explain": _UNASKED,
    **dict.fromkeys(("revert", "restore", "log"), _ANY),
    **dict.fromkeys(("optimize", "repair", "cleanup"), _DIRECT | {"--policy"}),
    **dict.fromkeys(("check", "lint"), _DIRECT),
    **dict.fromkeys(("policy", "queries"), _DIRECT),
    "queries list": _DIRECT | {"--server"},
    "jobs": _UNASKED,
    "mcp": _ANY,
    "init": _OWN,
    "serve": frozenset({"--cluster"}),
    **dict.fromkeys(("graphs", "whoami"), frozenset({"--server", "--profile"})),
    "schema plan": frozenset({"--profile", "--policy"}),
    "schema check": _NONE,
}


def take(arguments: list[str]) -> list[str]:
    """Set the scope from the flags; the arguments that are left for the command."""
    global _current
    rest: list[str] = []
    switches: set[str] = set()
    targets: dict[str, str] = {}
    for word in arguments:
        if not _is_text(word):
            raise typer.BadParameter(f"{word!r} is not UTF-8 text")
    words = iter(_leading_last(_with_store(arguments)))
    for word in words:
        flag, equals, value = word.partition("=")
        if word == "--":
            rest += [word, *words]
        elif word in SWITCHES:
            switches.add(word)
        elif flag in TARGETS and not _is_own(flag, equals, rest, arguments):
            if flag in targets:
                raise typer.BadParameter(f"{flag} is given twice")
            targets[flag] = value if equals else _value(flag, next(words, None))
        else:
            rest.append(word)
    _require_usable(targets, rest)
    rest = _without_quiet(rest)
    actor = _acting(rest) if "--policy" in targets else None
    _current = GlobalFlags(
        server=targets.get("--server"),
        graph=targets.get("--graph"),
        cluster=targets.get("--cluster"),
        profile=targets.get("--profile"),
        durability=_mode(targets.get("--durability")),
        policy=targets.get("--policy"),
        actor=actor,
        yes="--yes" in switches,
        debug="--debug" in switches,
        json=_asks_for_json(rest),
    )
    return rest


_BY_POSITION = ("init", "backup")
"""Commands whose graph is their first word, and no option."""


def _with_store(arguments: list[str]) -> list[str]:
    """The words with `--uri`, an older name of `--store`, as that; of a command that takes its
    graph by position as its first word. Of two graphs none is chosen."""
    options = list(takewhile(lambda word: word != "--", arguments))
    stores = [n for n, word in enumerate(options) if word.partition("=")[0] in ("--uri", "--store")]
    addresses = [options[n].partition("=")[2] or _next(options, n) for n in stores]
    if len(stores) > 1:
        twice = " and ".join(f"'{address}'" for address in addresses)
        raise typer.BadParameter(
            f"the graph is named twice, by {twice}: pass one of --uri, --store"
        )
    if not stores or not options[stores[0]].startswith("--uri"):
        return arguments
    (at,), (address,) = stores, addresses
    width = 1 if "=" in options[at] else 2
    rest = [*arguments[:at], *arguments[at + width :]]
    command = next((n for n, word in enumerate(rest) if word in _BY_POSITION), None)
    if command is not None and not any(word in _ALLOWED for word in rest[:command]):
        return [*rest[: command + 1], address, *rest[command + 1 :]]
    return [*arguments[:at], "--store", address, *arguments[at + width :]]


def _next(words: list[str], position: int) -> str:
    flag, *rest = words[position : position + 2]
    return _value(flag, rest[0] if rest else None)


def _asks_for_json(words: list[str]) -> bool:
    """Whether the result of a command is one JSON document."""
    options = list(takewhile(lambda word: word != "--", words))
    formats = ("--format", "json") in pairwise(options) or "--format=json" in options
    return "--json" in options or formats


def _mode(durability: str | None) -> str | None:
    if durability not in (None, "fsync", "os"):
        raise typer.BadParameter(f"--durability is fsync or os, not '{durability}'")
    return durability


def _is_text(word: str) -> bool:
    """Whether bytes that a shell passed are a text; Python keeps the others as half a sign."""
    return word.isascii() or not any("\ud800" <= char <= "\udfff" for char in word)


def _leading_last(arguments: list[str]) -> list[str]:
    """Options of commands that stand before the command, or between the two words of one, moved
    behind it."""
    kept, moved, rest = _led(arguments)
    if rest and rest[0] in _GROUPS:
        between, more, verb = _led(rest[1:])
        if not verb or verb[0].startswith("-"):  # of the group itself: its help
            return [*kept, *rest, *moved]
        kept, moved, rest = [*kept, *between], [*moved, *more], [rest[0], *verb]
    return [*kept, *rest, *moved]


def _led(arguments: list[str]) -> tuple[list[str], list[str], list[str]]:
    """The flags that words begin with, to be kept there and to be moved, and the other words."""
    position = 0
    moved: list[str] = []
    kept: list[str] = []
    while position < len(arguments):
        word = arguments[position]
        flag, equals, _ = word.partition("=")
        valued = flag in _LEADING or flag in TARGETS
        if not valued and word not in SWITCHES and word not in _LEADING_SWITCHES:
            break
        width = 2 if valued and not equals else 1
        (moved if flag in (*_LEADING, *_LEADING_SWITCHES) else kept).extend(
            arguments[position : position + width]
        )
        position += width
    return kept, moved, arguments[position:]


_COMMITTERS = (
    *((name,) for name in ("mutate", "change", "load", "ingest", "revert", "restore")),
    *((name,) for name in ("optimize", "repair")),
    *(("branch", name) for name in ("create", "delete", "merge")),
    *(("review", name) for name in ("open", "comment", "approve", "merge", "close")),
    *(("tag", name) for name in ("create", "delete")),
    ("schema", "apply"),
)
# Commands that take --as themselves.
_WRITERS = (*_COMMITTERS, ("shell",))
# Commands that take --quiet themselves, and those that exist to talk and refuse it. The others say
# nothing but their results, so that it changes nothing.
_TALKING = (
    *_COMMITTERS,
    *((name,) for name in ("query", "export", "cleanup", "backup", "embed")),
    *((name,) for name in ("demo", "serve", "ui")),
)


def _acting(rest: list[str]) -> str | None:
    """The actor that a policy is asked about. Commands that only read do not know --as, so it is
    taken from their words."""
    is_writer = any(tuple(rest[: len(words)]) == words for words in _WRITERS)
    for number, word in enumerate(rest):
        if word == "--":
            return None
        flag, equals, value = word.partition("=")
        if flag == "--as":
            width = 1 if equals else 2
            actor = value if equals else _value(flag, next(iter(rest[number + 1 :]), None))
            if not is_writer:
                del rest[number : number + width]
            return actor
    return None


def _is_own(flag: str, equals: str, before: list[str], arguments: list[str]) -> bool:
    """Whether a command has a flag of its own by this name."""
    if flag == "--policy":
        return before[:1] in (["serve"], ["policy"])
    return _draws_history(flag, equals, before, arguments)


def _draws_history(flag: str, equals: str, before: list[str], arguments: list[str]) -> bool:
    """`commit list --graph` draws the history; only with a server does it name a graph of it."""
    drawn = flag == "--graph" and not equals and before[:2] == ["commit", "list"]
    return drawn and not any(word.partition("=")[0] == "--server" for word in arguments)


def _without_quiet(rest: list[str]) -> list[str]:
    """The words of a command that has no use for --quiet, without it."""
    if any(tuple(rest[: len(words)]) == words for words in _TALKING):
        return rest
    options = list(takewhile(lambda word: word != "--", rest))
    return [*(word for word in options if word != "--quiet"), *rest[len(options) :]]


def _value(flag: str, value: str | None) -> str:
    if value is None:
        raise typer.BadParameter(f"{flag} needs a value")
    return value


def _why(command: str, flag: str) -> str:
    """Who does what works on files: a job of the server, or a command beside them."""
    if flag != "--server" or command not in _ON_FILES:
        return ""
    if command in ("optimize", "cleanup"):
        return f": let the server do it, with omnigraph jobs start {command} --wait"
    return ": run it where the files of the graph are"


_ON_FILES = ("optimize", "cleanup", "repair", "check", "backup", "embed", "draw", "init")


def _require_usable(targets: dict[str, str], rest: list[str]) -> None:
    if not rest or rest[0].startswith("-"):
        return
    command = " ".join(rest[:2])
    if command not in _ALLOWED:
        command = rest[0]
    for flag in targets:
        if flag not in _ALLOWED.get(command, _NONE):
            raise typer.BadParameter(
                f"'omnigraph {command}' does not take {flag}{_why(command, flag)}"
            )
    if "--server" in targets and "--cluster" in targets:
        raise typer.BadParameter("--server and --cluster are mutually exclusive: pass one")
