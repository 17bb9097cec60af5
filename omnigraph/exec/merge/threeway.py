"""Three-way merge of one type: base, source and target compared entity by entity.

Three comparisons decide an entity. Equal on both sides: nothing to do. Equal to the base on the
source: the target's stays. Equal to the base on the target: the source's is taken. Otherwise both
sides changed it, differently: a conflict.

Invariant: only ids written since the sides parted are read, and the decision depends on content
alone, so a row that was written again without being changed decides nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.model import Type
from omnigraph.exec.changes.entities import (
    Aligned,
    Chosen,
    Entities,
    Mask,
    Overlaid,
    Picked,
    differ,
    mask_of,
    present,
    rows_a_chunk,
)
from omnigraph.exec.values.columns import with_columns
from omnigraph.storage.lance.parallel import together
from omnigraph.storage.lance.spans import AFTER, BEFORE
from omnigraph.storage.records import TablePin
from omnigraph.storage.store import Store

DIVERGENT_INSERT, DIVERGENT_UPDATE = "divergent_insert", "divergent_update"
DELETE_VS_UPDATE = "delete_vs_update"


# ---- the base


class Base(Protocol):
    """The merge base of both sides: one commit, or several combined."""

    @property
    def between(self) -> TablePin | None:
        """The base's version where it lies between the two sides; None elsewhere."""

    def ids(self) -> pa.Array:
        """The ids in which the source may differ from it."""

    def entities_of(self, ids: pa.Array, source: Aligned) -> tuple[Aligned, Mask]:
        """Its entities of these ids, and where it has none to offer because its parts disagree."""

    def as_target(self, ids: pa.Array) -> Mask:
        """Where the target is known to equal the base without reading either."""


class CommitBase:
    """One commit."""

    def __init__(
        self,
        store: Store,
        owner: Type,
        base: TablePin,
        *,
        source: TablePin,
        target: TablePin,
        stored_as: Type | None = None,
        is_between: bool = False,
    ) -> None:
        self.between = base if is_between else None
        reader = store.tables.reader(base)
        self._entities = Entities(owner, reader, stored_as=stored_as, defaults=True)
        columns = self._entities.read_by()
        self._moved = store.deltas.compared(target, base, columns=columns)["id"].combine_chunks()
        self._touched = store.deltas.compared(source, base, columns=columns)
        self._ids = self._touched["id"].combine_chunks()

    def ids(self) -> pa.Array:
        return self._ids

    def entities_of(self, ids: pa.Array, source: Aligned) -> tuple[Aligned, Mask]:
        """An id that is not listed has the source's content."""
        positions = pc.index_in(ids, self._ids)
        listed = mask_of(positions.is_valid())
        own = self._entities.pick(self._touched[AFTER].combine_chunks().take(positions), ids)
        entities: Aligned = own if listed.all() else Chosen(listed, own, source)
        return entities, np.zeros(len(ids), dtype=bool)

    def as_target(self, ids: pa.Array) -> Mask:
        """An id that the target did not write since has the base's content there."""
        return ~mask_of(pc.is_in(ids, value_set=self._moved))


class EmptyBase:
    """A commit that did not have the type yet: both sides added whatever they have. A target of
    None lacks the type, too."""

    def __init__(
        self, store: Store, owner: Type, *, source: TablePin, target: TablePin | None = None
    ) -> None:
        self._entities = Entities(owner, store.tables.reader(target or source), defaults=True)
        self._ids = store.deltas.listed(source)["id"].combine_chunks()
        self._moved = pa.array([], pa.string())
        if target is not None:
            self._moved = store.deltas.listed(target)["id"].combine_chunks()

    @property
    def between(self) -> None:
        return None

    def ids(self) -> pa.Array:
        return self._ids

    def entities_of(self, ids: pa.Array, source: Aligned) -> tuple[Aligned, Mask]:
        nothing = self._entities.pick(pa.nulls(len(ids), pa.uint64()), ids)
        return nothing, np.zeros(len(ids), dtype=bool)

    def as_target(self, ids: pa.Array) -> Mask:
        """Where the target has no such entity either."""
        return ~mask_of(pc.is_in(ids, value_set=self._moved))


@dataclass(frozen=True, slots=True)
class MergedBase:
    """Two commits that were both merged into both sides, merged with each other over their own
    base. Where they conflict with each other there is no base, and each side decided for itself."""

    first: Base
    second: Base
    below: Base

    @property
    def between(self) -> None:
        return None

    def ids(self) -> pa.Array:
        parts = [each.ids() for each in (self.first, self.second)]
        return pc.unique(pa.chunked_array(parts, pa.string())).sort()

    def entities_of(self, ids: pa.Array, source: Aligned) -> tuple[Aligned, Mask]:
        first, no_first = self.first.entities_of(ids, source)
        second, no_second = self.second.entities_of(ids, source)
        below, no_below = self.below.entities_of(ids, source)
        apart = differ(first, second)
        first_moved = differ(first, below) | no_below
        second_moved = differ(second, below) | no_below
        merged = Chosen(~apart | first_moved, first, second)
        return merged, (apart & first_moved & second_moved) | no_first | no_second

    def as_target(self, ids: pa.Array) -> Mask:
        """Never known without reading: there are several commits."""
        return np.zeros(len(ids), dtype=bool)


