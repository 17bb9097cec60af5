"""Job routes: start long work in the background, look at it, cancel it.

Invariant: what an actor may do as a job is what it may do as a request: the actions of the kind are
asked for before anything is stored. A job with an idempotency key has its id from that key.
"""

import hashlib

from ulid import ULID

from omnigraph.server.call import Answer, RouteCall, answered
from omnigraph.server.idempotency import OWN, REPLAY, key_of, mark_of
from omnigraph.server.job_kinds import KINDS, checked_request
from omnigraph.server.job_records import QUEUED, JobRecords, new_record, now_us
from omnigraph.server.refusals import HttpRefusal
from omnigraph.server.wire_jobs import JobList, JobOutput, JobRequest

ACTIONS = ("export", "branch_merge", "admin")
"""Actions of kinds of jobs, beside `change`."""


def start(call: RouteCall) -> Answer:
    """Start a load, export, merge, optimize, cleanup or embed in the background."""
    assert call.jobs is not None
    request = checked_request(call.json(JobRequest), call.jobs.settings)
    for question in KINDS[request.kind].asks(request):
        call.require(*question)
    _require_own_names(request)
    key = key_of(call)
    job_id = str(ULID()) if key is None else _id_of(mark_of(call, key))
    shown = JobOutput(
        id=job_id, kind=request.kind, state=QUEUED, actor_id=call.actor, created_at=now_us()
    )
    record = new_record(shown, request, f"job:{job_id}")
    known = call.jobs.runner.start(call.graph, record)
    answer = answered(known)
    if known.created_at != shown.created_at:
        if JobRecords(call.graph).get(job_id).request != request:
            raise HttpRefusal(422, "Idempotency-Key was used before, with another request")
        answer.headers.update(REPLAY)
    return answer


def _require_own_names(request: JobRequest) -> None:
    for name in request.metadata or ():
        if name.startswith(OWN):
            raise HttpRefusal(400, f"metadata '{name}': names with '{OWN}' are the program's own")


def _id_of(mark: str) -> str:
    return f"K{hashlib.sha256(mark.encode()).hexdigest()[:31]}"


def jobs(call: RouteCall) -> Answer:
    """The newest jobs, newest first."""
    call.require("read")
    return answered(JobList(jobs=JobRecords(call.graph).list()))


def one_job(call: RouteCall) -> Answer:
    """A job: its stage, rows and rate, then its result or error."""
    call.require("read")
    return answered(JobRecords(call.graph).get(call.path["job"]).shown)


def cancel(call: RouteCall) -> Answer:
    """Cancel a job, which ends where it next reports; one that has ended is shown as it is."""
    assert call.jobs is not None
    record = JobRecords(call.graph).get(call.path["job"])
    for question in KINDS[record.request.kind].asks(record.request):
        call.require(*question)
    return answered(call.jobs.runner.cancel(call.graph, call.path["job"]))
