"""Every schema in tests/fixtures/schema: what it means, or why it is refused."""

import json
import re
from pathlib import Path

import pytest

from omnigraph.catalog.accept import accept, admit
from omnigraph.catalog.codec import decode, encode
from omnigraph.errors import ParseError
from omnigraph.language.schema.format import format_schema
from omnigraph.language.schema.parser import parse_schema
from tests import golden

SCHEMAS = golden.FIXTURES / "schema"
ACCEPTED = sorted(SCHEMAS.glob("accept/*.pg"))
REJECTED = sorted(SCHEMAS.glob("reject/*.pg"))
DOCS = Path(__file__).parents[2] / "docs" / "schema-language.md"
EXPECT = "// expect: "


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

    error = caught.value
    actual = f"{EXPECT}{error.code} {error.line}:{error.column} {error.headline}"
    first, _, rest = text.partition("\n")
    if golden.UPDATE:
        golden.write(path, f"{actual}\n{rest}")
    else:
        assert actual == first
    assert error.byte_span[1] > error.byte_span[0]


def documented_codes() -> set[str]:
    text = DOCS.read_text(encoding="utf-8")
    table = text.partition("## Error codes")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| `([a-z-]+)` \|", table, re.M))


def test_every_documented_code_has_a_fixture_and_the_reverse() -> None:
    seen = {golden.read(path).removeprefix(EXPECT).split(" ")[0] for path in REJECTED}

    assert seen == documented_codes()
