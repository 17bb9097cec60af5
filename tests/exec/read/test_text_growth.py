"""Texts that expressions make are announced before they are made, in pieces that end at a deadline.

Example of what failed: `replace` nested 8 times took gigabytes and half a minute under limits of
256 MiB and 500 ms, and 35 doublings raised `ArrowCapacityError`.
"""

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import query_limits
from omnigraph.errors import ExpressionFailed, LimitExceeded
from omnigraph.exec.limits import Limits, Stop, Watch, watched_by
from omnigraph.exec.read import codes
from omnigraph.exec.read.reading import Reading
from omnigraph.exec.values import bounded
from omnigraph.exec.values.bounded import bytes_of_rows, in_pieces, repeat
from omnigraph.exec.values.evaluate import KERNELS
from omnigraph.exec.values.text_kernels import TEXTS
from omnigraph.types import Scalar, ValueType

SCHEMA = "node P { name: String @key  note: String?  tags: [String]? }"
TEXT = ValueType(Scalar.STRING, nullable=True)
LISTED = ValueType(Scalar.STRING, is_list=True, nullable=True)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[og.Graph]:
    with og.init(tmp_path_factory.mktemp("growth") / "g", SCHEMA, durability="os") as made:
        rows = [{"name": f"p{n}", "note": "ab" * 10, "tags": ["x", "y"]} for n in range(50)]
        made.load(rows, "merge", type="P")
        made._reading = Reading(made._store, Limits(memory_bytes_max=256 << 20))
        yield made


def nested(inner: str, times: int = 8) -> str:
    for _ in range(times):
        inner = f'replace({inner}, "a", "{"a" * 30}")'
    return inner


def returned(expression: str) -> str:
    return f"query q() {{ match {{ $p: P }} return {{ {expression} as x }} }}"


BIG = 'replace("' + "a" * 1000 + '", "a", "' + "b" * 3500 + '")'  # 3.5 MB
GROWING = {
    "nested replace": returned(nested("$p.note")),
    "of a constant": returned(nested('"a"')),
    "in a condition": f"query q() {{ match {{ $p: P  length({nested('$p.note')}) > 1 }} "
    "return { $p.name } }",
    "doubled": "query q() { match { $p: P } with { $p.note as x } "
    + " ".join(
        f"match {{ length($x{i or ''}) > 0 }} with {{ $x{i or ''} + $x{i or ''} as x{i + 1} }}"
        for i in range(35)
    )
    + " match { length($x35) > 0 } return { length($x35) as n } }",
    "joined": returned(f'join(split({BIG}, "bb"), {BIG})'),
    "split": returned(f'size(split({BIG}, "b"))'),
    "highlighted": returned(f'highlight({BIG}, "b", {BIG}, {BIG}) + {BIG}'),
    "a constant for each row": returned(f"$p.note + {BIG}"),
    "many columns": "query q() { match { $p: P } return { "
    + ", ".join(f'{BIG} + "{n}" as c{n}' for n in range(200))
    + " } }",
}


@pytest.mark.parametrize("kind", sorted(GROWING))
def test_a_text_that_would_grow_beyond_a_limit_is_refused(graph: og.Graph, kind: str) -> None:
    before = pa.total_allocated_bytes()
    pool = pa.default_memory_pool()
    peak_before = pool.max_memory()
    with pytest.raises(LimitExceeded):
        graph.query(GROWING[kind])
    assert pool.max_memory() - max(before, peak_before) < 600 << 20


def test_a_mutation_is_bounded_as_well(graph: og.Graph) -> None:
    for statement in (
        f'update P set {{ note: {nested("note")} }} where name = "p1"',
        f'insert P {{ name: "new", note: {nested(chr(34) + "a" + chr(34))} }}',
        f"delete P where length({nested('note')}) > 1",
    ):
        with pytest.raises(LimitExceeded, match="bytes of one text"):
            graph.mutate(f"query q() {{ {statement} }}")


def test_a_default_of_a_parameter_is_bounded(graph: og.Graph) -> None:
    text = f"query q($a: String = {nested(chr(34) + 'a' + chr(34))}) "
    with pytest.raises(LimitExceeded, match="bytes of one text"):
        graph.query(text + "{ match { $p: P } return { length($a) as n } }")


def test_values_of_a_request_count_together(graph: og.Graph) -> None:
    columns = ", ".join(f'length(upper({BIG}) + "{n}") as c{n}' for n in range(80))
    with pytest.raises(LimitExceeded, match="query memory"):
        graph.query(f"query q() {{ match {{ $p: P }} return {{ {columns} }} }}")


def test_texts_within_the_limits_are_made(graph: og.Graph) -> None:
    rows = graph.query(returned(f"length({nested('$p.note', 3)})")).rows
    assert rows == [{"x": 10 + 10 * 30**3}] * 50


def test_errors_show_a_part_of_a_long_text(graph: og.Graph) -> None:
    for expression in (f"I64({BIG})", f"date({BIG})", f'"a" matches ({BIG} + "(")'):
        with pytest.raises(ExpressionFailed) as caught:
            graph.query(returned(expression))
        assert len(str(caught.value)) < 1_000


