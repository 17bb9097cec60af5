"""Query on Spark: a task for each share of its nodes, the rest of the plan on the driver.

Invariant: the tasks run the plan that one process runs, against the one snapshot that the driver
chose, with its parameters and its moment. An executor keeps what it read for the next query, as a
process does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.errors import OmnigraphError, StorageFailed
from omnigraph.exec.limits import Limits
from omnigraph.exec.read.reading import Reading, now_ms
from omnigraph.exec.read.result import QueryResult
from omnigraph.exec.read.share import Share, ShareResult
from omnigraph.exec.read.union import united
from omnigraph.exec.search.embed import Provider
from omnigraph.exec.values.computed import cut_plan, given_of
from omnigraph.exec.values.constants import Given
from omnigraph.lru import Lru
from omnigraph.pipeline.executors import Executors, Where
from omnigraph.pipeline.session import session
from omnigraph.plan import ir
from omnigraph.plan.shares import in_shares
from omnigraph.storage.records import Snapshot
from omnigraph.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OPEN_MAX = 4


@dataclass(frozen=True, slots=True)
class Asked:
    """A read as a task gets it."""

    plan: ir.ReadPlan
    given: Given
    snapshot: Snapshot
    share: Share | None
    limits: Limits
    embedder: Provider | None


def query_on_spark(
    store: Store,
    reading: Reading,
    plan: ir.ReadPlan,
    params: Mapping[str, ir.Constant],
    snapshot: Snapshot,
    spark: "SparkSession | None",
) -> QueryResult:
    """The rows of a plan. One whose rows depend on each other before they are columns (a ranking),
    or that starts at nodes it names, is one task."""
    executors = Executors(store, spark or session(), "ran a query")
    given = given_of(plan, dict(params), now_ms())
    if plan.union is None:
        return _on_executors(executors, reading, plan, given, snapshot)
    parts = plan.union.parts
    return united(
        plan, [_on_executors(executors, reading, part, given, snapshot) for part in parts]
    )


def _on_executors(
    executors: Executors, reading: Reading, plan: ir.ReadPlan, given: Given, snapshot: Snapshot
) -> QueryResult:
    plan = cut_plan(plan, given)
    shares = None if reading.starts_at_points(plan) else in_shares(plan)
    count = 1 if shares is None else executors.parallelism
    asked = [
        Asked(
            plan if shares is None else shares.of_share,
            given,
            snapshot,
            None if shares is None else Share(number, count),
            reading.limits,
            reading.embedder,
        )
        for number in range(count)
    ]
    answers = [_or_raise(each) for each in executors.map(answer, asked)]
    if shares is None:
        return reading.whole(plan, snapshot, answers[0])
    return reading.gather(plan, shares, given, snapshot, answers)


def _or_raise(answer: ShareResult | OmnigraphError) -> ShareResult:
    if isinstance(answer, OmnigraphError):
        raise answer
    return answer


# In a task

_READINGS: Lru[tuple[str, str, Limits], Reading] = Lru(_OPEN_MAX)


def answer(where: Where, asked: Asked) -> ShareResult | OmnigraphError:
    """The answer of one share, or the error to raise on the driver."""
    reading = _reading(where, asked.limits)
    reading.embedder = asked.embedder
    try:
        return reading.answer(asked.plan, asked.given, asked.snapshot, asked.share)
    except StorageFailed:
        raise  # Another attempt may do better.
    except OmnigraphError as error:
        return error


def _reading(where: Where, limits: Limits) -> Reading:
    key = where.uri, repr(sorted((where.storage_options or {}).items())), limits
    reading = _READINGS.get(key)
    if reading is None:
        reading = Reading(where.open(), limits)
        for evicted in _READINGS.put(key, reading):
            evicted.close()
    return reading
