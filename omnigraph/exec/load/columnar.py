"""Columnar input (Arrow, Parquet, CSV, pandas, polars): conversion to the columns of a type.

Invariant: a value means here what it means in graph NDJSON (`from_columns`). Formats with types of
their own may also bring endpoints as key values.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.ids import other_order
from omnigraph.catalog.model import Catalog, EdgeType, NodeType, Property
from omnigraph.errors import Violation
from omnigraph.exec.load.column_names import ColumnNames
from omnigraph.exec.load.ndjson import BadRecord, Owner, TypedRows, bad, end_columns
from omnigraph.exec.load.pandas_columns import PANDAS_ADVICE, pandas_type
from omnigraph.exec.load.pandas_index import RESET_INDEX, index_names
from omnigraph.exec.load.rule_faults import LOOKED_AT, REJECTS_SHOWN, rule_faults
from omnigraph.exec.load.text_cells import COMMAS, RaggedRow, other_separator
from omnigraph.exec.rules.faults import Faults
from omnigraph.exec.values.arrow_json import NotSure
from omnigraph.exec.values.column_casts import Spelling, cast_column, is_string
from omnigraph.exec.values.columns import in_one
from omnigraph.exec.values.default_cells import default_cells
from omnigraph.exec.values.derived_ids import canonical_texts, derived_ids
from omnigraph.exec.values.from_columns import BadCell, converted, whole_moment
from omnigraph.exec.values.from_input import json_type_name, no_external
from omnigraph.exec.values.mint import ulids
from omnigraph.exec.values.named_ids import end_id, named_ids
from omnigraph.exec.values.scalars import Moment, ReadExternal
from omnigraph.exec.values.utf8_validity import undecodable
from omnigraph.types import Scalar, ValueType

_ENDS = {"from": "src", "to": "dst"}
_WORDS = {name: word for word, name in _ENDS.items()}
ADVICE_ON_COLUMNS = "rename the column or leave it out with columns=, at a terminal --column"
_NO_STRING = "not a string"
_TRUE_OR_FALSE = "write true or false"
_SHOWN_CHARS = 40


def rows_of(
    catalog: Catalog,
    owner: Owner,
    table: pa.Table,
    *,
    rename: ColumnNames,
    is_text: bool = False,
    first: int = 1,
    ragged: Sequence[RaggedRow] = (),
    part: int = 0,
    file: str | None = None,
    keep_rejects: bool = False,
    patch: bool = False,
    read: ReadExternal = no_external,
) -> tuple[TypedRows | None, Faults]:
    """The typed rows of a table of columns, or the faults that refuse it. The table is without the
    `ragged` rows among those it was read from."""
    numbers = _row_numbers(first, table.num_rows, ragged)
    listed_max = None if keep_rejects else LOOKED_AT
    reading = _ColumnsReading(
        catalog, owner, numbers, is_text, read, are_partial=patch, listed_max=listed_max
    )
    named = _named(owner, table, rename, reading)
    faults = Faults(keep_rejects)
    if named is not None:
        reading.read({name: reading.decodable(name, each) for name, each in named.items()})
        faults.merge(ragged_faults(ragged, owner.name, part, file, keep_rejects=keep_rejects))
    for row, violation in reading.wrong:
        if row is not None:
            entity = violation.id or reading.readable_ids[row].as_py()
            violation = replace(violation, id=entity, line=int(numbers[row]))
        faults.add_unread(part, replace(violation, file=file))
    for violation, count in reading.unlisted:
        faults.count(violation, count)
    if faults or named is None:
        if all(row is not None for row, _ in reading.wrong):
            kept = rule_faults(
                owner,
                reading.readable(),
                reading.lines(),
                part,
                file,
                keep_rejects=keep_rejects,
                unread=reading.unread(),
                are_partial=patch,
            )
            faults.merge(kept)
        return None, faults
    rows = reading.rows()
    return replace(rows, absent=_missing(owner, table, named)) if patch else rows, faults


def _row_numbers(first: int, count: int, ragged: Sequence[RaggedRow]) -> np.ndarray:
    numbers = np.arange(first, first + count + len(ragged), dtype=np.int64)
    return np.setdiff1d(numbers, [each.row for each in ragged]) if ragged else numbers


def ragged_faults(
    ragged: Sequence[RaggedRow],
    type_name: str,
    part: int,
    file: str | None,
    *,
    keep_rejects: bool = False,
) -> Faults:
    """The faults of rows of CSV that have too few or too many cells."""
    faults = Faults(keep_rejects)
    if ragged:
        shown = ragged[: REJECTS_SHOWN if keep_rejects else LOOKED_AT]
        violations = [each.violation(type_name, file) for each in shown]
        faults.add_many(part, violations, len(ragged))
        faults.unread.add(type_name)
    return faults


def _missing(owner: Owner, table: pa.Table, named: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    """Properties without a column, which no row of a patch gives."""
    every = pa.repeat(pa.scalar(True), table.num_rows)
    return {prop.name: every for prop in owner.properties if prop.name not in named}


def _named(
    owner: Owner, table: pa.Table, rename: ColumnNames, reading: "_ColumnsReading"
) -> dict[str, pa.Array] | None:
    """The columns by the property, endpoint or id they fill."""
    allowed = {"id", *(prop.name for prop in owner.properties)}
    if isinstance(owner, EdgeType):
        allowed |= {"src", "dst"}
    columns: dict[str, pa.Array] = {}
    unknown: list[str] = []
    for index, name in enumerate(table.column_names):
        target = rename.get(name, name)
        if target is None:
            continue
        if isinstance(owner, EdgeType):
            target = _ENDS.get(target, target)
        if target not in allowed:
            unknown.append(name)
            advice = _separated(name, reading) or f"; {ADVICE_ON_COLUMNS}"
            text = f"unknown property '{target}' of {owner.name}{advice}"
            reading.fault(None, bad("property", text, owner=owner.name, prop=target).violation)
        elif target in columns:
            text = f"two columns fill {owner.name}.{target}"
            reading.fault(None, bad("property", text, owner=owner.name, prop=target).violation)
        elif (kind := pandas_type(table.schema.field(index))) is not None:
            text = f"{owner.name}.{target} is a column of {kind}; {PANDAS_ADVICE}"
            reading.fault(None, bad("property", text, owner=owner.name, prop=target).violation)
        else:
            columns[target] = in_one(table.column(index))
    _refuse_index(owner, table, rename, allowed - columns.keys(), reading)
    if isinstance(owner, EdgeType) and (table.num_columns or table.num_rows):
        _require_ends(owner, columns, unknown, reading)
    return None if reading.wrong else columns


def _refuse_index(
    owner: Owner,
    table: pa.Table,
    rename: ColumnNames,
    unfilled: set[str],
    reading: "_ColumnsReading",
) -> None:
    """Refuse a table of pandas whose index is called like a property that no column fills."""
    fillable = unfilled - ({"id"} if owner.key else set())
    for name in index_names(table.schema):
        target = rename.get(name, name) or ""
        if (_ENDS.get(target, target) if isinstance(owner, EdgeType) else target) in fillable:
            text = f"{owner.name}.{target} has no column: '{name}' is the index of the table"
            wrong = bad("required", f"{text}; {RESET_INDEX}", owner=owner.name, prop=target)
            reading.fault(None, wrong.violation)


def _require_ends(
    owner: EdgeType,
    columns: Mapping[str, pa.Array],
    unknown: Sequence[str],
    reading: "_ColumnsReading",
) -> None:
    """Refuse edges without a column for an endpoint; one whose cells are not parted says more."""
    missing = [word for word, name in _ENDS.items() if name not in columns]
    if missing and not any(_separated(name, reading) for name in unknown):
        reading.fault(None, _without_ends(owner, missing, unknown).violation)


def _without_ends(owner: EdgeType, missing: Sequence[str], unknown: Sequence[str]) -> BadRecord:
    """The refusal of edges without a column for an endpoint, and how a column of another name
    fills it."""
    words = " and ".join(f"`{word}`" for word in missing)
    noun = "a column" if len(missing) == 1 else "columns"
    text = f"{owner.name} needs {noun} for {words}; {end_columns(missing, unknown)}"
    return bad("required", text, owner=owner.name, prop=missing[0])


def _separated(name: str, reading: "_ColumnsReading") -> str:
    """What to do about a column that is several: CSV whose cells another sign separates."""
    sign = other_separator(name) if reading.is_text else None
    return "" if sign is None else f": the cells are separated by {sign!r}; {COMMAS}"


class _ColumnsReading:
    """Conversion of one table of columns; collects violations by row."""

    def __init__(
        self,
        catalog: Catalog,
        owner: Owner,
        numbers: np.ndarray,
        is_text: bool,
        read: ReadExternal,
        *,
        are_partial: bool,
        listed_max: int | None,
    ) -> None:
        self._listed_max = listed_max
        self._are_partial = are_partial
        self._external = read
        self._catalog = catalog
        self._owner = owner
        self._numbers = numbers
        self._count = len(numbers)
        self.is_text = is_text
        self._columns: dict[str, pa.Array] = {}
        self._stated: pa.Array | None = None
        self._given = pa.repeat(pa.scalar(True), self._count)
        self._rounded: dict[str, int] = {}
        self.wrong: list[tuple[int | None, Violation]] = []
        self.unlisted: list[tuple[Violation, int]] = []  # kinds of further cells, and how many
        self._unlisted_rows: dict[str, list[int]] = {}

    def fault(self, row: int | None, violation: Violation) -> None:
        self.wrong.append((row, violation))

    def read(self, named: Mapping[str, pa.Array]) -> None:
        """Fill every column of the type."""
        owner, self._stated = self._owner, named.get("id")
        if isinstance(owner, EdgeType):
            for word, name, node in (("from", "src", owner.source), ("to", "dst", owner.target)):
                values = named.get(name, pa.nulls(0, pa.utf8()))  # no column and no row at all
                self._columns[name] = self._ends(word, self._catalog.nodes[node], values)
        for prop in owner.properties:
            values = named.get(prop.name)
            if values is None and self._is_demanded(prop):
                text = f"column `{prop.name}` is missing: {owner.name} needs it and has no default"
                wrong = bad("required", text, owner=owner.name, prop=prop.name)
                self.fault(None, wrong.violation)
            self._columns[prop.name] = (
                default_cells(prop, self._count)
                if values is None
                else self._typed(prop.name, prop.type, values)
            )
        if not self.wrong:
            self._ids(self._stated)

    def decodable(self, name: str, values: pa.Array) -> pa.Array:
        """A column without the texts that are not UTF-8. Those of CSV were looked at before."""
        prop = _WORDS.get(name, name) if isinstance(self._owner, EdgeType) else name
        try:
            rows = () if self.is_text else undecodable(values)
        except pa.ArrowInvalid as cause:
            text = f"{self._owner.name}.{prop} is a column that cannot be read: {cause}"
            self.fault(None, bad("type", text, owner=self._owner.name, prop=prop).violation)
            return pa.nulls(len(values), pa.utf8())
        if not len(rows):
            return values
        text = f"{self._owner.name}.{prop} has bytes that are not UTF-8 text"
        for row in rows:
            wrong = bad("type", text, owner=self._owner.name, prop=prop)
            self.fault(int(row), wrong.violation)
        every = np.arange(len(values))
        return values.take(pa.array(every, mask=np.isin(every, rows)))

    def _is_demanded(self, prop: Property) -> bool:
        """Whether rows need a column for a property. Rows of a patch need their key alone, and a
        vector may be made of a text."""
        if self._count == 0 or prop.type.nullable or prop.default is not None or prop.embed:
            return False
        return not self._are_partial or prop.name in self._owner.key

    def rows(self) -> TypedRows:
        schema = self._owner.schema
        table = pa.Table.from_arrays([self._columns[n] for n in schema.names], schema=schema)
        return TypedRows(self._owner, table, self.lines(), self._given, self._rounded)

    def lines(self) -> pa.Array:
        return pa.array(self._numbers)

    def readable(self) -> pa.Table:
        """The columns as far as they could be read, null where a cell could not."""
        return pa.table({"id": self.readable_ids, **self._columns})

    @cached_property
    def readable_ids(self) -> pa.Array:
        """The ids of the rows as far as their keys, or else the stated ids, could be read."""
        owner, none = self._owner, pa.nulls(self._count, pa.utf8())
        if not owner.key:
            stated = self._stated
            return none if stated is None or not is_string(stated.type) else stated.cast(pa.utf8())
        known = pa.repeat(pa.scalar(True), self._count)
        for name in owner.key:
            known = pc.and_(known, self._columns[name].is_valid())
        keys = {name: self._columns[name].filter(known) for name in owner.key}
        return pc.replace_with_mask(none, known, derived_ids(owner, keys))

    def unread(self) -> dict[str, set[int]]:
        """The rows of each column whose cell could not be read."""
        ends = _ENDS if isinstance(self._owner, EdgeType) else {}
        rows = {name: set(unlisted) for name, unlisted in self._unlisted_rows.items()}
        for row, violation in self.wrong:
            if row is not None and violation.property is not None:
                rows.setdefault(ends.get(violation.property, violation.property), set()).add(row)
        return rows

    def _typed(self, name: str, value_type: ValueType, values: pa.Array) -> pa.Array:
        done = converted(
            values, value_type, self._external, is_text=self.is_text, bad_max=self._listed_max
        )
        if done.rounded:
            self._rounded[name] = done.rounded
        for each in done.bad:
            text = f"{self._owner.name}.{name} {self._said(each, value_type)}"
            owner, rule = self._owner.name, each.unfit.rule
            self.fault(
                each.row, bad(rule, text, owner=owner, prop=name, value=each.value).violation
            )
        for rule, count in done.unlisted.items():
            self.unlisted.append((Violation(rule, self._owner.name, name, None, None, ""), count))
            self._unlisted_rows[name] = done.unlisted_rows
        return done.cells

    def _said(self, cell: BadCell, value_type: ValueType) -> str:
        """What is wrong with a cell. Of text the cell is shown: each is a string."""
        said, scalar = cell.unfit.text, value_type.scalar
        if self.is_text and isinstance(cell.value, str) and said.endswith(_NO_STRING):
            shown = said.removesuffix(_NO_STRING) + f"not '{cell.value[:_SHOWN_CHARS]}'"
            if value_type.is_list:
                return f'{shown}; write a list as JSON, like ["a", "b"]'
            return f"{shown}; {_TRUE_OR_FALSE}" if scalar is Scalar.BOOL else shown
        if self.is_text and scalar is Scalar.BOOL:
            return f"{said}; {_TRUE_OR_FALSE}"
        if scalar is Scalar.DATE and isinstance(cell.value, datetime):
            return f"{said}; cast the column to dates (`dt.date` of pandas, `CAST(… AS DATE)`)"
        return said

    def _ends(self, word: str, node: NodeType, values: pa.Array) -> pa.Array:
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        whole = _end_texts(node, values)
        if whole is not None:
            return whole
        kept = [end_id(node, whole_moment(value)) for value in values.to_pylist()]
        unread = {row for row, each in self.wrong if each.property == word}
        for row, end in enumerate(kept):
            if not isinstance(end, str) and not unread & {row, None}:
                rule = "required" if end is None else "type"
                kind = json_type_name(end)
                why = f"{end} {end.why}" if isinstance(end, Moment) else f"not {kind}"
                text = f"{self._owner.name} needs `{word}`, a string or a key, {why}"
                wrong = bad(rule, text, owner=self._owner.name, prop=word, value=end)
                self.fault(row, wrong.violation)
        return pa.array([end if isinstance(end, str) else None for end in kept], pa.utf8())

    def _ids(self, stated: pa.Array | None) -> None:
        owner = self._owner
        if stated is None:
            stated = pa.nulls(self._count, pa.utf8())
        elif not is_string(stated.type) and not pa.types.is_null(stated.type):
            text = f"the ids of {owner.name} must be strings"
            self.fault(None, bad("type", text, owner=owner.name, prop="id").violation)
            return
        stated = stated.cast(pa.utf8())
        if owner.key:
            self._keyed(owner, stated)
            return
        fresh = ulids(stated.null_count)
        self._given = stated.is_valid()
        self._columns["id"] = (
            fresh
            if len(fresh) == len(stated)
            else pc.replace_with_mask(stated, stated.is_null(), fresh)
        )

    def _keyed(self, owner: Owner, stated: pa.Array) -> None:
        for name in owner.key:
            for row in pc.indices_nonzero(self._columns[name].is_null()).to_pylist():
                text = f"{owner.name}.{name} is non-nullable: a @key property cannot contain null"
                wrong = bad("required", text, owner=owner.name, prop=name)
                self.fault(row, wrong.violation)
        if self.wrong:
            return
        derived = derived_ids(owner, self._columns)
        differs = pc.fill_null(pc.not_equal(stated, derived), False)
        for row in pc.indices_nonzero(differs).to_pylist():
            own, other = derived[row].as_py(), stated[row].as_py()
            text = f"id '{other}' is not the id '{own}' that the key of {owner.name} has"
            text = f"{text}{other_order(other, own)}"
            wrong = bad("key_id", text, owner=owner.name, prop="id", id=own, value=other)
            self.fault(row, wrong.violation)
        self._columns["id"] = derived


def _end_texts(node: NodeType, values: pa.Array) -> pa.Array | None:
    """The ids that a column of ids or of keys names, at once; None where `end_id` has to say it."""
    if values.null_count:
        return None
    if is_string(values.type):
        return named_ids(node, values.cast(pa.utf8()))
    prop = node.property(node.key[0]) if len(node.key) == 1 else None
    if prop is None or pa.types.is_floating(values.type) or pa.types.is_decimal(values.type):
        return None
    try:
        return canonical_texts(prop.type, cast_column(values, prop.type, Spelling.TYPED))
    except (NotSure, pa.ArrowException):
        return None
