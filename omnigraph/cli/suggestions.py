"""Suggestions for commands and options that do not exist: by meaning, else by edit distance.

Invariant: a suggestion exists in the command or group that was called, or is a whole command line.
Names that only share some letters are not suggested.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from omnigraph.catalog.near_names import nearest

_COUNTS = "'omnigraph snapshot' counts the rows of each type, 'omnigraph check' reads them all"
_WRITES = "'omnigraph mutate' runs a query that inserts, updates or deletes"
_LINES = {
    **dict.fromkeys(("stats", "stat", "status", "count", "info"), _COUNTS),
    **dict.fromkeys(("validate", "verify", "fsck"), "'omnigraph check' looks for damage"),
    **dict.fromkeys(("gc", "vacuum", "prune"), "'omnigraph cleanup' removes what is not needed"),
    **dict.fromkeys(("insert", "update", "delete", "write", "upsert"), _WRITES),
    **dict.fromkeys(("import", "copy"), "'omnigraph load' reads files"),
    **dict.fromkeys(("dump", "unload"), "'omnigraph export' writes files"),
    **dict.fromkeys(("undo", "rollback"), "'omnigraph revert' undoes a commit"),
    **dict.fromkeys(("checkout", "switch"), "every command takes --branch NAME"),
    **dict.fromkeys(("read", "select", "run"), "'omnigraph query' runs a read"),
    "merge": "'omnigraph branch merge SOURCE' merges a branch",
    "history": "'omnigraph commit list' shows the commits",
    "new": "'omnigraph init' makes a graph",
    "create": "'omnigraph init' makes a graph",
}
"""What to run in the place of commands that other programs have."""

_COMMANDS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("remove", "rm", "del", "drop"), ("delete", "remove", "revoke")),
    **dict.fromkeys(("new", "add", "make", "init"), ("create", "add", "open", "start")),
    **dict.fromkeys(("ls", "all", "log"), ("list",)),
    **dict.fromkeys(("get", "view", "cat", "describe"), ("show", "get")),
    **dict.fromkeys(("test", "check", "lint"), ("validate", "check")),
    **dict.fromkeys(("cancel", "abort", "stop"), ("cancel", "close")),
}
"""Commands of one meaning."""

_OPTIONS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("file", "input"), ("data", "query", "schema")),
    **dict.fromkeys(("output", "target-file"), ("out",)),
    **dict.fromkeys(("parameters", "variables", "vars", "args"), ("params",)),
    **dict.fromkeys(("database", "db", "path", "graph-path"), ("store",)),
    **dict.fromkeys(("user", "author", "actor", "by"), ("as",)),
    **dict.fromkeys(("msg", "comment", "description"), ("message",)),
    **dict.fromkeys(("preview", "dryrun", "simulate"), ("dry-run",)),
    **dict.fromkeys(("max", "count", "top"), ("limit",)),
    **dict.fromkeys(("at", "commit", "rev", "ref", "as-of"), ("snapshot", "branch")),
    **dict.fromkeys(("to", "target", "onto"), ("into", "branch")),
    **dict.fromkeys(("silent",), ("quiet",)),
    **dict.fromkeys(("separator", "csv", "table"), ("format",)),
    "query-file": ("query",),
    "schema-file": ("schema",),
}
"""Options of one meaning, without their dashes."""

_OPTION_LINES = {"alias": "'omnigraph alias NAME' runs a query that config.yaml names"}


def command_hint(name: str, known: Collection[str], *, is_top: bool) -> str:
    """The hint about a command that a group does not have; empty if nothing is near."""
    if is_top and name in _LINES:
        return _LINES[name]
    same = next((each for each in _COMMANDS.get(name, ()) if each in known), None)
    near = nearest(name, known) or same
    return "" if near is None else f"Did you mean '{near}'?"


def option_hint(name: str, known: Collection[str]) -> str:
    """The hint about an option that a command does not have; `known` are its long options."""
    bare = name.lstrip("-")
    if bare in _OPTION_LINES:
        return _OPTION_LINES[bare]
    options = [each.lstrip("-") for each in known if each.startswith("--")]
    same = next((each for each in _OPTIONS.get(bare, ()) if each in options), None)
    near = same or nearest(bare, options)
    return "" if near is None else f"Did you mean --{near}?"
