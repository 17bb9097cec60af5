"""Conflict resolution over HTTP: answers to conflicts, sent by entity until none is open.

Invariant: the answers are those that the caller's rule, mapping or function gives to the conflicts
that the server lists; one that has no answer is raised with all the others.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from omnigraph.errors import ApprovalsMissing, BadRequest, MergeConflict, MergeConflicts
from omnigraph.exec.merge.resolve import OURS, THEIRS, Answer, Resolve, answer_of
from omnigraph.exec.merge.run import MergeOutcome
from omnigraph.exec.merge.undo import UndoOutcome

Outcome = TypeVar("Outcome", MergeOutcome, UndoOutcome)

_TAKEN = {OURS: "target", THEIRS: "source"}
_ROUNDS = 10


Send = Callable[[list[dict[str, Any]]], Outcome]
"""Sends a request with answers to conflicts."""


def settled(send: Send[Outcome], resolve: Resolve, preview: Send[Outcome] | None = None) -> Outcome:
    """The outcome of a merge, a revert or its preview, sent again with answers as conflicts come
    up. `preview` tells the conflicts of a request that lacks approvals of its answers."""
    if isinstance(resolve, str) and resolve not in _TAKEN:
        raise BadRequest(f"'{resolve}' resolves nothing", "use ours, theirs, a mapping or a call")
    answers = _stated(resolve) if isinstance(resolve, Mapping) else {}
    for _ in range(_ROUNDS):
        try:
            outcome = send([_resolution(*each) for each in answers.items()])
        except MergeConflicts as open_:
            if not _add(answers, resolve, open_.conflicts):
                raise
        except ApprovalsMissing:
            if preview is None or answers or resolve is None:
                raise
            if not _add(answers, resolve, preview([]).conflicts):
                raise
        else:
            if not _add(answers, resolve, outcome.conflicts):
                return outcome
    raise BadRequest("the branches change faster than conflicts are answered", "try again")


def resolutions_of(resolve: Mapping[tuple[str, str], Answer]) -> list[dict[str, Any]]:
    """Return the answers of a mapping as a request sends them."""
    return [_resolution(*each) for each in _stated(resolve).items()]


def _stated(resolve: Mapping[tuple[str, str], Answer]) -> dict[tuple[str, str], Answer]:
    for entity in resolve:
        if not (isinstance(entity, tuple) and list(map(type, entity)) == [str, str]):
            raise BadRequest(f"{entity!r} names no entity", 'answer by ("Type", "id")')
    return {entity: answer for entity, answer in resolve.items() if answer is not None}


def _add(
    answers: dict[tuple[str, str], Answer],
    resolve: Resolve,
    conflicts: tuple[MergeConflict, ...],
) -> bool:
    """Answer what is open and was not asked before; whether that is any."""
    new: dict[tuple[str, str], Answer] = {}
    for each in conflicts:
        entity = each.type_name, each.entity_id or ""
        if each.entity_id is not None and entity not in answers:
            new[entity] = answer_of(resolve, each)
    new = {entity: answer for entity, answer in new.items() if answer is not None}
    answers.update(new)
    return bool(new)


def _resolution(entity: tuple[str, str], answer: Answer) -> dict[str, Any]:
    if isinstance(answer, Mapping):
        take: Any = dict(answer)
    elif answer in _TAKEN:
        take = _TAKEN[str(answer)]
    else:
        raise BadRequest(f"'{answer}' resolves nothing", "answer ours, theirs or properties")
    return {"type_name": entity[0], "entity_id": entity[1], "take": take}
