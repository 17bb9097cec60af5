"""Queries over all of a graph stay within a quarter of the topology they walk, at any size."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from tests.pipeline.power_law import PowerLaw

ROOT = Path(__file__).parents[2]
SMALL, LARGE = 5_000_000, 22_000_000
TOPOLOGY_BYTES_MIN = 400_000_000
FLAT = 1.25


def walked_bytes(path: Path) -> int:
    """What the files of topology have on disk."""
    with og.open(path, read_only=True) as graph:
        return sum(state.bytes for state in graph.snapshot().topology.values())


def run(path: Path, engine: str, budget_mb: int) -> dict[str, Any]:
    """What the queries answered, and what they took."""
    settings = {
        "OMNIGRAPH_QUERY_MEMORY_BYTES_MAX": str(budget_mb << 20),
        "OMNIGRAPH_QUERY_TIME_MS_MAX": str(10**9),
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", "tests.pipeline.bounded_queries", str(path), engine]
    ran = subprocess.run(
        command, cwd=ROOT, env=os.environ | settings, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr[-3_000:]
    told: dict[str, Any] = json.loads(ran.stdout)["queries"]
    return told


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_SQ2_private_memory_is_a_part_of_the_topology_and_does_not_grow_with_it(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    peaks: dict[tuple[str, int], dict[str, float]] = {}
    for size in (LARGE, SMALL):
        path = tmp_path / f"{size}.omni"
        drawn = PowerLaw.drawn(size)
        drawn.load(path)
        answers = drawn.answers()
        if size == LARGE:
            walked = walked_bytes(path)
            assert walked >= TOPOLOGY_BYTES_MIN
            budget_mb = (walked >> 20) // 4
        for engine in ("local", "spark"):
            told = run(path, engine, budget_mb)
            for name, expected in answers.items():
                rows = told[name]["rows"]
                if name == "grouped":
                    assert rows == [[age, n, pytest.approx(mean)] for age, n, mean in expected]
                else:
                    assert rows == [[expected]], f"{name}, {size} edges, {engine}"
            peaks[engine, size] = {name: each["MB"] for name, each in told.items()}
    record_property("MB", f"{peaks} of {budget_mb}")
    over = {key: mb for key, mb in peaks.items() if max(mb.values()) > budget_mb}
    assert not over, f"more than {budget_mb} MB beside an idle process"
    for engine in ("local", "spark"):
        small, large = (max(peaks[engine, size].values()) for size in (SMALL, LARGE))
        assert large <= FLAT * small + 16, f"{engine}: {peaks}"
