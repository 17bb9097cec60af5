"""Findings of an integrity check.

Invariant: plain values; `code` is stable for programs, the text is for people.
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault: a code for programs, its subject, a text, and what to do about it.

    >>> og.Finding("orphan", "Knows k1", "its target is missing", "repair").code
    'orphan'
    """

    code: str
    subject: str
    text: str
    todo: str
    facts: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.code} {self.subject}: {self.text}; {self.todo}"

    def to_json(self) -> dict[str, Any]:
        """The finding as a document."""
        return {
            "code": self.code,
            "subject": self.subject,
            "message": self.text,
            "action": self.todo,
            "facts": self.facts,
        }
