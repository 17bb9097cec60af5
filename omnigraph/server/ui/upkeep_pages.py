"""Recoveries and upkeep: audit rows, health of tables and indexes, storage counters.

Invariant: looking starts nothing. What a cleanup would remove is worked out only when asked for.
"""

from datetime import datetime, timedelta

from omnigraph.server.call import Answer, RouteCall
from omnigraph.server.job_records import JobRecords
from omnigraph.server.ui.ui_render import page
from omnigraph.server.upkeep_schedule import UpkeepEntry
from omnigraph.storage.names import MAIN
from omnigraph.types import parse_table_key

_RECOVERIES, _JOBS = 50, 10
_UPKEEP = ("optimize", "cleanup")


def upkeep(call: RouteCall) -> Answer:
    """What was recovered, how the tables are, and what storage was asked for."""
    call.only("cleanup", "before")
    head = call.graph.snapshot(MAIN)
    recoveries = call.graph.recoveries.list()
    start = min(call.number("before") or 0, len(recoveries))
    stats = call.graph.stats()
    keep = call.number("cleanup", least=1)
    entries = () if call.visit is None else call.visit.front.upkeep
    return page(
        call,
        "upkeep.html",
        section="upkeep",
        recoveries=recoveries[start : start + _RECOVERIES],
        older=start + _RECOVERIES if len(recoveries) > start + _RECOVERIES else None,
        tables=[
            {
                "kind": str(parse_table_key(key)[0]),
                "type": parse_table_key(key)[1],
                "rows": pin.row_count,
                "version": pin.version,
                "topology": head.topology.get(key),
            }
            for key, pin in sorted(head.tables.items())
        ],
        indexes=[
            {"reason": "", **each.to_json()} for each in call.graph.indexes(snapshot=head.commit_id)
        ],
        schedule=[{"text": each.text, "due": _next_moment(each)} for each in entries],
        jobs=[job for job in JobRecords(call.graph).list() if job.kind in _UPKEEP][:_JOBS],
        events=sorted(stats.events.items()),
        calls=sorted(stats.calls.items()),
        cache_bytes=call.graph.cache_bytes,
        cleanup=None if keep is None else call.graph.cleanup(keep=keep),
        keep=keep,
    )


def _next_moment(entry: UpkeepEntry) -> str:
    """When an entry of the schedule is due next, by the clock of the server."""
    now = datetime.now()
    moment = next(entry.moments(now, now + timedelta(days=8)))
    return f"{moment:%a %Y-%m-%d %H:%M}"