@dataclass(frozen=True, slots=True)
class ForgottenBase:
    """A base beside which both sides merged a commit that is gone. The changes of that merge stand
    for the lost commit; elsewhere the base holds."""

    merge: Base
    before: Base
    below: Base

    @property
    def between(self) -> None:
        return None

    def ids(self) -> pa.Array:
        parts = [each.ids() for each in (self.merge, self.before, self.below)]
        return pc.unique(pa.chunked_array(parts, pa.string())).sort()

    def entities_of(self, ids: pa.Array, source: Aligned) -> tuple[Aligned, Mask]:
        after, _ = self.merge.entities_of(ids, source)
        before, _ = self.before.entities_of(ids, source)
        below, baseless = self.below.entities_of(ids, source)
        brought = differ(after, before)
        return Chosen(brought, after, below), baseless & ~brought

    def as_target(self, ids: pa.Array) -> Mask:
        """Never known without reading: there are several commits."""
        return np.zeros(len(ids), dtype=bool)


# ---- the decision


@dataclass(frozen=True, slots=True)
class Undecided:
    """Entities that both sides changed, as each has them. Positions agree; null: missing."""

    ids: pa.Array
    base: Aligned
    ours: Aligned  # the target's
    theirs: Aligned  # the source's
    baseless: Mask
    source_rows: pa.Array
    target_rows: pa.Array

    def kinds(self) -> list[str]:
        """The kind of each conflict."""
        based = present(self.base) & ~self.baseless
        ours, theirs = present(self.ours), present(self.theirs)
        return [
            (DIVERGENT_UPDATE if was else DIVERGENT_INSERT) if a and b else DELETE_VS_UPDATE
            for was, a, b in zip(based, ours, theirs, strict=True)
        ]


@dataclass
class TakenRows:
    """Rows the target takes: row ids of the source, each with the target's row it replaces.

    Rows that were read to decide are kept, so that they need not be read again to be written.
    """

    source_rows: list[pa.Array] = field(default_factory=list)
    target_rows: list[pa.Array] = field(default_factory=list)
    kept: list[pa.Table] | None = field(default_factory=list)
    addresses: list[pa.Array] | None = field(default_factory=list)

    def take(self, theirs: Picked, ours: Picked) -> None:
        """Take these entities. A missing one removes the target's."""
        self.source_rows.append(theirs.row_ids)
        self.target_rows.append(ours.row_ids)
        if self.kept is not None:
            self.kept.append(theirs.rows.filter(theirs.row_ids.is_valid()))
        if self.addresses is not None:
            assert ours.addresses is not None
            self.addresses.append(ours.addresses)

    def add(self, source_rows: pa.Array, target_rows: pa.Array) -> None:
        """Take rows that are known by their row ids alone."""
        self.source_rows.append(source_rows)
        self.target_rows.append(target_rows)
        self.kept = self.addresses = None

    def leave(self, target_rows: pa.Array) -> None:
        """Take back the removal of these rows of the target."""
        for index, (theirs, ours) in enumerate(
            zip(self.source_rows, self.target_rows, strict=True)
        ):
            leaves = pc.and_(theirs.is_null(), pc.is_in(ours, value_set=target_rows))
            keep = pc.invert(leaves)
            self.source_rows[index], self.target_rows[index] = (
                theirs.filter(keep),
                ours.filter(keep),
            )
            if self.addresses is not None:
                self.addresses[index] = self.addresses[index].filter(keep)

    def rows(self) -> tuple[pa.Array, pa.Array]:
        """Everything taken, in one piece."""
        return _in_one(self.source_rows), _in_one(self.target_rows)


