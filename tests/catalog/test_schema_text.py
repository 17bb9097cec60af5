"""The text of a catalog that nobody wrote, like that of a merged schema."""

from hypothesis import given, settings

from omnigraph.catalog.accept import accept
from omnigraph.catalog.schema_diff import plan_migration
from omnigraph.catalog.schema_text import schema_text, written_declarations
from omnigraph.language.schema.ast import Schema
from omnigraph.types import Kind
from tests.language.schema_text import format_schema
from tests.language.schema_trees import accepted_schemas


@settings(max_examples=25, deadline=None)
@given(accepted_schemas())
def test_the_text_of_a_catalog_reads_back_as_the_same_schema(schema: Schema) -> None:
    catalog = accept(format_schema(schema))
    assert plan_migration(catalog, schema_text(catalog, {})).steps == ()


def test_declarations_are_taken_as_they_are_written_with_their_comments() -> None:
    text = "// first\nnode A { x: I32 } // a\n/* second */ node B { y: I32 = 1  @index(y) }\n"
    written = written_declarations(text)
    assert written[Kind.NODE, "A"] == ("// first", "node A { x: I32 }")
    assert schema_text(accept(text), written) == (
        "// first\nnode A { x: I32 }\n\n// a\n/* second */\nnode B { y: I32 = 1  @index(y) }\n"
    )
    anew = {**written, (Kind.NODE, "B"): ("/* second */", None)}
    assert schema_text(accept(text), anew).endswith(
        "/* second */\nnode B {\n  y: I32 = 1 @index\n}\n"
    )
