"""Members of a YAML document, read strictly: every mapping has known keys alone.

Invariant: what cannot be read is `PolicyInvalid` that says where, before anything is decided.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from omnigraph.errors import PolicyInvalid
from omnigraph.light_dataclass import dataclass
from omnigraph.yaml_document import DuplicateKey, YamlFault, read_yaml

_BYTES_MAX = 64 << 20


def read_document(text: str, where: str) -> Any:
    """The one document of a YAML text, without tags or repeated keys."""
    if len(text) > _BYTES_MAX:
        raise PolicyInvalid("unreadable", where, f"it is larger than {_BYTES_MAX} bytes")
    try:
        return read_yaml(text)
    except YamlFault as cause:
        code = "duplicate_member" if isinstance(cause, DuplicateKey) else "unreadable"
        raise PolicyInvalid(code, where, f"it is not readable as YAML: {cause}") from None


@dataclass(frozen=True, slots=True)
class Members:
    """A mapping of a document, and where in it."""

    where: str
    values: Mapping[str, Any]

    @classmethod
    def of(cls, value: Any, where: str, known: Sequence[str]) -> "Members":
        """A mapping that has known members alone."""
        if not isinstance(value, Mapping):
            raise PolicyInvalid("wrong_type", where, "a mapping is expected")
        for name in value:
            if not isinstance(name, str) or name not in known:
                expected = ", ".join(known)
                raise PolicyInvalid(
                    "unknown_member", where, f"unknown member '{name}'", f"use {expected}"
                )
        return cls(where, value)

    def required(self, name: str) -> Any:
        """A member that must be given."""
        value = self.values.get(name)
        if value is None:
            raise PolicyInvalid("missing_member", self.where, f"'{name}' is missing", "add it")
        return value

    def text(self, name: str, blank: str) -> str:
        """A text that is not blank; `blank` is the code of one that is."""
        return plain_text(self.required(name), f"{self.where}.{name}", blank)

    def optional_text(self, name: str) -> str | None:
        """A text, if it is given."""
        value = self.values.get(name)
        return None if value is None else plain_text(value, f"{self.where}.{name}", "blank")

    def items(self, name: str) -> Sequence[Any]:
        """A list, empty if it is not given."""
        value = self.values.get(name)
        if value is None:
            return ()
        if not isinstance(value, list):
            raise PolicyInvalid("wrong_type", f"{self.where}.{name}", "a list is expected")
        return value


def plain_text(value: Any, where: str, blank: str) -> str:
    """A text that is not blank and has no white space around it."""
    if not isinstance(value, str):
        said = "nothing" if value is None else f"{type(value).__name__} {value!r}"
        raise PolicyInvalid("wrong_type", where, f"a text is expected, not {said}", "quote it")
    if not value.strip():
        raise PolicyInvalid(blank, where, "it is blank", "write a name")
    if value != value.strip():
        # It would match nothing, and look as if it did.
        raise PolicyInvalid("wrong_type", where, f"'{value}' begins or ends with a space")
    return value


def require_version(members: Members) -> None:
    """Pass for version 1, the only one."""
    version = members.values.get("version")
    if version != 1 or type(version) is not int:
        raise PolicyInvalid(
            "unsupported_version", members.where, f"version is {version!r}", "write version: 1"
        )
