"""HTTP connection to a served graph: requests, retries with idempotency keys, timeouts, errors.

Invariant: a read is sent again after a connection failure; a write only if it was not sent, or has
an idempotency key, under which the server does it once. Everything that fails is an error of the
library, and one that leaves a write unknown says so, also where only its first sending is unknown.
"""

import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any
from urllib.parse import quote

import httpx
import orjson
from ulid import ULID

from omnigraph.errors import BadRequest, GraphClosed, OmnigraphError, ServerUnreachable
from omnigraph.remote.wire_faults import error_of, seconds_of

API_VERSION = "0.10"
TIMEOUT_S = 300.0
_CONNECT_S = 10.0
_ATTEMPTS = 4
_PAUSE_S = 0.1
_BUSY_S_MAX = 5
_IDLE_S = 3.0
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)

_SAYS_NOTHING = (429, 500, 502, 503, 504)
"""Statuses of a repeated write that tell nothing of its first sending."""
_KEY = "Idempotency-Key"
REPLAY = "idempotent-replay"
IF_COMMIT = "Omnigraph-If-Graph-Commit"
"""The header of an answer to a write that was done before."""

Params = Sequence[tuple[str, str]]
Content = bytes | IO[bytes] | None
JSON = {"Content-Type": "application/json"}


def encoded(document: Any) -> bytes:
    """A JSON body, or `BadRequest` for values that JSON has no form for."""
    try:
        return orjson.dumps(document, default=_plain, option=orjson.OPT_NON_STR_KEYS)
    except TypeError as cause:
        said = cause.__cause__ or cause  # its own words hide those of `_plain`
        raise BadRequest(f"this cannot be sent as JSON: {said}", "give plain values") from None


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "__index__"):
        return value.__index__()
    raise TypeError(f"a {type(value).__name__} has no JSON form")


def segment(name: str) -> str:
    """A name as one percent-encoded segment of a path."""
    try:
        encoded_name = quote(name, safe="")
    except UnicodeEncodeError:
        raise BadRequest(f"the name {name!r} cannot be written as UTF-8") from None
    # Dots alone would be steps of the path, and taken out of it.
    return encoded_name.replace(".", "%2E") if name in (".", "..") else encoded_name


def given(**params: Any) -> list[tuple[str, str]]:
    """Query parameters without those that are None; a list is repeated."""
    pairs: list[tuple[str, str]] = []
    for name, value in params.items():
        for each in value if isinstance(value, list | tuple) else [value]:
            if each is not None:
                pairs.append((name.rstrip("_"), "true" if each is True else str(each)))
    return pairs


