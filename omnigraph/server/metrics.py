"""Prometheus metrics of all workers: counters and latency histograms, summed through files.

Invariant: a worker writes its own file and reads everybody's; the counters of a worker that died
stay in its file and in every sum. Gauges count only while their worker lives.
"""

import os
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

_HELP = {
    "omnigraph_requests_total": ("counter", "Requests by route and status."),
    "omnigraph_request_seconds": ("histogram", "Time to answer by route."),
    "omnigraph_commits_total": ("counter", "Commits published by this server."),
    "omnigraph_conflicts_total": ("counter", "Requests answered with 409 or 412."),
    "omnigraph_denials_total": ("counter", "Requests that were denied, by action."),
    "omnigraph_retries_total": ("counter", "Publishes that were raced and begun again."),
    "omnigraph_recoveries_total": ("counter", "Interrupted writes that were settled."),
    "omnigraph_cache_bytes": ("gauge", "Bytes kept in memory between queries."),
    "omnigraph_queue_depth": ("gauge", "Requests that wait for a thread."),
    "omnigraph_open_graphs": ("gauge", "Graphs that are open, by worker."),
    "omnigraph_jobs_running": ("gauge", "Jobs that have not ended."),
    "omnigraph_jobs_total": ("counter", "Jobs that ended, by kind and state."),
    "omnigraph_applied_kept": ("gauge", "Newer sets that cannot be used, by worker."),
    "omnigraph_workers": ("gauge", "Workers that are alive."),
}


class Metrics:
    """The metrics of one worker; `gauges` and `totals` are asked for when they are written."""

    def __init__(
        self,
        folder: Path | None,
        gauges: Callable[[], Mapping[str, float]],
        totals: Callable[[], Mapping[str, float]],
        worker: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self._path = None if folder is None else folder / f"metrics-{os.getpid()}.json"
        self._folder = folder
        self._gauges = gauges
        self._totals = totals
        self._worker = worker
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: dict[str, list[float]] = {}
        self._conflicts = 0.0
        self._denials: Counter[str] = Counter()
        self._lock = threading.Lock()

    def observe(self, route: str, status: int, seconds: float) -> None:
        """Count one request. Called by the event loop alone."""
        self._requests[route, status] += 1
        self._conflicts += status in (409, 412)
        series = self._seconds.get(route)
        if series is None:
            series = self._seconds[route] = [0.0] * (len(BUCKETS) + 2)
        index = bisect_left(BUCKETS, seconds)
        if index < len(BUCKETS):
            series[index] += 1
        series[-2] += seconds
        series[-1] += 1

    def denied(self, action: str) -> None:
        """Count one denial. Called by the event loop alone."""
        self._denials[action] += 1

    def write(self) -> None:
        """Leave the metrics of this worker where every worker sees them."""
        if self._path is None:
            return
        data = orjson.dumps(
            {
                "counters": self._counters(),
                "gauges": dict(self._gauges()),
                "worker": dict(self._worker()),
            }
        )
        with self._lock:
            draft = self._path.with_suffix(f".{threading.get_ident()}")
            draft.write_bytes(data)
            draft.replace(self._path)

    def workers(self) -> list[dict[str, Any]]:
        """What each live worker says of itself, this one first."""
        others = [document["worker"] for document, is_alive in self._others() if is_alive]
        return [dict(self._worker()), *others]

    def text(self) -> str:
        """The metrics of all workers, as Prometheus reads them."""
        counters: dict[str, float] = dict(self._counters())
        gauges: dict[str, float] = dict(self._gauges())
        workers = 1
        for document, is_alive in self._others():
            _add(counters, document["counters"])
            if is_alive:
                _add(gauges, document["gauges"])
                workers += 1
        return "".join(_lines({**counters, **gauges, "omnigraph_workers": workers}))

    def _counters(self) -> dict[str, float]:
        series: dict[str, float] = {}
        for (route, status), number in list(self._requests.items()):
            series[f'omnigraph_requests_total{{route="{route}",status="{status}"}}'] = number
        for route, values in list(self._seconds.items()):
            below: float = 0.0
            for bound, count in zip(BUCKETS, values, strict=False):
                below += count
                name = f'omnigraph_request_seconds_bucket{{route="{route}",le="{bound}"}}'
                series[name] = below
            name = f'omnigraph_request_seconds_bucket{{route="{route}",le="+Inf"}}'
            series[name] = values[-1]
            series[f'omnigraph_request_seconds_sum{{route="{route}"}}'] = values[-2]
            series[f'omnigraph_request_seconds_count{{route="{route}"}}'] = values[-1]
        series["omnigraph_conflicts_total"] = self._conflicts
        for action, number in list(self._denials.items()):
            series[f'omnigraph_denials_total{{action="{action}"}}'] = number
        series.update(self._totals())
        return series

    def _others(self) -> Iterator[tuple[Any, bool]]:
        if self._folder is None:
            return
        for path in self._folder.glob("metrics-*.json"):
            if path == self._path:
                continue
            try:
                document = orjson.loads(path.read_bytes())
            except (OSError, orjson.JSONDecodeError):
                continue
            yield document, _is_alive(int(path.stem.partition("-")[2]))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _add(total: dict[str, float], more: Mapping[str, float]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _lines(series: Mapping[str, float]) -> Iterator[str]:
    for family, (kind, about) in _HELP.items():
        names = [name for name in series if name.partition("{")[0].startswith(family)]
        if names:
            yield f"# HELP {family} {about}\n# TYPE {family} {kind}\n"
        for name in names:
            value = series[name]
            yield f"{name} {int(value) if value == int(value) else value}\n"
