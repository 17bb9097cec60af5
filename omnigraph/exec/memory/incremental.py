"""Incremental maintenance of indexes derived from one column: patched from version to version.

Invariant: the index returned for a version equals one built from that version. The index of a
version that follows a cached one is made of that and the rows written between them; when those are
many, it is built anew.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.arrow import property_columns
from omnigraph.costs import COSTS
from omnigraph.exec.memory.cache import Cache
from omnigraph.storage.lance.columns import CREATED
from omnigraph.storage.lance.reader import TableReader
from omnigraph.storage.records import TablePin


class Derived(Protocol):
    """An index made of the ids and one column of a table."""

    @property
    def ids(self) -> pa.Array: ...

    @property
    def bytes_held(self) -> int: ...


Made = TypeVar("Made", bound=Derived)


@dataclass(frozen=True, slots=True)
class Recipe(Generic[Made]):
    """How an index is built of ids and values, and patched."""

    name: str
    build: Callable[[pa.Array, pa.ChunkedArray], Made]
    replaced: Callable[[Made, npt.NDArray[np.bool_], Made], Made]


def derived(recipe: Recipe[Made], reader: TableReader, column: str, cache: Cache) -> Made:
    """The index a recipe makes of a column of a version, made once."""

    def make() -> tuple[Made, int]:
        made = _followed(recipe, reader, column, cache)
        if made is None:
            made = _built(recipe, reader.rows(["id", column]), column)
        cache.put(_latest(recipe, reader, column), reader.pin, 0)
        return made, made.bytes_held

    return cache.made(key_of(recipe, reader.pin, column), make)


def key_of(recipe: Recipe[Made], pin: TablePin, column: str) -> tuple[str, TablePin, str]:
    """The cache key of an index."""
    return recipe.name, pin, column


def _latest(recipe: Recipe[Made], reader: TableReader, column: str) -> tuple[Hashable, ...]:
    """One key for all versions of a table on a branch that have the column for one property: a
    name may be that of another one after a schema change."""
    properties = [own for own, name in property_columns(reader.schema).items() if name == column]
    line = replace(reader.pin, version=0, row_count=0)
    return "latest", recipe.name, line, column, *properties


def _built(recipe: Recipe[Made], rows: pa.Table, column: str) -> Made:
    ids = rows.column("id").combine_chunks()
    return recipe.build(ids, rows.column(column))


def _followed(recipe: Recipe[Made], reader: TableReader, column: str, cache: Cache) -> Made | None:
    base: TablePin | None = cache.get(_latest(recipe, reader, column))
    if base is None or base.version >= reader.pin.version:
        return None
    before: Made | None = cache.get(key_of(recipe, base, column))
    if before is None:
        return None
    written = reader.written_since(base.version, ["id", column, CREATED])
    if written.num_rows > COSTS.inverted_follow_share_max * max(
        reader.pin.row_count, COSTS.follow_base_rows
    ):
        return None
    created = pc.sum(pc.greater(written[CREATED], base.version)).as_py() or 0
    gone = _is_in(before.ids, written["id"])
    # A row without the version that created it may be counted too little, any other too much.
    is_sure = not pc.any(pc.equal(written[CREATED], 0), min_count=0).as_py()
    if not is_sure or base.row_count + created != reader.pin.row_count:
        gone |= ~_is_in(before.ids, reader.rows(["id"])["id"])
    if not written.num_rows and not gone.any():
        return before
    return recipe.replaced(before, gone, _built(recipe, written, column))


def _is_in(ids: pa.Array, others: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    flags = pc.is_in(ids, value_set=others.combine_chunks())
    return np.array(flags.to_numpy(zero_copy_only=False), dtype=np.bool_)
