"""Error classes: every failure a caller can see, cut by what the caller does next.

OmnigraphError
├── SourceError        fix the text             ParseError, TypeCheckError (both carry a position)
├── Refused            change the request       BadRequest, NotFound, UnknownPoint,
│   │                                           AmbiguousPoint, AlreadyExists, InUse,
│   │                                           LimitExceeded, ConstraintViolated,
│   │                                           ExpressionFailed,
│   │                                           ExternalBlobDenied, ExternalBlobUnreadable,
│   │                                           MigrationUnsupported, UnsupportedVersion,
│   │                                           GraphMoved, GraphClosed, NotRevertible,
│   │                                           SchemaDiffers, Forbidden, ApprovalsMissing,
│   │                                           OwnReview, PolicyInvalid, Unauthenticated,
│   │                                           NotServed
│   └── Reclaimed      read something newer     ChangeFeedGap, ConsumerLapsed
├── Conflict           prepare again, or stop   VersionMismatch, KeyTaken, PreconditionFailed,
│                                               SchemaChanged, SchemaHeld, MergeConflicts,
│                                               ChecksFailed, ReviewEnded, NoChanges
├── NotInstalled       install what it names
├── EmbeddingFailed    look at the provider, then repeat
├── ServerBusy         wait, then repeat
├── ServerUnreachable  look at the network; it says whether a write may have been done
├── RecoveryRequired   recover, then look
└── StorageFailed      report it; it says so where nothing was published

Invariant: fields carry the facts, survive pickling and decide equality; the message is derived
from them.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import field, fields, replace
from itertools import groupby
from typing import Any, Self

from omnigraph.light_dataclass import dataclass
from omnigraph.types import Span, TableKey, columns_of


@dataclass(eq=False)
class OmnigraphError(Exception):
    """The root of every error this package raises on purpose.

    >>> issubclass(og.NotFound, og.OmnigraphError)
    True
    """

    @property
    def fact(self) -> str:
        """The fault alone, for a report that gives its own advice."""
        return str(self)

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions pickle by `args`, which a dataclass leaves empty; Spark workers raise these.
        return _rebuild, (type(self), self._facts())

    def __eq__(self, other: object) -> bool:
        """Return whether another error is of the same class with the same facts."""
        if type(other) is not type(self):
            return NotImplemented
        return self._facts() == other._facts()

    def __hash__(self) -> int:
        return hash((type(self), str(self)))  # facts may be dictionaries

    def _facts(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}


def _rebuild(kind: type[OmnigraphError], facts: dict[str, Any]) -> OmnigraphError:
    return kind(**facts)


def _shortened(text: str, chars: int = 200) -> str:
    return text if len(text) <= chars else text[: chars - 1] + "…"


def _with_hint(text: str, hint: str) -> str:
    return f"{text}; {hint}" if hint else text


# Source text


@dataclass(eq=False)
class SourceError(OmnigraphError):
    """Source text that cannot be used. Lines and columns count from 1, bytes from 0.

    >>> issubclass(og.ParseError, og.SourceError)
    True
    """

    text: str
    code: str | None
    line: int
    column: int
    byte_span: tuple[int, int]
    excerpt: str
    hint: str = ""

    prefix = "error"

    @classmethod
    def at(
        cls, source: str, span: Span, text: str, *, code: str | None = None, hint: str = ""
    ) -> Self:
        """The error that points at `span` of `source`."""
        start = min(span.start, len(source))
        end = max(min(span.end, len(source)), start)
        line_start = source.rfind("\n", 0, start) + 1
        first_byte = len(source[:start].encode("utf-8", "surrogatepass"))
        width = len(source[start:end].encode("utf-8", "surrogatepass"))
        line = source.count("\n", 0, start) + 1
        return cls(
            text=text,
            code=code,
            line=line,
            column=start - line_start + 1,
            byte_span=(first_byte, first_byte + max(width, 1)),
            excerpt=_excerpt(source, line, line_start, start, end),
            hint=hint,
        )

    @property
    def headline(self) -> str:
        """The message on one line, without position and excerpt."""
        return f"{self.prefix}: {self.text}"

    def __str__(self) -> str:
        help_line = f"\nhelp: {self.hint}" if self.hint else ""
        return (
            f"{self.headline} (line {self.line}, column {self.column})\n{self.excerpt}{help_line}"
        )


_EXCERPT_COLUMNS = 120


def _excerpt(source: str, line: int, line_start: int, start: int, end: int) -> str:
    """The source line with carets under the piece that is wrong."""
    line_end = source.find("\n", start)
    if line_end < 0:
        line_end = len(source)
    # A generated one-line file must not fill the terminal: show a window around the place.
    fits = line_end - line_start <= _EXCERPT_COLUMNS
    window_start = line_start if fits else max(line_start, start - _EXCERPT_COLUMNS // 2)
    window_end = min(line_end, window_start + _EXCERPT_COLUMNS)
    shown = source[window_start:window_end].rstrip("\r")
    before, wrong = source[window_start:start], source[start : min(end, window_end)]
    margin = "".join("\t" if char == "\t" else " " * columns_of(char) for char in before)
    carets = "^" * max(1, sum(map(columns_of, wrong)))
    number = str(line)
    gutter = " " * len(number)
    return f"{number} | {shown}\n{gutter} | {margin}{carets}"


# Faults of a schema as a whole, which its grammar cannot see.
CATALOG_CODES = frozenset({"duplicate", "unknown-type", "edge-name-collision", "reserved-name"})


@dataclass(eq=False)
class ParseError(SourceError):
    """Text that is not in the language, or a schema whose declarations do not fit together.

    >>> try:
    ...     graph.query("query q( {")
    ... except og.ParseError as error:
    ...     error.line, error.column
    (1, 10)
    """

    @property
    def headline(self) -> str:
        """The message on one line, which says whether syntax or the whole is at fault."""
        if self.code == "D2":
            return self.text
        prefix = "catalog error" if self.code in CATALOG_CODES else "parse error"
        return f"{prefix}: {self.text}"


@dataclass(eq=False)
class TypeCheckError(SourceError):
    """A query that the schema does not allow. `code` is T1 to T24, or None.

    >>> try:
    ...     graph.query("query q() { match { $p: Persn } return { $p.name } }")
    ... except og.TypeCheckError as error:
    ...     error.code, error.hint
    ('T1', "did you mean 'Person'?")
    """

    @property
    def headline(self) -> str:
        """The message on one line, with the rule that was broken."""
        return f"type error: {self.code}: {self.text}" if self.code else f"type error: {self.text}"


# The request


@dataclass(eq=False)
class Refused(OmnigraphError):
    """The request cannot be served as it stands.

    >>> issubclass(og.NotFound, og.Refused)
    True
    """


@dataclass(eq=False)
class BadRequest(Refused):
    """A value, name or combination of arguments that makes no sense.

    >>> print(og.BadRequest("'9' is no engine", "use auto, local or spark"))
    '9' is no engine; use auto, local or spark
    """

    text: str
    hint: str = ""
    unknown: tuple[str, ...] = ()  # parameters that the query does not declare

    def __str__(self) -> str:
        return _with_hint(self.text, self.hint)


@dataclass(eq=False)
class NotFound(Refused):
    """A graph, branch, commit or other named thing that is not there.

    >>> try:
    ...     graph.entity("node", "Person", "Nobody")
    ... except og.NotFound as error:
    ...     print(error)
    node Person 'Nobody' not found
    """

    kind: str
    name: str
    hint: str = ""

    def __str__(self) -> str:
        return _with_hint(f"{self.kind} '{self.name}' not found", self.hint)


@dataclass(eq=False)
class UnknownPoint(NotFound):
    """A text that names no branch, tag or commit. `near` are names and ids that resemble it.

    >>> try:
    ...     graph.commits.get("mian")
    ... except og.UnknownPoint as error:
    ...     error.near
    ('main',)
    """

    near: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = super().__str__()
        return _with_hint(text, f"did you mean {_either(self.near)}?") if self.near else text


@dataclass(eq=False)
class AmbiguousPoint(Refused):
    """The beginning of several commit ids. `candidates` are the first of them.

    >>> og.AmbiguousPoint("01M7", ("01M7JF", "01M7JH")).candidates
    ('01M7JF', '01M7JH')
    """

    name: str
    candidates: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"'{self.name}' is the beginning of several commits: {_either(self.candidates)}; "
            "give more of the id"
        )


def _either(names: tuple[str, ...]) -> str:
    quoted = [f"'{name}'" for name in names]
    return " or ".join(filter(None, (", ".join(quoted[:-1]), quoted[-1])))


@dataclass(eq=False)
class Reclaimed(Refused):
    """Old data that cleanup removed, or that is missing on disk. Newer data is whole.

    `kind` is `commit` with the commit's id as `name`, or `version` or `data` with a description.
    Where it is known, `branch` is the branch whose history was read, and `oldest` the id of the
    oldest commit there that can still be read. Over HTTP this is 410.

    >>> og.Reclaimed("commit", "01M7JF", "main", "01M7JH").oldest
    '01M7JH'
    """

    kind: str
    name: str
    branch: str | None = None
    oldest: str | None = None

    @property
    def subject(self) -> str:
        """What was removed, in words."""
        return f"commit '{self.name}'" if self.kind == "commit" else f"{self.kind} {self.name}"

    @property
    def fact(self) -> str:
        """The fault alone, without the advice."""
        return f"{self.subject} is not there any more"

    @property
    def still_readable(self) -> str:
        """Advice: what of the same history can be read."""
        if self.oldest is None or self.branch is None:
            return "read a branch or a newer commit"
        return (
            f"the oldest commit of branch '{self.branch}' that can be read is '{self.oldest}'; "
            "read that, a newer one or the branch"
        )

    def __str__(self) -> str:
        return (
            f"{self.subject} was reclaimed and cannot be read any more: cleanup removed data it "
            f"needs; {self.still_readable} (`omnigraph check` tells whether anything is missing "
            "that is needed)"
        )


@dataclass(eq=False)
class ChangeFeedGap(Reclaimed):
    """Changes of a commit that cleanup reclaimed, or that need a commit it reclaimed.

    `cursor` is the one that was given, so that a consumer that stores cursors can drop it.

    >>> og.ChangeFeedGap("commit", "01M7JF", "main", "01M7JH", "cursor").cursor
    'cursor'
    """

    cursor: str | None = None

    @property
    def first_unreadable_commit_id(self) -> str:
        """The first commit whose changes are lost."""
        return self.name

    def __str__(self) -> str:
        return (
            f"the changes of {self.subject} can no longer be read: cleanup reclaimed data they "
            f"need; {self.still_readable}, or take a baseline and go on from its cursor"
        )


@dataclass(eq=False)
class ConsumerLapsed(ChangeFeedGap):
    """A registered feed consumer that fell behind its largest lag: its claim ended, and cleanup
    removed commits that it had not acknowledged.

    >>> issubclass(og.ConsumerLapsed, og.ChangeFeedGap)
    True
    """

    consumer: str = field(kw_only=True)
    acknowledged: str = field(kw_only=True)
    lost_commits: int = field(kw_only=True)
    max_lag: str = field(kw_only=True)

    def __str__(self) -> str:
        return (
            f"the feed consumer '{self.consumer}' fell behind its largest lag ({self.max_lag}) and "
            f"lost its claim: it acknowledged '{self.acknowledged}', and {self.lost_commits} "
            f"commit(s) from '{self.first_unreadable_commit_id}' on can no longer be read one by "
            f"one; take a baseline with consumer='{self.consumer}' and acknowledge its cursor "
            f"(`omnigraph changes baseline --consumer {self.consumer} --out FILE`)"
        )


@dataclass(eq=False)
class GraphMoved(Refused):
    """A graph whose folder was moved or copied as plain files: its branches name files at the
    address where they were made.

    >>> og.GraphMoved("copy.omni", "people.omni").recorded
    'people.omni'
    """

    uri: str
    recorded: str

    @property
    def fact(self) -> str:
        """The fault alone, without the advice."""
        return (
            f"the graph at {self.uri} was moved or copied as files, and its branches still name "
            f"files below {self.recorded}"
        )

    def __str__(self) -> str:
        return (
            f"{self.fact}; make a copy that is whole with `omnigraph backup "
            f"{self.uri} NEW`, and use that one"
        )


@dataclass(eq=False)
class GraphClosed(Refused):
    """A call on a graph that was closed. Nothing was read or written.

    >>> closed = og.open("people.omni")
    >>> closed.close()
    >>> try:
    ...     closed.snapshot()
    ... except og.GraphClosed as error:
    ...     error.uri == closed.uri
    True
    """

    uri: str

    def __str__(self) -> str:
        is_served = self.uri.startswith(("http://", "https://"))
        again = "connect again: omnigraph.connect" if is_served else "open it again: omnigraph.open"
        return f"the graph '{self.uri}' was closed; {again}({self.uri!r})"


@dataclass(eq=False)
class AlreadyExists(Refused):
    """A name that is taken. Nothing was changed.

    >>> try:
    ...     og.init("people.omni", schema="node City { name: String @key }")
    ... except og.AlreadyExists as error:
    ...     error.kind
    'graph'
    """

    kind: str
    name: str
    hint: str = ""

    def __str__(self) -> str:
        return _with_hint(f"{self.kind} '{self.name}' already exists", self.hint)


@dataclass(eq=False)
class InUse(Refused):
    """A deletion refused because another branch, or a tag, depends on its target. Nothing was
    changed.

    >>> og.InUse("branch", "review", "draft", "branch").by
    'draft'
    """

    kind: str
    name: str
    by: str
    by_kind: str = ""  # the same as `kind`, unless it says another

    def __str__(self) -> str:
        if self.by_kind:
            return (
                f"cannot delete {self.kind} '{self.name}' because {self.by_kind} '{self.by}' names "
                f"a commit of it; delete the {self.by_kind} first, or keep the {self.kind}"
            )
        return (
            f"cannot delete {self.kind} '{self.name}' because descendant {self.kind} '{self.by}' "
            "still depends on it"
        )


QUERY_TIME = "query time in ms"
"""The resource of a query that ran past its deadline, as `LimitExceeded` begins it."""


@dataclass(eq=False)
class LimitExceeded(Refused):
    """More than a limit allows. Checked before any effect.

    >>> og.LimitExceeded("query_rows", 11, 10).limit
    10
    """

    resource: str
    actual: int
    limit: int
    hint: str = ""

    @property
    def is_deadline(self) -> bool:
        """Whether the limit is the time that a query may take."""
        return self.resource.startswith(QUERY_TIME)

    def __str__(self) -> str:
        text = (
            f"resource limit exceeded for {self.resource}: actual {self.actual}, limit {self.limit}"
        )
        return _with_hint(text, self.hint or "send less at a time, or raise the limit")


@dataclass(eq=False)
class ExpressionFailed(Refused):
    """An expression that has no value for a row: an overflow, a division by zero, a cast.

    >>> og.ExpressionFailed("division_by_zero", "$p.age / 0", 1).reason
    'division_by_zero'
    """

    reason: str
    expression: str
    row: str

    def __str__(self) -> str:
        text = f"{self.reason} in {_shortened(self.expression)}, for {self.row}"
        return _with_hint(text, "leave such rows out with a condition, or use case when")


_COUNTED = {"endpoint": "missing ends", "cardinality": "sources"}
"""What is counted by rules that are not asked of each row."""

_SHOWN_MAX = 3
"""Violations of one rule that a message shows, where they read differently."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One rule broken by one value. Data that came in bulk says where: `line` is the number of a
    line, or of a row of a table, as `unit` says.

    >>> og.Violation("range", "Person", "age", "Ada", "-1", "Person.age is below 0").property
    'age'
    """

    rule: str
    type_name: str
    property: str | None
    id: str | None
    value: str | None
    text: str
    file: str | None = None
    line: int | None = None
    unit: str = "line"

    def __post_init__(self) -> None:
        # Escapes of JSON can spell half a surrogate pair, which no answer and no file can hold.
        for name in ("type_name", "property", "id", "value", "text", "file"):
            said = getattr(self, name)
            if said is not None and not said.isascii():
                spelled = said.encode("utf-8", "backslashreplace").decode()
                object.__setattr__(self, name, spelled)

    def __str__(self) -> str:
        if self.line is None:
            return self.text
        return f"{self._where()}: {self.text}"

    def _where(self) -> str:
        return f"{self.unit} {self.line}" if self.file is None else f"{self.file}:{self.line}"

    def folded(self, count: int, others: Iterable[Self] = ()) -> str:
        """This violation for so many of its rule, of which it is the first; `others` are shown
        where they read differently."""
        if count == 1:
            return str(self)
        noun = _COUNTED.get(self.rule, "rows")
        distinct = {self.text: self}
        for each in others:
            distinct.setdefault(each.text, each)
        shown = list(distinct.values())[:_SHOWN_MAX]
        if len(shown) == 1:
            first = self._named()
            return f"{count} {noun}: {self.text}" + (f"; first: {first}" if first else "")
        texts = [f"{each.text} ({each._named()})" if each._named() else each.text for each in shown]
        more = "" if count == len(shown) else f", and {count - len(shown)} more"
        return f"{count} {noun}: {', '.join(texts)}{more}"

    def naming_id(self) -> Self:
        """This violation with the id of its row in the text, for data that has no lines."""
        is_told = self.id is None or f"'{self.id}'" in self.text
        return self if is_told else replace(self, text=f"{self.text} (id '{self.id}')")

    def _named(self) -> str:
        is_told = self.id is None or self.text.endswith(f"(id '{self.id}')")
        named = [] if is_told else [f"id '{self.id}'"]
        return ", ".join([*named, *([] if self.line is None else [self._where()])])

    def kind(self) -> tuple[str, str, str]:
        """What equal faults have in common: the rule, the type and the property."""
        return self.rule, self.type_name, self.property or ""


@dataclass(eq=False)
class ConstraintViolated(Refused):
    """The data breaks rules of the schema. The first violations are listed; nothing was written.
    Where there are more, the message folds those of one kind.

    >>> try:
    ...     graph.load([{"name": "Ada", "age": "old"}], "merge", type="Person")
    ... except og.ConstraintViolated as error:
    ...     error.violations[0].property
    'age'
    """

    violations: tuple[Violation, ...]
    total: int
    counts: tuple[tuple[str, int], ...] = ()  # by rule, when the data came in bulk
    folded: tuple[tuple[Violation, int], ...] = ()  # the first of each kind, and how many there are

    def __str__(self) -> str:
        folded = self.folded if self.total > len(self.violations) else ()
        folded = folded or tuple((violation, 1) for violation in self.violations)
        by_kind: dict[tuple[str, str, str], list[Violation]] = {}
        for each in self.violations:
            by_kind.setdefault(each.kind(), []).append(each)
        listed = "; ".join(
            first.folded(count, by_kind.get(first.kind(), ())) for first, count in folded
        )
        more = self.total - sum(count for _, count in folded)
        tail = f"; and {more} more" if more > 0 else ""
        return f"{listed}{tail}; correct the data and write again"


@dataclass(eq=False)
class ExternalBlobDenied(Refused):
    """A Blob is given as an address that lies below no allowed base.

    >>> og.ExternalBlobDenied("file:///etc/passwd").uri
    'file:///etc/passwd'
    """

    uri: str

    def __str__(self) -> str:
        text = f"the external Blob URI '{_shortened(self.uri)}' is not allowed"
        return _with_hint(
            text, "send the bytes as base64:…, or open the graph with external_blobs=[…]"
        )


@dataclass(eq=False)
class ExternalBlobUnreadable(Refused):
    """A Blob is given as an allowed address that cannot be read. Nothing was written.

    >>> og.ExternalBlobUnreadable("s3://bucket/a.png", "denied").reason
    'denied'
    """

    uri: str
    reason: str

    def __str__(self) -> str:
        text = f"the external Blob URI '{_shortened(self.uri)}' cannot be read: {self.reason}"
        return _with_hint(text, "check the address and its permissions")


@dataclass(eq=False)
class MigrationUnsupported(Refused):
    """A schema change that cannot be applied to a graph in place.

    >>> og.MigrationUnsupported("Person.age", "no I32 is a String", "OG-103").entity
    'Person.age'
    """

    entity: str
    reason: str
    code: str | None = None

    def __str__(self) -> str:
        prefix = f"[{self.code}] " if self.code else ""
        return f"{prefix}{self.entity}: {self.reason}"


@dataclass(eq=False)
class UnsupportedVersion(Refused):
    """A graph written in a storage version this program does not read.

    >>> og.UnsupportedVersion(9, 8).supported
    8
    """

    found: int
    supported: int

    def __str__(self) -> str:
        if self.found > self.supported:
            way_out = "upgrade omnigraph"
        else:
            way_out = (
                "export it with the omnigraph that wrote it, init a new graph and load the export"
            )
        versions = f"internal schema {self.found}, this program reads {self.supported}"
        return f"the graph has {versions}; {way_out}"


@dataclass(eq=False)
class NotRevertible(Refused):
    """A commit that a revert cannot undo: the first one, or a change of the schema, with the steps
    that undo it and the commit before it. Nothing was changed.

    >>> og.NotRevertible("01M7JF", "it made the graph", (), None).reason
    'it made the graph'
    """

    commit_id: str
    reason: str  # genesis or schema_change
    steps: tuple[str, ...] = ()
    before: str | None = None

    def __str__(self) -> str:
        if self.reason == "genesis":
            return (
                f"commit '{self.commit_id}' is the first of its graph and changed nothing; "
                "name a later one"
            )
        steps = "".join(f"\n- {step}" for step in self.steps)
        return (
            f"commit '{self.commit_id}' changed the schema, and a revert changes data alone; the "
            f"change that undoes it:{steps}\napply a schema that says so (`omnigraph schema plan` "
            f"shows the steps; in Python, graph.schema.at('{self.before}').text is the one before)"
        )


@dataclass(eq=False)
class SchemaDiffers(Refused):
    """Entities of the past that today's schema cannot tell. Nothing was changed.

    >>> og.SchemaDiffers("01M7JF", ("Person",), "it has another schema", "name types").types
    ('Person',)
    """

    commit_id: str
    types: tuple[str, ...]
    reason: str
    hint: str = ""

    def __str__(self) -> str:
        text = f"{', '.join(self.types)} at commit '{self.commit_id}': {self.reason}"
        return _with_hint(text, self.hint)


@dataclass(eq=False)
class Forbidden(Refused):
    """Policy denied the action.

    >>> og.Forbidden("change", "act-bob", "main", None, True).action
    'change'
    """

    action: str
    actor: str | None
    branch: str | None = None
    target_branch: str | None = None
    is_known: bool = True  # whether the actor is in a group of the policy
    hint: str = field(default="", kw_only=True)

    @property
    def denied(self) -> str:
        """The decision alone, in the words of a policy."""
        where = f" on branch '{_shortened(self.branch)}'" if self.branch else ""
        if self.target_branch:
            where += f" targeting branch '{_shortened(self.target_branch)}'"
        denied = f"policy denied action '{self.action}'{where}"
        if self.actor is None:
            return f"{denied}: no actor is given"
        who = f"{'' if self.is_known else 'unknown '}actor '{_shortened(self.actor)}'"
        return f"{denied} for {who}"

    def __str__(self) -> str:
        no_actor = "pass actor=, or --as" if self.actor is None else ""
        return _with_hint(self.denied, self.hint or no_actor)


@dataclass(eq=False)
class ApprovalsMissing(Forbidden):
    """A merge into a branch for which the policy demands approvals of a review. `approvals` are
    those that count: of others than the author, for the head that the source has now.

    >>> og.ApprovalsMissing("merge", "act-bob", "fix", "main", True, 0, 1, None).required
    1
    """

    approvals: int = 0
    required: int = 1
    review: str | None = None  # the review that lacks them, if there is one
    of_answers: bool = False  # whether they must cover the answers to conflicts

    def __str__(self) -> str:
        source, target = _shortened(self.branch or ""), _shortened(self.target_branch or "")
        what = f"a merge of '{source}' into '{target}'"
        if self.of_answers:
            what += " with these resolutions"
        denied = f"{what} needs {self.required} approval(s) and has {self.approvals}"
        if self.of_answers:
            review = "open a review" if self.review is None else f"have review {self.review}"
            joined = "and have it" if self.review is None else ""
            hint = f"{review} {joined} approved with the same resolutions".replace("  ", " ")
            return _with_hint(denied, f"{hint}, or ask an actor who may change '{target}'")
        if self.review is None:
            return _with_hint(denied, "open a review and have it approved")
        return _with_hint(denied, f"have review {self.review} approved as the source is now")


@dataclass(eq=False)
class OwnReview(Forbidden):
    """An approval by the author of a review.

    >>> og.OwnReview("approve", "act-ada", "fix", "main", True, "01M7JF").actor
    'act-ada'
    """

    review: str = ""

    def __str__(self) -> str:
        return _with_hint(
            f"actor '{self.actor}' opened review {self.review} and cannot approve it",
            "ask somebody else",
        )


@dataclass(eq=False)
class PolicyInvalid(Refused):
    """A policy, or a file of tests for one, that cannot be used. `code` is one of a closed list,
    `where` the place in the file.

    >>> og.PolicyInvalid("unknown_key", "rules[0]", "no such key", "leave it out").where
    'rules[0]'
    """

    code: str
    where: str
    text: str
    hint: str = ""

    def __str__(self) -> str:
        return _with_hint(f"invalid policy: {self.where}: {self.text}", self.hint)


@dataclass(eq=False)
class Unauthenticated(Refused):
    """A server that does not know the token, or was sent none. Over HTTP this is 401.

    >>> og.Unauthenticated("http://host:8080", "no token").url
    'http://host:8080'
    """

    url: str
    reason: str

    def __str__(self) -> str:
        text = f"the server at {self.url} does not know who asks ({self.reason})"
        return _with_hint(text, "pass token=, set OMNIGRAPH_BEARER_TOKEN or run `omnigraph login`")


@dataclass(eq=False)
class NotServed(Refused):
    """A verb or option that needs the files of a graph, asked of a graph over HTTP.

    >>> og.NotServed("optimize", "http://host:8080", "run it beside the files").verb
    'optimize'
    """

    verb: str
    url: str
    instead: str = ""

    def __str__(self) -> str:
        text = f"{self.verb} does not work over HTTP, on {self.url}"
        return _with_hint(text, self.instead or "run it where the files of the graph are")


# Races


@dataclass(eq=False)
class Conflict(OmnigraphError):
    """Another writer came first. Nothing of this write is durable.

    >>> issubclass(og.VersionMismatch, og.Conflict)
    True
    """


@dataclass(eq=False)
class VersionMismatch(Conflict):
    """A table moved after this write chose its base. Nothing of ours is durable.

    >>> og.VersionMismatch("node:Person", 3, 4).actual
    4
    """

    table_key: TableKey
    expected: int
    actual: int

    def __str__(self) -> str:
        moved = f"{self.table_key} is at version {self.actual}, not {self.expected}"
        return (
            f"{moved}; read again and retry (a mutation does so by itself with retries=, --retry)"
        )


@dataclass(eq=False)
class KeyTaken(Conflict):
    """A strict insert found its id in use.

    >>> try:
    ...     graph.load([{"name": "Ada"}], "append", type="Person")
    ... except og.KeyTaken as error:
    ...     error.entity_id
    'Ada'
    """

    entity_kind: str
    type_name: str
    entity_id: str

    def __str__(self) -> str:
        return (
            f"{self.entity_kind} type '{self.type_name}' already has id '{self.entity_id}'; "
            "load with mode merge to replace it, or use another id"
        )


@dataclass(eq=False)
class PreconditionFailed(Conflict):
    """The branch is not at the commit the caller named.

    >>> try:
    ...     graph.mutate('query q() { insert Person { name: "Gus" } }', if_commit="01M7JF")
    ... except og.PreconditionFailed as error:
    ...     error.expected
    '01M7JF'
    """

    branch: str
    expected: str
    actual: str | None

    def __str__(self) -> str:
        return (
            f"precondition failed on branch '{self.branch}': expected head '{self.expected}' "
            f"but current is {self.actual}; read again and decide"
        )


@dataclass(eq=False)
class SchemaChanged(Conflict):
    """The schema changed after this write was planned. Nothing of ours is durable.

    >>> og.SchemaChanged("main", "before", "after").actual
    'after'
    """

    branch: str
    expected: str
    actual: str

    def __str__(self) -> str:
        return (
            f"the schema of branch '{self.branch}' is {self.actual[:12]} now, this write was "
            f"planned for {self.expected[:12]}; look at the new schema and write again"
        )


@dataclass(eq=False)
class SchemaHeld(Conflict):
    """A schema change that narrows or removes, beside other branches. Nothing was changed.

    >>> og.SchemaHeld(("review",), "drop Person.age").branches
    ('review',)
    """

    branches: tuple[str, ...]
    step: str = ""

    def __str__(self) -> str:
        what = f" ({self.step})" if self.step else ""
        change = f"a change that does more than add or widen{what}"
        names = ", ".join(f"'{name}'" for name in self.branches if name != "main")
        if "main" in self.branches:  # it was asked of another one
            beside = f" and {names}" if names else ""
            return (
                f"{change} is made on 'main' alone, while there is no other branch; merge or "
                f"delete this branch{beside}, then apply to main"
            )
        return (
            f"{change} needs 'main' to be the only branch, and there is {names}; merge or delete "
            "what is not main, then apply to main"
        )


@dataclass(eq=False)
class NoChanges(Conflict):
    """A commit without a diff: the first commit of a graph has no parent.

    >>> og.NoChanges("parentless_commit", "01M7JF", None).reason
    'parentless_commit'
    """

    reason: str
    commit_id: str
    type_name: str | None = None

    def __str__(self) -> str:
        of = f" of {self.type_name}" if self.type_name else ""
        return (
            f"the changes{of} in commit '{self.commit_id}' cannot be told ({self.reason}); "
            "take a baseline instead"
        )


@dataclass(frozen=True, slots=True)
class MergeConflict:
    """One entity that two branches changed in ways that do not fit together.

    `base`, `ours` and `theirs` are its images where the branches parted, on the target and on the
    source; None where it was not there, or where the conflict is about several entities.

    >>> og.MergeConflict("node", "Person", "Ada", "divergent_update").subject
    "node type 'Person', entity id 'Ada'"
    """

    entity_kind: str
    type_name: str
    entity_id: str | None
    kind: str
    message: str = ""
    base: dict[str, Any] | None = None
    ours: dict[str, Any] | None = None
    theirs: dict[str, Any] | None = None

    @property
    def subject(self) -> str:
        """The entity or type in conflict, in words."""
        of = f"{self.entity_kind} type '{self.type_name}'"
        return of if self.entity_id is None else f"{of}, entity id '{self.entity_id}'"

    def to_json(self) -> dict[str, Any]:
        """The conflict without its images, as the server's JSON has it."""
        return {
            "entity_kind": self.entity_kind,
            "type_name": self.type_name,
            "entity_id": self.entity_id,
            "kind": self.kind,
            "message": self.message,
        }


