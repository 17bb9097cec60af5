"""Records of reviews: small JSON objects beside the graph, changed by compare-and-swap.

    __beside/reviews/<id>      source, target, author, comments, approvals, state

Invariant: every change is made of the record that it replaces, so of comments and approvals that
come at once none is lost. A record that is no review of this format is refused, never overwritten.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, replace
from hashlib import sha256
from typing import Any

import orjson

from omnigraph.costs import COSTS
from omnigraph.errors import NotFound, StorageFailed
from omnigraph.light_dataclass import dataclass
from omnigraph.storage.beside import BesideObjects
from omnigraph.storage.retry import REVIEW
from omnigraph.types import SchemaStep

OPEN, MERGED, CLOSED = "open", "merged", "closed"
STATES = (OPEN, MERGED, CLOSED)
_FOLDER = "reviews"
_FORMAT = 1
_SORTED = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS


@dataclass(frozen=True, slots=True)
class ReviewComment:
    """A comment on one entity, or on the whole review where `entity_id` is None.

    >>> name = graph.branches.create("idea")
    >>> review = graph.reviews.open("idea", title="Idea", actor="act-ada")
    >>> graph.reviews.comment(review.id, "Why?", actor="act-bob").comments[0].text
    'Why?'
    """

    author: str | None
    text: str
    created_at: int  # microseconds
    entity_kind: str | None = None
    type_name: str | None = None
    entity_id: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The comment as a server sends it."""
        document = {"author_id": self.author, "text": self.text, "created_at": self.created_at}
        if self.entity_id is None:
            return document
        return {
            **document,
            "entity_kind": self.entity_kind,
            "type_name": self.type_name,
            "entity_id": self.entity_id,
        }


Resolutions = Mapping[tuple[str, str], Any]
"""Answers to conflicts by type and id: `ours`, `theirs` or values."""

NO_ANSWERS: Resolutions = {}


def approval_digest(
    source_commit: str,
    target: str,
    resolutions: Resolutions,
    steps: Collection[SchemaStep] = (),
) -> str:
    """Return the SHA-256 digest of what a merge publishes: the source's commit, the name of the
    target, the answers to conflicts, and the changes of the target's schema."""
    answers = [[*entity, resolutions[entity]] for entity in sorted(resolutions)]
    facts: list[Any] = [source_commit, target, answers]
    if steps:
        facts.append([step.text for step in steps])
    document = orjson.dumps(facts, default=str, option=_SORTED)
    return sha256(document).hexdigest()


@dataclass(frozen=True, slots=True)
class ReviewApproval:
    """An approval of the source as it was at one commit, and of answers to conflicts.

    >>> name = graph.branches.create("fix")
    >>> review = graph.reviews.open("fix", title="Fix", actor="act-ada")
    >>> graph.reviews.approve(review.id, actor="act-bob").approvals[0].actor
    'act-bob'
    """

    actor: str
    source_commit: str
    created_at: int  # microseconds
    is_current: bool = True  # whether the source is still there; computed, never stored
    digest: str | None = None  # None: stored by an earlier program, for a merge without answers
    resolutions: int = 0  # how many answers it covers

    def to_json(self) -> dict[str, Any]:
        """The approval as a server sends it."""
        return {
            "actor_id": self.actor,
            "source_commit_id": self.source_commit,
            "created_at": self.created_at,
            "is_current": self.is_current,
            "resolutions": self.resolutions,
        }

    def covers(self, digests: Collection[str], head: str | None) -> bool:
        """Return whether it is an approval of one of these digests. One that an earlier program
        stored without a digest covers merges of the commit `head` without answers."""
        if self.digest is None:
            return self.source_commit == head
        return self.digest in digests