class TypeMerge:
    """One type with its three versions."""

    def __init__(
        self,
        store: Store,
        owner: Type,
        base: Base,
        source: TablePin,
        target: TablePin | None,
        *,
        keeps_new: bool = False,
        stored_as: tuple[Type | None, Type | None] = (None, None),
    ) -> None:
        """With `keeps_new` an entity of the source keeps the target's values of properties that are
        younger than the source's version. `stored_as` is the type as source and target have it,
        where the owner is of another schema. A target of None has no such type yet: the source's
        version stands for it, and none of its rows."""
        self.owner = owner
        theirs, ours = stored_as
        reader = store.tables.reader
        self.source = Entities(owner, reader(source), stored_as=theirs, defaults=True)
        if target is None:
            self.target = self.source
            listed = store.deltas.listed(source).rename_columns(["id", AFTER, BEFORE])
            self.touched = listed.select(["id", BEFORE, AFTER])
        else:
            self.target = Entities(owner, reader(target), stored_as=ours, defaults=True)
            self.touched = store.deltas.compared(
                source, target, columns=self.source.read_by(), via=base.between
            )
        """The ids in which the two sides may differ: `before` the source's rows, `after` the
        target's."""
        self.taken = TakenRows()
        self._base = base
        self._new = self.source.lacking() - self.target.lacking() if keeps_new else frozenset[str]()

    def decide(self, compared: Callable[[int], None]) -> Iterator[Undecided]:
        """Decide every entity without a conflict, and yield the others, a chunk at a time.
        `compared` is called with the number of entities of each chunk."""
        mask = pc.is_in(self.touched["id"], value_set=self._base.ids())
        candidates = self.touched.filter(mask)
        rows = rows_a_chunk(self.owner)
        for start in range(0, candidates.num_rows, rows):
            chunk = candidates.slice(start, rows)
            undecided = self._decide(chunk)
            compared(chunk.num_rows)
            if undecided is not None:
                yield undecided

    def _decide(self, rows: pa.Table) -> Undecided | None:
        ids, source_rows, target_rows = (rows[c].combine_chunks() for c in ("id", BEFORE, AFTER))
        theirs, ours = together(
            [
                partial(self.source.pick, source_rows, ids),
                partial(self.target.pick, target_rows, ids, located=True),
            ]
        )
        apart = differ(self._with_new(theirs, ours), ours)
        take = apart & self._base.as_target(ids)
        unclear = np.flatnonzero(apart & ~take)
        undecided = None
        if len(unclear):
            positions = pa.array(unclear)
            back, undecided = self._compare(
                ids.take(positions), theirs.take(positions), ours.take(positions)
            )
            take[unclear[back]] = True
        if take.any():
            positions = pa.array(np.flatnonzero(take))
            self.taken.take(theirs.take(positions), ours.take(positions))
        return undecided

    def _compare(
        self, ids: pa.Array, theirs: Picked, ours: Picked
    ) -> tuple[Mask, Undecided | None]:
        """Of entities that differ between the sides: where the source's is taken, and the rest that
        both changed."""
        base, baseless = self._base_of(ids, theirs, ours)
        source_moved = differ(self._with_new(theirs, ours), base) | baseless
        target_moved = differ(ours, base) | baseless
        conflict = source_moved & target_moved
        if not conflict.any():
            return source_moved & ~target_moved, None
        positions = pa.array(np.flatnonzero(conflict))
        theirs, ours, ids = theirs.take(positions), ours.take(positions), ids.take(positions)
        base, baseless = self._base_of(ids, theirs, ours)
        seen = self._with_new(theirs, ours)
        undecided = Undecided(ids, base, ours, seen, baseless, theirs.row_ids, ours.row_ids)
        return source_moved & ~target_moved, undecided

    def _with_new(self, theirs: Picked, ours: Picked) -> Aligned:
        """The source's entities with the target's values of younger properties."""
        if not self._new:
            return theirs
        return Overlaid(theirs, ours, self._new, np.ones(len(theirs.row_ids), dtype=bool))

    def _base_of(self, ids: pa.Array, theirs: Picked, ours: Picked) -> tuple[Aligned, Mask]:
        """The base. An entity that the source lacks keeps no younger value: to remove one that has
        such a value is a change of both sides."""
        base, baseless = self._base.entities_of(ids, theirs)
        if self._new:
            base = Overlaid(base, ours, self._new, present(theirs))
        return base, baseless

    def with_new_values(self, rows: pa.Table, target_rows: pa.Array) -> pa.Table:
        """Rows of the source with the values of younger properties of the rows that they replace;
        with their default or null where they replace none."""
        if not self._new or not rows.num_rows:
            return rows
        ours = self.target.stageable(target_rows.drop_null())
        known = mask_of(target_rows.is_valid())
        positions = pa.array(
            np.where(known, np.cumsum(known) - 1, np.arange(len(known)) + len(ours))
        )
        return with_columns(
            rows, {name: one_column(ours[name], rows[name]).take(positions) for name in self._new}
        )

    def incoming(self) -> pa.Table:
        """The rows that were taken, in the catalog's names."""
        has_blobs = any(prop.type.is_blob for prop in self.owner.properties)
        if self.taken.kept is None or has_blobs:
            source_rows, _ = self.taken.rows()
            return self.source.stageable(source_rows.drop_null())
        names = self.source.names
        nothing = self.source.stageable(pa.array([], pa.uint64())).select(names)
        return pa.concat_tables([nothing, *(kept.select(names) for kept in self.taken.kept)])


def one_column(one: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    """Two columns of one property, one after the other. A blob that a version lacks has no type of
    its own."""
    if one.type != other.type:
        if one.null_count == len(one):
            one = pa.chunked_array([pa.nulls(len(one), other.type)])
        elif other.null_count == len(other):
            other = pa.chunked_array([pa.nulls(len(other), one.type)])
    return pa.chunked_array([*one.chunks, *other.chunks], one.type)


def _in_one(parts: Sequence[pa.Array]) -> pa.Array:
    return pa.concat_arrays(list(parts)) if parts else pa.array([], pa.uint64())
