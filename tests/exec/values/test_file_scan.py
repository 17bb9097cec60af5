"""Conditions over columns of data files select the rows that Lance selects."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph
from omnigraph.costs import COSTS
from omnigraph.exec.mutate import staging
from omnigraph.exec.values import selection
from omnigraph.exec.values.constants import Given
from omnigraph.exec.values.file_scan import row_id_candidates
from omnigraph.graph import Graph
from omnigraph.plan import ir
from omnigraph.storage.lance.columns import ADDRESS
from omnigraph.storage.lance.direct_read import DirectReader, UnreadableFile
from omnigraph.storage.lance.reader import TableReader

SCHEMA = """
node P {
  name: String @key  i: I32?  u: U64?  f: F64?  s: String?  d: Date?  b: Bool?
  x: I32? @index
}
edge Knows: P -> P { since: Date?  w: F32? }
"""
COUNT = 200


@pytest.fixture(autouse=True)
def every_table_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(COSTS, "file_scan_rows_min", 1)


class BothWays:
    """Selects with files and without, and compares."""

    def __init__(self) -> None:
        self.by_files = 0
        self.by_lance = 0

    def __call__(
        self,
        reader: TableReader,
        schema: pa.Schema,
        where: ir.Expr,
        given: Given,
        columns: Sequence[str],
    ) -> pa.Table:
        asked = (reader, schema, where, given, columns)
        candidates = row_id_candidates(reader, where, given)
        self.by_files += candidates is not None
        self.by_lance += candidates is None
        rows = selection.select_committed(*asked)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(selection, "row_id_candidates", lambda *_: None)
            expected = selection.select_committed(*asked)
        assert rows.schema == expected.schema
        assert rows.sort_by(ADDRESS).to_pylist() == expected.sort_by(ADDRESS).to_pylist()
        return rows


@pytest.fixture
def both_ways(monkeypatch: pytest.MonkeyPatch) -> BothWays:
    compared = BothWays()
    monkeypatch.setattr(staging, "select_committed", compared)
    return compared


def peopled(path: Path, chance: random.Random) -> Graph:
    graph = omnigraph.init(path, SCHEMA)
    for start in (0, COUNT // 2):
        people = [
            {
                "name": f"p{number}",
                "i": chance.choice([None, -3, 0, 1, 2, 7]),
                "u": chance.choice([None, 0, 2**63 + 1, 5]),
                "f": chance.choice([None, -0.5, 0.0, 2.0, 2.5, 1e300]),
                "s": chance.choice([None, "", "a", "b'c", "é"]),
                "d": chance.choice([None, "2020-01-01", "2021-05-05"]),
                "b": chance.choice([None, True, False]),
                "x": chance.choice([1, 2]),
            }
            for number in range(start, start + COUNT // 2)
        ]
        graph.load(people, "append", type="P", engine="local")
    edges = [
        {
            "src": f"p{chance.randrange(COUNT)}",
            "dst": f"p{chance.randrange(COUNT)}",
            "since": chance.choice([None, "2020-01-01", "2021-05-05"]),
            "w": chance.choice([None, 0.5, 0.1]),
        }
        for _ in range(COUNT)
    ]
    graph.load(pa.Table.from_pylist(edges), "append", edge="Knows", engine="local")
    return graph


CONSTANTS = {
    "i": ["0", "1", "2", "7", "-3", "1.5"],
    "u": ["0", "5", "9223372036854775807"],
    "f": ["0.0", "2", "2.5", "-0.5", "1000.25"],
    "s": ['""', '"a"', '"b\'c"', '"é"', '"zz"'],
    "d": ['date("2020-01-01")', 'date("2021-05-05")', 'date("2022-01-01")'],
    "b": ["true", "false"],
    "since": ['date("2020-01-01")', 'date("2021-05-05")'],
    "w": ["0.5", "0.1", "1"],
}


def condition(chance: random.Random, names: Sequence[str]) -> str:
    """One to three comparisons, now and then beside something else."""
    parts = []
    for name in chance.sample(names, chance.randint(1, min(3, len(names)))):
        few = ["=", "!="] if name in ("b", "s") else ["=", "!=", "<", "<=", ">", ">="]
        parts.append(f"{name} {chance.choice(few)} {chance.choice(CONSTANTS[name])}")
    return " and ".join(parts)


def test_conditions_over_files_select_what_lance_selects(
    tmp_path: Path, both_ways: BothWays, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(COSTS, "upsert_rows_max", 5)  # replaced rows keep their row ids
    chance = random.Random(11)
    graph = peopled(tmp_path / "g", chance)
    people = ["i", "u", "f", "s", "d", "b"]
    for turn in range(40):
        if turn % 10 == 9:
            again = [{"name": f"p{n}", "i": 2} for n in chance.sample(range(COUNT), 30)]
            graph.load(again, "merge", type="P", engine="local")
        name = chance.choice(people)
        change = f"{name}: {chance.choice([*CONSTANTS[name][:1], 'null'])}"
        text = {
            0: f"update P set {{ {change} }} where {condition(chance, people)}",
            1: f"delete Knows where {condition(chance, ['since', 'w'])}",
            2: f"delete P where {condition(chance, people)} and i = 7",
            3: f"update P set {{ x: 3 }} where {condition(chance, people)}",
        }[turn % 4]
        graph.mutate(f"query q() {{ {text} }}")
    assert both_ways.by_files > 30
    assert graph.check().ok


@pytest.mark.parametrize(
    "where", ['name = "p1"', "x = 2", "i = 1 or i = 2", "i is null", "i = 1 and s is not null"]
)
def test_other_conditions_are_left_to_lance(
    tmp_path: Path, both_ways: BothWays, where: str
) -> None:
    graph = peopled(tmp_path / "g", random.Random(3))
    graph.ensure_indices()
    graph.mutate(f"query q() {{ update P set {{ b: true }} where {where} }}")
    assert (both_ways.by_files, both_ways.by_lance) == (0, 1)


def test_many_candidates_and_unreadable_files_are_left_to_lance(
    tmp_path: Path, both_ways: BothWays, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = peopled(tmp_path / "g", random.Random(3))
    text = "query q() { update P set { b: true } where x = 1 }"
    monkeypatch.setattr(COSTS, "file_scan_candidates_max", 3)
    graph.mutate(text)
    monkeypatch.undo()
    monkeypatch.setattr(COSTS, "file_scan_rows_min", 1)
    monkeypatch.setattr(staging, "select_committed", both_ways)

    def gone(*_: Any) -> Any:
        raise UnreadableFile

    monkeypatch.setattr(DirectReader, "_streams", lambda *_: iter(gone, None))
    graph.mutate(text)
    assert (both_ways.by_files, both_ways.by_lance) == (0, 2)
