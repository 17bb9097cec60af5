"""Rows of a read, the five ways a terminal shows them.

Invariant: `json`, `jsonl` and `csv` carry every value whole; `table` and `kv` are for
people, who may see a long value cut.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

COLUMN_WIDTH_MAX = 80
_COLUMN_WIDTH_MIN = 8


class Format(StrEnum):
    """How rows are shown."""

    TABLE = "table"
    KV = "kv"
    CSV = "csv"
    JSONL = "jsonl"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Answer:
    """A read's rows and where they came from."""

    query_name: str
    branch: str | None
    snapshot: str | None
    columns: Sequence[str]
    rows: Sequence[Mapping[str, object]]
    commit_id: str

    @property
    def target(self) -> dict[str, str | None]:
        return {"branch": self.branch, "snapshot": self.snapshot}

    @property
    def title(self) -> str:
        where = f"snapshot {self.snapshot}" if self.snapshot else f"branch {self.branch}"
        return f"{len(self.rows)} rows from {where} via {self.query_name}"


def lines_of(answer: Answer, format: Format) -> Iterator[str]:
    """The answer, line by line."""
    match format:
        case Format.JSON:
            return iter([json.dumps(_document(answer), indent=2, ensure_ascii=False)])
        case Format.JSONL:
            return _jsonl(answer)
        case Format.CSV:
            return _csv(answer)
        case Format.KV:
            return _kv(answer)
        case Format.TABLE:
            return _table(answer)


def _document(answer: Answer) -> dict[str, object]:
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


def _jsonl(answer: Answer) -> Iterator[str]:
    metadata = {
        "kind": "metadata",
        "query_name": answer.query_name,
        "row_count": len(answer.rows),
        "target": answer.target,
    }
    yield _compact(metadata)
    for row in answer.rows:
        yield _compact(dict(row))


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _csv(answer: Answer) -> Iterator[str]:
    yield _csv_line(answer.columns)
    for row in answer.rows:
        yield _csv_line([_cell(row.get(column)) for column in answer.columns])


def _csv_line(cells: Sequence[str]) -> str:
    return ",".join(map(_csv_field, cells))


def _csv_field(text: str) -> str:
    """A field that would end early is quoted, its quotes doubled."""
    if any(char in text for char in ',"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text


def _cell(value: object) -> str:
    """A value as text: strings as they are, everything else as compact JSON."""
    return value if isinstance(value, str) else _compact(value)


def _kv(answer: Answer) -> Iterator[str]:
    yield answer.title
    if not answer.rows:
        yield "(no rows)"
    for number, row in enumerate(answer.rows, start=1):
        if number > 1:
            yield ""
        yield f"row {number}"
        for column in answer.columns:
            yield f"{column}: {_cell(row.get(column))}"


def _table(answer: Answer) -> Iterator[str]:
    yield answer.title
    if not answer.columns:
        yield "(no rows)"
        return
    cells = [[_shown(_cell(row.get(c))) for c in answer.columns] for row in answer.rows]
    heads = [_shown(column) for column in answer.columns]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    yield " | ".join(head.ljust(width) for head, width in zip(heads, widths, strict=True))
    yield "-+-".join("-" * width for width in widths)
    for row in cells:
        yield " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))


def _shown(text: str) -> str:
    width = max(COLUMN_WIDTH_MAX, _COLUMN_WIDTH_MIN)
    flat = text.replace("\r\n", "\\n").replace("\n", "\\n").replace("\r", "\\n")
    return flat if len(flat) <= width else f"{flat[: width - 1]}…"
