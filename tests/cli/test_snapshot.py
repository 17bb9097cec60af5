"""What `omnigraph snapshot` tells about topology files."""

import json
from pathlib import Path

import pytest

from tests.cli.program import run


def test_TP6_snapshot_tells_size_and_rows_behind_of_topology_files(
    people: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = json.loads(run("snapshot", "g.omni", "--json", cwd=people).stdout)
    assert not any("topology" in each for each in before["datasets"])
    monkeypatch.setenv("OMNIGRAPH_TOPOLOGY_ROWS_MIN", "1")
    assert run("optimize", "g.omni", cwd=people).returncode == 0
    monkeypatch.setenv("OMNIGRAPH_TOPOLOGY_ROWS_MIN", "1000000")
    document = json.loads(run("snapshot", "g.omni", "--json", cwd=people).stdout)
    person = next(each for each in document["datasets"] if each["type_name"] == "Person")
    assert person["topology"]["rows_behind"] == 0
    assert person["topology"]["bytes"] > 0
    assert person["topology"]["dataset_version"] == person["published_dataset_version"]
    text = run("snapshot", "g.omni", cwd=people).stdout
    assert f"topology_bytes={person['topology']['bytes']} topology_rows_behind=0" in text
