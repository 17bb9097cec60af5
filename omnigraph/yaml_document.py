"""YAML documents, read strictly: plain values, and no mapping that has a key twice.

Invariant: a text is read whole or refused with what is wrong and where. Nothing of it is repeated
in a message but its keys.
"""

from functools import cache
from typing import Any

_DEPTH_MAX = 200
_KEY_CHARACTERS = 80
_FAULT_CHARACTERS = 300


class YamlFault(ValueError):
    """A text that cannot be read."""


class DuplicateKey(YamlFault):
    """A key that a mapping has twice."""

    def __init__(self, key: str, line: int) -> None:
        super().__init__(f"the key '{key[:_KEY_CHARACTERS]}' is given twice (line {line})")


def read_yaml(text: str, *, aliases: bool = True) -> Any:
    """The one document of a text. Without aliases a small text is never a huge document."""
    import yaml  # noqa: PLC0415  most processes read no YAML

    try:
        _look_over(text, aliases)
        return yaml.load(text, _loader())
    except yaml.YAMLError as cause:
        raise YamlFault(" ".join(str(cause).split())[:_FAULT_CHARACTERS]) from None
    except YamlFault:
        raise
    except (ValueError, OverflowError) as cause:  # a date that is none
        raise YamlFault(str(cause)[:_FAULT_CHARACTERS]) from None


def _look_over(text: str, aliases: bool) -> None:
    """Refuse what the composer would follow too far: it is in C and knows no bound of depth."""
    import yaml  # noqa: PLC0415

    opening = (
        yaml.BlockSequenceStartToken,
        yaml.BlockMappingStartToken,
        yaml.FlowSequenceStartToken,
        yaml.FlowMappingStartToken,
    )
    closing = (yaml.BlockEndToken, yaml.FlowSequenceEndToken, yaml.FlowMappingEndToken)
    depth = 0
    for token in yaml.scan(text, _base()):
        if isinstance(token, opening):
            depth += 1
            if depth > _DEPTH_MAX:
                raise YamlFault(f"line {token.start_mark.line + 1}: it is nested too deep")
        elif isinstance(token, closing):
            depth -= 1
        elif isinstance(token, yaml.AliasToken) and not aliases:
            line = token.start_mark.line + 1
            raise YamlFault(f"line {line}: aliases are not read: write the value out")


def _base() -> Any:
    import yaml  # noqa: PLC0415

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@cache
def _loader() -> Any:
    """A safe loader, in C where there is one, that refuses a key given twice."""
    import yaml  # noqa: PLC0415

    base: Any = _base()

    class StrictLoader(base):  # type: ignore[misc]
        """Refuses keys that repeat."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            keys = set()
            for key, _ in node.value:
                line = key.start_mark.line + 1
                if key.tag == "tag:yaml.org,2002:merge":
                    raise YamlFault(f"line {line}: merge keys are not read: write the members out")
                if not isinstance(key, yaml.ScalarNode):
                    raise YamlFault(f"line {line}: a key is a list or a mapping")
                name = self.construct_object(key)
                if name in keys:
                    raise DuplicateKey(key.value, line)
                keys.add(name)
            constructed: dict[Any, Any] = super().construct_mapping(node, deep=deep)
            return constructed

    return StrictLoader
