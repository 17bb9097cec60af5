"""Structured request log: one line a request on standard error, as text or JSON.

Invariant: a line holds method, route, graph, branch, actor, status, milliseconds, rows, commit and
the request's id. Tokens, parameters, rows and texts of queries never appear.
"""

import logging
import re
import sys
import time
import traceback
from typing import Any

import orjson

_PLAIN = re.compile(r"[!#-~]+")


class RequestLog:
    """Writes the lines of one worker."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._second: tuple[int, str] = (0, "")

    def _moment(self, second: int) -> str:
        """A second as text; the lines of one second share it."""
        if self._second[0] != second:
            shown = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(second))
            self._second = second, shown
        return self._second[1]

    def request(self, facts: dict[str, Any]) -> None:
        """One request that was answered."""
        self._write("request", facts)

    def fault(self, request_id: str, cause: BaseException) -> None:
        """Why a request was answered with an internal error."""
        trace = "".join(traceback.format_exception(cause))
        self._write("fault", {"request_id": request_id, "cause": str(cause), "trace": trace})

    def event(self, name: str, **facts: Any) -> None:
        """Anything else that an operator should see."""
        self._write(name, facts)

    def _write(self, event: str, facts: dict[str, Any]) -> None:
        now = time.time()
        known = [(name, value) for name, value in facts.items() if value is not None]
        if self._as_json:
            texts = {n: _encodable(v) if isinstance(v, str) else v for n, v in known}
            line = orjson.dumps({"time": round(now, 3), "event": event, **texts}, default=str)
            text = line.decode()
        else:
            said = " ".join([f"{name}={_shown(value)}" for name, value in known])
            text = f"{self._moment(int(now))} {event} {said}"
        try:
            sys.stderr.write(f"{text}\n")
        except (OSError, ValueError):  # nobody reads any more
            logging.lastResort = None


def _shown(value: Any) -> str:
    if type(value) in (int, float):
        return str(value)
    text = str(value)
    if text.isascii() and text.isalnum():
        return text
    text = _encodable(text)
    return text if _PLAIN.fullmatch(text) else orjson.dumps(text).decode()


def _encodable(text: str) -> str:
    """A text without half surrogate pairs, which no encoding has."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
