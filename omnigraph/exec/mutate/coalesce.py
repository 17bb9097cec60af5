"""Group commit: concurrent mutations of one process that share one commit (coalescing).

    callers ─▶ queue of a lane ─▶ the first of them leads: all that wait, in order of arrival
                                  one write, one check of the rules, one commit
            ◀─ each its own counts and that commit, or its own error

A lane has mutations of one branch, actor, schema and kind: inserts and updates, or deletes. While a
leader commits, others queue; its successor takes them all. A window makes a leader wait first.

Invariant: nobody is answered before the publish. The rows are those of the mutations applied one
after the other in order of arrival. If the rules do not hold for all of a group together, each is
checked after those before it, and what one that is refused did is undone before the next.
"""

import copy
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace

from omnigraph.catalog.model import Catalog
from omnigraph.costs import COSTS
from omnigraph.errors import BadRequest, Refused
from omnigraph.exec.mutate.run import (
    MutationResult,
    Request,
    are_by_key,
    begun,
    result_of,
    run_mutation,
    run_statements,
)
from omnigraph.exec.mutate.staging import Staging
from omnigraph.exec.mutate.validate import validate
from omnigraph.plan import mutation_ir
from omnigraph.storage.locks.turns import Turn
from omnigraph.storage.retry import STRICT, change_budget
from omnigraph.storage.store import Store
from omnigraph.types import Kind

WINDOW_MS_MAX = 10_000

Outcome = MutationResult | Exception


def require_window(window_ms: int | None) -> None:
    """Pass only for a window that a caller could mean."""
    if window_ms is not None and not 0 <= window_ms <= WINDOW_MS_MAX:
        raise BadRequest(f"coalesce_ms is {window_ms}", f"pass 0 to {WINDOW_MS_MAX} milliseconds")


def shares_commit(asked: Request) -> bool:
    """Whether a mutation may share its commit: it says nothing that is about a commit of its
    own."""
    note = asked.note
    is_plain = asked.if_commit is None and asked.once is None and not asked.matches
    return is_plain and note.message is None and not note.metadata


def require_sharing(asked: Request) -> None:
    """Refuse a mutation that asks to be coalesced and for a commit of its own."""
    if not shares_commit(asked):
        raise BadRequest(
            "coalesce does not go with if_commit, once, message or metadata, which are about a "
            "commit of one mutation, nor with a match, which reads the graph before it",
            "pass one of them",
        )


