"""Background jobs of a served graph: start, list, show, cancel, and wait by polling.

Invariant: a job that is started carries an idempotency key, so a lost answer starts no second one.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import orjson

from omnigraph.arguments import checked
from omnigraph.errors import NotFound
from omnigraph.remote.http_connection import JSON, encoded, segment
from omnigraph.remote.remote_session import RemoteSession, key_of

_ENDED = ("done", "failed", "cancelled", "interrupted")
_PAUSE_S, _PAUSE_S_MAX = 0.05, 2.0


@dataclass(frozen=True, slots=True)
class ServedJob:
    """A job as the server shows it: queued, running, done, failed, cancelled or interrupted.
    Moments are microseconds; `result` and `error` are as the route of the work answers them."""

    id: str
    kind: str
    state: str
    actor_id: str | None
    created_at: int
    started_at: int | None = None
    finished_at: int | None = None
    stage: str | None = None
    rows: int | None = None
    rows_per_second: float | None = None
    tasks_done: int | None = None
    tasks_total: int | None = None
    cancel_requested: bool = False
    result: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None

    @property
    def has_ended(self) -> bool:
        """Whether it will not change any more."""
        return self.state in _ENDED


class RemoteJobs:
    """The jobs of a served graph."""

    def __init__(self, session: RemoteSession) -> None:
        self._session = session
        self._http = session.http

    @checked
    def start(
        self, kind: str, members: Mapping[str, Any] | None = None, *, once: str | None = None
    ) -> ServedJob:
        """Start a load, export, merge, optimize, cleanup or embed with the members of its kind; of
        one that was started `once` with this name, the job of then."""
        self._session.require_writable()
        key = None if once is None else key_of(once)
        body = encoded({**(members or {}), "kind": kind})
        return _job_of(orjson.loads(self._http.write_once("/jobs", body, JSON, key=key).content))

    def list(self) -> tuple[ServedJob, ...]:
        """The newest jobs, newest first."""
        return tuple(map(_job_of, self._http.document("/jobs")["jobs"]))

    @checked
    def show(self, job_id: str) -> ServedJob:
        """One job as it is now, or `NotFound`."""
        return _job_of(self._http.document(_path(job_id)))

    @checked
    def cancel(self, job_id: str) -> ServedJob:
        """Ask for the end of a job; one that has ended is shown as it is."""
        self._session.require_writable()
        # To ask twice is to ask once, so a lost answer may be asked for again.
        answer = self._http.exchange("DELETE", _path(job_id), (), {}, is_read=True)
        return _job_of(orjson.loads(answer.content))

    @checked
    def wait(self, job_id: str, timeout: int | float | None = None) -> ServedJob:
        """A job when it has ended, or as it is after so many seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = _PAUSE_S
        while True:
            job = self.show(job_id)
            left = pause if deadline is None else deadline - time.monotonic()
            if job.has_ended or left <= 0:
                return job
            time.sleep(min(pause, left))
            pause = min(pause * 1.5, _PAUSE_S_MAX)


_MEMBERS = frozenset(each.name for each in fields(ServedJob))


def _job_of(document: Mapping[str, Any]) -> ServedJob:
    return ServedJob(**{name: document[name] for name in _MEMBERS & document.keys()})


def _path(job_id: str) -> str:
    if not (job_id.isascii() and job_id.isalnum()):  # no path holds it
        raise NotFound("job", job_id[:80])
    return f"/jobs/{segment(job_id)}"
