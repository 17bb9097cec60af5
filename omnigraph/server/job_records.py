"""Job records in storage: every worker reads them, the worker that runs a job writes them.

    __beside/jobs/<id>             the record
    __beside/jobs/<id>.cancel      that somebody asked to cancel it

Invariant: a record that says queued or running and whose process is dead, or was not seen for a
minute, is settled by its next reader: as done if the commit of its mark is there, as interrupted if
it is not. The write itself is atomic whatever its record says.
"""

import contextlib
import time

import msgspec

from omnigraph.errors import NotFound, OmnigraphError
from omnigraph.graph import Graph
from omnigraph.server.job_kinds import committed
from omnigraph.server.wire_jobs import JobOutput, JobRecord
from omnigraph.storage.beside import has_ended, own_process

QUEUED, RUNNING, DONE = "queued", "running", "done"
FAILED, CANCELLED, INTERRUPTED = "failed", "cancelled", "interrupted"
UNSEEN_S = 60.0
KEPT_S = 7 * 86_400.0
_FOLDER = "jobs"
_CANCEL = ".cancel"
_LISTED_MAX = 100

_decoder = msgspec.json.Decoder(JobRecord)


def now_us() -> int:
    """Microseconds since the epoch."""
    return time.time_ns() // 1000


class JobRecords:
    """The jobs of one graph."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._beside = graph.beside

    def create(self, record: JobRecord) -> bool:
        """Store a new job; False if there is one of its id. Records of long ago go."""
        self._beside.delete_older(_FOLDER, KEPT_S)
        return self._beside.create(_FOLDER, record.shown.id, self._encoded(record))

    def save(self, record: JobRecord) -> None:
        """Store what is known of a job now."""
        self._beside.put(_FOLDER, record.shown.id, self._encoded(record))

    def get(self, job_id: str) -> JobRecord:
        """A job, settled if nobody runs it any more; `NotFound`."""
        data = self._beside.get(_FOLDER, job_id) if _is_id(job_id) else None
        if data is None:
            raise NotFound("job", job_id[:80])
        record = _decoder.decode(data)
        if record.shown.state in (QUEUED, RUNNING):
            if _is_lost(record):
                self._settle(record)
            elif self.is_cancelled(job_id):
                record.shown.cancel_requested = True
        return record

    def list(self) -> list[JobOutput]:
        """The newest jobs, newest first."""
        ids = [name for name in self._beside.names(_FOLDER) if not name.endswith(_CANCEL)]
        jobs = []
        for job_id in ids[:_LISTED_MAX]:
            with contextlib.suppress(NotFound):
                jobs.append(self.get(job_id).shown)
        return sorted(jobs, key=lambda job: job.created_at, reverse=True)

    def cancel(self, job_id: str) -> JobOutput:
        """Ask for the end of a job, whichever worker runs it."""
        record = self.get(job_id)
        if record.shown.state in (QUEUED, RUNNING):
            self._beside.put(_FOLDER, f"{job_id}{_CANCEL}", b"{}")
            record.shown.cancel_requested = True
        return record.shown

    def is_cancelled(self, job_id: str) -> bool:
        """Whether somebody asked for the end of a job."""
        return self._beside.get(_FOLDER, f"{job_id}{_CANCEL}") is not None

    def forget_cancel(self, job_id: str) -> None:
        """Remove the wish to end a job that has ended."""
        self._beside.delete(_FOLDER, f"{job_id}{_CANCEL}")

    def _settle(self, record: JobRecord) -> None:
        result = None
        with contextlib.suppress(OmnigraphError):
            result = committed(self._graph, record.request, record.mark)
        record.shown.state = INTERRUPTED if result is None else DONE
        record.shown.finished_at = now_us()
        if result is not None:
            record.shown.result = result
        with contextlib.suppress(OmnigraphError):  # the next reader settles it again
            self.save(record)
            self.forget_cancel(record.shown.id)

    def _encoded(self, record: JobRecord) -> bytes:
        record.seen_at = time.time()
        return msgspec.json.encode(record)


def new_record(shown: JobOutput, request: object, mark: str) -> JobRecord:
    """The record of a job that this process will run."""
    return JobRecord(
        shown=shown,
        request=request,  # type: ignore[arg-type]
        mark=mark,
        process=own_process(),
        seen_at=time.time(),
    )


def _is_lost(record: JobRecord) -> bool:
    return has_ended(record.process) or time.time() - record.seen_at > UNSEEN_S


def _is_id(job_id: str) -> bool:
    return job_id.isascii() and job_id.isalnum() and len(job_id) <= 40
