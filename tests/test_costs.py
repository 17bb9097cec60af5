"""Thresholds: one value for a process, for its children, and restored afterwards."""

import subprocess
import sys

import pytest

from omnigraph import costs, environment
from omnigraph.costs import COSTS, THRESHOLDS, VARIABLE
from tests import forked


def values() -> dict[str, int | float]:
    return {name: getattr(COSTS, name) for name in THRESHOLDS}


def test_every_threshold_says_what_it_decides_and_has_low_values_below_its_own() -> None:
    for name, threshold in THRESHOLDS.items():
        least, most = threshold.low
        assert 0 <= least < most, name
        assert type(least) is type(most) is type(threshold.value), name
        assert threshold.decides, name
        assert threshold.measured, name
        assert name == name.lower(), name


def test_a_process_starts_with_the_declared_values() -> None:
    assert values() == {name: threshold.value for name, threshold in THRESHOLDS.items()}
    assert costs.changed() == {}


def test_blocks_nest_and_restore_what_they_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    env = environment.current()
    with costs.overridden({"upsert_rows_max": 3, "runs_few": 1}):
        with costs.overridden({"upsert_rows_max": 2}):
            assert costs.changed() == {"upsert_rows_max": 2, "runs_few": 1}
        assert costs.changed() == {"upsert_rows_max": 3, "runs_few": 1}
        assert env[VARIABLE] == '{"upsert_rows_max": 3, "runs_few": 1}'
    assert VARIABLE not in env
    assert costs.changed() == {}


def test_a_child_inherits_the_values() -> None:
    code = "from omnigraph.costs import COSTS; print(COSTS.upsert_rows_max, COSTS.runs_many)"
    command = [sys.executable, "-c", code]
    with costs.overridden({"upsert_rows_max": 3}):
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert shown == f"3 {COSTS.runs_many}\n"
        assert forked.run(expect_lowered) == 0
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert shown == f"{COSTS.upsert_rows_max} {COSTS.runs_many}\n"


def expect_lowered() -> None:
    assert COSTS.upsert_rows_max == 3


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("[1]", "expected a JSON object"),
        ("{", "expected a JSON object"),
        ('{"upsert_rows": 1}', "unknown threshold 'upsert_rows'"),
        ('{"upsert_rows_max": -1}', "expected int from 0 on"),
        ('{"upsert_rows_max": 0.5}', "expected int from 0 on"),
        ('{"upsert_rows_max": true}', "expected int from 0 on"),
    ],
)
def test_values_that_cannot_be_used_are_refused_by_name(
    text: str, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(ValueError, match=part):
        costs.use_environment()
    assert costs.changed() == {}


def test_a_setting_of_users_wins_over_a_lowered_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    variable = environment.TOPOLOGY_ROWS
    with costs.overridden({"topology_rows_min": 5}):
        monkeypatch.delenv(variable.name, raising=False)
        assert variable.read() == 5
        monkeypatch.setenv(variable.name, "70")
        assert variable.read() == 70
    monkeypatch.delenv(variable.name)
    assert variable.read() == variable.default == THRESHOLDS["topology_rows_min"].value
