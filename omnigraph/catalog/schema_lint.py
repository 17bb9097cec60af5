"""Lint codes of schema changes: tier, severity and meaning of each.

Invariant: a code is in this table before anything emits it, and keeps its meaning for good.
"""

from dataclasses import dataclass
from enum import StrEnum


class Tier(StrEnum):
    """How much a change asks of the data."""

    SAFE = "safe"
    VALIDATED = "validated"
    DESTRUCTIVE = "destructive"


class Severity(StrEnum):
    """The severity of a lint code."""

    ERROR = "error"
    WARN = "warn"
    INFO = "info"


FAMILIES = {
    "DS": "destructive",
    "MF": "may fail",
    "CD": "constraint deletion",
    "BC": "backward incompatible",
    "NM": "naming",
    "OW": "ownership",
    "NL": "non-linear",
    "VE": "vector and embedding",
    "ED": "edge and topology",
    "LK": "lock and cost",
}


@dataclass(frozen=True, slots=True)
class LintCode:
    """One code. Codes that are not emitted are reserved."""

    code: str
    tier: Tier
    severity: Severity
    meaning: str
    emitted: bool = False

    @property
    def family(self) -> str:
        """The meaning of the letters in the middle."""
        return FAMILIES[self.code.split("-")[1]]


REQUIRED_PROPERTY_ADDED = LintCode(
    "OG-MF-103", Tier.VALIDATED, Severity.ERROR, "required property added", emitted=True
)
PROPERTY_TYPE_CHANGED = LintCode(
    "OG-MF-106", Tier.DESTRUCTIVE, Severity.ERROR, "property type change", emitted=True
)

LINT_CODES: dict[str, LintCode] = {
    lint.code: lint
    for lint in (
        LintCode("OG-DS-101", Tier.DESTRUCTIVE, Severity.ERROR, "drop populated graph type"),
        LintCode("OG-DS-102", Tier.DESTRUCTIVE, Severity.ERROR, "drop populated node type"),
        LintCode("OG-DS-103", Tier.DESTRUCTIVE, Severity.ERROR, "drop populated edge type"),
        LintCode("OG-DS-104", Tier.DESTRUCTIVE, Severity.ERROR, "drop property of populated type"),
        LintCode("OG-DS-105", Tier.DESTRUCTIVE, Severity.ERROR, "drop populated vector property"),
        REQUIRED_PROPERTY_ADDED,
        LintCode("OG-MF-104", Tier.VALIDATED, Severity.ERROR, "nullable to required"),
        PROPERTY_TYPE_CHANGED,
    )
}
