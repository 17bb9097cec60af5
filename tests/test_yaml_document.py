"""YAML documents: what is read, and what is refused in words."""

import pytest

from omnigraph.yaml_document import DuplicateKey, YamlFault, read_yaml


def test_a_document_is_its_plain_values() -> None:
    text = "a: 1\nb: [x, true, null]\nc: {d: &one [1], e: *one}\n"
    assert read_yaml(text) == {"a": 1, "b": ["x", True, None], "c": {"d": [1], "e": [1]}}
    assert read_yaml("") is None


@pytest.mark.parametrize("text", ["a: 1\na: 2", "x: {1: a, 0x1: b}", "- {b: 1, 'b': 2}"])
def test_a_key_that_is_given_twice_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(DuplicateKey, match=r"is given twice \(line \d\)"):
        read_yaml(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: &x {b: 1}\nc: {<<: *x}", "line 2: merge keys are not read"),
        ("? [1, 2]\n: 3", "line 1: a key is a list"),
        ("a: !!python/object:os.system {}", "could not determine a constructor"),
        ("a: 2026-99-99", "month must be"),
        ("a: [", "line 2, column 1"),
        ("a: 1\n---\nb: 2", "single document"),
        ("a: \0", "control characters are not allowed"),
        ("[" * 1_000_000, "nested too deep"),
        ("- " * 100_000, "nested too deep"),
        ("{a: " * 100_000, "nested too deep"),
    ],
)
def test_what_cannot_be_read_is_said(text: str, said: str) -> None:
    with pytest.raises(YamlFault, match=said):
        read_yaml(text)


def test_aliases_are_refused_where_a_small_text_may_not_grow() -> None:
    laughs = "a: &a [x, x]\nb: &b [*a, *a]\n"
    with pytest.raises(YamlFault, match="line 2: aliases are not read"):
        read_yaml(laughs, aliases=False)
    assert read_yaml(laughs)["b"] == [["x", "x"]] * 2
