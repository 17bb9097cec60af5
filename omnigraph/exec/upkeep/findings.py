"""What a check found."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: a word for programs, where, what, and what to do about it."""

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
