"""Annotations of other schema languages (`@default`, `@required`): kept as notes, without effect.

Invariant: pure. A note names an annotation that means nothing here and what to write instead; the
schema is accepted all the same.
"""

from collections.abc import Iterator

from omnigraph.catalog.draft import entity
from omnigraph.catalog.identity import Note
from omnigraph.language.schema import ast
from omnigraph.types import Kind

CODE = "annotation-without-effect"

_REQUIRED = "a property has a value unless its type ends with ?: title: String"
_NULLABLE = "a property that may be null has a type with ?: title: String?"
_KEY = "a key is written @key: isbn: String @key"
_MEANT = {
    "default": "a default is written with =: copies: I32 = 3",
    **dict.fromkeys(("required", "not_null", "notnull", "nonnull", "mandatory"), _REQUIRED),
    **dict.fromkeys(("nullable", "optional", "null"), _NULLABLE),
    **dict.fromkeys(("primary", "primary_key", "pk", "id", "identity"), _KEY),
    **dict.fromkeys(("uniq", "distinct"), "uniqueness is written @unique"),
    **dict.fromkeys(("indexed", "idx"), "an index is written @index"),
    **dict.fromkeys(("min", "max", "between"), "bounds are written @range(copies, 0..10)"),
    **dict.fromkeys(
        ("pattern", "regex", "matches"), 'a pattern is written @check(isbn, "^[0-9]+$")'
    ),
    **dict.fromkeys(("renamed_from", "rename"), 'a rename is written @rename_from("older")'),
}


def foreign_notes(schema: ast.Schema) -> Iterator[Note]:
    """A note for each annotation that another language would give a meaning."""
    for declared in schema.declarations:
        name, kind = declared.name.text, _kind(declared)
        for prop in declared.properties:
            yield from _notes(entity(kind, name, prop.name.text), prop.annotations)
        if not isinstance(declared, ast.Interface):
            yield from _notes(entity(kind, name), declared.annotations)


def _kind(declared: ast.Declaration) -> Kind:
    match declared:
        case ast.Node():
            return Kind.NODE
        case ast.Edge():
            return Kind.EDGE
        case ast.Interface():
            return Kind.INTERFACE


def _notes(where: str, annotations: tuple[ast.Annotation, ...]) -> Iterator[Note]:
    for each in annotations:
        if meant := _MEANT.get(each.name.lower().replace("-", "_")):
            yield Note(CODE, where, f"@{each.name} has no effect; {meant}", each.span)
