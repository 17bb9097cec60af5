"""The shell: from a pipe, and on a terminal of its own."""

import contextlib
import os
import pty
import re
import select
import subprocess
import time
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.catalog.accept import accept
from omnigraph.cli.shell import is_finished
from omnigraph.plan.query_words import Suggester, is_whole
from tests.cli.program import PEOPLE, PROGRAM, document, lines, run

NAMES = Suggester(accept((PEOPLE / "schema.pg").read_text("utf-8")))


def words(before: str) -> set[str]:
    return {word.text for word in NAMES.next(before)[1]}


@pytest.mark.parametrize(
    ("before", "some", "none"),
    [
        ("match { $p: ", {"Person", "Company", "Doc"}, {"knows", "name"}),
        ("match { $p: Per", {"Person"}, {"Company"}),
        ("match { $p: Person } return { $p.", {"name", "age", "email"}, {"title", "Person"}),
        ("match { $p: Person } return { $p.na", {"name"}, {"age"}),
        ("match { $p: Person  $p worksAt $c } return { $c.", {"founded"}, {"age", "role"}),
        ("match { $c: Company  $c worksAt $p } return { $p.", {"age"}, {"founded"}),
        ("match { $a: Person  $a $k:knows $b } return { $k.", {"since"}, {"age", "title"}),
        ("match { $p: Person  $p ", {"knows", "worksAt", "wrote"}, set()),
        ("match { $p: Person  $p wo", {"worksAt"}, {"knows"}),
        ("insert ", {"Person", "Knows"}, {"knows", "match"}),
        ("insert Kn", {"Knows"}, {"Person"}),
        ("insert Knows { ", {"from", "to", "since"}, {"age"}),
        ("update Person set { ", {"age", "city"}, {"from"}),
        ("", {"match", "insert", "query"}, set()),
        ("re", {"return"}, {"match"}),
        ("match { $x.", {"name", "title", "since"}, set()),
    ],
)
def test_what_can_come_next(before: str, some: set[str], none: set[str]) -> None:
    found = words(before)
    assert some <= found
    assert not none & found


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("match { $p: Person }", True),
        ("match { $p: Person", False),
        ('insert Person { name: "}" ', False),
        ('insert Person { name: "{" }', True),
        ('insert Person { name: "x', False),
        ("match { // }\n", False),
        ("match { /* } */", False),
    ],
)
def test_brackets_in_texts_and_comments_do_not_count(text: str, whole: bool) -> None:
    assert is_whole(text) is whole


@pytest.mark.parametrize(
    ("text", "finished"),
    [
        (".help", True),
        ("match { $p: Person }", False),
        ("match { $p: Person } return { $p }", True),
        ("match { $p: Person } return {", False),
        ("query q() {", False),
        ("query q", False),
        ("query q() { match { $p: Person } return { $p } }", True),
        ("insert Person", False),
        ('insert Company { name: "x" }', True),
        ('delete Company where name = "x"', True),
        ("match { $p\n", True),
        ("nonsense", True),
        ("", True),
    ],
)
def test_enter_runs_what_is_finished(text: str, finished: bool) -> None:
    assert is_finished(text) is finished


SCRIPT = """\
.param n "Ada"
query one($n: String) {
  match { $p: Person { name: $n } }
  return { $p.name as name, $p.age as age }
}
.format csv
insert Company { name: "Nu" }
match { $c: Company }
return { $c.name as company }
.branches
"""


def test_a_pipe_is_read_a_statement_at_a_time(people: Path) -> None:
    done = run("shell", "g.omni", stdin=SCRIPT, cwd=people)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        'n = "Ada"',
        "1 rows from branch main via one",
        "name | age",
        "-----+----",
        "Ada  | 36 ",
        "changed main: 1 nodes, 0 edges",
        "company",
        "Acme",
        "Nu",
        "Zeta",
        "* main",
    ]


def test_the_first_failure_ends_a_pipe(people: Path) -> None:
    text = 'match { $p: Robot } return { $p }\ninsert Company { name: "Nu" }\n'
    done = run("shell", "g.omni", stdin=text, cwd=people)
    assert (done.returncode, done.stdout) == (1, "")
    assert "unknown node type 'Robot'" in done.stderr
    rows = document(
        "query", "-e", "query c() { match { $c: Company } return { $c } }", "g.omni", cwd=people
    )
    assert rows["row_count"] == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (".nonsense\n", "'.nonsense' is no command; type .help"),
        (".brnach\n", "'.brnach' is no command; did you mean '.branch'?"),
        (".format xml\n", "'xml' is no format"),
        (".param n Ada\n", "'Ada' is not JSON"),
        (".commits none\n", "is no number of commits"),
        (".branch nowhere\n", "branch 'nowhere' not found; write .branch nowhere main"),
        (".branch create x\n", "write .branch x main"),
    ],
)
def test_a_command_that_cannot_be_done_says_why(text: str, message: str, people: Path) -> None:
    done = run("shell", "g.omni", stdin=text, cwd=people)
    assert done.returncode == 1
    assert message in done.stderr


def test_a_file_of_columns_that_is_loaded_without_its_type_names_what_the_shell_takes(
    people: Path,
) -> None:
    (people / "rows.csv").write_text("name\nZoe\n")
    done = run("shell", "g.omni", stdin=".load rows.csv\n", cwd=people)
    assert "write .load rows.csv TYPE" in done.stderr
    assert "--node" not in done.stderr


