"""`omnigraph shell`: an interactive loop (REPL) for queries.

On a terminal there are history, completion from the schema and several lines to a query; from a
pipe the same language is read line by line, and the first failure ends it.

Invariant: one open graph for the whole session, and a failure leaves it as usable as before.
"""

from __future__ import annotations

import contextlib
import json as json_codec
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from omnigraph.cli.address import graph_uri
from omnigraph.cli.change_text import conflict_lines, diff_lines, schema_lines
from omnigraph.cli.commit_text import commit_lines
from omnigraph.cli.data import show_answer
from omnigraph.cli.engine import open_graph
from omnigraph.cli.load_call import RowsType
from omnigraph.cli.options import MAIN, Actor, Branch, GraphPath, Store
from omnigraph.cli.render import BINARY, Format, QueryRows
from omnigraph.cli.shapes import rounded_lines
from omnigraph.cli.terminal import painted, plain_errors, show
from omnigraph.errors import BadRequest, MergeConflicts, NotFound, OmnigraphError, TypeCheckError
from omnigraph.plan.query_words import is_whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnigraph.graph import Graph

HELP = """\
Type a query; Enter runs it once every bracket is closed, an empty line runs it as it is.
  match { $p: Person } return { $p.name }          a read
  insert Person { name: "Dee" }                    a write, one commit
  match { $p: Person { name: $n } } return { $p }  with a parameter: .param n "Ada"
.schema            the schema                 .branches         every branch
.branch [NAME]     which branch, or another   .branch NAME FROM makes one and goes there
.merge NAME        merge it into this branch  .diff [A] B       what turns A, or this branch, into B
.load FILE [TYPE]  load it with merge         .commits [N]      the last commits
.param [NAME JSON] parameters of queries      .format NAME      table, kv, csv, jsonl, json …
.explain QUERY     the plan of a query        .help  .quit      also help, exit, quit"""

COMMANDS = {
    ".help": "what can be typed",
    ".schema": "the schema",
    ".branch": "which branch, or another",
    ".branches": "every branch",
    ".merge": "merge a branch into this one",
    ".diff": "what turns one point into another",
    ".load": "load a file",
    ".commits": "the last commits",
    ".param": "parameters of queries",
    ".format": "how rows are shown",
    ".explain": "the plan of a query",
    ".quit": "leave",
}
"""The commands that begin with a dot, and what each does."""

_STARTS = ("query", "match", "insert", "upsert", "update", "delete")
_PLAIN_COMMANDS = ("exit", "quit", "help")
_VARIABLES = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_TEXTS = re.compile(r'"(?:[^"\\]|\\.)*"')
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d\S*)?")
_BARE = re.compile(r"\s*(match|insert|upsert|update|delete)\b")


class Finished(Exception):
    """The user wants to leave."""