_CONFLICTS_SHOWN = 3


@dataclass(eq=False)
class MergeConflicts(Conflict):
    """A merge, a revert or a restore that needs a decision. Nothing was published.

    >>> conflict = og.MergeConflict("node", "Person", "Ada", "divergent_update")
    >>> og.MergeConflicts((conflict,)).counts
    {'divergent_update': 1}
    """

    conflicts: tuple[MergeConflict, ...]
    of: str = "merge"
    hint: str = ""

    @property
    def counts(self) -> dict[str, int]:
        """How many conflicts there are of each kind."""
        kinds = sorted(conflict.kind for conflict in self.conflicts)
        return {kind: len(list(same)) for kind, same in groupby(kinds)}

    def __str__(self) -> str:
        shown = self.conflicts[:_CONFLICTS_SHOWN]
        listed = "; ".join(f"{conflict.subject} ({conflict.kind})" for conflict in shown)
        more = len(self.conflicts) - len(shown)
        tail = f"; and {more} more" if more > 0 else ""
        hint = self.hint or "change one side and merge again, or answer with resolve="
        return f"{self.of} conflicts: {listed}{tail}; {hint}"


@dataclass(frozen=True, slots=True)
class FailedCheck:
    """A read that must give no rows on a merged graph, with how many it gave and the first ones.

    >>> og.FailedCheck("no_orphans", 2, ()).row_count
    2
    """

    query: str
    row_count: int
    rows: tuple[dict[str, Any], ...]

    def to_json(self) -> dict[str, Any]:
        """The check as the server's JSON has it."""
        return {"query": self.query, "row_count": self.row_count, "rows": list(self.rows)}


