"""Server-sent events (SSE) of the change feed, as pages.

Invariant: every commit is delivered, at least once: a stream that ends or breaks is opened again at
the last cursor that was seen, and one that cannot be opened is the error of the connection.
"""

from collections.abc import Iterable, Iterator

import orjson

from omnigraph.errors import ServerUnreachable
from omnigraph.exec.changes.feed import FeedPage
from omnigraph.remote.from_wire import page_of
from omnigraph.remote.http_connection import HttpConnection, Params, given

_DATA = "data: "


def followed(
    http: HttpConnection, params: Params, start: str | None, cursor: str | None
) -> Iterator[FeedPage]:
    """The pages of a feed, as the server sends them."""
    while True:
        begin = given(start=start) if cursor is None else given(cursor=cursor)
        is_open = False
        try:
            with http.stream("/changes/stream", params=[*params, *begin]) as response:
                is_open = True
                for page in _pages(response.iter_lines()):
                    cursor = page.cursor or cursor
                    yield page
        except ServerUnreachable:
            if not is_open:
                raise


def _pages(lines: Iterable[str]) -> Iterator[FeedPage]:
    for line in lines:
        if line.startswith(_DATA):
            yield page_of(orjson.loads(line.removeprefix(_DATA)))
