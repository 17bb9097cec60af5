"""Whatever the program is called with, it answers with a status and a message.

Calls are put together from the program's own commands and options, mostly with values that fit and
sometimes with any, and name files that were cut, mixed up or filled with noise.
"""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from omnigraph.cli.app import app
from tests.cli.program import PEOPLE, run

FILES = ("schema.pg", "queries.gq", "mutations.gq", "people.jsonl", "mistake.gq")
ANY = (
    "g.omni", "main", "b", "Person", "Ada", "1", "0", "-1", "99999999999999999999", "7d", "x", "",
    " ", "{}", "[]", "{", "null", "-", ".", "/dev/null", "no/such/dir/x", "\udcff",
    "a\nb", "s3://", "file://", "http://x", "café→😀", "a" * 300, "%s", "'; drop", "--",
    "[" * 3_000, "query q() {", "01M7FS6GXDB3XYRDBYVGXTQNGQ",
)  # fmt: skip
FITTING = {
    "query": ("queries.gq", "mutations.gq", "bad-queries.gq", "bad-mutations.gq", "mistake.gq"),
    "source": (
        "query q() { match { $p: Person } return { $p.name } }",
        'query m() { insert Company { name: "Nu" } }',
        "query q($n: String) { match { $p: Person { name: $n } } return { $p } }",
        "b",  # of a merge it is a branch
    ),
    "schema": ("schema.pg", "bad-schema.pg"),
    "file": ("schema.pg", "bad-schema.pg"),
    "against": ("schema.pg", "bad-schema.pg"),
    "data": ("people.jsonl", "bad-people.jsonl", "-", "*.jsonl", "bad-*.gq", "empty"),
    "input": ("people.jsonl", "bad-people.jsonl"),
    "spec": ("spec.json", "bad-people.jsonl"),
    "out": ("out.jsonl", "out"),
    "output": ("out.jsonl",),
    "params": ('{"name": "Ada"}', '{"n": "Ada"}', '{"name": 3}', "{}"),
    "params_file": ("spec.json",),
    "branch": ("main", "b"), "from_": ("main", "b"), "base": ("main", "b"), "into": ("main", "b"),
    "name": ("b", "c/d", "person"), "before": ("main", "b"), "after": ("b", "main"),
    "type_": ("Person", "Knows"), "types": ("Person", "Knows"), "type_name": ("Person", "Doc"),
    "node": ("Person",), "edge": ("Knows",), "id": ("Ada",), "property": ("name",),
    "limit": ("1", "2"), "keep": ("1",), "grace": ("0s",), "older_than": ("0s",),
    "start": ("now", "beginning"), "filter": ("actor=x",), "resolve": ("ours", "Person/Ada=theirs"),
    "backfill": ("Person.age=1",), "select": ("name=Ada",), "words": ("person", "hire", "g.omni"),
    "mode": ("append", "merge", "overwrite"), "kind": ("node", "edge"), "op": ("insert", "update"),
    "format": ("json", "jsonl", "csv", "kv", "table", "parquet", "stat", "diff"),
    "by": ("entity", "property"), "commit": ("01X",), "snapshot": ("01X",),
    "engine": ("local",), "rejects": ("rejects",),
}  # fmt: skip
GRAPHS = ("path", "uri", "store")
LEFT_OUT = {
    "demo",
    "package",
    "completion",
    "serve",  # goes on until a signal ends it, and so does `ui`
    "ui",
}


def commands(group: Any, before: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*before, name))
        elif name not in LEFT_OUT:
            yield (*before, name), command


class Caller:
    """Makes up calls."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.commands = list(commands(typer.main.get_command(app)))

    def call(self) -> list[str]:
        words, command = self.chance.choice(self.commands)
        call = list(words)
        graph = self.chance.random() < 0.9
        for param in command.params:
            call += self._given(param, graph)
        if graph:
            call += ["--store", "g.omni"] if "words" in str(command.params) else ["g.omni"]
        if self.chance.random() < 0.1:
            call.insert(self.chance.randrange(len(call) + 1), self.chance.choice(ANY))
        return call

    def _given(self, param: Any, graph: bool) -> list[str]:
        if param.name in GRAPHS or "--help" in param.opts:
            return []
        if param.param_type_name == "argument":
            wanted = param.required or self.chance.random() < 0.5
            return [self._value(param)] if wanted else []
        if not param.required and self.chance.random() < 0.75:
            return []
        flag = self.chance.choice(param.opts)
        return [flag] if param.is_flag else [flag, self._value(param)]

    def _value(self, param: Any) -> str:
        fitting = FITTING.get(param.name, ANY)
        return str(self.chance.choice(list(fitting) if self.chance.random() < 0.85 else ANY))

    def damaged(self, data: bytes) -> bytes:
        """The data as accidents leave it."""
        place, other = sorted(self.chance.choices(range(len(data)), k=2))
        noise = bytes(self.chance.randrange(256) for _ in range(self.chance.randrange(1, 20)))
        return self.chance.choice(
            (
                data,
                data[:place],
                data[place:],
                data[:place] + noise + data[place:],
                data[:place] + data[other:],
                data.replace(b"\n", b"\r\n"),
                b"\xef\xbb\xbf" + data,
                data.replace(b"\n", b" "),
                data[:place] + b"{" * 3_000 + data[place:],
                data[:place] + data[place:other].upper() + data[other:],
                noise,
                b"",
            )
        )


def prepare(folder: Path) -> None:
    (folder / "spec.json").write_text(
        '{"dimension": 4, "types": {"Doc": {"target": "embedding", "fields": ["title"]}}}'
    )
    (folder / "empty").mkdir()
    run("branch", "create", "b", "g.omni", cwd=folder)
    shutil.copytree(folder / "g.omni", folder / "kept.omni")


def refusals(folder: Path, caller: Caller, count: int) -> Iterator[str]:
    """The calls that were not answered as they should."""
    for number in range(count):
        if number % 10 == 0:
            for name in FILES:
                text = caller.damaged((PEOPLE / name).read_bytes())
                (folder / f"bad-{name}").write_bytes(text)
        if number % 25 == 0:  # a call may have been a right one, and have written
            shutil.rmtree(folder / "g.omni", ignore_errors=True)
            shutil.copytree(folder / "kept.omni", folder / "g.omni")
        words = caller.call()
        done = run(*words, stdin=caller.chance.choice(("", "x", "match {", "{}\n")), cwd=folder)
        told = any(word in done.stderr for word in ("rror: ", "Usage: "))
        if (
            done.returncode not in (0, 1, 2, 4)
            or "Traceback" in done.stderr
            or "failed unexpectedly" in done.stderr
            or (done.returncode and not told and not done.stdout)
        ):
            yield f"call {number}, status {done.returncode}: {words!r}\n{done.stderr}"


@pytest.fixture
def room(people: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "mock")
    prepare(people)
    return people


def test_every_call_is_answered(room: Path) -> None:
    assert list(refusals(room, Caller(1), 60)) == []
    shutil.rmtree(room / "g.omni", ignore_errors=True)
    (room / "kept.omni").rename(room / "g.omni")  # where its branches name their files
    assert run("check", "g.omni", cwd=room).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
def test_many_calls_are_answered(room: Path, seed: int) -> None:
    assert list(refusals(room, Caller(seed), 400)) == []
