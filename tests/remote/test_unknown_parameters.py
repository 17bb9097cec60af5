"""Parameters that a query does not declare: an error everywhere but on the routes of 0.10."""

import httpx
import pytest

import omnigraph as og
from tests.remote.both import Maker, SharedServer

SCHEMA = "node Person { name: String @key  age: I32? }"
ADULTS = (
    "query adults($since: I64 = 0) { match { $p: Person  $p.age > $since } return { $p.name } }"
)
ADD = "query add($name: String, $age: I32 = 1) { insert Person { name: $name, age: $age } }"
NEAR = "unknown parameter 'sinse'; did you mean 'since'?"
TOLD = "unknown parameter 'agge'; did you mean 'age'?"
LINE = '{"type": "Person", "data": {"name": "Ada", "age": 36}}'


def test_an_unknown_parameter_stops_reads_writes_and_transactions(new: Maker) -> None:
    graph = new(SCHEMA, LINE)
    with pytest.raises(og.BadRequest) as refused:
        graph.query(ADULTS, {"sinse": 99})
    assert str(refused.value) == NEAR
    with pytest.raises(og.BadRequest) as refused:
        graph.mutate(ADD, {"name": "Bob", "agge": 5})
    assert str(refused.value) == TOLD
    with pytest.raises(og.BadRequest), graph.transaction() as block:
        block.mutate(ADD, {"name": "Bob", "agge": 5})
    assert graph.snapshot().tables["node:Person"].row_count == 1  # type: ignore[index]


def test_routes_of_0_10_warn_and_refuse_where_strict_handling_is_preferred(
    shared: SharedServer, tmp_path: object
) -> None:
    uri = f"{tmp_path}/lenient.omni"
    with og.init(uri, schema=SCHEMA) as graph:
        graph.load(LINE.encode(), "merge")
    base = f"{shared.server.url}/graphs/{shared.add(uri)}"
    read = {"query": ADULTS, "params": {"sinse": 99}}
    add = {"query": ADD, "params": {"name": "Bob", "agge": 5}}
    with httpx.Client(base_url=base) as client:
        told = client.post("/query", json=read).json()
        assert told["warnings"] == [f"ignored {NEAR}"]
        assert told["rows"] == [{"p.name": "Ada"}]
        assert "warnings" not in client.post("/query", json={"query": ADULTS}).json()
        as_csv = client.post("/query", json=read, headers={"Accept": "text/csv"})
        assert as_csv.headers["Omnigraph-Warning"] == f"ignored {NEAR}"
        strict = {"Prefer": "respond-async, handling=strict"}
        refused = client.post("/query", json=read, headers=strict)
        assert (refused.status_code, refused.json()["error"]) == (400, NEAR)
        refused = client.post("/mutate", json=add, headers=strict)
        assert (refused.status_code, refused.json()["error"]) == (400, TOLD)
        done = client.post("/mutate", json=add).json()
        assert done["warnings"] == [f"ignored {TOLD}"]
        assert done["affected_nodes"] == 1
        missing = {"query": ADD, "params": {"nmae": "Bob"}}
        refused = client.post("/mutate", json=missing)
        text = "unknown parameter 'nmae'; did you mean 'name'?"
        assert (refused.status_code, refused.json()["error"]) == (400, text)
        block = {"statements": [{"query": ADD, "params": {"name": "Cy", "agge": 5}}]}
        refused = client.post("/transactions", json=block)
        assert (refused.status_code, refused.json()["error"]) == (400, TOLD)
