"""`omnigraph draw` writes SVG, and `omnigraph ui` shows a graph until it is told to stop."""

import os
import signal
import subprocess
from pathlib import Path
from urllib.request import urlopen
from xml.etree import ElementTree

from tests.cli.program import PROGRAM, run
from tests.server.ui.seeded import seeded_graph


def test_pictures_are_written_to_standard_output(tmp_path: Path) -> None:
    seeded_graph(str(tmp_path / "people.omni"), 2, 1)
    for words in (
        ("draw", "commits"),
        ("draw", "commits", "--branch", "review/move"),
        ("draw", "schema"),
        ("draw", "entity", "Person", "Ada"),
        ("draw", "diff", "main~1", "main"),
    ):
        done = run(*words, "--store", "people.omni", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        ElementTree.fromstring(done.stdout)
    wrong = run("draw", "entity", "Person", "Zed", "people.omni", cwd=tmp_path)
    assert wrong.returncode == 1
    assert "Zed" in wrong.stderr


def test_a_graph_is_shown_until_the_program_is_ended(tmp_path: Path) -> None:
    seeded_graph(str(tmp_path / "people.omni"), 2, 1)
    command = [*PROGRAM, "ui", "people.omni", "--no-browser"]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=dict(os.environ),
    ) as shown:
        assert shown.stdout is not None
        line = shown.stdout.readline()
        try:
            address = line.split()[2]
            assert address.startswith("http://127.0.0.1:"), line
            with urlopen(address) as answer:
                assert b"review/conflict" in answer.read()
        finally:
            shown.send_signal(signal.SIGTERM)
        assert shown.wait(60) == 0
