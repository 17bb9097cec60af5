"""Query results: typed columns as Arrow, pandas or polars, and the same rows as JSON values.

Invariant: the columns are typed Arrow arrays in projection order; `rows` are the same values as
JSON has them, made at their first use. A result of few rows comes as Python values, and then the
arrays are made at their first use.
"""

import math
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, overload

import pyarrow as pa

from omnigraph.catalog.arrow import arrow_type
from omnigraph.errors import BadRequest
from omnigraph.exec.profile import Profile
from omnigraph.exec.read.object_fold import folded, json_objects, struct_column
from omnigraph.exec.values.scalars import JsonForm, number_name
from omnigraph.exec.values.to_json import json_column
from omnigraph.extras import optional
from omnigraph.light_dataclass import dataclass
from omnigraph.plan import ir
from omnigraph.preview import ROWS_SHOWN, counted, html_preview, text_preview
from omnigraph.types import FLOATS, ValueType

JsonRow = dict[str, Any]


class PythonColumn:
    """A column of a few texts, numbers or truth values, as Python values."""

    __slots__ = ("values",)

    def __init__(self, values: list[Any]) -> None:
        self.values = values


@dataclass(frozen=True, repr=False, eq=False)
class QueryResult:
    """The rows of one query, and the commit they were read from.

    >>> result = graph.query("query q() { match { $p: Person  $p.age > 1 } return { $p.age } }")
    >>> result.scalar(), result.columns, len(result)
    (36, ['p.age'], 1)
    """

    columns: list[str]
    commit_id: str
    _types: tuple[ValueType, ...]
    _values: tuple[pa.Array | PythonColumn, ...]
    _length: int
    _plan: ir.ReadPlan
    _profile: Profile
    _parts: "Sequence[QueryResult]" = ()  # of a union
    _object_columns: tuple[ir.ObjectColumn, ...] = ()

    @property
    def query_name(self) -> str:
        """Which query of the text ran."""
        return self._plan.name

    @cached_property
    def rows(self) -> list[JsonRow]:
        """JSON-ready rows. Of two columns with one name a row keeps the last, and a warning says
        so."""
        _warn_of_lost(self)
        return json_rows(self)

    def tuples(self, limit: int | None = None) -> list[tuple[Any, ...]]:
        """The rows, or the first of them, as tuples in the order of `columns`; two columns may have
        one name here.

        >>> graph.query("query q() { match { $p: Person } return { $p.name, $p.age } }").tuples()
        [('Ada', 36)]
        """
        length = self._length if limit is None else min(limit, self._length)
        if not self.columns:
            return [() for _ in range(length)]
        return list(zip(*_json_columns(self, _cut(self._values, 0, length)), strict=True))

    def _rows_of(self, values: Sequence[pa.Array | PythonColumn], length: int) -> list[JsonRow]:
        names = self.columns
        if not names:
            return [{} for _ in range(length)]
        columns = _json_columns(self, values)
        if len(names) == 1:
            name = names[0]
            return [{name: value} for value in columns[0]]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def _part(self, start: int, length: int) -> list[JsonRow]:
        if "rows" in self.__dict__:
            return self.rows[start : start + length]
        _warn_of_lost(self)
        return self._rows_of(_cut(self._values, start, length), length)

    def _preview(self) -> tuple[str, list[str], list[tuple[Any, ...]], int]:
        cells = self.tuples(ROWS_SHOWN)
        rows, columns = counted(self._length, "row"), counted(len(self.columns), "column")
        title = f"QueryResult('{self.query_name}', {rows}, {columns}, commit {self.commit_id})"
        return title, self.columns, cells, self._length

    def __repr__(self) -> str:
        return text_preview(*self._preview())

    def _repr_html_(self) -> str:
        return html_preview(*self._preview())

    def __eq__(self, other: object) -> bool:
        """Return whether another result has the same columns and rows, of the same commit."""
        if not isinstance(other, QueryResult):
            return NotImplemented
        if (self.columns, self.commit_id) != (other.columns, other.commit_id):
            return False
        ours, theirs = self.to_arrow(), other.to_arrow()
        if ours.schema != theirs.schema or len(ours) != len(theirs):
            return False
        return ours.equals(theirs) or self.tuples() == other.tuples()  # NaN is no number to Arrow

    def __hash__(self) -> int:
        return hash((*self.columns, self.commit_id, self._length))

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[JsonRow]:
        return iter(self.rows)

    @overload
    def __getitem__(self, index: int) -> JsonRow: ...
    @overload
    def __getitem__(self, index: slice) -> list[JsonRow]: ...
    def __getitem__(self, index: int | slice) -> JsonRow | list[JsonRow]:
        """A row by its number, or several by a slice; only these are converted."""
        if isinstance(index, str):
            raise BadRequest(
                f"a result is a list of rows, and '{index}' is no number of one",
                f"ask for [row[{index!r}] for row in result.rows], or result.to_arrow()[{index!r}]",
            )
        chosen = range(self._length)[index]
        if isinstance(chosen, int):
            return self._part(chosen, 1)[0]
        if chosen.step == 1:
            return self._part(chosen.start, len(chosen))
        return [self.rows[number] for number in chosen]

    def one(self) -> JsonRow:
        """The only row; `BadRequest` if there is none or another."""
        if self._length != 1:
            raise BadRequest(
                f"query '{self.query_name}' gave {counted(self._length, 'row')}, not one",
                "ask for `rows`, or narrow the query",
            )
        return self[0]

    def scalar(self) -> Any:
        """The only value: of one row with one column."""
        if len(self.columns) != 1:
            raise BadRequest(
                f"query '{self.query_name}' has {counted(len(self.columns), 'column')}, not one",
                "return one value, or ask for `one()`",
            )
        return self.one()[self.columns[0]]

    def to_arrow(self) -> pa.Table:
        """The columns as an Arrow table; an object is a struct."""
        columns = folded(_arrays(self), self._object_columns, struct_column)
        return pa.Table.from_arrays(columns, names=self.columns)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The columns for any library that takes Arrow: `pl.DataFrame(result)`, DuckDB."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_pandas(self) -> Any:
        """The columns as a pandas frame."""
        optional("pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """The columns as a polars frame."""
        polars = optional("polars")
        require_distinct(self.columns, "a polars frame")
        return polars.from_arrow(self.to_arrow())

    def explain(self) -> str:
        """The plan that ran, one line an operator, with rows and milliseconds."""
        if self._parts:
            return "".join(part.explain() for part in self._parts)
        return self._profile.explain(self._plan)


def json_rows(result: QueryResult) -> list[JsonRow]:
    """The rows without the warning, for callers that give the columns beside them."""
    return result._rows_of(result._values, result._length)


def _warn_of_lost(result: QueryResult) -> None:
    columns = result.columns
    if len(result) and len(set(columns)) < len(columns):
        text = f"several columns are called '{repeated(columns)}', and a row keeps the last"
        advice = "name them apart in return: … as other; or take tuples()"
        warnings.warn(f"{text}; {advice}", stacklevel=4)


def repeated(columns: Sequence[str]) -> str | None:
    """The first name that several columns have."""
    return next((name for name, times in Counter(columns).items() if times > 1), None)


def require_distinct(columns: Sequence[str], taker: str) -> None:
    """Pass only for columns with names of their own, which what takes them needs."""
    if (name := repeated(columns)) is not None:
        text = f"{taker} cannot have two columns called '{name}'"
        raise BadRequest(text, "name them apart in return: … as other")


def _cut(
    values: Sequence[pa.Array | PythonColumn], start: int, length: int
) -> list[pa.Array | PythonColumn]:
    """The values of a few rows in a row."""
    return [
        PythonColumn(each.values[start : start + length])
        if isinstance(each, PythonColumn)
        else each.slice(start, length)
        for each in values
    ]


def plain_columns(result: QueryResult) -> pa.Table:
    """The columns of a result's plan, those of objects one by one."""
    names = [column.name for column in result._plan.columns]
    return pa.Table.from_arrays(_arrays(result), names=names)


def _arrays(result: QueryResult) -> list[pa.Array]:
    return [_arrow(v, t) for v, t in zip(result._values, result._types, strict=True)]


def _json_columns(
    result: QueryResult, values: Sequence[pa.Array | PythonColumn]
) -> list[list[Any]]:
    columns = [_json(v, t) for v, t in zip(values, result._types, strict=True)]
    objects = result._object_columns
    return folded(columns, objects, json_objects) if objects else columns


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
