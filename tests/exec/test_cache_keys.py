"""Caches beside branches and graphs that take the name of an earlier one."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import omnigraph
from omnigraph.errors import Reclaimed
from omnigraph.exec.search.embed import Purpose, Vector
from omnigraph.exec.values.computed import given_of
from omnigraph.graph import Graph
from omnigraph.pipeline.executors import Where
from omnigraph.pipeline.share_tasks import Asked, ShareTask
from omnigraph.plan.compile import compile_query
from omnigraph.plan.ir import ReadPlan
from omnigraph.storage.derived.mapped_file import DamagedFile
from omnigraph.types import TableKey

SCHEMA = "node P { key: String @key  n: I32?  photo: Blob? }\n"
NUMBERS = "query q() { match { $p: P } return { $p.n as n } order { $p.n asc } }"


def rows(*numbers: int) -> pa.Table:
    return pa.table({"key": [f"p{n}" for n in numbers], "n": pa.array(numbers, pa.int32())})


def photo(graph: Graph, branch: str, data: str) -> str | None:
    """The tag of a photo that is written on a new branch."""
    graph.branches.create(branch)
    graph.load(
        [{"type": "P", "data": {"key": "p1", "photo": f"base64:{data}"}}], "merge", branch=branch
    )
    return graph.blob("node", "P", "p1", "photo", branch=branch).etag


def test_a_blob_of_a_recreated_branch_has_another_tag(tmp_path: Path) -> None:
    with omnigraph.init(tmp_path / "g", SCHEMA) as graph:
        graph.load(rows(1), "append", type="P")
        first = photo(graph, "draft", "aGk=")
        graph.branches.delete("draft")
        assert photo(graph, "draft", "aG8=") != first


def test_a_commit_of_a_deleted_branch_is_not_read_from_another_of_its_name(tmp_path: Path) -> None:
    with omnigraph.init(tmp_path / "g", SCHEMA) as graph:
        graph.load(rows(1), "append", type="P")
        commits = []
        for number in (2, 3):
            graph.branches.create("draft")
            graph.load(rows(number), "append", type="P", branch="draft")
            commits.append(graph._store.history.list("draft", limit=1)[0])
            if number == 2:
                graph.branches.delete("draft")
        gone, here = commits
        assert gone.manifest_version == here.manifest_version
        assert graph._store.history.snapshot_at(here).commit_id == here.id
        with pytest.raises(Reclaimed):
            graph._store.history.snapshot_at(gone)


class Embeds:
    """A provider whose vectors tell it apart from others of its model."""

    model = "one name"

    def __init__(self, first: float) -> None:
        self._first = first

    def embed(self, texts: Sequence[str], dimension: int, purpose: Purpose) -> list[Vector]:
        return [(self._first, *[0.0] * (dimension - 1)) for _ in texts]


def test_a_text_has_the_vector_of_the_provider_that_is_named_now(tmp_path: Path) -> None:
    schema = 'node D { key: String @key  t: String  v: Vector(2)? @embed("t") }\n'
    with omnigraph.init(tmp_path / "g", schema) as graph:
        for number in (1, 2):
            graph.embed_with(Embeds(float(number)))
            text = 'query q($k: String) { insert D { key: $k  t: "same" } }'
            graph.mutate(text, {"k": f"d{number}"})
        found = graph.query("query q() { match { $d: D } return { $d.v as v } order { $d.key } }")
        assert [row["v"][0] for row in found.rows] == [1.0, 2.0]


def solved(graph: Graph) -> list[int]:
    """What a Spark executor gives, which keeps graphs open from one query to the next."""
    plan = compile_query(NUMBERS, graph.schema.catalog)
    assert isinstance(plan, ReadPlan)
    where = Where(graph._store.where.uri, graph._store.where.storage_options)
    asked = Asked(
        where, plan, given_of(plan, {}, 0), graph._store.snapshot(), graph._reading.limits, None
    )
    task = ShareTask(asked, None, pa.schema([("n", pa.int32())]), lambda figures: None)
    [batch] = task.run(iter([pa.record_batch([pa.array([0])], ["number"])]))
    return batch.column(0).to_pylist()


def test_an_executor_reads_the_graph_that_is_at_an_address_now(tmp_path: Path) -> None:
    for numbers in ((1, 2), (3, 4)):
        with omnigraph.init(tmp_path / "g", SCHEMA) as graph:
            graph.load(rows(*numbers), "append", type="P")
            assert solved(graph) == [*numbers]
            assert solved(graph) == [*numbers]
            graph.load(rows(9), "append", type="P")
            assert solved(graph) == [*numbers, 9]
        shutil.rmtree(tmp_path / "g")


def test_a_damaged_file_that_is_made_again_under_its_name_is_used(tmp_path: Path) -> None:
    with omnigraph.init(tmp_path / "g", SCHEMA) as graph:
        graph.load(rows(1), "append", type="P")
        files, pin = graph._store.derived.files, graph._store.snapshot().tables[TableKey("node:P")]
        written = []
        for _ in range(2):
            with files.building():
                file = files.write("edges", pin, {}, {"numbers": np.arange(3)})
            assert file is not None
            assert [each.path for each in files.listed(pin)] == [file.path]
            written.append(file.path)
            files.reject(DamagedFile(file.path, "a block is damaged"))
            assert files.listed(pin) == []
        assert written[0] == written[1]