@pytest.mark.parametrize("numbers", ["[1,0]", "[1.0, 0]"])
def test_a_list_of_numbers_is_a_vector_where_a_bare_query_asks_for_one(
    tmp_path: Path, numbers: str
) -> None:
    og.init(
        tmp_path / "v.omni", "node Doc { slug: String @key, rank: F64?, emb: Vector(2)? }"
    ).close()
    ask = "match { $d: Doc } return { $d.slug as slug }"
    typed = [
        f".param v {numbers}",
        'insert Doc { slug: "near", rank: 1.0, emb: $v }',
        'insert Doc { slug: "far", rank: 2.0, emb: [0.0, 1.0] }',
        ".format csv",
        f"{ask} order {{ nearest($d.emb, $v) }} limit 1",
        "match { $d: Doc  $d.rank in $v } return { $d.slug as slug }",
    ]
    done = run("shell", "v.omni", stdin="\n".join(typed), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[3:] == ["slug", "near", "slug", "near"]
    short = f".param v [1]\n{ask} order {{ nearest($d.emb, $v) }} limit 1"
    refused = run("shell", "v.omni", stdin=short, cwd=tmp_path)
    assert "the query has 1 numbers, the property 2" in refused.stderr


def test_other_commands_of_the_shell(people: Path) -> None:
    lines("branch", "create", "b", "g.omni", cwd=people)
    text = (
        ".branch b\n.commits 1\n.schema\n.help\n"
        ".explain match { $p: Person } return { $p.name }\n.param n 1\n.param n\n.quit\n.nonsense\n"
    )
    done = run("shell", "g.omni", stdin=text, cwd=people)
    assert done.returncode == 0, done.stderr
    shown = done.stdout.splitlines()
    assert shown[0] == "b"
    assert re.fullmatch(r"[0-9A-Z]{10}  [-\d]+ [:\d]+Z  -  \(main, b\)  \+2 Company .*", shown[1])
    assert "interface Named {" in shown
    assert "  scan node:Person as $p" in shown


class Terminal:
    """The program on a terminal, as a person sees it."""

    def __init__(self, cwd: Path, *arguments: str, columns: int = 100) -> None:
        self._main, side = pty.openpty()
        env = {**os.environ, "TERM": "xterm", "COLUMNS": str(columns), "LINES": "40"}
        env["PROMPT_TOOLKIT_NO_CPR"] = "1"
        self.process = subprocess.Popen(
            [*PROGRAM, *arguments], cwd=cwd, stdin=side, stdout=side, stderr=side, env=env
        )
        os.close(side)
        self.seen, self._read = "", 0

    def type(self, text: str) -> None:
        os.write(self._main, text.encode())

    def wait(self, text: str, seconds: float = 60) -> None:
        """Read until a text is shown after what was waited for before."""
        end = time.monotonic() + seconds
        while (at := _plain(self.seen).find(text, self._read)) < 0:
            left = end - time.monotonic()
            if left < 0:
                self.process.kill()
                self.process.wait()
                pytest.fail(f"{text!r} was not shown in {_plain(self.seen)!r}")
            if select.select([self._main], [], [], left)[0]:
                self.seen += os.read(self._main, 65536).decode(errors="replace")
        self._read = at + len(text)

    def leave(self) -> None:
        """Ctrl-D until it is heard: between two prompts nobody listens."""
        for _ in range(60):
            self.type("\x04")
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(1)
                return

    def close(self) -> int:
        if self.process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(60)
            self.process.kill()
        status = self.process.wait()
        os.close(self._main)
        return status


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\r", "", text)


def test_a_session_on_a_terminal(people: Path, no_settings: Path) -> None:
    shell = Terminal(people, "shell", "g.omni")
    shell.wait("g.omni:main>")
    shell.type("match { $p: Com\t")  # the only type that starts so is completed
    shell.wait("Company")
    shell.type(" }\r")
    shell.wait("...")
    shell.type("return { $p.name as company }\r")
    shell.wait("2 rows from branch main")
    shell.wait("Zeta")
    shell.wait("g.omni:main>")
    shell.type("match { $p: Robot } return { $p }\r")
    shell.wait("unknown node type 'Robot'")
    shell.wait("g.omni:main>")
    shell.type("\x1b[A\x1b[A")  # up, up: the query before the wrong one
    shell.wait("as company")
    shell.type("\r")
    shell.wait("2 rows from branch main")
    shell.leave()
    assert shell.close() == 0
    kept = (no_settings / "shell_history").read_text()
    assert "+match { $p: Company }" in kept
    assert "Traceback" not in shell.seen


def test_on_a_terminal_a_table_fits_and_an_error_is_red(people: Path) -> None:
    title = "x" * 70
    add = f'query m() {{ insert Doc {{ slug: "long", title: "{title}" }} }}'
    lines("mutate", "-e", add, "g.omni", cwd=people)
    wide = 'query d() { match { $d: Doc { slug: "long" } } return { $d.slug, $d.title } }'
    table = Terminal(people, "query", "-e", wide, "g.omni", columns=40)
    table.wait("long")
    table.wait("…")
    assert table.close() == 0
    rows = _plain(table.seen).splitlines()[1:]
    assert {len(row) for row in rows} == {40}
    failed = Terminal(people, "query", "-e", "query d() {", "g.omni")
    failed.wait("parse error")
    assert failed.close() == 1
    assert "\x1b[31merror:\x1b[0m" in failed.seen
