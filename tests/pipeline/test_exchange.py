"""Exchanges of a load: in threads, through a folder and through Spark's shuffle, one behaviour."""

import pickle
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import omnigraph as og
from omnigraph.costs import COSTS
from omnigraph.exec.load.exchange import Exchange, ReadKeys, ThreadExchange, put_tables
from omnigraph.exec.load.spill import KeySet, Spill
from omnigraph.exec.values.mint import minted_in_series, new_series, ulids
from omnigraph.pipeline import shuffle_exchange, spark_load
from omnigraph.pipeline.folder_exchange import FolderExchange
from omnigraph.pipeline.shuffle_exchange import Inbox, InputChanged, Outlet, ShuffleExchange
from tests.exec.bulk import by_name, lines, new_graph, person

IDS = KeySet("node:T#id", ("id",), ("id",))
ROWS = KeySet("node:T#rows", (), ("id",))
BY_TAG = KeySet("node:T@tag", ("id", "tag"), ("tag",))
NAMES = [f"k{n}" for n in range(60)]


@pytest.fixture(params=["threads", "folder", "shuffle", "shuffle in many tasks"])
def exchange(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Exchange]:
    match request.param:
        case "threads":
            yield ThreadExchange(tmp_path, 5)
        case "folder":
            yield FolderExchange(spark, tmp_path, 5, "tried it")
        case _:
            if "many" in request.param:
                monkeypatch.setattr(COSTS, "shuffle_task_bytes", 1)
            made = ShuffleExchange(spark, 5, "tried it")
            yield made
            made.close()


def put_some(names: list[str], out: Spill) -> int:
    """A job that puts keys and rows."""
    out.add(IDS, pa.table({"id": names}))
    out.add(ROWS, pa.table({"id": names, "tag": [name[-1] for name in names]}))
    return len(names)


def all_ids(name: str, bucket: int, read: ReadKeys) -> tuple[int, list[str]]:
    rows = read(name)
    return bucket, [] if rows is None else rows["id"].to_pylist()


def by_tag(bucket: int, read: ReadKeys, out: Spill) -> int:
    rows = read(ROWS.name)
    if rows is None:
        return 0
    out.add(BY_TAG, rows.select(["id", "tag"]))
    return rows.num_rows


def tags(bucket: int, read: ReadKeys) -> set[str]:
    rows = read(BY_TAG.name)
    return set() if rows is None else set(rows["tag"].to_pylist())


def test_SX1_what_is_put_is_read_by_bucket_and_forwarded(exchange: Exchange) -> None:
    parts = [NAMES[start : start + 20] for start in (0, 20, 40)]
    done, blocks = exchange.put(put_some, parts)
    assert done == [20, 20, 20]
    assert (blocks.rows(IDS.name), blocks.rows(ROWS.name), blocks.rows("none")) == (60, 60, 0)
    _, more = exchange.put(put_tables, [[(IDS, pa.table({"id": ["k1", "k1"]}))]])

    (ids, none) = exchange.read(
        [partial(all_ids, IDS.name), partial(all_ids, "none")], [blocks, more]
    )
    assert sorted(name for _, names in ids for name in names) == sorted([*NAMES, "k1", "k1"])
    assert [bucket for bucket, _ in ids] == sorted({bucket for bucket, _ in ids}), "in order"
    if not isinstance(exchange, ShuffleExchange) or COSTS.shuffle_task_bytes == 1:
        assert sum(len(names) > 0 for _, names in ids) > 2, "spread over buckets"
    assert sum("k1" in names for _, names in ids) == 1, "equal keys meet"
    assert not any(names for _, names in none)

    (counts,), forwarded = exchange.forward([by_tag], [blocks], "rows")
    assert sum(counts) == 60
    (read,) = exchange.read([tags], [forwarded, blocks])
    assert sorted(tag for each in read for tag in each) == sorted("0123456789"), "each in one"
    every = forwarded.every(BY_TAG.name)
    assert every is not None
    assert sorted(every["id"].to_pylist()) == sorted(NAMES)
    assert forwarded.every("none") is None


def test_SX1_nothing_is_put_by_no_jobs(exchange: Exchange) -> None:
    done, blocks = exchange.put(put_some, [])
    assert (done, blocks.rows(IDS.name), blocks.every(IDS.name)) == ([], 0, None)
    (read,) = exchange.read([partial(all_ids, IDS.name)], [blocks])
    assert not any(names for _, names in read)
    _, forwarded = exchange.forward([by_tag], [blocks], "rows")
    assert forwarded.rows(BY_TAG.name) == 0


def test_SX4_a_hot_bucket_is_mapped_from_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(COSTS, "shuffle_inbox_bytes_max", 2_000)
    out = Spill(tmp_path, 1)
    out.add(IDS, pa.table({"id": ["same"] * 200}))
    out.flush()
    blocks = list(shuffle_exchange.block_bytes(out.files[0]))
    inbox = Inbox(tmp_path / "in")
    (tmp_path / "in").mkdir()
    inbox.take(
        (name, bucket, (0, 9 - task, 0), data.to_pybytes())
        for task in range(9)
        for name, bucket, data in blocks
    )
    assert len(list((tmp_path / "in").iterdir())) >= 4
    rows = inbox.read(IDS.name)
    assert rows is not None
    assert rows.num_rows == 9 * 200
    assert (Inbox(tmp_path).number, inbox.read("none")) == (None, None)