@dataclass(frozen=True, slots=True)
class Review:
    """A review of what a merge of one branch into another would bring.

    `source_commit` is the head of the source, None once it is deleted; approvals of another commit
    have lapsed. `required_approvals` is the number that the policy demands; `schema_steps` is how
    the merge of an open review would change the schema of its target; `commit_id` is the merge,
    None where the target had everything.

    >>> name = graph.branches.create("proposal")
    >>> review = graph.reviews.open("proposal", title="Prices", actor="act-ada")
    >>> review.state, review.title
    ('open', 'Prices')
    """

    id: str
    source: str
    target: str
    title: str
    text: str
    author: str | None
    created_at: int  # microseconds
    state: str = OPEN
    comments: tuple[ReviewComment, ...] = ()
    approvals: tuple[ReviewApproval, ...] = ()
    ended_by: str | None = None
    ended_at: int | None = None
    commit_id: str | None = None
    source_commit: str | None = None  # this one and the next two: computed, never stored
    required_approvals: int = 0
    schema_steps: tuple[SchemaStep, ...] = ()

    @property
    def mark(self) -> str:
        """The name of its merge, of which a target has one at most."""
        return f"review:{self.id}"

    def to_json(self) -> dict[str, Any]:
        """The review as a server sends it."""
        return {
            "id": self.id,
            "source": self.source,
            "target": self.target,
            "title": self.title,
            "text": self.text,
            "author_id": self.author,
            "created_at": self.created_at,
            "state": self.state,
            "source_commit_id": self.source_commit,
            "required_approvals": self.required_approvals,
            **(
                {"schema_steps": [s.to_json() for s in self.schema_steps]}
                if self.schema_steps
                else {}
            ),
            "approvals": [each.to_json() for each in self.approvals],
            "comments": [each.to_json() for each in self.comments],
            "ended_by": self.ended_by,
            "ended_at": self.ended_at,
            "merge_commit_id": self.commit_id,
        }

    def ended(
        self, state: str, actor: str | None, commit_id: str | None = None, moment: int | None = None
    ) -> "Review":
        """This review, merged or closed."""
        return replace(
            self,
            state=state,
            ended_by=actor,
            ended_at=now_us() if moment is None else moment,
            commit_id=commit_id,
        )


def now_us() -> int:
    """Microseconds since the epoch."""
    return time.time_ns() // 1000


class ReviewRecords:
    """The reviews of one graph."""

    def __init__(self, beside: BesideObjects) -> None:
        self._beside = beside
        self._ended: set[str] = set()  # an ended review is never open again

    def create(self, review: Review) -> None:
        """Store a new review."""
        if not self._beside.create(_FOLDER, review.id, _encoded(review)):
            raise StorageFailed(f"stored the review {review.id}", "there is one of that id")

    def get(self, review_id: str) -> Review:
        """One review as it is stored, or `NotFound`."""
        return self._read(review_id)[0]

    def all(self, before: str | None = None) -> Iterator[Review]:
        """Every review, newest first, each read when it is asked for; or those older than one."""
        for name in self._names(before):
            data = self._beside.get(_FOLDER, name)
            if data is not None:
                yield self._noted(_decoded(name, data))

    def open(self, before: str | None = None) -> Iterator[Review]:
        """The reviews that are open, as `all` gives them; those known to have ended are not read
        again."""
        for name in self._names(before):
            data = None if name in self._ended else self._beside.get(_FOLDER, name)
            if data is not None and (review := self._noted(_decoded(name, data))).state == OPEN:
                yield review

    def _names(self, before: str | None) -> list[str]:
        names = self._beside.names(_FOLDER)
        return sorted((n for n in names if before is None or n < before), reverse=True)

    def change(self, review_id: str, decide: Callable[[Review], Review]) -> Review:
        """Replace a review by what `decide` makes of it, decided again when another came first."""
        for _ in range(REVIEW.attempts):
            review, data = self._read(review_id)
            changed = decide(review)
            if changed == review:
                return review
            if self._beside.swap(_FOLDER, review_id, _encoded(changed), data):
                return self._noted(changed)
        raise StorageFailed(f"changed the review {review_id}", "others change it all the time")

    def _read(self, review_id: str) -> tuple[Review, bytes]:
        data = self._beside.get(_FOLDER, review_id) if is_review_id(review_id) else None
        if data is None:
            raise NotFound("review", review_id[:80])
        return self._noted(_decoded(review_id, data)), data

    def _noted(self, review: Review) -> Review:
        if review.state != OPEN and len(self._ended) < COSTS.ended_reviews_max:
            self._ended.add(review.id)
        return review


def is_review_id(text: str) -> bool:
    """Whether a text can be the id of a review."""
    return text.isascii() and text.isalnum() and len(text) <= 40


def _encoded(review: Review) -> bytes:
    facts: dict[str, Any] = {"format": _FORMAT, **asdict(review)}
    for computed in ("source_commit", "required_approvals", "schema_steps"):
        del facts[computed]
    for approval in facts["approvals"]:
        del approval["is_current"]
    return orjson.dumps(facts, option=orjson.OPT_INDENT_2)


def _decoded(review_id: str, data: bytes) -> Review:
    try:
        facts: dict[str, Any] = orjson.loads(data)
        if facts.pop("format") != _FORMAT:
            raise ValueError("it has a format of a newer program")
        facts["comments"] = tuple(ReviewComment(**each) for each in facts["comments"])
        facts["approvals"] = tuple(ReviewApproval(**each) for each in facts["approvals"])
        return Review(**facts)
    except (ValueError, TypeError, KeyError, AttributeError) as cause:
        raise StorageFailed(f"read the review {review_id}", str(cause)) from None
