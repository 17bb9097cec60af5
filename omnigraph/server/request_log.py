"""Structured request log: one line a request on standard error, as text or JSON.

Invariant: a line holds method, route, graph, branch, actor, status, milliseconds, rows, commit and
the request's id. Tokens, parameters, rows and texts of queries never appear. Lines of requests that
are answered in one turn of the event loop leave together, in writes that a pipe takes whole: what
is longer may be mixed with lines of other workers while the reader is slow.
"""

import logging
import re
import sys
import time
import traceback
from collections.abc import Iterator
from functools import lru_cache
from select import PIPE_BUF
from typing import Any

import orjson

_PLAIN = re.compile(r"[!#-~]+")
_NUMBERS = frozenset({int, float})


class RequestLog:
    """Writes the lines of one worker."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._second: tuple[int, str] = (0, "")
        self._lines: list[str] = []

    def _moment(self, second: int) -> str:
        """A second as text; the lines of one second share it."""
        if self._second[0] != second:
            shown = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(second))
            self._second = second, shown
        return self._second[1]

    def request(self, facts: dict[str, Any]) -> bool:
        """One request that was answered. Its line waits for `flush`; whether it is the first that
        does. Called by the event loop alone."""
        self._lines.append(self._line("request", facts))
        return len(self._lines) == 1

    def flush(self) -> None:
        """Write the lines of requests. Called by the event loop alone."""
        lines, self._lines = self._lines, []
        for text in _together(lines):
            _wrote(text)

    def fault(self, request_id: str, cause: BaseException) -> None:
        """Why a request was answered with an internal error."""
        trace = "".join(traceback.format_exception(cause))
        self._write("fault", {"request_id": request_id, "cause": str(cause), "trace": trace})

    def event(self, name: str, **facts: Any) -> None:
        """Anything else that an operator should see."""
        self._write(name, facts)

    def _write(self, event: str, facts: dict[str, Any]) -> None:
        _wrote(self._line(event, facts))

    def _line(self, event: str, facts: dict[str, Any]) -> str:
        now = time.time()
        if self._as_json:
            known = ((name, value) for name, value in facts.items() if value is not None)
            texts = {n: _encodable(v) if isinstance(v, str) else v for n, v in known}
            line = orjson.dumps({"time": round(now, 3), "event": event, **texts}, default=str)
            return f"{line.decode()}\n"
        said = [
            f" {name}={value}"
            if type(value) in _NUMBERS
            or (type(value) is str and value.isascii() and value.isalnum())
            else f" {name}={_quoted(str(value))}"
            for name, value in facts.items()
            if value is not None
        ]
        return f"{self._moment(int(now))} {event}{''.join(said)}\n"


def _together(lines: list[str]) -> Iterator[str]:
    """Lines as texts that a pipe takes whole; a line that is longer is a text of its own."""
    text = "".join(lines)
    if len(text) <= PIPE_BUF and text.isascii():
        if text:
            yield text
        return
    begin = size = 0
    for number, line in enumerate(lines):
        length = len(line) if line.isascii() else len(line.encode())
        if size + length > PIPE_BUF and number > begin:
            yield "".join(lines[begin:number])
            begin, size = number, 0
        size += length
    yield "".join(lines[begin:])


def _wrote(text: str) -> None:
    try:
        sys.stderr.write(text)
    except (OSError, ValueError):  # nobody reads any more
        logging.lastResort = None


@lru_cache(maxsize=256)
def _quoted(text: str) -> str:
    """A text as it stands in a line. Routes and names of graphs and branches come again."""
    text = _encodable(text)
    return text if _PLAIN.fullmatch(text) else orjson.dumps(text).decode()


def _encodable(text: str) -> str:
    """A text without half surrogate pairs, which no encoding has."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
