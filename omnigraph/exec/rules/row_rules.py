"""Row rules over Arrow: which rows of a batch break a rule by themselves.

Invariant: a mask is true exactly where the rule is broken and never null, so a null value passes
every rule but `Required`. Numbers are compared by mathematical value, regular expressions are RE2.
"""

import math
from collections.abc import Iterable
from datetime import UTC, date, datetime
from typing import Any, assert_never

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import Violation
from omnigraph.exec.rules.rules import (
    VIOLATIONS_LISTED,
    Dimension,
    Matching,
    OneOf,
    Required,
    RowRule,
    RuleViolations,
    WholeItems,
    Within,
    joined,
)


def check_rows(
    rules: Iterable[RowRule], rows: pa.Table, *, listed: int | None = VIOLATIONS_LISTED
) -> RuleViolations:
    """Every row rule over every row; `listed` None lists every violation. A rule is
    skipped when the rows lack its column."""
    names = set(rows.schema.names)
    asked = (rule for rule in rules if rule.column in names)
    return joined([_check(rule, rows, listed) for rule in asked], listed=listed)


def _check(rule: RowRule, rows: pa.Table, listed: int | None) -> RuleViolations:
    mask = broken(rule, rows.column(rule.column).combine_chunks())
    total = pc.sum(mask).as_py() or 0
    if not total:
        return RuleViolations()
    picked = pc.indices_nonzero(mask)[:listed]
    wrong = rows.select(["id", rule.column]).take(picked).to_pylist()
    return RuleViolations(
        tuple(_violation(rule, row["id"], row[rule.column]) for row in wrong), total
    )


# ---- masks


def broken(rule: RowRule, values: pa.Array) -> pa.BooleanArray:
    """Where the values break the rule."""
    match rule:
        case Required():
            return pc.is_null(values)
        case OneOf(values=allowed):
            member = pc.is_in(values, value_set=pa.array(allowed, values.type))
            return _false_where_null(pc.invert(member), values)
        case Matching(pattern=pattern):
            return _false_where_null(
                pc.invert(pc.match_substring_regex(values, pattern=pattern)), values
            )
        case Within(low=low, high=high):
            return _false_where_null(pc.invert(_inside(values, low, high)), values)
        case Dimension(numbers=numbers):
            return _false_where_null(pc.not_equal(pc.list_value_length(values), numbers), values)
        case WholeItems():
            return _has_null_item(values)
        case _:
            assert_never(rule)


def _false_where_null(mask: pa.BooleanArray, values: pa.Array) -> pa.BooleanArray:
    return pc.and_(pc.is_valid(values), pc.fill_null(mask, False))


def _inside(values: pa.Array, low: float | None, high: float | None) -> pa.BooleanArray:
    """Whether low ≤ value ≤ high; false for NaN."""
    if pa.types.is_floating(values.type):
        values = values.cast(pa.float64())
        bounds = _float_at_least(low), _float_at_most(high)
    else:
        bounds = (
            None if low is None else math.ceil(low),
            None if high is None else math.floor(high),
        )
        # Every integer type fits, and so does every bound after the clamp.
        values = values.cast(pa.decimal128(38, 0))
    return pc.and_(_at_least(values, bounds[0]), _at_most(values, bounds[1]))


_DECIMAL_MAX = 10**30


def _at_least(values: pa.Array, low: float | None) -> pa.BooleanArray:
    return _everywhere(values) if low is None else pc.greater_equal(values, _bound(values, low))


def _at_most(values: pa.Array, high: float | None) -> pa.BooleanArray:
    return _everywhere(values) if high is None else pc.less_equal(values, _bound(values, high))


def _bound(values: pa.Array, bound: float) -> pa.Scalar:
    if pa.types.is_floating(values.type):
        return pa.scalar(bound, values.type)
    return pa.scalar(max(-_DECIMAL_MAX, min(_DECIMAL_MAX, int(bound))), values.type)


def _everywhere(values: pa.Array) -> pa.BooleanArray:
    return pc.equal(values, values)


def _float_at_least(low: float | None) -> float | None:
    """The least float that is not below the bound."""
    if low is None or float(low) >= low:
        return None if low is None else float(low)
    return math.nextafter(float(low), math.inf)


def _float_at_most(high: float | None) -> float | None:
    """The greatest float that is not above the bound."""
    if high is None or float(high) <= high:
        return None if high is None else float(high)
    return math.nextafter(float(high), -math.inf)


def _has_null_item(values: pa.Array) -> pa.BooleanArray:
    """Where a list holds a null. Parents of flattened items say which list."""
    items = pc.list_flatten(values)
    if not items.null_count:
        return pa.repeat(pa.scalar(False), len(values))
    wrong = pc.list_parent_indices(values).filter(pc.is_null(items))
    return pc.is_in(pa.array(range(len(values)), wrong.type), value_set=wrong)


# ---- texts


def _violation(rule: RowRule, entity_id: str | None, value: Any) -> Violation:
    name = f"{rule.type_name}.{rule.column}"
    match rule:
        case Required(word=word):
            text = f"{rule.type_name}.{word} is non-nullable and has no value"
            return Violation("required", rule.type_name, word, entity_id, None, text)
        case OneOf(values=allowed):
            text = f"invalid enum value '{value}' for {name} (expected: {', '.join(allowed)})"
            kind = "enum"
        case Matching(pattern=pattern):
            text = f"@check violation on {name}: value '{value}' does not match pattern '{pattern}'"
            kind = "check"
        case Within():
            text = f"@range violation on {name}: {_outside(rule, value)}"
            kind = "range"
        case Dimension(numbers=numbers):
            text = f"{name} needs {numbers} numbers, not {len(value)}"
            kind = "vector"
        case WholeItems():
            text = f"{name} holds a null: the items of a list cannot be null"
            kind = "list"
        case _:
            assert_never(rule)
    return Violation(kind, rule.type_name, rule.column, entity_id, shown(value), text)


def _outside(rule: Within, value: float) -> str:
    if rule.high is not None and value > rule.high:
        return f"value {shown(value)} > max {shown(rule.high)}"
    if rule.low is not None and value < rule.low:
        return f"value {shown(value)} < min {shown(rule.low)}"
    return f"value {shown(value)} is not a number"


_SHOWN_CHARS = 200


def shown(value: Any) -> str:
    """A value as a violation shows it: JSON's words, ISO moments, cut when long."""
    match value:
        case bool():
            text = "true" if value else "false"
        case datetime():
            moment = value.astimezone(UTC)
            text = f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z"
        case date():
            text = value.isoformat()
        case _:
            text = str(value)
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"