class HttpConnection:
    """A connection pool to one server, bound to one of its graphs."""

    def __init__(
        self,
        url: str,
        token: str | None,
        *,
        timeout: float | None = TIMEOUT_S,
        retry_writes: bool = True,
    ) -> None:
        self.url = url.rstrip("/")
        self.base = ""
        self._retries_writes = retry_writes
        self._is_closed = False
        self._patience_s = TIMEOUT_S if timeout is None else timeout
        headers = {
            "Omnigraph-Http-Api": API_VERSION,
            "Omnigraph-Moments": "named",
            "Prefer": "handling=strict",  # a parameter that the query lacks is an error
        }
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        connect = _CONNECT_S if timeout is None else min(_CONNECT_S, timeout)
        try:
            self._client = httpx.Client(
                base_url=self.url,
                headers=headers,
                timeout=httpx.Timeout(timeout, connect=connect),
                # Reading the certificates of all authorities takes longer than most requests.
                verify=self.url.startswith("https:"),
                limits=httpx.Limits(keepalive_expiry=_IDLE_S),
            )
        except (httpx.InvalidURL, UnicodeEncodeError, ValueError) as cause:
            raise BadRequest(f"'{url}' or its token cannot be used: {cause}") from None
        weakref.finalize(self, self._client.close)  # of a graph that nobody closed

    @property
    def uri(self) -> str:
        """The address of the graph."""
        return self.url + self.base

    def close(self) -> None:
        """Close every connection."""
        self._is_closed = True
        self._client.close()

    # ---- requests

    def get(self, path: str, params: Params = (), **headers: str) -> httpx.Response:
        """The answer to a read."""
        return self._send("GET", path, params, headers, is_safe=True)

    def head(self, path: str, params: Params = ()) -> httpx.Response:
        """The headers of a read."""
        return self._send("HEAD", path, params, {}, is_safe=True)

    def document(self, path: str, params: Params = ()) -> Any:
        """The JSON of a read."""
        return orjson.loads(self.get(path, params).content)

    def ask(self, path: str, body: Any, **headers: str) -> httpx.Response:
        """The answer to a read whose question is a JSON body."""
        content = encoded(body)
        return self._send("POST", path, (), {**JSON, **headers}, content, is_safe=True)

    def write(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON of a write that has no idempotency key."""
        content = None if body is None else encoded(body)
        headers = {} if body is None else JSON
        answer = self._send(method, path, (), headers, content, is_safe=False)
        return orjson.loads(answer.content)

    def write_once(
        self,
        path: str,
        content: Content,
        headers: Mapping[str, str],
        params: Params = (),
        *,
        key: str | None = None,
        method: str = "POST",
    ) -> httpx.Response:
        """The answer to a write that is done once, however often it is sent."""
        if key is None and self._retries_writes:
            key = str(ULID())
        named = {} if key is None else {_KEY: key}
        is_safe = key is not None
        return self._send(method, path, params, {**headers, **named}, content, is_safe=is_safe)

    def exchange(
        self,
        method: str,
        path: str,
        params: Params,
        headers: Mapping[str, str],
        content: Content = None,
        *,
        is_read: bool,
    ) -> httpx.Response:
        """The answer to a request as it is given; a read is sent again after a failure."""
        return self._send(method, path, params, headers, content, is_safe=is_read)

    @contextmanager
    def stream(
        self, path: str, body: Any = None, params: Params = (), accept: str | None = None
    ) -> Iterator[httpx.Response]:
        """An answer that is read while it arrives: to a JSON body, or to a GET without one."""
        self._require_open()
        request = self._client.build_request(
            "GET" if body is None else "POST",
            self.base + path,
            params=list(params),
            headers={**({} if body is None else JSON), **({"Accept": accept} if accept else {})},
            content=None if body is None else encoded(body),
        )
        response = self._first(lambda: self._client.send(request, stream=True))
        try:
            if response.status_code >= 400:
                response.read()
                raise self._error(response)
            yield response
        except httpx.TransportError as cause:
            raise ServerUnreachable(self.url, f"the answer broke off ({_reason(cause)})") from cause
        finally:
            response.close()

    def _first(self, send: Any) -> httpx.Response:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                response: httpx.Response = send()
                return response
            except httpx.TransportError as cause:
                if attempt == _ATTEMPTS or isinstance(cause, httpx.TimeoutException):
                    raise ServerUnreachable(self.url, _reason(cause)) from cause
                time.sleep(_PAUSE_S * attempt)
        raise AssertionError("unreachable")

    def _send(
        self,
        method: str,
        path: str,
        params: Params,
        headers: Mapping[str, str],
        content: Content = None,
        *,
        is_safe: bool,
    ) -> httpx.Response:
        """The answer to one request, sent again as the invariant allows; or its error."""
        self._require_open()
        losses, until = 0, time.monotonic() + self._patience_s
        is_write = not is_safe or _KEY in headers
        is_unsettled = False  # whether a write was sent whose answer was lost
        while True:
            if content is not None and not isinstance(content, bytes):
                content.seek(0)
            try:
                response = self._client.request(
                    method, self.base + path, params=list(params), headers=headers, content=content
                )
            except httpx.TransportError as cause:
                losses += 1
                is_sent = not isinstance(cause, _UNSENT)
                is_late = isinstance(cause, httpx.TimeoutException)
                is_unsettled |= is_sent and is_write
                if losses < _ATTEMPTS and not is_late and (is_safe or not is_sent):
                    time.sleep(_PAUSE_S * losses)
                    continue
                raise ServerUnreachable(self.url, _reason(cause), is_unsettled) from cause
            except (UnicodeEncodeError, httpx.InvalidURL) as cause:
                raise BadRequest(f"this cannot be sent over HTTP: {cause}") from None
            if response.status_code < 400:
                return response
            pause = self._pause(response)
            if pause is None or time.monotonic() + pause > until:
                error = self._error(response)
                is_running = response.status_code == 409 and "retry-after" in response.headers
                if is_unsettled and (is_running or response.status_code in _SAYS_NOTHING):
                    raise ServerUnreachable(self.url, f"{error}", is_unsettled) from error
                raise error
            time.sleep(pause)

    @staticmethod
    def _pause(response: httpx.Response) -> int | None:
        """How long to wait before a request that was not done is sent again, if that helps: the
        server is busy, or an earlier sending of the same write still runs."""
        seconds = seconds_of(response.headers)
        if response.status_code not in (409, 429) or seconds is None:
            return None
        return seconds if seconds <= _BUSY_S_MAX else None

    def _error(self, response: httpx.Response) -> OmnigraphError:
        return error_of(response.status_code, response.content, response.headers, self.url)

    def _require_open(self) -> None:
        if self._is_closed:
            raise GraphClosed(self.uri)


def _reason(cause: Exception) -> str:
    return f"{cause}" or type(cause).__name__
