"""Functions over arrays agree with functions over single values, nulls and extremes included."""

import math
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.catalog.arrow import arrow_type
from omnigraph.errors import ExpressionFailed
from omnigraph.exec.values.arithmetic import RowFault
from omnigraph.exec.values.computed import constants_of
from omnigraph.exec.values.evaluate import KERNELS
from omnigraph.plan import ir
from omnigraph.plan.function_types import arithmetic_type
from omnigraph.plan.functions import FUNCTIONS, OPERATORS, OTHER_OPERATORS
from omnigraph.types import INTEGER_BOUNDS, Scalar, ValueType
from tests.exec.reference_functions import NoValue, called
from tests.exec.world import graph_of

S = Scalar
TEXTS = ("", "a", "Ab", " x ", "雪é", "a-b-c", "--", "12", "-7", "true", "2024-02-29")
VALUES: dict[Scalar, st.SearchStrategy[Any]] = {
    scalar: st.sampled_from((0, 1, 2, 7, low, high, high - 1)) | st.integers(low, high)
    for scalar, (low, high) in INTEGER_BOUNDS.items()
}
VALUES |= {
    S.F64: st.sampled_from((0.0, -0.0, 0.5, -2.5, 3.0, 1e300, math.inf, -math.inf, math.nan))
    | st.floats(-1e6, 1e6),
    S.F32: st.sampled_from((0.0, 0.5, -2.5, 3.0)),
    S.STRING: st.sampled_from(TEXTS),
    S.BOOL: st.booleans(),
    S.DATE: st.sampled_from((0, -1, 19782, -719162, 2932896)) | st.integers(-719162, 2932896),
    S.DATETIME: st.sampled_from((0, -1, 1709202615123)) | st.integers(-(10**13), 10**13),
}
NUMBERS = (S.I32, S.I64, S.U32, S.U64, S.F64, S.F32)
SMALL = st.integers(-3, 3)
SIGNATURES: dict[str, list[tuple[Any, ...]]] = {
    **{op: [(a, b) for a in NUMBERS for b in NUMBERS] for op in OPERATORS if op != "negate"},
    **{name: [(a,) for a in NUMBERS] for name in ("negate", "abs", "floor", "ceil", "sign")},
    "div": [(a, b) for a in NUMBERS[:4] for b in NUMBERS[:4]],
    "round": [(a,) for a in NUMBERS] + [(S.I64, SMALL)],
    "sqrt": [(a,) for a in NUMBERS],
    **{name: [(S.STRING,)] for name in ("trim", "length")},
    "lower": [(S.STRING,)],
    "upper": [(S.STRING,)],
    "concat": [(S.STRING, S.STRING)],
    "ends_with": [(S.STRING, S.STRING)],
    "substring": [(S.STRING, SMALL), (S.STRING, SMALL, SMALL)],
    "replace": [(S.STRING, S.STRING, S.STRING)],
    "highlight": [(S.STRING, S.STRING), (S.STRING, S.STRING, S.STRING, S.STRING)],
    "split": [(S.STRING, S.STRING)],
    **{name: [(S.DATE,), (S.DATETIME,)] for name in ("year", "month", "day", "weekday")},
    **{name: [(S.DATETIME,)] for name in ("hour", "minute", "second")},
    "add_days": [(S.DATE, SMALL), (S.DATETIME, SMALL), (S.DATE, S.I64)],
    "add_seconds": [(S.DATETIME, SMALL), (S.DATETIME, S.I64)],
    "days_between": [(S.DATE, S.DATE)],
    "ms_between": [(S.DATETIME, S.DATETIME)],
    "date": [(S.DATE,), (S.DATETIME,)],
    "datetime": [(S.DATE,), (S.DATETIME,)],
    "I64": [(a,) for a in (*NUMBERS, S.STRING)],
    "I32": [(a,) for a in (*NUMBERS, S.STRING)],
    "U64": [(a,) for a in (*NUMBERS, S.STRING)],
    "F64": [(a,) for a in NUMBERS[:4]],
    "String": [(a,) for a in (S.I32, S.I64, S.U64, S.BOOL, S.DATE, S.DATETIME)],
    **{n: [(S.I64, S.I64), (S.F64, S.F64), (S.STRING, S.STRING)] for n in ("least", "greatest")},
    "coalesce": [(S.I64, S.I64), (S.STRING, S.STRING), (S.DATE, S.DATE, S.DATE)],
}


def result_type(name: str, kinds: list[ValueType]) -> ValueType:
    if name in OPERATORS:
        kind = arithmetic_type(kinds[0], kinds[-1])
        assert kind is not None
        if name == "negate" and kind.scalar is S.U64:
            return ValueType(S.I64)
        return ValueType(S.F64) if name == "divide" else kind
    if name in OTHER_OPERATORS:
        return ValueType(S.STRING if name == "concat" else S.I64)
    result = FUNCTIONS[name].result(kinds)
    assert result is not None
    return result


def same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return list(left) == list(right)
    return bool(left == right)


