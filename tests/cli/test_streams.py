"""What lies around a command and refuses: a full disk, a closed stream, a missing permission."""

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.program import PROGRAM, document, lines, run

ADD = 'query m() { insert Company { name: "Nu" } }'
COUNT = "query n() { match { $c: Company } return { count($c) as n } }"
SHELL = "omnigraph() { " + f"{PROGRAM[0]} -c '{PROGRAM[2]}'" + ' "$@"; }\n'


def bash(script: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", SHELL + script], cwd=cwd, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("words", ["--help", "version", "export g.omni"])
def test_a_full_disk_behind_the_output_is_told(words: str, prepared: Path) -> None:
    done = bash(f"omnigraph {words} > /dev/full", prepared)
    assert done.returncode == 1
    assert "No space left on device; " in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_write_whose_result_cannot_be_shown_is_done(people: Path) -> None:
    done = bash(f"omnigraph mutate -e '{ADD}' g.omni > /dev/full", people)
    assert done.returncode == 1
    assert "cannot write the result" in done.stderr
    assert "a commit that was made stands" in done.stderr
    assert document("query", "-e", COUNT, "g.omni", cwd=people)["rows"] == [{"n": 3}]


@pytest.mark.parametrize("words", ["--help", "version"])
def test_a_reader_that_leaves_early_is_no_failure_of_the_program_itself(
    words: str, tmp_path: Path
) -> None:
    done = bash(f"omnigraph {words} | true; echo ${{PIPESTATUS[0]}}", tmp_path)
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_closed_streams_are_empty_ones(people: Path) -> None:
    done = bash(
        f"omnigraph mutate -e '{ADD}' g.omni >&- && omnigraph branch list nowhere 2>&-; echo $?\n"
        "omnigraph load g.omni --data - --mode append <&-",
        people,
    )
    assert done.stdout == (
        "1\nloaded g.omni on branch main with append: 0 entities across 0 node types and "
        "0 edge types\n"
    )
    assert "Traceback" not in done.stderr
    assert "1 row" in run("query", "-e", COUNT, "g.omni", cwd=people).stdout
    assert "0 finding(s)" in run("check", "g.omni", cwd=people).stdout, "nothing of ours in a file"


def test_signs_that_an_output_has_no_code_for_are_written_out(people: Path) -> None:
    name = 'query m() { insert Company { name: "Zoë→😀" } }'
    lines("mutate", "-e", name, "g.omni", cwd=people)
    done = bash("PYTHONIOENCODING=ascii omnigraph export g.omni --type Company", people)
    assert "Zoë→😀" in done.stdout, "data is always UTF-8"
    ask = "query c() { match { $c: Company } return { $c.name as name } }"
    done = bash(f"PYTHONIOENCODING=ascii omnigraph query -e '{ask}' g.omni", people)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Zo\\xeb\\u2192\\U0001f600" in done.stdout


def alone(code: str) -> subprocess.CompletedProcess[str]:
    """A program of its own."""
    return subprocess.run(
        [PROGRAM[0], "-c", code], capture_output=True, text=True, check=False, timeout=60
    )


def test_a_thread_that_still_works_does_not_hold_the_end_up() -> None:
    done = alone(
        "import sys, threading, time\n"
        "from omnigraph.cli import app, start\n"
        "def main():\n"
        "    threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "    sys.stdout.write('told')\n"
        "    sys.exit(3)\n"
        "app.main = main\n"
        "start.program()"
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "told", "")


def test_an_interrupt_while_the_program_loads_is_one_word() -> None:
    done = alone(
        "import sys\n"
        "from omnigraph.cli import start\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "start.program()"
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_an_interrupt_that_typer_hears_is_one_word() -> None:
    done = alone(
        "import typer\n"
        "from omnigraph.cli import app, start\n"
        "def main():\n"
        "    raise KeyboardInterrupt\n"
        "app.main = lambda: typer.run(main)\n"
        "start.program()"
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


DEAF = """
import signal, time
from omnigraph.cli import app, start
from omnigraph.cli.interrupts import heard_interrupts
def main():
    with heard_interrupts(patience_s=0.1):
        first, later = (lambda: signal.raise_signal(signal.SIGINT)), (lambda: time.sleep(60))
        for wait in [first] + {more} * [later]:
            try:
                wait()
            except KeyboardInterrupt:
                pass
        time.sleep(60)
app.main = main
start.program()
"""


@pytest.mark.parametrize("more", [0, 2, 3, 8])
def test_an_interrupt_that_nobody_answers_is_raised_again_and_ends_the_work(more: int) -> None:
    done = alone(DEAF.format(more=more))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_an_interrupt_that_is_answered_is_raised_once() -> None:
    done = alone(
        "import signal, time\n"
        "from omnigraph.cli.interrupts import heard_interrupts\n"
        "try:\n"
        "    with heard_interrupts(patience_s=0.1):\n"
        "        signal.raise_signal(signal.SIGINT)\n"
        "except KeyboardInterrupt:\n"
        "    time.sleep(0.5)\n"
        "    print('cleaned up')\n"
        "assert signal.set_wakeup_fd(-1) == -1\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "cleaned up\n", "")


def _without_privileges() -> None:
    """Root passes every permission; without these two capabilities it does not."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        for capability in (1, 2):  # DAC_OVERRIDE, DAC_READ_SEARCH
            if libc.prctl(24, capability, 0, 0, 0) != 0:  # PR_CAPBSET_DROP
                raise OSError(ctypes.get_errno(), "cannot drop a capability")


DENIED = {
    "a graph that may not be written": (
        ("mutate", "-e", ADD, "ro.omni"),
        "the folder is read-only",
    ),
    "a graph that may not be read": (("query", "-e", COUNT, "no.omni"), "Permission denied"),
    "a place for a graph": (("init", "--schema", "schema.pg", "shut/g.omni"), "Permission denied"),
    "a schema": (("init", "--schema", "hidden", "new.omni"), "cannot read 'hidden'"),
    "data": (("load", "g.omni", "--data", "hidden", "--mode", "append"), "Permission denied"),
    "a place for an export": (("export", "g.omni", "--out", "shut/x"), "Permission denied; ask"),
}


@pytest.fixture(scope="module")
def forbidding(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(shutil.copytree(prepared, tmp_path_factory.mktemp("forbidding") / "x"))
    for name in ("ro.omni", "no.omni"):
        shutil.copytree(folder / "g.omni", folder / name)
    (folder / "shut").mkdir(mode=0o500)
    (folder / "hidden").touch(mode=0)
    (folder / "ro.omni").chmod(0o500)
    (folder / "no.omni").chmod(0)
    return folder


@pytest.mark.parametrize("what", DENIED)
def test_what_may_not_be_read_or_written_is_told(what: str, forbidding: Path) -> None:
    words, message = DENIED[what]
    done = subprocess.run(
        [*PROGRAM, *words],
        cwd=forbidding,
        capture_output=True,
        text=True,
        preexec_fn=_without_privileges,
    )
    assert (done.returncode, done.stdout) == (1, "")
    told = done.stderr.splitlines()[-1]
    assert told.startswith("error: ")
    assert message in told
    assert "Traceback" not in done.stderr
