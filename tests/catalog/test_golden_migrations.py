"""Every pair of schemas in tests/fixtures/migration: the plan, for machines and for people."""

import json
from pathlib import Path

import pytest

from omnigraph.catalog.accept import accept
from omnigraph.catalog.schema_diff import MigrationPlan, plan_migration
from tests import golden

CASES = sorted(path for path in (golden.FIXTURES / "migration").iterdir() if path.is_dir())


def plan(case: Path) -> MigrationPlan:
    old = accept(golden.read(case / "old.pg"))
    data_loss = case.name.endswith("with_data_loss")
    return plan_migration(old, golden.read(case / "new.pg"), allow_data_loss=data_loss)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_plan_is_what_its_fixture_says(case: Path) -> None:
    made = plan(case)

    document = {
        **made.to_json(),
        "diagnostics": [str(diagnostic) for diagnostic in made.diagnostics],
    }
    golden.assert_golden(case / "plan.json", json.dumps(document, indent=1) + "\n")
    golden.assert_golden(case / "plan.txt", made.render("graph.omni") + "\n")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_plan_applied_leaves_nothing_to_do(case: Path) -> None:
    after = plan(case).catalog

    again = plan_migration(after, golden.read(case / "new.pg"))

    assert again.steps == ()
    assert again.catalog == after
