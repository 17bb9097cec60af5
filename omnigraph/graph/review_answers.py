"""Answers to conflicts as a plain mapping, so that approvals can name them (digest).

Invariant: a merge that was approved is made with the mapping that the digest was taken of, never
with a call or a mapping of the caller's own class, which could answer otherwise the next time.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from omnigraph.deferred import deferred
from omnigraph.errors import MergeConflict
from omnigraph.exec.schemas import Schemas
from omnigraph.graph.review_records import NO_ANSWERS, Resolutions
from omnigraph.storage.store import Store

if TYPE_CHECKING:
    from omnigraph.exec.merge.resolve import Answer, Resolve, answer_of
    from omnigraph.exec.merge.run import MergeRequest, run_merge
else:
    Answer = deferred("omnigraph.exec.merge.resolve", "Answer")
    Resolve = deferred("omnigraph.exec.merge.resolve", "Resolve")
    answer_of = deferred("omnigraph.exec.merge.resolve", "answer_of")
    MergeRequest = deferred("omnigraph.exec.merge.run", "MergeRequest")
    run_merge = deferred("omnigraph.exec.merge.run", "run_merge")


def previewed_answers(
    store: Store, schemas: Schemas, source: str, target: str, by: str, resolve: Resolve
) -> Resolutions:
    """Return the answers that `resolve` gives to the conflicts of a merge. A preview asks for them.

    Raises what the merge would raise: `BadRequest` for an answer to an entity without a conflict.
    """
    if resolve is None:
        return NO_ANSWERS
    given = _plain(resolve) if isinstance(resolve, Mapping) else resolve
    answers: dict[tuple[str, str], Any] = {}

    def asked(conflict: MergeConflict) -> Answer:
        answer = answer_of(given, conflict)
        if answer is not None and conflict.entity_id is not None:
            answers[conflict.type_name, conflict.entity_id] = answer
        return answer

    call: Callable[[MergeConflict], Answer] = asked
    passed = given if isinstance(given, Mapping) else call
    run_merge(store, schemas, MergeRequest(source, target, by=by, resolve=passed, dry_run=True))
    return given if isinstance(given, Mapping) else answers


def _plain(resolve: Mapping[tuple[str, str], Any]) -> Resolutions:
    """Return the answers that a mapping lists; those that it would make up are left out."""
    return {
        entity: dict(answer) if isinstance(answer, Mapping) else answer
        for entity, answer in resolve.items()
        if answer is not None
    }
