"""Table previews for people: the first rows of anything as text, or as HTML in a notebook.

Invariant: a preview converts only the rows it shows, and every text in it is escaped.
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from omnigraph.deferred import deferred
from omnigraph.grid import cell_width, fitted, flat, grid

if TYPE_CHECKING:
    from html import escape
else:
    escape = deferred("html", "escape")

ROWS_SHOWN = 10
_CELL_MAX = 60
_WIDTH_MAX = 120


def text_preview(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], total: int | None
) -> str:
    """A title over the first rows; `total` is None where nobody counted them."""
    if not columns or not rows:
        return title
    cells = [[flat(name) for name in columns], *([flat(_cell(v)) for v in row] for row in rows)]
    widths = [max(map(cell_width, column)) for column in zip(*cells, strict=True)]
    lines = [title, *grid(cells, fitted(widths, _WIDTH_MAX) or widths, wrap=False)]
    return "\n".join([*map(str.rstrip, lines), *_more(len(rows), total)])


def html_preview(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], total: int | None
) -> str:
    """The same as an HTML table with a caption."""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(_cell(value))}</td>' for value in row)}</tr>" for row in rows
    )
    more = "".join(f"<p>{escape(line)}</p>" for line in _more(len(rows), total))
    return (
        f"<table><caption>{escape(title)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"
    )


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 row`, `6,000 rows`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _more(shown: int, total: int | None) -> list[str]:
    if total is None:
        return ["…"]
    return [f"… {counted(total - shown, 'more row')}"] if total > shown else []


def _cell(value: Any) -> str:
    if value is None:
        return "null"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _CELL_MAX else f"{text[: _CELL_MAX - 1]}…"
