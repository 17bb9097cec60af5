"""YAML mappings that are read strictly: no key that nobody knows.

Invariant: a member is read with its path from the top of the document, and whatever is wrong with
it is one diagnostic at that path. Nothing of a document is repeated in a message but its keys.
"""

from collections.abc import Collection, Mapping
from typing import Any

from omnigraph.cluster.diagnostics import Diagnostics
from omnigraph.cluster.resources import RESOURCE_ID

_KEY_CHARACTERS = 80


class YamlMapping:
    """A mapping of a document, with its path and the list that takes what is wrong with it."""

    def __init__(self, values: Mapping[Any, Any], path: str, findings: Diagnostics) -> None:
        self.values = values
        self.path = path
        self.findings = findings

    def below(self, key: str) -> str:
        """The path of a member."""
        return f"{self.path}.{key}" if self.path else key

    def fault(self, key: str, message: str, code: str = "invalid_cluster_yaml") -> None:
        """Note what is wrong with a member."""
        self.findings.add(code, self.below(key), message)

    def only(self, known: Collection[str]) -> None:
        """Refuse keys that nobody knows."""
        for key in self.values:
            if key not in known:
                said = str(key)[:_KEY_CHARACTERS]
                self.fault(said, f"unknown key; known are {', '.join(sorted(known))}")

    def has(self, key: str) -> bool:
        """Whether a member is given and not null."""
        return self.values.get(key) is not None

    def text(self, key: str, *, required: bool = False) -> str | None:
        """A member that is a text and not blank."""
        value = self.values.get(key)
        if value is None:
            if required:
                self.fault(key, "it is missing")
            return None
        if not isinstance(value, str) or not value.strip():
            self.fault(key, "it is no text, or a blank one")
            return None
        return value

    def flag(self, key: str, default: bool) -> bool:
        """A member that is true or false."""
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            self.fault(key, "it is neither true nor false")
            return default
        return value

    def mapping(self, key: str) -> "YamlMapping":
        """A member that is a mapping, empty when it is not given."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, Mapping):
            self.fault(key, "it is no mapping")
            value = None
        return YamlMapping(value or {}, self.below(key), self.findings)

    def named(self, key: str) -> "dict[str, YamlMapping]":
        """A member that maps ids to mappings. An id that cannot be one is noted and left out."""
        inner = self.mapping(key)
        entries = {}
        for name, value in inner.values.items():
            said = str(name)[:_KEY_CHARACTERS]
            if not isinstance(name, str) or not RESOURCE_ID.fullmatch(name):
                inner.fault(
                    said,
                    "an id begins with a letter or _ and goes on with letters, digits, _ and -",
                    "invalid_resource_id",
                )
            elif not isinstance(value, Mapping):
                inner.fault(said, "it is no mapping")
            else:
                entries[name] = YamlMapping(value, inner.below(name), self.findings)
        return entries

    def texts(self, key: str) -> list[str] | None:
        """A member that is a list of texts; None when it is not given or is something else."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(v, str) and v.strip() for v in value):
            self.fault(key, "it is no list of texts")
            return None
        return value