@dataclass
class Session:
    """State of a shell: the open graph, its branch, parameters and output format."""

    graph: Graph
    uri: str
    branch: str = MAIN
    actor: str | None = None
    format: Format | None = None
    params: dict[str, Any] = field(default_factory=dict)

    def run(self, text: str) -> None:
        """Do what a line, or several, ask for."""
        text = text.strip()
        if text.lower().rstrip(";") in _PLAIN_COMMANDS:
            self._command(f".{text.lower().rstrip(';')}")
        elif text.startswith("."):
            self._command(text)
        elif text:
            self._query(text)

    def _query(self, text: str) -> None:
        from omnigraph.plan.compile import compile_query
        from omnigraph.plan.ir import ReadPlan

        text = self._framed(text)
        plan = compile_query(text, self.graph.schema.on(self.branch).catalog)
        given = {p.name: self.params[p.name] for p in plan.parameters if p.name in self.params}
        if isinstance(plan, ReadPlan):
            result = self.graph.query(text, given, branch=self.branch)
            from omnigraph.exec.read.result import json_rows

            answer = QueryRows(
                result.query_name,
                self.branch,
                None,
                result.columns,
                json_rows(result),
                result.tuples(),
                result.commit_id,
            )
            show_answer(answer, self.format)
            return
        done = self.graph.mutate(text, given, branch=self.branch, actor=self.actor)
        counts = f"{done.affected_nodes} nodes, {done.affected_edges} edges"
        show(f"changed {done.branch}: {counts}")
        for line in rounded_lines(done.rounded):
            show(line)

    def _framed(self, text: str) -> str:
        """A whole query. Where the query takes no String, a text that reads as a date is a Date or
        a DateTime; where it takes no list, numbers are a vector."""
        from omnigraph.plan.compile import compile_query

        catalog = self.graph.schema.on(self.branch).catalog
        for framed in dict.fromkeys(
            whole_query(text, self.params, dates, vectors=vectors)
            for vectors in (False, True)
            for dates in (None, "Date", "DateTime")
        ):
            with contextlib.suppress(TypeCheckError):
                compile_query(framed, catalog)
                return framed
        return whole_query(text, self.params, vectors="nearest" in text)

    def _command(self, line: str) -> None:
        name, _, rest = line.partition(" ")
        rest = rest.strip()
        match name:
            case ".quit" | ".exit":
                raise Finished
            case ".help":
                show(HELP)
            case ".schema":
                show(self.graph.schema.on(self.branch).text.rstrip("\n"))
            case ".branches":
                for branch in self.graph.branches.list():
                    show(f"{'*' if branch == self.branch else ' '} {branch}")
            case ".branch":
                self._to_branch(rest)
            case ".commits":
                commits = self.graph.commits.list(self.branch, limit=_number(rest, 10))
                for line in commit_lines(commits, self.graph.commits.names()):
                    show(line)
            case ".param":
                self._param(rest)
            case ".format":
                self.format = _format(rest)
            case ".explain":
                self._explain(rest)
            case ".merge":
                self._merge(rest)
            case ".diff":
                self._diff(rest)
            case ".load":
                self._load(rest)
            case _:
                from omnigraph.catalog.near_names import did_you_mean

                near = did_you_mean(name, COMMANDS, listed=False)
                raise BadRequest(f"'{name}' is no command", near or "type .help")

    def _to_branch(self, text: str) -> None:
        name, _, base = text.partition(" ")
        try:
            if base.strip():
                name = self.graph.branches.create(name, base.strip())
            if name:
                self.graph.branch(name)
        except NotFound as missing:
            made = base.strip() if name == "create" else name
            hint = f"write .branch {made} main to create it from main"
            raise NotFound(missing.kind, missing.name, hint) from None
        if name:
            self.branch = name
        show(self.branch)

    def _merge(self, name: str) -> None:
        if not name:
            raise BadRequest(".merge needs a branch", "write .merge NAME")
        try:
            outcome = self.graph.branches.merge(name, self.branch, actor=self.actor)
        except MergeConflicts as refused:
            for line in conflict_lines(refused, self.branch, name):
                show(line)
            raise
        show(f"merged {name} into {self.branch}: {outcome.kind}")

    def _diff(self, text: str) -> None:
        points = text.split()
        if len(points) not in (1, 2):
            raise BadRequest(".diff is between two points", "write .diff main~1 main")
        before, after = points if len(points) == 2 else (self.branch, points[0])
        count = 0
        changes = self.graph.diff(before, after)
        for line in schema_lines(changes.schema_steps):
            show(line)
        for change in changes:
            count += 1
            for line in diff_lines(change):
                show(line)
        show(f"{before} → {after}: {count or 'no'} changes")

    def _load(self, text: str) -> None:
        words = _split(text)
        if len(words) not in (1, 2):
            raise BadRequest(".load reads a file", "write .load FILE, or .load FILE TYPE")
        rows = RowsType(either=words[1] if len(words) == 2 else None)
        named = rows.named(self.graph, self.branch, None)
        try:
            done = self.graph.load(words[0], "merge", branch=self.branch, actor=self.actor, **named)
        except BadRequest as refused:
            from omnigraph.exec.load.ndjson import TYPE_OF_ROWS

            if TYPE_OF_ROWS not in refused.hint:
                raise
            raise BadRequest(refused.text, f"write .load {words[0]} TYPE") from None
        counts = {**done.nodes, **done.edges}
        listed = ", ".join(f"{count} {name}" for name, count in counts.items())
        show(f"loaded {listed or 'nothing'} into {done.branch}")

    def _param(self, rest: str) -> None:
        name, _, value = rest.partition(" ")
        if name and not value.strip():
            self.params.pop(name, None)
        elif name:
            self.params[name] = _param_value(value.strip())
        for key, known in self.params.items():
            show(f"{key} = {json_codec.dumps(known, ensure_ascii=False)}")

    def _explain(self, text: str) -> None:
        from omnigraph.plan.compile import compile_query
        from omnigraph.plan.explain import explain

        catalog = self.graph.schema.on(self.branch).catalog
        show(explain(compile_query(self._framed(text), catalog)).rstrip("\n"))


