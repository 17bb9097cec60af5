"""Pages whose commands are run: the files they give, the commands they show, what those print.

A page is walked from top to bottom in a folder of its own. "Save this as `name`" before a fenced
block writes the block; each `$ ` line of a block marked `console` is run, and what stands below it
is compared with what it prints. A comment `<!-- folder: path -->` names a folder to start from.

A block marked `python` is run too, in the same folder; the blocks of a page are one program, which
comments `<!-- python … -->` make whole where it names what a reader knows. A block marked `text`
right below one is what it prints. Code that needs more than a test has, a Spark cluster say, is
marked `py` and not run.

Ids, hashes and moments differ from run to run and are not compared. A line of `…` stands for any
lines. Standard output is shown; of a command that fails standard error too.

The environment is that of a new user: no variable of ours and no key is set before the page says
`export NAME=value`, which holds for the rest of the page.

`omnigraph serve … &` starts a server of the page's own, on a port of its own that stands for the
one the page names (8080); `kill %1` ends it, and so does the end of the page.
"""

import io
import os
import re
import shlex
import shutil
import subprocess
from contextlib import ExitStack, chdir, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from tests.cli import warm
from tests.cli.program import Done, run
from tests.server.process import ServerProcess

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(
    r"^```(?P<kind>\w*)\n(?P<body>.*?)^```$|^<!-- python\n(?P<hidden>.*?)^-->$", re.M | re.S
)
SAVED = re.compile(r"[Ss]ave this as\s+`(?P<name>[\w./-]+)`[^`]*$")
PRINTED = re.compile(r"\n*^```text\n(?P<body>.*?)^```$", re.M | re.S)
FOLDER = re.compile(r"<!-- folder: (?P<path>[\w./-]+) -->")
PORT = "8080"
EXPORT = re.compile(r"export (?P<name>\w+)=(?P<value>\S*)")
OURS = re.compile(r"OMNIGRAPH_|.*_API_KEY$")
SHELL_SIGNS = re.compile(r"[|<>&;`\\]|\$\(|\*")
VARYING = (
    (re.compile(r"\b0[0-9A-HJKMNP-TV-Z]{9,25}\b"), "<id>"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"), "<moment>"),
    (re.compile(r"\b1[0-9]{15}\b"), "<microseconds>"),
)


@dataclass(frozen=True)
class File:
    """A file that the page tells the reader to write."""

    name: str
    text: str


@dataclass(frozen=True)
class Command:
    """A command with what the page says it prints, and where that stands in the page."""

    text: str
    shown: str
    span: tuple[int, int]


@dataclass(frozen=True)
class Code:
    """A piece of the page's program. `shown` is what it prints, or None where nothing is shown."""

    text: str
    shown: str | None
    span: tuple[int, int]


Step = File | Command | Code


def steps(page: str) -> list[Step]:
    """What a reader does, in order."""
    found: list[Step] = []
    for block in BLOCK.finditer(page):
        before = page[: block.start()].rstrip().rpartition("\n\n")[2]
        saved = SAVED.search(before)
        if block["hidden"] is not None:
            found.append(code(block["hidden"], page, block.end()))
        elif block["kind"] == "console":
            found += commands(block["body"], block.start("body"))
        elif saved:
            found.append(File(saved["name"], block["body"]))
        elif block["kind"] == "python":
            found.append(code(block["body"], page, block.end()))
    return found


def code(body: str, page: str, end: int) -> Code:
    """A piece of a program, with the output that stands below it."""
    if printed := PRINTED.match(page, end):
        return Code(body, printed["body"], printed.span("body"))
    return Code(body, None, (end, end))


def commands(body: str, offset: int) -> list[Command]:
    """The commands of one block. One that ends in a backslash goes on in the next line."""
    starts = [m.start() for m in re.finditer(r"^\$ ", body, re.M)]
    found = []
    for start, end in zip(starts, [*starts[1:], len(body)], strict=True):
        rows = body[start + 2 : end].splitlines(keepends=True)
        length = next(n for n, row in enumerate(rows, 1) if not row.rstrip("\n").endswith("\\"))
        text = "".join(rows[:length])
        first = start + 2 + len(text)
        found.append(Command(text.rstrip("\n"), body[first:end], (offset + first, offset + end)))
    return found


def walk(page: Path, folder: Path, *, update: bool) -> list[str]:
    """Do what a page says; what came out otherwise than shown. Updating writes it into the page."""
    text = page.read_text("utf-8")
    if given := FOLDER.search(text):
        # By somebody who followed the page there.
        left = shutil.ignore_patterns("*.omni", "__cluster", "graphs")
        shutil.copytree(ROOT / given["path"], folder, dirs_exist_ok=True, ignore=left)
    wrong, pieces, at = [], [], 0
    with ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, {"HOME": str(folder / "home")}))
        for name in filter(OURS.match, list(os.environ)):
            del os.environ[name]
        servers = Servers(stack)
        program: dict[str, object] = {"__name__": page.name}
        for step in steps(text):
            if isinstance(step, File):
                (folder / step.name).parent.mkdir(parents=True, exist_ok=True)
                (folder / step.name).write_text(step.text, "utf-8")
                continue
            if isinstance(step, Code):
                printed = run_code(servers.reached(step.text), program, folder)
                if step.shown is None:
                    continue
            else:
                printed = visible(servers.do(step.text, folder))
            if not fits(step.shown, printed):
                wrong.append(f"$ {step.text}\n--- shown\n{step.shown}--- printed\n{printed}")
            pieces += [text[at : step.span[0]], printed]
            at = step.span[1]
    if update and wrong:
        page.write_text("".join([*pieces, text[at:]]), "utf-8")
    return wrong


