"""Checks of a merge: reads that must give no rows on the merged graph before it is published.

    heads ─▶ merge into a ─▶ run the checks ─▶ merge into the target,
    pinned   scratch branch  on it             with both heads named

A merge is a function of its two heads and its answers, so the scratch branch has what the target
will have, as long as neither head moves; if one does, nothing is published and all is done again.

Invariant: what is published is what the checks have read. The scratch branch is that of a
transaction: nobody lists it, and one that a dead process left is removed.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import orjson

from omnigraph.deferred import deferred
from omnigraph.errors import (
    BadRequest,
    ChecksFailed,
    FailedCheck,
    MergeConflict,
    OmnigraphError,
    PreconditionFailed,
)
from omnigraph.exec.merge.resolve import Answer, Resolve
from omnigraph.exec.merge.run import (
    ALREADY_UP_TO_DATE,
    CONFLICTS,
    MergeOutcome,
    MergeRequest,
    run_merge,
)
from omnigraph.exec.points import Points
from omnigraph.exec.read.reading import Reading
from omnigraph.exec.schemas import Schemas
from omnigraph.language.query.parser import parse_queries
from omnigraph.plan.compile import compile_query
from omnigraph.plan.ir import ReadPlan
from omnigraph.plan.params import bind_parameters
from omnigraph.storage.records import NO_NOTE, TRANSACTIONS
from omnigraph.storage.retry import CHECKED_MERGE, retried
from omnigraph.storage.store import Store

ULID = deferred("ulid", "ULID")

_ROWS_MAX = 20
_BYTES_MAX = 64 << 10


@dataclass(frozen=True, slots=True)
class MergeCheck:
    """One read of a text of queries, which must give no rows."""

    name: str
    text: str


def checks_of(text: str) -> tuple[MergeCheck, ...]:
    """Every query of a text as a check; each must be a read that can run without parameters."""
    queries = parse_queries(text).queries
    if not queries:
        raise BadRequest("the text of a check has no query", "write one")
    for query in queries:
        if query.is_mutation:
            raise writing_check(query.name.text)
    return tuple(MergeCheck(query.name.text, text) for query in queries)


def writing_check(name: str) -> BadRequest:
    """The refusal of a check that is a mutation."""
    return BadRequest(f"the check '{name}' writes", "a check is a read that gives no rows")


@dataclass(frozen=True, slots=True)
class CheckedMerges:
    """Merges of one open graph with checks."""

    store: Store
    schemas: Schemas
    reading: Reading

    def run(self, asked: MergeRequest, checks: Sequence[MergeCheck]) -> MergeOutcome:
        """Merge, or raise `ChecksFailed` with nothing of it visible."""
        if not checks or asked.source.strip() == asked.into.strip() or self._is_done(asked):
            return run_merge(self.store, self.schemas, asked)
        named = (asked.if_source, asked.if_target)

        def counts(loss: Exception) -> bool:
            return not (isinstance(loss, PreconditionFailed) and loss.expected in named)

        return retried(CHECKED_MERGE, lambda _: self._attempt(asked, checks), counts=counts)

    def _is_done(self, asked: MergeRequest) -> bool:
        """Whether an earlier merge `once` has this name: there is nothing to check any more."""
        return asked.once is not None and (
            self.store.marked(asked.into.strip(), asked.once) is not None
        )

    def _attempt(self, asked: MergeRequest, checks: Sequence[MergeCheck]) -> MergeOutcome:
        heads = (self.store.snapshot(each.strip()) for each in (asked.source, asked.into))
        source, target = (head.commit_id for head in heads)
        pinned = replace(
            asked,
            if_source=asked.if_source or source,
            if_target=asked.if_target or target,
            resolve=_remembered(asked.resolve),
        )
        if asked.dry_run:
            foreseen = run_merge(self.store, self.schemas, replace(pinned, once=None))
            if foreseen.kind not in (ALREADY_UP_TO_DATE, CONFLICTS):
                self._check(pinned, checks)
            return foreseen
        self._check(pinned, checks)
        return run_merge(self.store, self.schemas, pinned)

    def _check(self, pinned: MergeRequest, checks: Sequence[MergeCheck]) -> None:
        """Run the checks on the merged graph, in a branch for the length of this call."""
        scratch = f"{TRANSACTIONS}{ULID()}"
        with self.store.owned_branches.owned(scratch):
            Points(self.store).branch_from(scratch, pinned.if_target or pinned.into)
            try:
                if self._merge_into(scratch, pinned).kind == ALREADY_UP_TO_DATE:
                    return  # there is nothing that could be published
                failed = tuple(filter(None, (self._failed(scratch, each) for each in checks)))
            finally:
                # What ends the block is what the caller must see, whatever the branch does.
                with suppress(OmnigraphError):
                    self.store.branches.delete(scratch)
        if failed:
            raise ChecksFailed(pinned.source.strip(), pinned.into.strip(), failed)

    def _merge_into(self, scratch: str, pinned: MergeRequest) -> MergeOutcome:
        trial = replace(
            pinned,
            into=scratch,
            note=NO_NOTE,
            delete_source=False,
            progress=None,
            dry_run=False,
            once=None,
        )
        return run_merge(self.store, self.schemas, trial)

    def _failed(self, scratch: str, check: MergeCheck) -> FailedCheck | None:
        head = self.store.snapshot(scratch)
        plan = compile_query(check.text, self.schemas.of(head).catalog, check.name)
        if not isinstance(plan, ReadPlan):
            raise writing_check(check.name)
        rows = self.reading.run(plan, bind_parameters(plan.parameters, None), head)
        if not len(rows):
            return None
        return FailedCheck(check.name, len(rows), _first(rows[:_ROWS_MAX]))


def _first(rows: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """As many rows as an error may carry; the first one always."""
    shown: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        size += len(orjson.dumps(row, default=str))
        if shown and size > _BYTES_MAX:
            break
        shown.append(row)
    return tuple(shown)


def _remembered(resolve: Resolve) -> Resolve:
    """The same answers for the scratch branch and for the target: a call is asked once for each
    conflict."""
    if resolve is None or isinstance(resolve, str | Mapping):
        return resolve
    answers: dict[tuple[str, str, str | None], Answer] = {}
    ask: Callable[[MergeConflict], Answer] = resolve

    def answer(conflict: MergeConflict) -> Answer:
        key = conflict.entity_kind, conflict.type_name, conflict.entity_id
        if key not in answers:
            answers[key] = ask(conflict)
        return answers[key]

    return answer
