"""The pending state by itself: what it reads, what it shadows, what it stages."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from omnigraph.costs import COSTS
from omnigraph.exec.mutate.staging import Staging
from omnigraph.exec.values.constants import Given
from omnigraph.exec.values.selection import rows_by_key, rows_by_values
from omnigraph.graph import Graph
from omnigraph.plan import ir, mutation_ir
from omnigraph.plan.compile import compile_query
from omnigraph.storage.lance.reader import TableReader
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.protocol.write import Write
from tests.exec.town import COMPANY, KNOWS, PERSON, do, rows


@pytest.fixture
def town(people: Graph) -> Graph:
    do(
        people,
        """
        insert Person { name: "Ada", age: 36 } insert Person { name: "Bob", age: 25 }
        insert Knows { from: "Ada", to: "Bob" } insert Knows { from: "Bob", to: "Bob" }
        """,
    )
    return people


def begun(graph: Graph) -> tuple[Write, Staging]:
    write = graph._store.begin(kind=WriterKind.MUTATION)
    return write, Staging(write, graph.schema.catalog, Given({}, 0))


def where(graph: Graph, text: str, type_name: str = "Person") -> ir.Expr:
    query = f"query q() {{ delete {type_name} where {text} }}"
    plan = compile_query(query, graph.schema.catalog)
    assert isinstance(plan, mutation_ir.MutationPlan)
    (statement,) = plan.statements
    assert isinstance(statement, mutation_ir.DeleteRows)
    return statement.where


def test_s1_nothing_is_written_before_the_commit(town: Graph) -> None:
    before = rows(town, PERSON)
    versions = town.snapshot().tables
    write, staging = begun(town)
    staging.table(PERSON).insert({"id": "C", "name": "C"}, strict=False)
    staging.table(PERSON).update(where(town, "age > 30"), {"age": 1})
    staging.stage()
    assert (rows(town, PERSON), town.snapshot().tables) == (before, versions)
    town._store.commit(write)
    assert sorted(rows(town, PERSON)) == ["Ada", "Bob", "C"]


def test_s2_the_first_touch_fixes_the_version(town: Graph) -> None:
    write, staging = begun(town)
    first = staging.table(PERSON)
    do(town, 'insert Person { name: "Late" }')
    assert staging.table(PERSON) is first
    assert first.update(where(town, "age is null"), {"age": 1}) == 0
    write.read(COMPANY)
    assert write._relied_on.keys() == {PERSON, COMPANY}


def test_s3_pending_rows_shadow_committed_ones(town: Graph) -> None:
    _, staging = begun(town)
    table = staging.table(PERSON)
    table.insert({"id": "Ada", "name": "Ada", "age": 1}, strict=False)
    assert table.update(where(town, "age = 36"), {"count": 1}) == 0
    assert table.update(where(town, "age = 1"), {"count": 1}) == 1
    assert table.update(where(town, "age >= 1"), {"age": 9}) == 2
    ages = {row["id"]: row["age"] for row in table.rows().to_pylist()}
    assert ages == {"Ada": 9, "Bob": 9}


def test_s4_new_rows_are_appended_and_known_ones_replaced(
    town: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged: list[tuple[Any, int]] = []
    monkeypatch.setattr(Write, "append", lambda _, key, rows: staged.append((key, rows.num_rows)))

    def replace(_: Write, table_key: str, *, addresses: pa.Array, added: pa.Table) -> None:
        staged.append((addresses, len(added)))

    monkeypatch.setattr(Write, "replace", replace)

    def stage(*names: str) -> tuple[Any, int]:
        _, staging = begun(town)
        for name in names:
            staging.table(PERSON).insert({"id": name, "name": name}, strict=False)
        staging.stage()
        return staged.pop()

    assert stage("X", "Y", "X") == (PERSON, 2)
    at, count = stage("X", "Ada")
    assert (len(at), count) == (1, 2)
    _, staging = begun(town)
    staging.table(PERSON).update(where(town, "age > 30"), {"age": 1})
    staging.table(PERSON).insert({"id": "Ada", "name": "Ada"}, strict=False)
    staging.stage()
    ((again, count),) = staged
    assert (pc.unique(again), count) == (at, 1)


def test_s5_deletes_of_a_table_are_one_and_nothing_matched_is_none(
    town: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged: list[tuple[str, int]] = []

    def replace(_: Write, table_key: str, *, addresses: pa.Array, added: pa.Table) -> None:
        staged.append((table_key, len(addresses)))

    monkeypatch.setattr(Write, "replace", replace)
    cascade = (mutation_ir.Cascade(KNOWS, (ir.End.SRC, ir.End.DST)),)
    _, staging = begun(town)
    staging.delete(PERSON, where(town, 'name = "Zoe"'), cascade)
    assert not staging.changes_anything()
    staging.stage()
    assert staged == []
    staging.delete(PERSON, where(town, "age < 30"), cascade)
    staging.delete(PERSON, where(town, "age < 99"), cascade)
    staging.stage()
    assert staged == [(PERSON, 2), (KNOWS, 2)]
    assert staging.table(KNOWS).removed.num_rows == 2


def test_s5_conditions_that_overlap_remove_each_row_once(people: Graph) -> None:
    do(people, " ".join(f'insert Company {{ name: "c{n}", size: {n} }}' for n in range(30)))
    done = do(people, "delete Company where size < 15 delete Company where size >= 5")
    assert done.affected_nodes == 30
    assert rows(people, COMPANY) == {}


@pytest.mark.parametrize("keys_max", [COSTS.filter_keys_max, 1])
def test_keys_are_met_by_a_filter_or_by_reading_the_column(
    town: Graph, monkeypatch: pytest.MonkeyPatch, keys_max: int
) -> None:
    monkeypatch.setattr(COSTS, "filter_keys_max", keys_max)
    monkeypatch.setattr(COSTS, "filter_keys_few", keys_max)
    store = town._store
    people = store.reader(town.snapshot(), PERSON)
    knows = store.reader(town.snapshot(), KNOWS)
    assert met(rows_by_key(people, "id", pa.array(["Bob", "Zoe"]), ["id"])) == ["Bob"]
    assert rows_by_key(knows, "dst", pa.array(["Bob", "Zoe"]), ["id"]).num_rows == 2
    assert rows_by_key(knows, "src", pa.array(["Zoe", "Zed"]), ["id", "src"]).num_rows == 0
    wanted = pa.table({"age": pa.array([25, 1], pa.int32())})
    found = rows_by_values(people, town.schema.catalog.nodes["Person"], wanted, ["id", "age"])
    assert "Bob" in met(found)


@pytest.mark.parametrize(
    ("condition", "asked"),
    [
        ('name = "Ada"', "(`id` = 'Ada')"),
        ('name in ["Ada", "x"]', "(`id` IN ('Ada', 'x'))"),
        ('name > "B" and age > 3', "(`id` > 'B') AND (`age` > 3)"),
        ("age = 3", "(`age` = 3)"),
    ],
)
def test_a_key_that_is_the_id_is_asked_for_by_id(
    town: Graph, monkeypatch: pytest.MonkeyPatch, condition: str, asked: str
) -> None:
    filters: list[Any] = []
    original = TableReader.rows

    def watched(self: TableReader, columns: Any = None, **options: Any) -> pa.Table:
        filters.append(options["filter"])
        return original(self, columns, **options)

    monkeypatch.setattr(TableReader, "rows", watched)
    _, staging = begun(town)
    staging.table(PERSON).update(where(town, condition), {"count": 1})
    assert filters == [asked]


def met(table: pa.Table) -> list[Any]:
    return sorted(table.column("id").to_pylist())
