"""Scheduled upkeep: a small cron of optimize and cleanup, run as jobs by one worker of many.

    03:20 optimize; sun 04:00 cleanup keep=100

Invariant: each moment of a graph's schedule is claimed by creating an object of its name, which one
process of all can; a moment that passed while no server ran is not made up for. Times are those of
the machine's clock.
"""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from ulid import ULID

from omnigraph.errors import BadRequest
from omnigraph.exec.durations import seconds
from omnigraph.graph import Graph
from omnigraph.server.job_records import QUEUED, new_record, now_us
from omnigraph.server.wire_jobs import JobOutput, JobRecord, JobRequest

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_ENTRY = re.compile(r"(?:(?P<day>[a-z]{3}) )?(?P<hour>\d{2}):(?P<minute>\d{2}) (?P<rest>.+)")
_OPTIONS = {"optimize": {"branch"}, "cleanup": {"keep", "older_than"}}
_FOLDER = "upkeep"
_KEPT_S = 14 * 86_400.0


@dataclass(frozen=True, slots=True)
class UpkeepEntry:
    """One line of a schedule: when, and which job."""

    text: str
    day: int | None  # 0 is Monday; None: every day
    hour: int
    minute: int
    kind: str
    options: tuple[tuple[str, str], ...] = ()

    def moments(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """The moments of this entry in a stretch of time."""
        moment = after.replace(hour=self.hour, minute=self.minute, second=0, microsecond=0)
        while moment <= until:
            if moment > after and self.day in (None, moment.weekday()):
                yield moment
            moment += timedelta(days=1)

    def request(self) -> JobRequest:
        """The job of this entry."""
        options = dict(self.options)
        keep = options.get("keep")
        return JobRequest(
            kind=self.kind,
            branch=options.get("branch"),
            keep=None if keep is None else int(keep),
            older_than=options.get("older_than"),
            confirm=self.kind == "cleanup",
            message=f"upkeep: {self.text}" if self.kind == "optimize" else None,
        )


def parse_schedule(text: str) -> tuple[UpkeepEntry, ...]:
    """A schedule such as `03:20 optimize; sun 04:00 cleanup keep=100`, or `BadRequest`."""
    return tuple(_entry(part) for part in text.split(";") if part.strip())


def _entry(part: str) -> UpkeepEntry:
    text = " ".join(part.split())
    wrong = BadRequest(
        f"'{text}' is no upkeep", "write [DAY] HH:MM optimize, or … cleanup keep=N older_than=7d"
    )
    match = _ENTRY.fullmatch(text)
    if match is None or (match["day"] is not None and match["day"] not in _DAYS):
        raise wrong
    hour, minute = int(match["hour"]), int(match["minute"])
    kind, *words = match["rest"].split(" ")
    options = tuple((name, value) for name, _, value in (word.partition("=") for word in words))
    names = [name for name, _ in options]
    if hour > 23 or minute > 59 or kind not in _OPTIONS or len(set(names)) < len(names):
        raise wrong
    for name, value in options:
        if name not in _OPTIONS[kind] or not value:
            raise wrong
        if name == "keep" and (not value.isdigit() or int(value) < 1):
            raise wrong
        if name == "older_than":
            seconds(value)
    if kind == "cleanup" and not options:
        raise wrong
    day = None if match["day"] is None else _DAYS.index(match["day"])
    return UpkeepEntry(text, day, hour, minute, kind, options)


class UpkeepClock:
    """Starts the jobs of a schedule when they are due, unless another process did."""

    def __init__(
        self, entries: tuple[UpkeepEntry, ...], start: Callable[[Graph, JobRecord], object]
    ) -> None:
        self._entries = entries
        self._start = start
        self._looked = datetime.fromtimestamp(time.time())

    def look(self, graphs: list[Graph], now: datetime | None = None) -> int:
        """Start what became due since the last look; how many jobs."""
        now = now or datetime.fromtimestamp(time.time())
        since, self._looked = self._looked, now
        started = 0
        for entry in self._entries:
            for moment in entry.moments(since, now):
                started += sum(self._claimed(graph, entry, moment) for graph in graphs)
        return started

    def _claimed(self, graph: Graph, entry: UpkeepEntry, moment: datetime) -> bool:
        graph.beside.delete_older(_FOLDER, _KEPT_S)
        name = f"{moment:%Y%m%dT%H%M}-{entry.kind}-{self._entries.index(entry)}"
        if not graph.beside.create(_FOLDER, name, b"{}"):
            return False
        job_id = str(ULID())
        shown = JobOutput(
            id=job_id, kind=entry.kind, state=QUEUED, actor_id=None, created_at=now_us()
        )
        self._start(graph, new_record(shown, entry.request(), f"job:{job_id}"))
        return True
