"""Every schema in tests/fixtures/schema: what it means, or why it is refused."""

import json
from pathlib import Path

import pytest

from omnigraph.catalog.accept import accept, admit
from omnigraph.catalog.codec import decode, encode
from omnigraph.errors import ParseError
from omnigraph.language.schema.parser import parse_schema
from tests import golden
from tests.language.schema_text import format_schema

SCHEMAS = golden.FIXTURES / "schema"
ACCEPTED = sorted(SCHEMAS.glob("accept/*.pg"))
REJECTED = sorted(SCHEMAS.glob("reject/*.pg"))


def name(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", ACCEPTED, ids=name)
def test_an_accepted_schema_means_what_its_document_says(path: Path) -> None:
    catalog = accept(golden.read(path))

    document = encode(catalog)
    golden.assert_golden(path.with_suffix(".json"), json.dumps(document, indent=1) + "\n")
    assert decode(json.loads(json.dumps(document))) == catalog


@pytest.mark.parametrize("path", ACCEPTED, ids=name)
def test_an_accepted_schema_has_one_canonical_text(path: Path) -> None:
    schema = parse_schema(golden.read(path))

    text = format_schema(schema)
    golden.assert_golden(path.with_suffix(".formatted"), text)
    assert parse_schema(text) == schema
    assert format_schema(parse_schema(text)) == text
    assert accept(text) == accept(golden.read(path))


@pytest.mark.parametrize("path", REJECTED, ids=name)
def test_a_rejected_schema_fails_where_and_how_its_first_line_says(path: Path) -> None:
    text = golden.read(path)
    old = path.with_suffix(".old")
    accepted = accept(golden.read(old)) if old.exists() else None

    with pytest.raises(ParseError) as caught:
        admit(text, accepted)

    golden.assert_refused(path, caught.value)


def test_every_documented_code_has_a_fixture_and_the_reverse() -> None:
    assert golden.expected_codes(REJECTED) == golden.documented_codes("schema-language.md")