def _param_value(text: str) -> Any:
    """The JSON of a parameter; a date needs no quotes."""
    try:
        return json_codec.loads(text)
    except ValueError:
        if _MOMENT.fullmatch(text):
            return text
        raise BadRequest(f"'{text}' is not JSON", 'a text is written "so"') from None


def whole_query(
    text: str,
    params: Mapping[str, Any] | None = None,
    dates: str | None = None,
    *,
    vectors: bool = False,
) -> str:
    """A query that was typed without its frame gets one, which declares the parameters that the
    text uses by the types of their values; texts of dates by `dates`, if it is given, and lists of
    numbers as vectors if they are meant so."""
    if not _BARE.match(text):
        return text
    used = set(_VARIABLES.findall(_TEXTS.sub("", text)))

    def declared(value: Any) -> str:
        if vectors and isinstance(value, list) and _number_type(value) is not None:
            return f"Vector({len(value)})"
        is_date = isinstance(value, str) and _MOMENT.fullmatch(value)
        return dates if dates and is_date else declared_type(value)

    frame = [
        f"${name}: {declared(value)}" for name, value in (params or {}).items() if name in used
    ]
    return f"query shell({', '.join(frame)}) {{ {text} }}"


def declared_type(value: Any) -> str:
    """The type of the query language that holds a JSON value."""
    match value:
        case bool():
            return "Bool"
        case int():
            return "I64"
        case float():
            return "F64"
        case str():
            return "String"
        case list() if (number_type := _number_type(value)) is not None:
            return f"[{number_type}]"
        case list() if value and all(
            declared_type(each) == declared_type(value[0]) for each in value
        ):
            return f"[{declared_type(value[0])}]"
        case _:
            raise BadRequest(
                f"a parameter {json_codec.dumps(value)} says no type of its own",
                "write the whole query, with the types of its parameters: query q($n: I32?) { … }",
            )


def _number_type(values: list[Any]) -> str | None:
    """The type of numbers, whole or not; None if one is no number, or there is none."""
    types = {type(each) for each in values}
    if not types or not types <= {int, float}:
        return None
    return "F64" if float in types else "I64"


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as cause:
        raise BadRequest(f"'{text}' cannot be read: {cause}", "close the quote") from None


def is_finished(text: str) -> bool:
    """Whether Enter runs the text: a command, or a query that wants nothing more."""
    bare = text.strip()
    if not bare or text.endswith("\n") or bare.lower().rstrip(";") in _PLAIN_COMMANDS:
        return True
    if bare.startswith(".") and not bare.startswith(".explain"):
        return True
    body = bare.removeprefix(".explain").strip()
    if not body.startswith(_STARTS):
        return is_whole(body)
    if body.startswith("match"):
        return is_whole(body) and "return" in body
    return is_whole(body) and ("{" in body or body.startswith("delete"))


def _number(text: str, default: int) -> int:
    if not text:
        return default
    if not text.isdecimal() or int(text) < 1:
        raise BadRequest(f"'{text}' is no number of commits", "give one above 0")
    return int(text)


def _format(text: str) -> Format:
    try:
        return Format(text)
    except ValueError:
        known = ", ".join(str(format) for format in Format if format not in BINARY)
        raise BadRequest(f"'{text}' is no format", f"use {known}") from None


def shell(
    path: GraphPath = None,
    branch: Branch = MAIN,
    actor: Actor = None,
    store: Store = None,
) -> None:
    """Type queries one after the other, with completion and history."""
    with plain_errors():
        where = graph_uri(path, store)
        with open_graph(where) as graph:
            graph.branch(branch)
            session = Session(graph, where, branch, actor)
            if sys.stdin.isatty() and sys.stdout.isatty():
                from omnigraph.cli.shell_prompt import converse

                converse(session)
                return
            for text in _statements(sys.stdin):
                try:
                    session.run(text)
                except Finished:
                    return


def _statements(lines: Any) -> Iterator[str]:
    """Statements of a pipe, cut where a query is whole."""
    text = ""
    for line in lines:
        text += line.rstrip("\n") if not text else "\n" + line.rstrip("\n")
        if is_finished(text):
            yield text
            text = ""
    if text.strip():
        yield text


def show_failure(cause: OmnigraphError) -> None:
    """A failure inside a session, which goes on."""
    sys.stderr.write(f"{painted('error:', 'red', sys.stderr)} {cause}\n")
