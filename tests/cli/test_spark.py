"""What executors need, from the command line."""

import json
from pathlib import Path

import pytest

from omnigraph.pipeline.package import archive_name, executor_settings
from tests.cli.program import run


def test_CL1_the_command_builds_it_and_says_how_to_submit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph.pipeline.package._files", lambda: iter(()))
    done = run("spark", "package", "--out", str(tmp_path))
    assert done.stdout.splitlines()[0].startswith(f"wrote {tmp_path / archive_name()} ")
    assert f"spark-submit --archives {tmp_path / archive_name()}#omnigraph" in done.stdout
    told = json.loads(run("spark", "package", "--out", str(tmp_path / "a.tar.gz"), "--json").stdout)
    assert told["settings"] == executor_settings(str(tmp_path / "a.tar.gz"))
