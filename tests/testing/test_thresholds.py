"""`omnigraph.testing`: thresholds are drawn from a seed, each by itself, and can be repeated."""

import subprocess
import sys

import pytest

from omnigraph import costs
from omnigraph.costs import COSTS, THRESHOLDS
from omnigraph.testing import lower_thresholds

SEEDS = range(60)


def test_a_seed_draws_the_same_values_again_and_another_seed_others() -> None:
    assert lower_thresholds(7).as_dict() == lower_thresholds(7).as_dict()
    assert lower_thresholds(7).as_dict() != lower_thresholds(8).as_dict()


def test_values_are_in_range_and_every_one_is_low_in_most_seeds_and_usual_in_some() -> None:
    draws = [lower_thresholds(seed).as_dict() for seed in SEEDS]
    for name, threshold in THRESHOLDS.items():
        drawn = [draw[name] for draw in draws if name in draw]
        least, most = threshold.low
        assert all(least <= value <= most for value in drawn), name
        assert all(type(value) is type(threshold.value) for value in drawn), name
        assert len(SEEDS) // 2 < len(drawn) < len(SEEDS), name
        assert len(set(drawn)) > 1, name


def test_a_value_depends_on_its_own_name_alone() -> None:
    every = lower_thresholds(3).as_dict()
    assert all(
        lower_thresholds(3, only=[name]).as_dict() == {name: value} for name, value in every.items()
    )


def test_a_block_sets_the_values_and_restores_the_others() -> None:
    before = costs.changed()
    with lower_thresholds(5, values={"upsert_rows_max": 2}) as lowered:
        assert COSTS.upsert_rows_max == 2
        assert {name: getattr(COSTS, name) for name in lowered.as_dict()} == lowered.as_dict()
    assert costs.changed() == before


def test_its_repr_repeats_the_values_without_the_seed() -> None:
    lowered = lower_thresholds(5, values={"upsert_rows_max": 2})
    again = eval(repr(lowered), {"lower_thresholds": lower_thresholds})
    assert again.as_dict() == lowered.as_dict()
    assert lower_thresholds(None).as_dict() == {}


@pytest.mark.parametrize(
    "options", [{"only": ["no_such"]}, {"values": {"no_such": 1}}, {"values": {"runs_few": 0.5}}]
)
def test_unknown_names_and_values_are_refused_before_anything_changes(
    options: dict[str, object],
) -> None:
    with pytest.raises(ValueError, match="threshold"), lower_thresholds(1, **options):  # type: ignore[arg-type]
        raise AssertionError
    assert costs.changed() == {}


def test_it_imports_no_test_framework() -> None:
    frameworks = {"pytest", "hypothesis", "unittest"}
    code = f"import sys, omnigraph.testing; print({frameworks} & {{*sys.modules}})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "set()\n"
