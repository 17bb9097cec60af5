"""`omnigraph demo`: what the product does, shown on a graph that is left behind to play with.

Every step is a command as a user types it, run in a process of its own, then what happened.

Invariant: the demo stops at the first step that does not do what it says.
"""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from omnigraph import environment
from omnigraph.cli.terminal import painted, plain_errors, show
from omnigraph.errors import BadRequest
from omnigraph.extras import has_spark

_PROGRAM = (sys.executable, "-c", "from omnigraph.cli.start import program; program()")
# The write dies when one of its two tables has moved and the other has not.
_CRASH = {environment.FAILPOINTS.name: "commit.table_after=kill"}
_COMMITS, _COMMITS_FEW, _COMMITS_EDGES = 240, 24, 10_000
_HERO, _OTHER, _COMPANY = "Ada Ash 0", "Bob Ash 1", "Company 0"


class _DemoEngine(StrEnum):
    """Engine of the load."""

    SPARK = "spark"
    LOCAL = "local"


def demo(
    folder: Annotated[
        str | None, typer.Argument(metavar="FOLDER", help="Where to leave the graph.")
    ] = None,
    edges: Annotated[
        int, typer.Option(metavar="N", min=200, help="About how many edges.")
    ] = 300_000,
    engine: Annotated[
        _DemoEngine | None, typer.Option(help="What runs the load, else Spark if it is there.")
    ] = None,
) -> None:
    """Walk through what the product does, on a graph of a few hundred thousand edges."""
    with plain_errors():
        target = Path(folder) if folder is not None else Path(tempfile.mkdtemp(prefix="omnigraph-"))
        if target.exists() and any(target.iterdir()):
            raise BadRequest(f"'{target}' is not empty", "name another folder")
        _DemoRun(target).run(edges, str(engine or _default_engine()))


def _default_engine() -> _DemoEngine:
    return _DemoEngine.SPARK if has_spark() else _DemoEngine.LOCAL


