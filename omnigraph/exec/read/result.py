"""Query results: typed columns as Arrow, pandas or polars, and the same rows as JSON values.

Invariant: the columns are typed Arrow arrays in projection order; `rows` are the same values as
JSON has them, made at their first use. A result of few rows comes as Python values, and then the
arrays are made at their first use.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from omnigraph.catalog.arrow import arrow_type
from omnigraph.exec.profile import Profile
from omnigraph.exec.values.scalars import JsonForm, number_name
from omnigraph.exec.values.to_json import json_column
from omnigraph.extras import optional
from omnigraph.plan import ir
from omnigraph.types import FLOATS, ValueType

JsonRow = dict[str, Any]


class PythonColumn:
    """A column of a few texts, numbers or truth values, as Python values."""

    __slots__ = ("values",)

    def __init__(self, values: list[Any]) -> None:
        self.values = values


@dataclass(frozen=True)
class QueryResult:
    """The rows of one query, and the commit they were read from."""

    columns: list[str]
    commit_id: str
    _types: tuple[ValueType, ...] = field(repr=False)
    _values: tuple[pa.Array | PythonColumn, ...] = field(repr=False)
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
        columns = [_json(v, t) for v, t in zip(self._values, self._types, strict=True)]
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


def _arrow(values: pa.Array | PythonColumn, type_: ValueType) -> pa.Array:
    return (
        pa.array(values.values, arrow_type(type_)) if isinstance(values, PythonColumn) else values
    )


def _json(values: pa.Array | PythonColumn, type_: ValueType) -> list[Any]:
    if not isinstance(values, PythonColumn):
        return json_column(values, type_, JsonForm.RESULT)
    if type_.scalar not in FLOATS:
        return values.values
    return [v if v is None or math.isfinite(v) else number_name(v) for v in values.values]
