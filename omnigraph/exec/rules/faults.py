"""Faults of an input: every violation counted, the first few of each rule listed.

Invariant: merging the faults of the parts of an input, in any order, gives the faults of the whole.
Lines count from 1 in a file; `part` says which part of the input a line belongs to.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from omnigraph.errors import ConstraintViolated, KeyTaken, LimitExceeded, OmnigraphError, Violation

LISTED_MAX = 20
EXAMPLES_MAX = 3
"""Faults of one kind that are listed, each with another text."""

TAKEN = "id"
"""The rule of an id that is in use: its own error when nothing else is wrong."""

LIMITS = {
    "line_bytes": ("graph_batch_line_bytes", 32 << 20),
    "line_tokens": ("graph_batch_json_structural_slots", 131_072),
}
"""Limits of one line: the rule, the resource's name on the wire, and how much is allowed."""


FaultKind = tuple[str, str, str]
"""Rule, type and property of a violation."""

Example = tuple[int, Violation]
"""A violation, after its part of the input."""


@dataclass(frozen=True, slots=True)
class Reject:
    """One bad record, as it is written to a folder of rejects."""

    part: int
    violation: Violation
    record: str | None = None


@dataclass(slots=True)
class Faults:
    """Faults of one part of an input, or of several."""

    keep_rejects: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[FaultKind, list[Example]] = field(default_factory=dict)
    rejects: list[Reject] = field(default_factory=list)
    kinds: Counter[FaultKind] = field(default_factory=Counter)
    unread: set[str] = field(default_factory=set)  # types of records that became no row

    def __bool__(self) -> bool:
        return bool(self.counts)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def add_unread(self, part: int, violation: Violation, record: str | None = None) -> None:
        """One more fault, of a record that becomes no row."""
        self.unread.add(violation.type_name)
        self.add(part, violation, record)

    def add(self, part: int, violation: Violation, record: str | None = None) -> None:
        """One more fault."""
        self.count(violation, 1)
        self.offer(part, violation)
        if self.keep_rejects:
            self.rejects.append(Reject(part, violation, record))

    def add_many(self, part: int, violations: Sequence[Violation], total: int) -> None:
        """Several faults of one rule, `total` in all, of which `violations` are listed."""
        if not total:
            return
        self.counts[violations[0].rule] += total
        self.kinds.update(violation.kind() for violation in violations)
        self.kinds[violations[0].kind()] += total - len(violations)
        for violation in violations:
            self.offer(part, violation)
            if self.keep_rejects:
                self.rejects.append(Reject(part, violation))

    def merge(self, other: "Faults") -> None:
        """Take in the faults of another part."""
        self.counts.update(other.counts)
        self.kinds.update(other.kinds)
        for part, violation in other.listed():
            self.offer(part, violation)
        self.rejects.extend(other.rejects)
        self.unread |= other.unread

    def offer(self, part: int, violation: Violation) -> None:
        """List a violation that is counted already, if it is among the first of its kind."""
        kept = self.examples.setdefault(violation.kind(), [])
        if len(kept) == EXAMPLES_MAX and _sort_key(part, violation) >= _sort_key(*kept[-1]):
            return
        # Of violations that read alike the first is listed.
        offered = sorted([*kept, (part, violation)], key=lambda each: _sort_key(*each))
        distinct: dict[str, Example] = {}
        for each in offered:
            distinct.setdefault(each[1].text, each)
        kept[:] = islice(distinct.values(), EXAMPLES_MAX)

    def listed(self) -> list[Example]:
        """The first violations of each kind."""
        return [each for kept in self.examples.values() for each in kept]

    def count(self, violation: Violation, number: int) -> None:
        """So many more of the kind of a violation, without where they are."""
        self.counts[violation.rule] += number
        self.kinds[violation.kind()] += number

    def located(self, files: Sequence[str | None], first_lines: Sequence[int] = ()) -> "Faults":
        """The same faults with the file of each part, and lines counted from its beginning.

        `first_lines` says how many lines of a part's file lie before the part.
        """

        def locate(part: int, violation: Violation) -> Violation:
            if violation.line is None:
                return violation
            before = first_lines[part] if first_lines else 0
            file = violation.file or (files[part] if part < len(files) else None)
            return replace(violation, file=file, line=violation.line + before)

        return self._each(locate)

    def named_by_id(self) -> "Faults":
        """The same faults of rows that have no lines: each is named by its id, where it has one."""

        def name(part: int, violation: Violation) -> Violation:
            is_named = violation.id is None or violation.id in violation.text
            text = violation.text if is_named else f"{violation.text}, of id '{violation.id}'"
            return replace(violation, text=text, file=None, line=None)

        return self._each(name)

    def in_rows(self) -> "Faults":
        """The same faults of a table, which has rows and no lines."""
        return self._each(lambda part, violation: replace(violation, unit="row"))

    def _each(self, locate: Callable[[int, Violation], Violation]) -> "Faults":
        return Faults(
            self.keep_rejects,
            self.counts,
            self.examples_as(locate),
            [Reject(r.part, locate(r.part, r.violation), r.record) for r in self.rejects],
            self.kinds,
        )

    def examples_as(
        self, locate: Callable[[int, Violation], Violation]
    ) -> dict[FaultKind, list[Example]]:
        """The examples with each violation as `locate` has it."""
        return {
            kind: [(part, locate(part, violation)) for part, violation in kept]
            for kind, kept in self.examples.items()
        }

    def error(self) -> OmnigraphError:
        """The error that the caller of a load sees."""
        firsts = _in_order(kept[0] for kept in self.examples.values())
        for violation in firsts:
            if violation.rule in LIMITS:
                return _limit(violation)
        if set(self.counts) == {TAKEN}:
            taken = firsts[0]
            kind = taken.text.partition(" ")[0]
            return KeyTaken(kind, taken.type_name, taken.id or "")
        folded = tuple((each, self.kinds[each.kind()]) for each in firsts[:LISTED_MAX])
        counts = tuple(sorted(self.counts.items()))
        return ConstraintViolated(self._violations(), self.total, counts, folded)

    def _violations(self) -> tuple[Violation, ...]:
        """The first of each kind, and others of theirs while there is room."""
        ranked = [
            (rank, *each) for kept in self.examples.values() for rank, each in enumerate(kept)
        ]
        ranked.sort(key=lambda each: (each[0] > 0, _sort_key(each[1], each[2])))
        return tuple(_in_order((part, each) for _, part, each in ranked[:LISTED_MAX]))


def _sort_key(part: int, violation: Violation) -> tuple[int, int, str]:
    return part, violation.line or 0, violation.text


def _in_order(examples: Iterable[Example]) -> list[Violation]:
    return [violation for _, violation in sorted(examples, key=lambda each: _sort_key(*each))]


def _limit(violation: Violation) -> LimitExceeded:
    resource, limit = LIMITS[violation.rule]
    hint = f"line {violation.line} of {violation.file or 'the input'} is too long; split the record"
    return LimitExceeded(resource, int(violation.value or 0), limit, hint)


def merged(parts: Iterable[Faults], *, keep_rejects: bool = False) -> Faults:
    """The faults of several parts together."""
    whole = Faults(keep_rejects)
    for part in parts:
        whole.merge(part)
    return whole
