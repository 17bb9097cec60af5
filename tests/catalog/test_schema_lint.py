"""The registry of schema lint codes."""

import re

from omnigraph.catalog.schema_lint import FAMILIES, LINT_CODES, Severity, Tier


def test_every_code_is_well_formed_and_in_a_known_family() -> None:
    for code, lint in LINT_CODES.items():
        assert re.fullmatch(r"OG-[A-Z]{2}-[0-9]{3}", code)
        assert lint.family in FAMILIES.values()
        assert lint.meaning


def test_only_two_codes_are_emitted() -> None:
    assert {code for code, lint in LINT_CODES.items() if lint.emitted} == {
        "OG-MF-103",
        "OG-MF-106",
    }


def test_the_registry_is_the_published_one() -> None:
    assert {code: lint.tier for code, lint in LINT_CODES.items()} == {
        "OG-DS-101": Tier.DESTRUCTIVE,
        "OG-DS-102": Tier.DESTRUCTIVE,
        "OG-DS-103": Tier.DESTRUCTIVE,
        "OG-DS-104": Tier.DESTRUCTIVE,
        "OG-DS-105": Tier.DESTRUCTIVE,
        "OG-MF-103": Tier.VALIDATED,
        "OG-MF-104": Tier.VALIDATED,
        "OG-MF-106": Tier.DESTRUCTIVE,
    }
    assert {lint.severity for lint in LINT_CODES.values()} == {Severity.ERROR}