@dataclass(slots=True)
class _DemoRun:
    """The demo on its way."""

    folder: Path
    number: int = 0
    started: float = 0.0

    def run(self, edges: int, engine: str) -> None:
        """Every step, in order."""
        self.started = time.monotonic()
        self._data(edges)
        self._load(engine)
        self._read()
        first = self._head()
        self._branch()
        self._crash()
        self._travel(first)
        self._history(edges)
        self._end()

    def _data(self, edges: int) -> None:
        from omnigraph.cli import demo_data

        size = demo_data.size_of(edges)
        self._step("Some data")
        demo_data.write(self.folder, size)
        show(
            f"{self.folder} now holds a schema, queries, mutations and data.jsonl with "
            f"{size.people:,} people, {size.companies:,} companies, {size.reports:,} reports and "
            f"{size.edges:,} edges."
        )
        self._step("A graph")
        self._do("init --schema schema.pg graph.omni")
        self._say(
            "One empty table for each type of the schema, and a first commit.",
            "omnigraph schema show graph.omni",
        )

    def _load(self, engine: str) -> None:
        where = (
            "on Spark, on every core of this machine," if engine == "spark" else "in one process"
        )
        self._step("A bulk load")
        self._do(f"load graph.omni --data data.jsonl --mode append --engine {engine} --as act-demo")
        self._say(
            f"It ran {where} and checked every key, every end of every edge and every cardinality. "
            "All of it became visible at one moment, as one commit. Had one line been wrong, "
            "nothing would have."
        )
        self._do("commit list graph.omni")
        self._try("omnigraph snapshot graph.omni")

    def _read(self) -> None:
        self._step("Questions")
        self._do(f"query friends_of_friends --query queries.gq {_params(name=_HERO)} {_STORE}")
        self._say(
            "Two steps along `knows`, then one along `worksAt`, counted by industry. The query was "
            "checked against the schema before it ran.",
            "write $c.industri in queries.gq, then omnigraph lint graph.omni --query queries.gq",
        )
        self._do(f"query find_reports --query queries.gq {_params(words='battery grid')} {_STORE}")
        self._say(
            "Text search, best match first, joined with authors and companies.",
            "the same with --format json, or with other words",
        )

    def _branch(self) -> None:
        hire = _params(name="Nova Quist", age=31, company=_COMPANY)
        self._step("A branch: work that nobody sees yet")
        self._do("branch create review/hire graph.omni")
        self._do(f"mutate hire --query mutations.gq --branch review/hire {hire} {_STORE}")
        move = _params(name=_HERO, city="Bergen")
        self._do(f"mutate move --query mutations.gq --branch review/hire {move} {_STORE}")
        self._say("Copying nothing, the branch was there at once. Main does not see it:")
        self._do(f"query person --query queries.gq {_params(name='Nova Quist')} {_STORE}")
        self._try("the query again with --branch review/hire")
        self._merge()

    def _merge(self) -> None:
        self._step("The difference, then the merge")
        self._do("diff main review/hire graph.omni")
        self._say("Meanwhile main goes on:")
        other = _params(name=_OTHER, city="Tromsø")
        self._do(f"mutate move --query mutations.gq {other} {_STORE}")
        self._do("branch merge review/hire --into main graph.omni")
        self._do("commit list graph.omni --graph")
        self._say(
            "The merge is three-way and entity by entity: what both sides did is there. Had both "
            "changed one person differently, there would be a list of conflicts and no commit.",
            "move the same person on main and on a new branch, then merge",
        )

    def _crash(self) -> None:
        self._step("A writer is killed half-way")
        hire = f"mutate hire --query mutations.gq --as act-unlucky {_STORE}"
        command = f"{hire} {_params(name='Max Null', age=50, company=_COMPANY)}"
        self._do(command, env=_CRASH, status=-signal.SIGKILL)
        self._say(
            "kill -9, after the table of people had moved and before the table of jobs. No reader "
            "noticed: only the manifest decides what is visible. The next writer cleans up first:"
        )
        self._do(f"{hire} {_params(name='Mia Next', age=40, company=_COMPANY)}")
        self._do("recoveries graph.omni")
        self._do(f"query person --query queries.gq {_params(name='Max Null')} {_STORE}")
        self._say(
            "The half-written person is gone, and the recovery is itself on record.",
            "omnigraph commit list graph.omni --filter actor=omnigraph:recovery",
        )

    def _travel(self, first: str) -> None:
        self._step("Back in time")
        asked = f"query person --query queries.gq {_params(name=_HERO)} {_STORE}"
        self._do(asked)
        self._do(f"{asked} --snapshot {first}")
        self._say("Every commit can be read again, and tells the same as on the day it was made.")

    def _history(self, edges: int) -> None:
        from omnigraph.cli import demo_history

        self._step("A history to look at")
        commits = _COMMITS if edges >= _COMMITS_EDGES else _COMMITS_FEW
        demo_history.write_history(self.folder, commits, _HERO)
        self._do(f"branch merge {demo_history.WAITING} --dry-run graph.omni", status=1)
        self._say(
            f"{commits} more commits by four actors, branches reviewed and merged, and one "
            "that conflicts with main, and whose review waits for a decision.",
            f"omnigraph ui graph.omni, then Reviews, or Merge and {demo_history.WAITING}",
        )

    def _end(self) -> None:
        seconds = time.monotonic() - self.started
        programs = Path(sys.executable).parent
        on_path = shutil.which("omnigraph") is not None
        path = "" if on_path else f'  export PATH="{programs}:$PATH"\n'
        show(
            f"\n{painted('Done', 'bold')} in {seconds:.0f} seconds. The graph stays in "
            f"{self.folder}. Try next:\n{path}"
            f"  cd {shlex.quote(str(self.folder))}\n"
            "  omnigraph ui graph.omni       # look at it in the browser: history, a conflict\n"
            "  omnigraph shell graph.omni    # then: match { $p: Person } return { $p } limit 5\n"
            "  omnigraph branch list graph.omni\n"
            "  omnigraph export graph.omni | head -3"
        )

    # One step

    def _step(self, title: str) -> None:
        self.number += 1
        show(painted(f"\n== {self.number}. {title}", "bold"))

    def _say(self, text: str, try_: str | None = None) -> None:
        show(painted(text, "dim"))
        if try_ is not None:
            self._try(try_)

    def _try(self, what: str) -> None:
        show(painted(f"Try: {what}", "cyan"))

    def _head(self) -> str:
        """The newest commit of main."""
        done = subprocess.run(
            [*_PROGRAM, "commit", "list", "graph.omni", "--limit", "1", "--json"],
            cwd=self.folder,
            capture_output=True,
            check=True,
        )
        return str(json.loads(done.stdout)["commits"][0]["graph_commit_id"])

    def _do(self, command: str, env: dict[str, str] | None = None, status: int = 0) -> None:
        """Show a command, run it, and stop if it does not end as it should."""
        before = "".join(f"{name}={value} " for name, value in (env or {}).items())
        show(f"{painted('$', 'green')} {before}omnigraph {command}")
        sys.stdout.flush()
        done = subprocess.run(
            [*_PROGRAM, *shlex.split(command), *(["--quiet"] if _writes(command) else [])],
            cwd=self.folder,
            env={**environment.current(), **(env or {})},
            check=False,
        )
        if done.returncode != status:
            raise BadRequest(
                f"'omnigraph {command}' ended with status {done.returncode}",
                f"look at the message above; the files are in {self.folder}",
            )


_STORE = "--store graph.omni"


def _params(**values: object) -> str:
    return f"--params {shlex.quote(json.dumps(values, ensure_ascii=False))}"


def _writes(command: str) -> bool:
    """Whether a command prints its write target, which the demo has printed already."""
    return command.startswith(("load", "mutate", "branch"))