@dataclass(eq=False)
class ChecksFailed(Conflict):
    """A merge whose result gives rows where a check must give none. Nothing was published.

    >>> len(og.ChecksFailed("fix", "main", (og.FailedCheck("orphans", 2, ()),)).checks)
    1
    """

    source: str
    target: str
    checks: tuple[FailedCheck, ...]

    def __str__(self) -> str:
        listed = "; ".join(
            f"'{check.query}' gives {check.row_count} row(s)" for check in self.checks
        )
        return _with_hint(
            f"a merge of '{self.source}' into '{self.target}' fails its checks: {listed}",
            f"change '{self.source}' and merge again",
        )


@dataclass(eq=False)
class ReviewEnded(Conflict):
    """A change of a review that is merged or closed.

    >>> og.ReviewEnded("01M7JF", "merged").state
    'merged'
    """

    review: str
    state: str

    def __str__(self) -> str:
        return _with_hint(f"review {self.review} is {self.state}", "open another one")


# The surroundings


@dataclass(eq=False)
class NotInstalled(OmnigraphError):
    """A missing dependency: a package, a program or a Java.

    >>> og.NotInstalled("Spark", "pyspark", "pip install 'omnigraph[spark]'").install
    "pip install 'omnigraph[spark]'"
    """

    what: str
    looked: str
    install: str

    def __str__(self) -> str:
        return f"{self.what} was not found ({self.looked}); {self.install}"