def test_the_work_ends_when_the_answer_was_given(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two pieces nothing more is done once a query is cancelled."""
    monkeypatch.setattr(bounded, "PIECE_BYTES", 100)
    stop, pieces = Stop(), []
    upper = TEXTS["upper"]

    def counted(arrays: list[pa.Array], kind: ValueType) -> pa.Array:
        pieces.append(len(arrays[0]))
        if len(pieces) == 3:
            stop.cancel()
        return upper(arrays, kind)

    monkeypatch.setitem(KERNELS, "upper", counted)
    with pytest.raises(LimitExceeded, match="query time"):
        graph.query(returned("upper($p.note)"), stop=stop)
    assert len(pieces) == 3


_CALLS = [
    ("concat", TEXT, "text", "text"),
    ("replace", TEXT, "text", "part", "text"),
    ("lower", TEXT, "text"),
    ("upper", TEXT, "text"),
    ("trim", TEXT, "text"),
    ("length", ValueType(Scalar.I64, nullable=True), "text"),
    ("substring", TEXT, "text", "number", "number"),
    ("split", LISTED, "text", "part"),
    ("join", TEXT, "list", "part"),
    ("highlight", TEXT, "text", "part"),
    ("size", ValueType(Scalar.I64, nullable=True), "list"),
    ("element", TEXT, "list", "number"),
    ("overlaps", ValueType(Scalar.BOOL, nullable=True), "list", "list"),
    ("coalesce", TEXT, "text", "text"),
    ("greatest", TEXT, "text", "text"),
    ("ends_with", ValueType(Scalar.BOOL, nullable=True), "text", "part"),
    ("matches", ValueType(Scalar.BOOL, nullable=True), "text", "part"),
]


def _arguments(random_: random.Random, kinds: tuple[str, ...], length: int) -> list[pa.Array]:
    def text() -> str:
        return "".join(random_.choices("ab ä雪", k=random_.randint(0, 12)))

    def value(kind: str) -> object:
        if random_.random() < 0.1:
            return None
        if kind == "list":
            return [text() for _ in range(random_.randint(0, 4))]
        if kind == "number":
            return random_.randint(0, 5)
        return text() if kind == "text" else random_.choice(["a", "ä", "ab", ""])

    stored = {"list": pa.list_(pa.string()), "number": pa.int64()}
    return [pa.array([value(k) for _ in range(length)], stored.get(k, pa.string())) for k in kinds]


def test_pieces_give_what_the_whole_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    random_ = random.Random(7)
    for name, kind, *kinds in _CALLS:
        for length in (0, 1, 2, 40):
            arrays = _arguments(random_, tuple(kinds), length)
            monkeypatch.setattr(bounded, "PIECE_BYTES", 4 << 20)
            whole = in_pieces(arrays, lambda a, n=name, k=kind: KERNELS[n](a, k))
            monkeypatch.setattr(bounded, "PIECE_BYTES", 20)
            pieces = in_pieces(arrays, lambda a, n=name, k=kind: KERNELS[n](a, k))
            assert pieces.to_pylist() == whole.to_pylist(), name


def test_the_announced_bytes_are_those_that_are_made() -> None:
    texts = pa.array(["a", None, "雪雪", ""])
    assert bytes_of_rows(texts).tolist() == [1, 0, 6, 0]
    assert bytes_of_rows(texts.slice(2)).tolist() == [6, 0]
    lists = pa.array([["a", "bc"], None, [], ["雪"]])
    assert bytes_of_rows(lists).tolist() == [3 + 8, 0, 0, 3 + 4]
    assert bytes_of_rows(lists.slice(3)).tolist() == [3 + 4]


def test_a_constant_for_many_rows_is_announced() -> None:
    with watched_by(Watch(Limits(memory_bytes_max=1 << 20))):
        assert repeat(pa.scalar("ab"), 3).to_pylist() == ["ab"] * 3
        assert repeat(pa.scalar([1, 2]), 2).to_pylist() == [[1, 2]] * 2
        for value in (pa.scalar("a" * 1000), pa.scalar(list(range(1000)))):
            with pytest.raises(LimitExceeded, match="query memory"):
                repeat(value, 10_000)
    with pytest.raises(LimitExceeded, match="bytes of the values"):  # beyond 32-bit offsets
        repeat(pa.scalar("a" * 1_000_000), 3_000)


def test_one_text_has_a_limit_of_its_own() -> None:
    half = pa.array(["a" * (query_limits.TEXT_BYTES_MAX // 2)])
    assert len(KERNELS["concat"]([half, half], TEXT)[0].as_py()) == query_limits.TEXT_BYTES_MAX
    with pytest.raises(LimitExceeded, match="bytes of one text of concat"):
        KERNELS["concat"]([half, half, pa.array(["a"])], TEXT)


def test_long_texts_have_the_codes_that_short_ones_have(monkeypatch: pytest.MonkeyPatch) -> None:
    random_ = random.Random(3)
    for _ in range(20):
        texts = [random_.choice(["", "a", "ab", "b", "ä", "雪", None]) for _ in range(9)]
        values = pa.array(texts, pa.string())
        short = codes.encoded(values)
        with monkeypatch.context() as patched:
            patched.setattr(codes, "PIECE_BYTES", -1)
            patched.setattr(codes, "_LONG", -1)
            long = codes.encoded(values)
        assert (long.of_rows.tolist(), long.count) == (short.of_rows.tolist(), short.count)
