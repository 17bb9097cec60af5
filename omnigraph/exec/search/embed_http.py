"""HTTP client of embedding providers: JSON requests with a deadline and exponential backoff.

Invariant: a call ends within its deadline, retries included. Rate limits (429), server errors (5xx)
and lost connections are retried, each time after twice the wait; any other answer is final.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any, Self
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, Request, build_opener

import orjson

from omnigraph import environment
from omnigraph.errors import BadRequest, EmbeddingFailed

_ANSWER_BYTES_MAX = 64 << 20
_EXCERPT_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Patience:
    """Timeout, deadline and retries of a request. A deadline of 0 is none."""

    timeout_ms: int = environment.EMBED_TIMEOUT.default
    deadline_ms: int = environment.EMBED_DEADLINE.default
    attempts: int = environment.EMBED_ATTEMPTS.default
    backoff_ms: int = environment.EMBED_BACKOFF.default

    @classmethod
    def from_environment(cls, env: Mapping[str, str] | None = None) -> Self:
        """The defaults, or what the environment says instead."""
        return cls(
            timeout_ms=environment.EMBED_TIMEOUT.read(env),
            deadline_ms=environment.EMBED_DEADLINE.read(env),
            attempts=environment.EMBED_ATTEMPTS.read(env),
            backoff_ms=environment.EMBED_BACKOFF.read(env),
        )


class _Again(Exception):
    """A transient failure, worth a retry. `wait_s` is the server's Retry-After."""

    def __init__(self, detail: str, wait_s: float | None = None) -> None:
        super().__init__(detail)
        self.wait_s = wait_s


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Client:
    """One provider's address and key."""

    base_url: str
    key_header: str
    key: str = field(repr=False)
    patience: Patience

    def __post_init__(self) -> None:
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise BadRequest(
                f"'{self.base_url}' is no address of an embedding provider",
                f"set {environment.EMBED_BASE_URL.name} to an http or https address",
            )

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The JSON answer to a JSON request."""
        patience = self.patience
        seconds = patience.deadline_ms / 1000 if patience.deadline_ms else float("inf")
        deadline = time.monotonic() + seconds
        wait_s = patience.backoff_ms / 1000
        for attempt in range(1, patience.attempts + 1):
            try:
                return self._once(path, body, deadline)
            except _Again as cause:
                pause = max(wait_s, cause.wait_s or 0)
                if attempt == patience.attempts:
                    raise self.failed(f"{cause} ({attempt} attempts)") from cause
                if time.monotonic() + pause >= deadline:
                    raise self.failed(f"{cause} (deadline {patience.deadline_ms} ms)") from cause
            time.sleep(pause)
            wait_s *= 2
        raise AssertionError("every attempt returns or raises")

    def failed(self, detail: str) -> EmbeddingFailed:
        """The error that names this provider, never its key."""
        secret = self.key.rpartition(" ")[2]
        return EmbeddingFailed(self.base_url, detail.replace(secret, "…"))

    def _once(self, path: str, body: Mapping[str, Any], deadline: float) -> Any:
        ends = min(deadline, time.monotonic() + self.patience.timeout_ms / 1000)
        headers = {"Content-Type": "application/json", self.key_header: self.key}
        request = Request(self.base_url + path, orjson.dumps(body), headers, method="POST")
        try:
            data = _fetched(request, ends)
        except HTTPError as cause:
            raise self._refusal(cause) from cause
        except TimeoutError as cause:
            raise _Again(f"gave no answer within {self.patience.timeout_ms} ms") from cause
        except (OSError, HTTPException) as cause:
            # URLError hides a timeout in its reason.
            if isinstance(getattr(cause, "reason", None), TimeoutError):
                raise _Again(f"gave no answer within {self.patience.timeout_ms} ms") from cause
            raise _Again(f"could not be reached ({_said(cause)})") from cause
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError as cause:
            raise self.failed(f"answered something that is not JSON ({cause})") from cause

    def _refusal(self, answer: HTTPError) -> Exception:
        with answer:
            said = answer.read(4096).decode("utf-8", "replace").strip()[:_EXCERPT_CHARACTERS]
        detail = f"answered {answer.code} {answer.reason}: {said}"
        if answer.code == 429 or answer.code >= 500:
            return _Again(detail, _seconds(answer.headers.get("Retry-After")))
        return self.failed(detail)


def _fetched(request: Request, ends: float) -> bytes:
    data = bytearray()
    with _opener().open(request, timeout=_left(ends)) as answer:
        # The deadline holds for a server that sends a little at a time, too.
        while chunk := answer.read1(1 << 16):
            data += chunk
            _left(ends)
            if len(data) > _ANSWER_BYTES_MAX:
                raise HTTPException(f"more than {_ANSWER_BYTES_MAX} bytes")
    return bytes(data)


def _left(ends: float) -> float:
    left = ends - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _opener() -> OpenerDirector:
    return build_opener(_NoRedirect)


def _said(cause: Exception) -> str:
    return str(getattr(cause, "reason", cause)) or type(cause).__name__


def _seconds(header: str | None) -> float | None:
    # A date is allowed there too; the wait we would have chosen serves as well.
    return float(header) if header and header.isascii() and header.isdigit() else None
