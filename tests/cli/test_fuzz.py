"""Whatever the program is called with, it answers with a status and a message.

Calls are put together from real verbs, options and values, right ones and wrong ones, and name
files that were cut, mixed up or filled with noise.
"""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.program import PEOPLE, run

VERBS = (
    "query", "mutate", "read", "change", "load", "ingest", "export", "init", "shell", "snapshot",
    "branch create", "branch list", "branch delete", "branch merge", "diff", "commit list",
    "commit show", "commit changes", "changes poll", "changes baseline", "recoveries",
    "schema check", "schema plan", "schema apply", "schema show", "lint", "check", "explain",
    "optimize", "repair", "cleanup", "blob get", "blob stat", "embed", "profile list",
    "profile show", "completion", "version", "query lint", "graphs list", "alias", "", "nonsense",
)  # fmt: skip
FLAGS = (
    "--query", "-e", "--name", "--params", "--params-file", "--branch", "--snapshot", "--format",
    "--data", "--mode", "--from", "--node", "--edge", "--rejects", "--type", "--out", "--into",
    "--resolve", "--by", "--kind", "--op", "--limit", "--page-token", "--cursor", "--start",
    "--filter", "--schema", "--against", "--backfill", "--keep", "--older-than", "--grace",
    "--offset", "--length", "--input", "--output", "--spec", "--seed", "--select", "--if-commit",
    "--as", "--store", "--uri", "--server", "--graph", "--cluster", "--profile",
)  # fmt: skip
SWITCHES = (
    "--json", "--quiet", "--confirm", "--force", "--all", "--graph", "--delete-branch", "--yes",
    "--allow-data-loss", "--clean", "--reembed-all", "--jsonl", "--", "--frob", "-x",
)  # fmt: skip
VALUES = (
    "g.omni", "main", "b", "Person", "Ada", "node", "edge", "name", "json", "csv", "table", "merge",
    "append", "overwrite", "insert", "ours", "property", "now", "beginning", "after:01X", "actor=x",
    "1", "0", "-1", "99999999999999999999", "7d", "x", "", " ", "{}", "[]", "{", '{"name": "Ada"}',
    '{"name": 3}', "null", "-", ".", "..", "/", "/dev/null", "no/such/dir/x", "Person/Ada=theirs",
    "Person.age=1", "query q() { match { $p: Person } return { $p.name } }", "query q() {",
    'query m() { insert Company { name: "Nu" } }', "hire", "bash", "\udcff", "a\nb", "x\0y",
    "../g.omni", "s3://", "file://", "http://x", "café→😀", "a" * 300, "%s", "'; drop",
)  # fmt: skip
FILES = ("schema.pg", "queries.gq", "mutations.gq", "people.jsonl", "mistake.gq")


def damaged(chance: random.Random, data: bytes) -> bytes:
    """The data as accidents leave it."""
    place, other = sorted(chance.choices(range(len(data)), k=2))
    noise = bytes(chance.randrange(256) for _ in range(chance.randrange(1, 20)))
    return chance.choice(
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


def calls(chance: random.Random, count: int) -> Iterator[list[str]]:
    names = [*FILES, *(f"bad-{name}" for name in FILES)]
    for _ in range(count):
        words = chance.choice(VERBS).split()
        words += chance.choices(
            (*VALUES, *names, "g.omni", "g.omni"), k=chance.choice((0, 1, 1, 2))
        )
        for flag in chance.sample(FLAGS, chance.choice((0, 1, 1, 2, 3))):
            words += [flag, chance.choice((*VALUES, *names, *names))]
        words += chance.sample(SWITCHES, chance.choice((0, 0, 1)))
        yield words


def answered(folder: Path, seed: int, count: int) -> None:
    chance = random.Random(seed)
    shutil.copytree(folder / "g.omni", folder / "kept.omni")
    for number, words in enumerate(calls(chance, count)):
        if number % 10 == 0:
            for name in FILES:
                text = damaged(chance, (PEOPLE / name).read_bytes())
                (folder / f"bad-{name}").write_bytes(text)
        done = run(*words, stdin=chance.choice(("", "x", "match {", ".help\n")), cwd=folder)
        about = f"seed {seed}, call {number}: {words!r}\n{done.stderr}"
        assert done.returncode in (0, 1, 2, 4), about
        assert "Traceback" not in done.stderr, about
        assert "failed unexpectedly" not in done.stderr, about
        if done.returncode:
            told = ("rror: ", "Usage: ")
            assert any(word in done.stderr for word in told) or "finding(s)" in done.stdout, about
        if number % 25 == 0:  # a call may have been a right one, and have written
            shutil.rmtree(folder / "g.omni", ignore_errors=True)
            shutil.copytree(folder / "kept.omni", folder / "g.omni")
    assert run("check", "kept.omni", cwd=folder).returncode == 0


def test_every_call_is_answered(people: Path) -> None:
    answered(people, seed=1, count=150)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
def test_many_calls_are_answered(people: Path, seed: int) -> None:
    answered(people, seed=seed, count=400)