def run_code(text: str, program: dict[str, object], folder: Path) -> str:
    """What a piece of a page's program prints. Its names stay for the next piece."""
    out = io.StringIO()
    with chdir(folder), redirect_stdout(out):
        exec(compile(text, str(program["__name__"]), "exec"), program)
    return out.getvalue()


@dataclass
class Servers:
    """The server that a page started, and the port that stands for the one it names."""

    stack: ExitStack
    port: str = ""
    running: list[ServerProcess] = field(default_factory=list)

    def do(self, command: str, folder: Path) -> Done:
        """One command, which may start or end a server, or ask it."""
        if export := EXPORT.fullmatch(command):
            os.environ[export["name"]] = export["value"]
            return Done(0, "", "")
        if command == "kill %1":
            self.running.pop().stop()
            return Done(0, "", "")
        if command.startswith("omnigraph serve ") and command.endswith(" &"):
            words = shlex.split(command.removesuffix(" &"))[2:]
            server = self.stack.enter_context(ServerProcess(*words, cwd=folder))
            self.running.append(server)
            self.port = str(server.address[1])
            return Done(0, f"OMNIGRAPH_LISTEN_ADDR=127.0.0.1:{PORT}\n", "")
        if not self.port:
            return do(command, folder)
        done = do(self.reached(command), folder)
        out, err = (
            text.replace(f":{self.port}", f":{PORT}") for text in (done.stdout, done.stderr)
        )
        return Done(done.returncode, out, err)

    def reached(self, text: str) -> str:
        """The text with the port that the server has."""
        return text.replace(f":{PORT}", f":{self.port}") if self.port else text


def do(command: str, folder: Path) -> Done:
    """One command: in this process where it needs no shell."""
    if command.startswith("omnigraph ") and not SHELL_SIGNS.search(_bare(command)):
        return run(*shlex.split(command)[1:], cwd=folder)
    script = f'omnigraph() {{ {shlex.quote(warm.program())} "$@"; }}\n{command}'
    done = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True)
    return Done(done.returncode, done.stdout, done.stderr)


def _bare(command: str) -> str:
    """The command without what stands in single quotes, which no shell looks into."""
    return re.sub(r"'[^']*'", "''", command)


def visible(done: Done) -> str:
    return done.stdout + (done.stderr if done.returncode else "")


def fits(shown: str, printed: str) -> bool:
    pattern = "".join(
        r"(?:.*\n)*" if line == "…\n" else re.escape(line)
        for line in constant(shown).splitlines(keepends=True)
    )
    return re.fullmatch(pattern, constant(printed)) is not None


def constant(text: str) -> str:
    for pattern, word in VARYING:
        text = pattern.sub(word, text)
    return text