@dataclass(eq=False)
class EmbeddingFailed(OmnigraphError):
    """An embedding provider gave no usable answer. Nothing was changed.

    >>> og.EmbeddingFailed("openai", "timed out").provider
    'openai'
    """

    provider: str
    detail: str

    def __str__(self) -> str:
        return (
            f"the embedding provider at {self.provider} {self.detail}; look at its address, key "
            "and model in OMNIGRAPH_EMBED_*, then repeat"
        )


@dataclass(eq=False)
class ServerBusy(OmnigraphError):
    """A server that has too much to do. Nothing was done. Over HTTP this is 429.

    >>> og.ServerBusy("http://host:8080", "too many writes", 2).retry_after
    2
    """

    url: str
    reason: str
    retry_after: int = 1

    def __str__(self) -> str:
        return f"the server at {self.url}: {self.reason}; repeat after {self.retry_after} s"


@dataclass(eq=False)
class ServerUnreachable(OmnigraphError):
    """A request without an answer: no connection, or one that broke. `is_unsettled` is set where a
    write was sent, so that it may have been done.

    >>> og.ServerUnreachable("http://host:8080", "refused", False).is_unsettled
    False
    """

    url: str
    reason: str
    is_unsettled: bool = False

    def __str__(self) -> str:
        text = f"no answer from the server at {self.url}: {self.reason}"
        if self.is_unsettled:
            return f"{text}; the write may have been done: look at the branch before you repeat it"
        return _with_hint(text, "look at the address and whether the server runs, then repeat")