@settings(max_examples=300, deadline=None)
@given(name=st.sampled_from(sorted(SIGNATURES)), data=st.data())
def test_kernels_agree_with_single_values(name: str, data: st.DataObject) -> None:
    signature = data.draw(st.sampled_from(SIGNATURES[name]))
    scalars = [part if isinstance(part, Scalar) else S.I64 for part in signature]
    kinds = [ValueType(scalar) for scalar in scalars]
    cells = [VALUES[p] if isinstance(p, Scalar) else p for p in signature]
    rows = data.draw(st.lists(st.tuples(*(st.none() | cell for cell in cells)), max_size=5))
    kind = result_type(name, kinds)
    arguments = [ir.Const(None, each) for each in kinds]
    arrays = [pa.array([row[n] for row in rows], arrow_type(each)) for n, each in enumerate(kinds)]
    expected: list[Any] = []
    fails = None
    for n, row in enumerate(rows):
        try:
            expected.append(called(name, list(row), arguments, kind))
        except NoValue:
            fails = n
            break
    if fails is not None:
        with pytest.raises(RowFault) as caught:
            KERNELS[name](arrays, kind)
        if name != "substring":  # it goes from pattern to pattern
            assert caught.value.row == fails
        return
    values = KERNELS[name](arrays, kind)
    actual = constants_of(values.cast(arrow_type(kind)), kind)
    assert len(actual) == len(expected)
    assert all(map(same, actual, expected)), f"{name} {rows}: {actual}, not {expected}"


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("10 / ($p.n - 2)", "division by zero"),
        ("$p.n % ($p.n - 2)", "division by zero"),
        ("9223372036854775807 - 3 + $p.n * 2", "does not fit I64"),
        ("sqrt(1 - $p.n)", "root of a negative"),
        ("I32($p.n * 2147483647)", "is no I32"),
        ("I64($p.k)", "is no I64"),
        ("$p.d + 36500000d", "outside the years"),
        ('$p.k matches substring("a[", $p.n - 1)', "no regular expression"),
    ],
)
def test_a_value_that_does_not_exist_names_its_row(
    tmp_path: Path, expression: str, reason: str
) -> None:
    with graph_of(tmp_path / "g", "node P { k: String @key  n: I64  d: Date }") as graph:
        day = "2024-01-31"
        add = "query add($k: String, $n: I64, $d: Date) { insert P { k: $k, n: $n, d: $d } }"
        for k, n in (("1", 1), ("b", 2)):
            graph.mutate(add, {"k": k, "n": n, "d": day})
        text = f'query q() {{ match {{ $p: P {{ k: "b" }} }} return {{ {expression} as x }} }}'
        with pytest.raises(ExpressionFailed, match=re.escape(reason)) as caught:
            graph.query(text)
        assert "$p = 'b'" in str(caught.value)


def test_an_update_reads_the_row_as_it_was_and_names_what_does_not_fit(tmp_path: Path) -> None:
    schema = "node P { k: String @key  n: I32  m: I32  f: F64?  s: String? }"
    with graph_of(tmp_path / "g", schema) as graph:
        add = "query add($k: String, $n: I32) { insert P { k: $k, n: $n, m: $n * 10 + 1 } }"
        for k, n in (("a", 1), ("b", 2), ("c", 2**30)):
            graph.mutate(add.replace("* 10 + 1", "% 100"), {"k": k, "n": n})
        swap = """query swap($by: I32 = 5) {
          update P set { n: m, m: n + $by, f: n / 4, s: upper(k) + String(n) } where n * 2 < 5 }"""
        graph.mutate(swap)
        rows = graph.query("query q() { match { $p: P } return { $p.k, $p.n, $p.m, $p.f, $p.s } }")
        assert [tuple(row.values()) for row in rows.rows] == [
            ("a", 1, 6, 0.25, "A1"),
            ("b", 2, 7, 0.5, "B2"),
            ("c", 2**30, 2**30 % 100, None, None),
        ]
        before = graph.snapshot().commit_id
        with pytest.raises(ExpressionFailed, match="id 'c'") as failed:
            graph.mutate("query q() { update P set { n: n * 2 } where n > 0 }")
        assert failed.value.expression == "multiply(n, 2)"
        assert graph.snapshot().commit_id == before


def test_a_default_counts_where_a_parameter_is_left_out(tmp_path: Path) -> None:
    with graph_of(tmp_path / "g", "node P { k: String @key  n: I64? }") as graph:
        graph.mutate('query add() { insert P { k: "a", n: 3 } }')
        text = """query q($n: I64 = 1 + 2, $s: String? = "x", $t: DateTime = now() - 30d) {
          match { $p: P  $p.n = $n } return { $n, $s, $t < now() as past } }"""
        assert graph.query(text).rows == [{"n": 3, "s": "x", "past": True}]
        assert graph.query(text, {"n": 3, "s": None}).rows == [{"n": 3, "s": None, "past": True}]
        assert graph.query(text, {"n": 4}).rows == []


def test_a_branch_that_is_not_taken_is_not_worked_out(tmp_path: Path) -> None:
    with graph_of(tmp_path / "g", "node P { k: String @key  n: I64? }") as graph:
        graph.mutate('query add() { insert P { k: "a", n: 0 } }')
        text = """query q($z: I64) { match { $p: P } return {
          case when $p.n = 0 then -1 else 10 / $p.n end as a,
          case when $z = 0 then -1.0 else 10 / $z end as b,
          case when true then 1 else 1 % 0 end as c } }"""
        assert graph.query(text, {"z": 0}).rows == [{"a": -1.0, "b": -1.0, "c": 1}]
