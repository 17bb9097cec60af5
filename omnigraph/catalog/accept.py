"""Schema text to catalog: the only door for a schema that a person wrote.

Invariant: `accept` and `admit` return a consistent `Catalog` or raise `ParseError` with a position,
whatever the text. Nothing here loads Arrow unless the schema has a `@check`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from omnigraph.catalog.declarations import resolve
from omnigraph.catalog.foreign_annotations import foreign_notes
from omnigraph.catalog.identity import identify
from omnigraph.catalog.model import Catalog, Literal
from omnigraph.errors import ParseError
from omnigraph.language.reader import Fault
from omnigraph.language.schema.parser import parse_schema


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """A remark about a schema that is accepted all the same."""

    code: str
    entity: str
    text: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.entity}: {self.text} [{self.code}] (line {self.line}, column {self.column})"


@dataclass(frozen=True, slots=True)
class Admission:
    """An accepted schema with its diagnostics, and the values for added properties."""

    catalog: Catalog
    diagnostics: tuple[Diagnostic, ...]
    backfills: Mapping[str, Literal] = field(default_factory=dict)


def accept(text: str) -> Catalog:
    """The catalog of a new graph."""
    return admit(text).catalog


def admit(text: str, old: Catalog | None = None) -> Admission:
    """A schema with its diagnostics; after `old`, types and properties keep their identities."""
    schema = parse_schema(text)
    try:
        draft = resolve(schema)
        catalog, notes = identify(draft, old)
    except Fault as fault:
        raise ParseError.at(
            text, fault.span, fault.text, code=fault.code, hint=fault.hint
        ) from None
    diagnostics = []
    for note in (*notes, *foreign_notes(schema)):
        error = ParseError.at(text, note.span, note.text)
        diagnostics.append(Diagnostic(note.code, note.entity, note.text, error.line, error.column))
    return Admission(catalog, tuple(diagnostics), draft.backfills)
