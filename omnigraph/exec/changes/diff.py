"""Diff of two snapshots: inserted, updated and deleted entities, paged by tokens.

Invariant: the changes applied to the first point give the second, and nothing is listed whose
values are equal. Time and memory follow the rows written between the two points: at most a page of
images is in memory, beside the ids that may have changed in one type.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.counterparts import type_counterpart
from omnigraph.catalog.model import Catalog, Type
from omnigraph.catalog.near_names import did_you_mean
from omnigraph.catalog.schema_steps import schema_steps
from omnigraph.costs import COSTS
from omnigraph.errors import (
    BadRequest,
    ChangeFeedGap,
    LimitExceeded,
    NoChanges,
    NotFound,
    OmnigraphError,
    Reclaimed,
)
from omnigraph.exec.changes.entities import Entities, Picked, differ, rows_a_chunk
from omnigraph.exec.changes.images import (
    NO_MOMENTS,
    Image,
    Moments,
    Values,
    image,
    image_values,
    moments_of,
)
from omnigraph.exec.changes.page_sizes import PAGE_CHANGES, PAGE_CHANGES_MAX
from omnigraph.exec.changes.tokens import sealed, unsealed
from omnigraph.exec.schemas import Schemas
from omnigraph.preview import ROWS_SHOWN, html_preview, text_preview
from omnigraph.storage.lance.parallel import together
from omnigraph.storage.lance.spans import AFTER, BEFORE, TOUCHED
from omnigraph.storage.records import DATASET, Commit, Snapshot, TablePin
from omnigraph.storage.store import Store
from omnigraph.types import Kind, SchemaStep, TypeId

INSERT, UPDATE, DELETE = "insert", "update", "delete"
OPS = (INSERT, UPDATE, DELETE)

_SHOWN = ("op", "type", "id", "before", "after")

_KIND_ORDER = {Kind.NODE: "1", Kind.EDGE: "2"}

Position = tuple[str, int, str]
"""The sort key of a change in the order of all: kind, type, entity."""


class ChangedType(NamedTuple):
    """The type that changes belong to: kind, name, id and property names, and which of them are
    dates or moments.

    >>> change, *_ = graph.diff("main~1", "main")
    >>> change.of.name, change.of.properties
    ('Person', ('name', 'age', 'born', 'photo'))
    """

    kind: str
    name: str
    id: str
    properties: tuple[str, ...]
    moments: Moments = NO_MOMENTS


class Change(NamedTuple):
    """One entity that differs, with how it was and how it is.

    >>> change, *_ = graph.diff("main~1", "main")
    >>> change.op, change.type, change.id, change.before
    ('insert', 'Person', 'Ada', None)
    """

    of: ChangedType
    id: str
    op: str
    was: Values | None
    now: Values | None

    def __repr__(self) -> str:
        images = (("before", self.before), ("after", self.after))
        shown = (f"{name}={seen!r}" for name, seen in images if seen is not None)
        return f"Change({self.op} {self.kind} {self.type} {self.id!r}, {', '.join(shown)})"

    @property
    def kind(self) -> str:
        """`node` or `edge`."""
        return self.of.kind

    @property
    def type(self) -> str:
        """The name of its type."""
        return self.of.name

    @property
    def type_id(self) -> str:
        """The identity of its type, which no rename changes."""
        return self.of.id

    @property
    def before(self) -> Image | None:
        """The entity before; None when it was inserted."""
        return None if self.was is None else image(self.of.properties, self.was, self.of.moments)

    @property
    def after(self) -> Image | None:
        """The entity after; None when it was deleted."""
        return None if self.now is None else image(self.of.properties, self.now, self.of.moments)

    @property
    def moved(self) -> bool:
        """Whether an edge has another end than before."""
        if self.was is None or self.now is None:
            return False
        ends = len(self.of.properties)
        return self.was[ends:] != self.now[ends:]

    def to_json(self, dates: str = "numbers") -> dict[str, Any]:
        """The change as the change feed writes it: an image that is not there has no key. Dates
        are numbers, or with `dates="iso"` text."""
        shown: dict[str, Any] = {
            "kind": self.kind,
            "type": {"id": self.type_id, "name": self.type},
            "id": self.id,
            "op": self.op,
        }
        moments = self.of.moments if dates == "iso" else NO_MOMENTS  # the values are numbers
        for name, values in (("before", self.was), ("after", self.now)):
            if values is not None:
                shown[name] = image(self.of.properties, values, moments).to_json(dates)
        return shown


@dataclass(frozen=True, slots=True)
class Filters:
    """The changes to list. Empty: all. Any within one list, all lists together.

    Types are identities, so that a filter means the same before and after a rename.
    """

    kinds: tuple[str, ...] = ()
    types: tuple[TypeId, ...] = ()
    ops: tuple[str, ...] = ()

    def to_json(self) -> list[list[Any]]:
        return [sorted(self.kinds), sorted(self.types), sorted(self.ops)]

    def take(self, owner: Type) -> bool:
        """Whether changes of a type are listed."""
        of_kind = not self.kinds or owner.kind in self.kinds
        return of_kind and (not self.types or owner.id in self.types)


def filters(
    catalog: Catalog, kinds: Collection[str], types: Collection[str], ops: Collection[str]
) -> Filters:
    """Filters whose words exist."""
    for word in kinds:
        if word not in (Kind.NODE, Kind.EDGE):
            raise BadRequest(f"'{word}' is no kind of entity", "use node or edge")
    for word in ops:
        if word not in OPS:
            raise BadRequest(f"'{word}' is no kind of change", "use insert, update or delete")
    ids = []
    for word in types:
        matching = [owner.id for owner in catalog.called(word)]
        if not matching:
            names = (*catalog.nodes, *catalog.edges, *catalog.families)
            raise NotFound("type", word, did_you_mean(word, names))
        ids += matching
    return Filters(tuple(kinds), tuple(ids), tuple(ops))


@dataclass(frozen=True, slots=True)
class Page:
    """Changes in order, and the token of the next page."""

    changes: tuple[Change, ...]
    next_page_token: str | None


class ChangedRows(NamedTuple):
    """Entities of one type that differ, as columns at the same positions: how they were and how
    they are. A null id in one of the two stands for a missing entity."""

    ids: pa.Array
    was: Picked
    now: Picked


class Changes:
    """The changes between two snapshots, read when they are asked for.

    >>> graph.diff("main~1", "main").counts()
    {('node', 'Person', 'insert'): 2, ('edge', 'Knows', 'insert'): 1}
    """

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        before: Snapshot,
        after: Snapshot,
        only: Filters,
        *,
        catalog_before: Catalog | None = None,
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._catalog_before = catalog_before or catalog
        self._before = before
        self._after = after
        self._filters = only

    @property
    def between(self) -> tuple[str, str]:
        """The two commits."""
        return self._before.commit_id, self._after.commit_id

    def __reduce__(self) -> tuple[Any, ...]:
        return ListedChanges, (self.between, tuple(self), self.schema_steps)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Changes):
            return NotImplemented
        return (
            self.between == other.between
            and self.schema_steps == other.schema_steps
            and tuple(self) == tuple(other)
        )

    def __hash__(self) -> int:
        return hash(self.between)

    @property
    def schema_steps(self) -> tuple[SchemaStep, ...]:
        """Differences of the two schemas, whatever the filters of entities are.

        >>> graph.diff("main~1", "main").schema_steps
        ()
        """
        old, new = self._catalog_before, self._catalog
        if old.schema_id == new.schema_id:
            return ()
        return schema_steps(old, new, by_name=_are_across(self._before, self._after))

    def __repr__(self) -> str:
        try:
            return text_preview(self._title(), _SHOWN, *self._preview_rows())
        except OmnigraphError:  # what cannot be read is still shown
            return self._title()

    def _repr_html_(self) -> str:
        return html_preview(self._title(), _SHOWN, *self._preview_rows())

    def _title(self) -> str:
        steps = "".join(f"; schema: {step}" for step in self.schema_steps)
        return f"Changes(from {self.between[0]} to {self.between[1]}{steps})"

    def _preview_rows(self) -> tuple[list[tuple[Any, ...]], int | None]:
        """The first changes as rows, and how many there are if these are all."""
        first = list(islice(self.beyond(None), ROWS_SHOWN + 1))
        images = ((c, c.before, c.after) for c in first[:ROWS_SHOWN])
        rows = [(c.op, c.type, c.id, b and b.properties, a and a.properties) for c, b, a in images]
        return rows, None if len(first) > ROWS_SHOWN else len(first)

    def __iter__(self) -> Iterator[Change]:
        return self.beyond(None, COSTS.change_first_rows_of_all)

    def counts(self) -> dict[tuple[str, str, str], int]:
        """How many changes there are by kind, type and operation."""
        return dict(Counter((each.kind, each.type, each.op) for each in self))

    def page(self, limit: int = PAGE_CHANGES, token: str | None = None) -> Page:
        """At most `limit` changes; a page also ends when it has grown large."""
        require_page_size(limit)
        scope = [*self.between, *self._filters.to_json()]
        start = None if token is None else _position(unsealed(token, "page", scope))
        rest = self.beyond(start)
        changes = tuple(bounded(rest, limit))
        if next(rest, None) is None:
            return Page(changes, None)
        return Page(changes, sealed("page", scope, position_of(changes[-1])))

    def beyond(self, start: Position | None, first_rows: int | None = None) -> Iterator[Change]:
        """The changes after a position, in order: nodes, then edges; by type; by id. Of each type
        at most `first_rows` are read at first, and more at a time the longer it goes on."""
        with readable(self._after.commit_id), self._store.history.lost.reading(self._after):
            yield from self._beyond(start, first_rows or COSTS.change_first_rows)

    def _beyond(self, start: Position | None, first_rows: int) -> Iterator[Change]:
        self._require_kept()
        for owner in owners(self._catalog):
            order = type_order(owner)
            if not self._filters.take(owner) or (start is not None and order < start[:2]):
                continue
            after_id = start[2] if start is not None and order == start[:2] else None
            for rows in self._chunks(owner, after_id, first_rows):
                yield from self._images(owner, rows)

    def _require_kept(self) -> None:
        """Refuse when a type that had entities was dropped: no catalog type describes them."""
        for owner in owners(self._catalog_before):
            pin = self._before.tables.get(owner.table)
            same = self._same(owner, self._catalog_before, self._catalog)
            if same is None and self._filters.take(owner) and pin and pin.row_count:
                raise NoChanges("schema_boundary", self._after.commit_id, owner.name)

    def _same(self, owner: Type, own: Catalog, catalog: Catalog) -> Type | None:
        """The same type in the other schema."""
        same = type_counterpart(owner, own, catalog)
        if same is None or same.id == owner.id or _are_across(self._before, self._after):
            return same
        return None

    def columns(self, type_id: TypeId) -> Iterator[ChangedRows]:
        """The changes of one type as columns, in order by id, some at a time."""
        with readable(self._after.commit_id), self._store.history.lost.reading(self._after):
            self._require_kept()
            for owner in owners(self._catalog):
                if owner.id == type_id:
                    yield from self._chunks(owner, None, COSTS.change_first_rows_of_all)

    def _chunks(self, owner: Type, after_id: str | None, rows: int) -> Iterator[ChangedRows]:
        pins = self._pins(owner)
        if pins is None:
            return
        before, after = pins
        old, new = self._sides(owner, before, after)
        if before is None:
            touched = self._store.deltas.listed(after)
        else:
            touched = self._store.deltas.compared(before, after, columns=new.read_by())
        if after_id is not None:
            touched = touched.filter(pc.greater(touched["id"], after_id))
        # A small page reads few rows: chunks begin small and grow.
        start, rows_max = 0, rows_a_chunk(owner)
        while start < touched.num_rows:
            rows = min(rows, rows_max)
            yield _differing(old, new, touched.slice(start, rows))
            start, rows = start + rows, rows * 8

    def of_entity(
        self, type_id: TypeId, entity: str, before: int | None, after: int | None
    ) -> Change | None:
        """The change of one entity whose row ids in both versions are known; None if there is none
        of its type or it is equal."""
        owner = next((each for each in owners(self._catalog) if each.id == type_id), None)
        pins = None if owner is None else self._pins(owner)
        if owner is None or pins is None:
            return None
        touched = pa.table([[entity], [before], [after]], schema=TOUCHED)
        rows = _differing(*self._sides(owner, *pins), touched)
        return next(self._images(owner, rows), None)

    def _sides(
        self, owner: Type, before: TablePin | None, after: TablePin
    ) -> tuple[Entities, Entities]:
        """The readers of both versions; of a new type both read the one there is."""
        new = Entities(owner, self._store.tables.reader(after))
        if before is None:
            return new, new
        was = None
        if _are_across(self._before, self._after):
            was = self._same(owner, self._catalog, self._catalog_before)
        return Entities(owner, self._store.tables.reader(before), stored_as=was), new

    def _pins(self, owner: Type) -> tuple[TablePin | None, TablePin] | None:
        """The two versions of a type's table, or None when nothing can differ; no first one for a
        type that is new. A type that was renamed between the points is found by its identity."""
        was = self._same(owner, self._catalog, self._catalog_before)
        before = None if was is None else self._before.tables.get(was.table)
        after = self._after.tables.get(owner.table)
        if after is None:
            if before is not None and before.row_count:
                raise NoChanges("schema_boundary", self._after.commit_id, owner.name)
            return None
        if before is None:
            return (None, after) if after.row_count else None
        return None if _is_same(before, after) else (before, after)

    def _images(self, owner: Type, rows: ChangedRows) -> Iterator[Change]:
        before, after = (image_values(owner, each.rows) for each in (rows.was, rows.now))
        names = tuple(prop.name for prop in owner.properties)
        of = ChangedType(str(owner.kind), owner.name, str(owner.id), names, moments_of(owner))
        for entity, first, last in zip(rows.ids.to_pylist(), before, after, strict=True):
            op = INSERT if first is None else DELETE if last is None else UPDATE
            if not self._filters.ops or op in self._filters.ops:
                yield Change(of, entity, op, first, last)


class ListedChanges(Changes):
    """Changes that were read: a copy without its graph, as pickling makes it."""

    def __init__(
        self,
        between: tuple[str, str],
        changes: tuple[Change, ...],
        steps: tuple[SchemaStep, ...] = (),
    ) -> None:
        self._between = between
        self._steps = steps
        self._changes = changes
        self._filters = Filters()

    @property
    def between(self) -> tuple[str, str]:
        """The two commits."""
        return self._between

    @property
    def schema_steps(self) -> tuple[SchemaStep, ...]:
        """Differences of the two schemas."""
        return self._steps

    def beyond(self, start: Position | None, first_rows: int | None = None) -> Iterator[Change]:
        """The changes after a position, in order."""
        rest = (each for each in self._changes if start is None or position_of(each) > start)
        yield from rest

    def columns(self, type_id: TypeId) -> Iterator[ChangedRows]:
        """Raise `BadRequest`: a copy holds no columns."""
        raise BadRequest("the changes are a copy without their graph", "ask graph.diff for them")


def _differing(old: Entities, new: Entities, touched: pa.Table) -> ChangedRows:
    """The rows that differ among those that may."""
    ids, was, now = (touched[name].combine_chunks() for name in ("id", BEFORE, AFTER))
    reads = [partial(old.pick, was, ids), partial(new.pick, now, ids)]
    # A few rows are read in less time than a thread takes to start.
    ours, theirs = (
        together(reads) if len(ids) > COSTS.together_rows_min else [read() for read in reads]
    )
    positions = np.flatnonzero(differ(ours, theirs))
    if len(positions) == len(ids):
        return ChangedRows(ids, ours, theirs)
    chosen = pa.array(positions)
    return ChangedRows(ids.take(chosen), ours.take(chosen), theirs.take(chosen))


def _are_across(before: Snapshot, after: Snapshot) -> bool:
    """Whether two points are on two branches. Then a name may say what is the same: each has an
    identity of its own for a type or a property that both added."""
    return before.branch != after.branch


def _is_same(before: TablePin, after: TablePin) -> bool:
    """Whether two pins are one version, whatever the table was called."""
    return before == replace(after, table_key=before.table_key)


def changes_between(
    store: Store, schemas: Schemas, before: Snapshot, after: Snapshot, only: Filters
) -> Changes:
    """The changes from one snapshot to another, each read under its own schema."""
    old, new = schemas.of(before).catalog, schemas.of(after).catalog
    return Changes(store, new, before, after, only, catalog_before=old)


def commit_changes(
    store: Store,
    schemas: Schemas,
    commit: Commit,
    only: Filters,
    *,
    parent: Commit | None = None,
) -> Changes:
    """The changes of a commit against its first parent, which is looked up unless it is given."""
    if commit.parent is None:
        raise NoChanges("parentless_commit", commit.id)
    with readable(commit.id):
        before = store.history.snapshot_at(parent or store.history.get(commit.parent))
        return changes_between(store, schemas, before, store.history.snapshot_at(commit), only)


@contextmanager
def readable(commit_id: str) -> Iterator[None]:
    """Raise `ChangeFeedGap` when data that the changes of a commit need was reclaimed."""
    try:
        yield
    except Reclaimed as gone:
        raise ChangeFeedGap("commit", commit_id, gone.branch, gone.oldest) from gone
    except NotFound as missing:
        if missing.kind != DATASET:
            raise
        raise ChangeFeedGap("commit", commit_id) from missing


def owners(catalog: Catalog) -> Iterator[Type]:
    """Every type in the order of changes: nodes, then edges, each by identity."""
    nodes = sorted(catalog.nodes.values(), key=lambda node: node.id)
    edges = sorted(catalog.edges.values(), key=lambda edge: edge.id)
    return chain(nodes, edges)


def type_order(owner: Type) -> tuple[str, int]:
    """The sort key of a type in the order of changes; `1` comes before `2`."""
    return _KIND_ORDER[owner.kind], int(owner.id)


def position_of(change: Change) -> Position:
    """The sort key of a change in the order of all."""
    return _KIND_ORDER[Kind(change.kind)], int(change.type_id), change.id


def _position(facts: Any) -> Position:
    kind, type_id, entity_id = facts
    return kind, type_id, entity_id


def require_page_size(limit: int) -> None:
    """Pass only for a page that can be sent."""
    if limit <= 0:
        raise BadRequest("change page limit must be greater than zero", "ask for a larger one")
    if limit > PAGE_CHANGES_MAX:
        raise LimitExceeded("commit_changes_page_changes", limit, PAGE_CHANGES_MAX)


def bounded(changes: Iterator[Change], limit: int) -> Iterator[Change]:
    """The first changes, until there are `limit` or they have grown large; one at least."""
    size = 0
    for number, change in enumerate(changes, start=1):
        yield change
        size += _size(change.was) + _size(change.now)
        if number == limit or size >= COSTS.change_page_bytes_max:
            return


def _size(values: Values | None) -> int:
    """Roughly the bytes of an image as text."""
    return sum(
        20 * len(value) if isinstance(value, list) else len(value) if isinstance(value, str) else 20
        for value in values or ()
    )