def test_a_spill_with_fine_buckets_is_read_by_coarse_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spill = Spill(tmp_path, 64)
    spill.add(IDS, pa.table({"id": NAMES}))
    spill.flush()
    monkeypatch.setattr(COSTS, "coarse_bucket_bytes", spill.bytes // 4 + 1)
    assert spill.coarsened() in (2, 4)
    other = Spill(tmp_path, spill.buckets)
    other.add(IDS, pa.table({"id": NAMES}))
    for bucket in range(spill.buckets):
        joined, cut = spill.read(IDS.name, bucket), other.read(IDS.name, bucket)
        assert joined is not None
        assert cut is not None
        assert sorted(joined["id"].to_pylist()) == sorted(cut["id"].to_pylist())
    monkeypatch.undo()
    assert spill.coarsened() == 1


def test_SX3_blocks_are_read_in_the_order_they_were_put_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(COSTS, "shuffle_inbox_bytes_max", 500)
    records: list[shuffle_exchange.Block] = []
    for call, number in [(1, 0), (0, 2), (0, 1)]:
        out = Outlet(call, 1, str(tmp_path))
        job = partial(put_some, [f"{call}-{number}"])
        for _, record in list(out.records(number, job))[:-1]:
            records += pickle.loads(record)
    seen = set()
    for turn in range(3):
        (tmp_path / str(turn)).mkdir()
        inbox = Inbox(tmp_path / str(turn))
        inbox.take([*records[turn:], *records[:turn]])
        seen.add(tuple(str(inbox.read(name)["id"].to_pylist()) for name in (IDS.name, ROWS.name)))
    assert seen == {("['0-1', '0-2', '1-0']",) * 2}


def test_SX4_buckets_of_a_frame_follow_its_size(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = spark.range(1_000)
    assert spark_load.frame_buckets(rows) == COSTS.spark_buckets_min
    monkeypatch.setattr(COSTS, "spark_bucket_bytes", 80)
    assert spark_load.frame_buckets(rows) == 128, "8,000 bytes, a power of two"
    assert spark_load.frame_buckets(rows.crossJoin(rows)) == spark_load.FRAME_BUCKETS_MAX
    unknown = spark.sparkContext.parallelize([(1,)]).toDF("n long")
    assert spark_load.frame_buckets(unknown) == COSTS.spark_buckets_min


# A map task that runs again


def lose_the_output(blocks: Any) -> None:
    """Remove the output of its map tasks, and of those before, as when executors are lost."""
    blocks.pairs.rdd().cleanShuffleDependencies(True)


def from_file(path: str, number: int, out: Spill) -> None:
    """A job whose rows are what a file says at the time: their keys, or a column beside."""
    text = Path(path).read_text()
    key = text if text != "aside" else "a"
    names = [f"{key}{number}-{n}" for n in range(9)]
    put_some(names, out)
    out.add(ROWS, pa.table({"id": names, "tag": [text.rjust(5)] * 9}))


@pytest.mark.parametrize("changed", ["", "b", "aside"])
def test_SX3_output_that_is_lost_is_made_again_and_must_be_the_same(
    spark: SparkSession, tmp_path: Path, changed: str
) -> None:
    (tmp_path / "what").write_text("a")
    exchange = ShuffleExchange(spark, 3, "tried it")
    _, blocks = exchange.put(partial(from_file, str(tmp_path / "what")), [0, 1])
    _, forwarded = exchange.forward([by_tag], [blocks], "rows")
    lose_the_output(forwarded)
    if changed:
        (tmp_path / "what").write_text(changed)
        with pytest.raises(InputChanged):
            exchange.read([tags], [forwarded])
        with pytest.raises(InputChanged):
            exchange.read([partial(all_ids, IDS.name)], [blocks])
    else:
        (read,) = exchange.read([partial(all_ids, IDS.name)], [blocks])
        assert sorted(name for _, names in read for name in names) == [
            f"a{number}-{n}" for number in (0, 1) for n in range(9)
        ]
    exchange.close()


def test_SX3_ids_follow_from_load_part_and_row() -> None:
    load = new_series()

    def ids(part: int, *counts: int) -> list[str]:
        with minted_in_series(load, part):
            return [each for count in counts for each in ulids(count).to_pylist()]

    assert ids(3, 2, 5) == ids(3, 7)
    drawn = {each for part in (0, 1, 2, (1 << 19) - 1) for each in ids(part, 1_000)}
    assert len(drawn) == 4_000
    assert {len(each) for each in drawn} == {26}
    assert ids(0, 5) == sorted(ids(0, 5))
    assert max(ids(0, 3)) < min(ids(1, 3)), "in the order of the parts"
    assert not set(ids(0, 5)) & set(_other_load(5))
    with pytest.raises(ValueError, match="too many parts"), minted_in_series(load, 1 << 19):
        pass


def _other_load(count: int) -> list[str]:
    with minted_in_series(new_series(), 0):
        ids: list[str] = ulids(count).to_pylist()
        return ids


@pytest.mark.parametrize("times", [1, 9])
def test_SX3_a_load_whose_input_changed_is_read_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    graph = new_graph(tmp_path)
    monkeypatch.setenv("OMNIGRAPH_EXCHANGE", "shuffle")
    left = [None] * times
    run: Callable[..., Any] = spark_load.SparkLoad.run

    def unlucky(self: Any, *args: Any) -> Any:
        if left:
            left.pop()
            raise InputChanged
        return run(self, *args)

    monkeypatch.setattr(spark_load.SparkLoad, "run", unlucky)
    if times > 1:
        with pytest.raises(og.StorageFailed, match="cache or checkpoint"):
            graph.load(lines(person("Ada")), "append", engine="spark")
        assert not by_name(graph, "node:Person")
    else:
        graph.load(lines(person("Ada")), "append", engine="spark")
        assert set(by_name(graph, "node:Person")) == {"Ada"}
