"""Bodies of jobs: long work in the background, its state, and what is kept of it in storage.

Invariant: as in `wire`: a member with a default is left out where it has that default. A stored
record is read by every worker, so members are added with defaults and never change their meaning.
"""

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from omnigraph.server.wire import Body, MergeResolution


class JobRequest(Body, kw_only=True):
    """Work for the background. `source` and `target` are branches for a merge, else addresses."""

    kind: str
    source: str | None = None
    target: str | None = None
    mode: str | None = None
    branch: str | None = None
    from_: str | None = msgspec.field(name="from", default=None)
    snapshot: str | None = None
    type: str | None = None
    edge: str | None = None
    format: str | None = None
    types: list[str] | None = None
    engine: str | None = None
    delete_branch: bool = False
    by: str | None = None
    resolutions: list[MergeResolution] | None = None
    keep: int | None = None
    older_than: str | None = None
    confirm: bool = False
    spec: dict[str, Any] | None = None
    message: str | None = None
    metadata: dict[str, str] | None = None


class JobOutput(Body, kw_only=True):
    """A job: queued, running, done, failed, cancelled or interrupted. Moments are microseconds."""

    id: str
    kind: str
    state: str
    actor_id: str | None
    created_at: int
    started_at: int | UnsetType = UNSET
    finished_at: int | UnsetType = UNSET
    stage: str | UnsetType = UNSET
    rows: int | UnsetType = UNSET
    rows_per_second: float | UnsetType = UNSET
    tasks_done: int | UnsetType = UNSET
    tasks_total: int | UnsetType = UNSET
    cancel_requested: bool | UnsetType = UNSET
    result: dict[str, Any] | UnsetType = UNSET
    error: dict[str, Any] | UnsetType = UNSET


class JobList(Body, kw_only=True):
    """The jobs of a graph, newest first."""

    jobs: list[JobOutput]


class JobRecord(Body, kw_only=True):
    """A job as it is stored: what is shown of it, its request, and who runs it since when."""

    format: int = 1
    shown: JobOutput
    request: JobRequest
    mark: str
    process: dict[str, str] | None
    seen_at: float
