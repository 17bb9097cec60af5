"""What a query returns.

Invariant: the columns are typed Arrow arrays in projection order; `rows` are the same values as
JSON has them, and are made when they are first asked for. A few rows come as Python values, and
then it is the arrays that wait until somebody asks.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.catalog.arrow import arrow_type
from omnigraph.exec.profile import Profile
from omnigraph.extras import optional
from omnigraph.language.moments import format_date, format_datetime
from omnigraph.plan import ir
from omnigraph.types import FLOATS, Scalar, ValueType

JsonRow = dict[str, Any]


class Few:
    """A column of a few texts, numbers or truth values, as Python has them."""

    __slots__ = ("values",)

    def __init__(self, values: list[Any]) -> None:
        self.values = values


@dataclass(frozen=True)
class QueryResult:
    """The rows of one query, and the commit they were read from."""

    columns: list[str]
    commit_id: str
    _types: tuple[ValueType, ...] = field(repr=False)
    _values: tuple[pa.Array | Few, ...] = field(repr=False)
    _length: int = field(repr=False)
    _plan: ir.ReadPlan = field(repr=False)
    _profile: Profile = field(repr=False)

    @property
    def query_name(self) -> str:
        """Which query of the text ran."""
        return self._plan.name

    @cached_property
    def rows(self) -> list[JsonRow]:
        """JSON-ready rows. Of two columns with one name a row keeps the last."""
        names = self.columns
        if not names:
            return [{} for _ in range(self._length)]
        columns = [json_values(v, t) for v, t in zip(self._values, self._types, strict=True)]
        if len(names) == 1:
            name = names[0]
            return [{name: value} for value in columns[0]]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[JsonRow]:
        return iter(self.rows)

    def to_arrow(self) -> pa.Table:
        """The columns as an Arrow table."""
        typed = zip(self._values, self._types, strict=True)
        return pa.Table.from_arrays([_arrow(v, t) for v, t in typed], names=self.columns)

    def to_pandas(self) -> Any:
        """The columns as a pandas frame."""
        optional("pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """The columns as a polars frame."""
        return optional("polars").from_arrow(self.to_arrow())

    def explain(self) -> str:
        """The plan that ran, one line an operator, with rows and milliseconds."""
        return self._profile.explain(self._plan)


def _arrow(values: pa.Array | Few, type_: ValueType) -> pa.Array:
    return pa.array(values.values, arrow_type(type_)) if isinstance(values, Few) else values


def json_values(values: pa.Array | Few, type_: ValueType) -> list[Any]:
    """A column as JSON values."""
    if isinstance(values, Few):
        return _json_few(values.values, type_.scalar)
    if type_.is_list or type_.is_vector:
        return _json_lists(values, type_)
    return _json_scalars(values, type_.scalar)


def _json_few(values: list[Any], scalar: Scalar) -> list[Any]:
    if scalar not in FLOATS:
        return values
    return [v if v is None or math.isfinite(v) else _name_of(v) for v in values]


def _json_scalars(values: pa.Array, scalar: Scalar) -> list[Any]:
    if pa.types.is_null(values.type):
        return [None] * len(values)
    match scalar:
        case Scalar.DATE:
            numbers = values.view(pa.int32()).to_pylist()
            return [None if n is None else format_date(n) for n in numbers]
        case Scalar.DATETIME:
            numbers = values.view(pa.int64()).to_pylist()
            return [None if n is None else format_datetime(n) for n in numbers]
        case _:
            found: list[Any] = values.to_pylist()
            return _finite(values, found) if scalar in FLOATS | {Scalar.VECTOR} else found


def _finite(values: pa.Array, found: list[Any]) -> list[Any]:
    """JSON has no NaN and no infinities: they are strings."""
    numbers = values.fill_null(0).to_numpy(zero_copy_only=False)
    for place in np.flatnonzero(~np.isfinite(numbers)).tolist():
        if found[place] is not None:
            found[place] = _name_of(found[place])
    return found


def _name_of(number: float) -> str:
    if math.isnan(number):
        return "NaN"
    return "Infinity" if number > 0 else "-Infinity"


def _json_lists(values: pa.Array, type_: ValueType) -> list[Any]:
    if pa.types.is_null(values.type):
        return [None] * len(values)
    items = _json_scalars(values.flatten(), type_.scalar)
    counts = values.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    ends = np.cumsum(counts)
    there = values.is_valid().to_numpy(zero_copy_only=False)
    spans = zip(there.tolist(), (ends - counts).tolist(), ends.tolist(), strict=True)
    return [items[start:end] if known else None for known, start, end in spans]