@dataclass(eq=False)
class RecoveryRequired(OmnigraphError):
    """A write stopped half-way. Its sidecar is kept and the next read-write open settles it.

    >>> og.RecoveryRequired("01M7JF", "the manifest was not written").operation_id
    '01M7JF'
    """

    operation_id: str
    reason: str = "the write stopped after its sidecar was written"

    def __str__(self) -> str:
        return (
            f"recovery required for operation {self.operation_id}: {self.reason}; "
            "reopen the graph read-write to recover, then look at its head"
        )


@dataclass(eq=False)
class StorageFailed(OmnigraphError):
    """The storage under the graph refused. `unpublished` is set where it is known that nothing
    became visible: by a write under preparation, and by a commit before its sidecar.

    >>> og.StorageFailed("read a table", "I/O error", False).operation
    'read a table'
    """

    operation: str
    detail: str
    unpublished: bool = False

    @property
    def is_full(self) -> bool:
        """Whether there was no room left."""
        return any(sign in self.detail for sign in _NO_ROOM)

    def __str__(self) -> str:
        known = "; nothing was published" if self.unpublished else ""
        text = f"storage failed while it {self.operation}: {self.detail}{known}"
        return _with_hint(text, way_out(self.detail))


@contextmanager
def unpublished() -> Iterator[None]:
    """Say of a storage failure inside the block that nothing was published by then."""
    try:
        yield
    except StorageFailed as cause:
        cause.unpublished = True
        raise


_NO_ROOM = ("No space left on device", "Disk quota exceeded")

_WAYS_OUT = (
    *((sign, "free some space and repeat") for sign in _NO_ROOM),
    ("File too large", "choose a file system, or a limit, that allows larger files"),
    ("Permission denied", "ask for the permission, or choose another place"),
    ("Operation not permitted", "ask for the permission, or choose another place"),
    ("Read-only file system", "choose another place"),
)


def way_out(detail: str) -> str:
    """Advice for what an operating system said, if there is any."""
    return next((do for sign, do in _WAYS_OUT if sign in detail), "")
