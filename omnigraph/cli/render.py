"""Output formats of query rows: table, key-value, Markdown, CSV, JSON lines and JSON.

Invariant: `json`, `jsonl` and `csv` carry every value whole; `table`, `kv` and `markdown` are for
people: long values are cut in a table, control characters are escaped. `parquet` and `arrow` are
bytes, which `column_bytes` writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from omnigraph.exec.values.csv_text import csv_line
from omnigraph.exec.values.json_text import compact_text, indented_text
from omnigraph.grid import cell_width, fitted, flat, grid
from omnigraph.output_file import ending


class Format(StrEnum):
    """Output format of rows."""

    TABLE = "table"
    KV = "kv"
    CSV = "csv"
    JSONL = "jsonl"
    JSON = "json"
    MARKDOWN = "markdown"
    PARQUET = "parquet"
    ARROW = "arrow"


BINARY = (Format.PARQUET, Format.ARROW)
_ENDINGS = {
    "csv": Format.CSV,
    "jsonl": Format.JSONL,
    "ndjson": Format.JSONL,
    "json": Format.JSON,
    "md": Format.MARKDOWN,
    "parquet": Format.PARQUET,
    "arrow": Format.ARROW,
}


def format_of_ending(out: str | None) -> Format | None:
    """The format that the ending of a file's name stands for, if it stands for one."""
    return _ENDINGS.get(ending(out))


@dataclass(frozen=True, slots=True)
class QueryRows:
    """A read's rows and where they came from."""

    query_name: str
    branch: str | None
    snapshot: str | None
    columns: Sequence[str]
    rows: Sequence[Mapping[str, object]]
    cells: Sequence[
        Sequence[object]
    ]  # by position: of two columns with one name a row has the last
    commit_id: str

    @property
    def target(self) -> dict[str, str | None]:
        return {"branch": self.branch, "snapshot": self.snapshot}

    @property
    def title(self) -> str:
        where = f"snapshot {self.snapshot}" if self.snapshot else f"branch {self.branch}"
        return f"{len(self.rows)} rows from {where} via {self.query_name}"


@dataclass(frozen=True, slots=True)
class TableStyle:
    """Width and wrapping of a table. A file, unlike a terminal, has as many columns as needed."""

    column_width: int = 80
    wrap: bool = False
    terminal_columns: int | None = None


def lines_of(answer: QueryRows, format: Format, look: TableStyle = TableStyle()) -> Iterator[str]:  # noqa: B008
    """The answer, line by line."""
    match format:
        case Format.JSON:
            return iter([indented_text(_document(answer))])
        case Format.JSONL:
            return _jsonl(answer)
        case Format.CSV:
            return _csv(answer)
        case Format.KV:
            return _kv(answer)
        case Format.TABLE:
            return _table(answer, look)
        case Format.MARKDOWN:
            return _markdown(answer)
        case Format.PARQUET | Format.ARROW:
            raise ValueError(f"{format} is no text")
        case _:
            assert_never(format)


def _document(answer: QueryRows) -> dict[str, object]:
    document: dict[str, object] = {
        "query_name": answer.query_name,
        "target": answer.target,
        "row_count": len(answer.rows),
    }
    if answer.columns:
        document["columns"] = list(answer.columns)
    document["rows"] = [dict(row) for row in answer.rows]
    document["graph_commit_id"] = answer.commit_id
    return document


def _jsonl(answer: QueryRows) -> Iterator[str]:
    metadata = {
        "kind": "metadata",
        "query_name": answer.query_name,
        "row_count": len(answer.rows),
        "target": answer.target,
    }
    yield compact_text(metadata)
    for row in answer.rows:
        yield compact_text(dict(row))


def _csv(answer: QueryRows) -> Iterator[str]:
    yield csv_line(answer.columns)
    yield from map(csv_line, answer.cells)


def _cell(value: object) -> str:
    """A value as text: strings as they are, everything else as compact JSON."""
    return value if isinstance(value, str) else compact_text(value)


def _kv(answer: QueryRows) -> Iterator[str]:
    yield answer.title
    if not answer.rows:
        yield "(no rows)"
    for number, row in enumerate(answer.cells, start=1):
        if number > 1:
            yield ""
        yield f"row {number}"
        for column, value in zip(answer.columns, row, strict=True):
            yield f"{flat(column)}: {flat(_cell(value))}"


def _markdown(answer: QueryRows) -> Iterator[str]:
    """A table as GitHub's Markdown has it: a `|` inside a cell is escaped."""
    if not answer.columns:
        yield "(no rows)"
        return
    yield _markdown_line(answer.columns)
    yield _markdown_line(["---"] * len(answer.columns))
    for row in answer.cells:
        yield _markdown_line([_cell(value) for value in row])


def _markdown_line(cells: Sequence[str]) -> str:
    escaped = (flat(cell).replace("\\", "\\\\").replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"


def _table(answer: QueryRows, look: TableStyle) -> Iterator[str]:
    if not answer.columns:
        yield answer.title
        yield "(no rows)"
        return
    cells = [[flat(_cell(value)) for value in row] for row in answer.cells]
    heads = [flat(column) for column in answer.columns]
    longest = [max(map(cell_width, column)) for column in zip(heads, *cells, strict=True)]
    widths = fitted([min(width, look.column_width) for width in longest], look.terminal_columns)
    if widths is None:
        yield from _kv(answer)
        return
    yield answer.title
    yield from grid([heads, *cells], widths, wrap=look.wrap)
