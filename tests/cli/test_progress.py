"""A bar on a terminal, and nothing elsewhere."""

import os
import pty
import re
import subprocess
from pathlib import Path

from omnigraph.cli.progress import following
from tests.cli import warm


def test_without_a_terminal_nobody_is_asked() -> None:
    with following("load") as tell:
        assert tell is None


def on_terminal(cwd: Path, *words: str) -> tuple[str, str]:
    """Standard output through a pipe, standard error on a terminal."""
    main, side = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen(
        [warm.program(), *words], cwd=cwd, stdout=subprocess.PIPE, stderr=side, env=env, text=True
    )
    os.close(side)
    out, _ = process.communicate(timeout=60)
    seen = b""
    while True:
        try:
            piece = os.read(main, 65536)
        except OSError:
            break
        if not piece:
            break
        seen += piece
    os.close(main)
    assert process.returncode == 0, seen
    return out, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", seen.decode())


def test_a_load_and_an_export_show_rows_and_their_rate(people: Path) -> None:
    load = ("load", "g.omni", "--data", "people.jsonl", "--mode", "overwrite", "--engine", "local")
    out, seen = on_terminal(people, *load)
    assert out.startswith("loaded g.omni on branch main")
    assert re.search(r"done .*13 rows .*/s", seen)
    out, seen = on_terminal(people, "export", "g.omni")
    assert len(out.splitlines()) == 13
    assert re.search(r"done .*13 rows .*/s", seen)
    out, seen = on_terminal(people, "export", "g.omni", "--quiet")
    assert seen == ""
