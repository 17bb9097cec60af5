"""Random histories of one graph agree with the model: the short form of the campaign."""

import pytest

from tests.model import oracles
from tests.model.campaign import run_campaign
from tests.model.data import State
from tests.model.history import Disagreement, Setting, Step, run_history, shrunk
from tests.model.planted import FAULTS


@pytest.mark.parametrize("seed", range(1, 9))
def test_a_random_history_agrees_with_the_model(seed: int) -> None:
    taken, failure = run_history(Setting.drawn(seed), 36)
    assert failure is None, failure.script()
    assert taken > 15, "most steps apply"


@pytest.fixture
def wrong_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads of branch `a` with more than 30 people find one too few."""
    check = oracles.check_point

    def wrong(graph: object, where: str, at: oracles.Point, state: State, probe: int) -> None:
        if at.get("branch") == "a" and len(state.of("P")) > 30:
            raise AssertionError(f"{where}: one row is missing")
        check(graph, where, at, state, probe)  # type: ignore[arg-type]

    monkeypatch.setattr(oracles, "check_point", wrong)


@pytest.mark.usefixtures("wrong_reads")
def test_a_failure_is_shrunk_and_printed_as_a_script_that_repeats_it() -> None:
    setting = Setting(3, has_other_process=False)
    steps = [
        Step("people", "main", "append", 0, 20),
        Step("edges", "main", "append", 0, 7, 3),
        Step("update", "main", n=4, value=9),
        Step("branch", "main", "b"),
        Step("branch", "main", "a"),
        Step("people", "a", "merge", 10, 20, 5),
        Step("people", "a", "merge", 90, 20, 6),
    ]
    _, failure = run_history(setting, steps)
    assert failure is not None
    small = shrunk(failure)
    assert len(small.steps) == 3, small.script()
    with pytest.raises(Disagreement, match="one row is missing"):
        exec(compile(small.script(), "script", "exec"), {})


def test_steps_that_do_not_apply_are_skipped() -> None:
    steps = [
        Step("merge", "main", "b"),
        Step("people", "b", "append", 0, 5),
        Step("people", "main", "append", 0, 5),
    ]
    taken, failure = run_history(Setting(1, has_other_process=False), steps)
    assert (taken, failure) == (1, None)


def test_every_planted_fault_still_fits_the_source() -> None:
    assert {fault.name: fault.occurrences() for fault in FAULTS} == {
        fault.name: 1 for fault in FAULTS
    }
    assert len(FAULTS) >= 10


@pytest.mark.slow
def test_a_campaign_finds_nothing() -> None:
    tally = run_campaign(10_000, minutes=20)
    assert tally.scripts == [], "\n\n".join(tally.scripts)