@dataclass(slots=True, eq=False)
class _Waiting:
    """A mutation in the queue of its lane. `woken` is set when it has its outcome or leads."""

    asked: Request
    woken: threading.Event = field(default_factory=threading.Event)
    outcome: Outcome | None = None

    def answer(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.woken.set()


class Coalescer:
    """The lanes of one open graph. Safe to share between threads."""

    def __init__(self, store: Store, window_ms: int = 0) -> None:
        self._store = store
        self._window_s = window_ms / 1_000
        self._lock = threading.Lock()
        self._lanes: dict[Hashable, list[_Waiting]] = {}  # a lane that is here has a leader

    def run(self, catalog: Catalog, asked: Request) -> MutationResult:
        """Run a mutation together with those that wait; returns or raises after the publish."""
        lane, waiting = _lane(catalog, asked), _Waiting(asked)
        with self._lock:
            queue = self._lanes.get(lane)
            if queue is None:
                self._lanes[lane] = [waiting]
            else:
                queue.append(waiting)
        if queue is not None:
            waiting.woken.wait()
        if waiting.outcome is None:
            self._lead(lane, catalog)
        return _answered(waiting.outcome)

    def _lead(self, lane: Hashable, catalog: Catalog) -> None:
        """Answer the front of the queue, which the caller is part of, and hand the rest on."""
        if self._window_s:
            time.sleep(self._window_s)
        with self._lock:
            queue = self._lanes[lane]
            group = queue[: COSTS.coalesced_writes_max]
            del queue[: COSTS.coalesced_writes_max]
        try:
            outcomes = run_together(self._store, catalog, [each.asked for each in group])
            for waiting, outcome in zip(group, outcomes, strict=True):
                waiting.answer(outcome)
        except BaseException as stopped:
            lost = stopped if isinstance(stopped, Exception) else RuntimeError(repr(stopped))
            for waiting in group:
                waiting.answer(_copied(lost))
            if lost is not stopped:
                raise
        finally:
            self._hand_on(lane)

    def _hand_on(self, lane: Hashable) -> None:
        with self._lock:
            queue = self._lanes[lane]
            if queue:
                queue[0].woken.set()  # without an outcome: it leads
            else:
                del self._lanes[lane]


def _lane(catalog: Catalog, asked: Request) -> Hashable:
    deletes = any(isinstance(s, mutation_ir.DeleteRows) for s in asked.plan.statements)
    again = None if are_by_key(asked) else asked.retries
    return asked.branch, asked.note.actor, catalog.schema_id, deletes, again


def _answered(outcome: Outcome | None) -> MutationResult:
    assert outcome is not None
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _copied(error: Exception) -> Exception:
    """An error for another thread: a traceback grows where it is raised."""
    try:
        return copy.copy(error)
    except Exception:  # noqa: BLE001  an error of a library may not copy
        return error


# ---- one group


def run_together(store: Store, catalog: Catalog, group: Sequence[Request]) -> list[Outcome]:
    """Run mutations of one lane as one commit: the result or the refusal of each, in order. A lost
    race of all is raised, or the group is prepared again where each of them would be."""
    if len(group) == 1:
        return [_outcome(lambda: run_mutation(store, catalog, group[0]))]

    def attempt(turn: Turn | None = None) -> list[Outcome]:
        return _attempt(store, catalog, group, turn)

    first = group[0]
    tables = frozenset(s.table for asked in group for s in asked.plan.statements)
    kind = (first.branch, "coalesced", tables)
    if are_by_key(first):
        return store.turns.prepared_again(attempt, kind=kind)
    budget = change_budget(first.retries) if first.retries else STRICT
    return store.turns.prepared_again(attempt, budget=budget, kind=kind)


def _outcome(run: Callable[[], MutationResult]) -> Outcome:
    try:
        return run()
    except Exception as error:  # noqa: BLE001  raised again by the thread that asked
        return error


def _attempt(
    store: Store, catalog: Catalog, group: Sequence[Request], turn: Turn | None
) -> list[Outcome]:
    write = begun(store, catalog, group[0], turn=turn)
    staging = Staging(write, catalog, group[0].given)
    empty = staging.mark()
    outcomes = [_applied(staging, catalog, asked) for asked in group]
    if validate(staging).total:
        staging.reset(empty)
        outcomes = [_applied(staging, catalog, asked, alone=True) for asked in group]
    if not staging.changes_anything():
        return outcomes
    staging.stage()
    commit = store.commit(write)
    return [
        outcome
        if isinstance(outcome, Exception) or not _is_change(outcome)
        else replace(outcome, commit=commit)
        for outcome in outcomes
    ]


def _applied(staging: Staging, catalog: Catalog, asked: Request, *, alone: bool = False) -> Outcome:
    """Run one mutation into the pending rows; `alone` checks the rules behind it. One that is
    refused leaves nothing."""
    mark = staging.mark()
    staging.serve(asked.given)
    try:
        rounded = run_statements(staging, asked, None)
        if alone:
            validate(staging).require_none()
    except Refused as refusal:
        staging.reset(mark)
        return refusal
    nodes, edges = (staging.affected_since(mark, kind) for kind in (Kind.NODE, Kind.EDGE))
    return result_of(asked, nodes, edges, rounded, commit=None)


def _is_change(result: MutationResult) -> bool:
    return bool(result.affected_nodes or result.affected_edges)
