"""A baseline and the polls after it give every later state; what cleanup took is a typed gap."""

import io
import json
import tracemalloc
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pytest

import omnigraph as og
from omnigraph.graph import Graph
from omnigraph.storage.names import MAIN
from tests.exec.branching import PERSON, State, edit, knows, person, state, works_at
from tests.forked import context

OTHERS = 3


def keyed(records: Any) -> State:
    """Records of an export as rows by type and id."""
    found: State = {}
    for record in records:
        row = dict(record["data"])
        if "edge" in record:
            row |= {"src": record["from"], "dst": record["to"]}
        found[record.get("type") or record["edge"], row["id"]] = row
    return found


def apply(held: State, changes: Any) -> None:
    """Apply a block as a follower does: by id, so that a block told twice does no harm."""
    for change in changes:
        if change.after is None:
            held.pop((change.type, change.id), None)
            continue
        row = {"id": change.id, **change.after.properties}
        if change.after.endpoints is not None:
            row["src"], row["dst"] = change.after.endpoints
        held[change.type, change.id] = row


def follow(graph: Graph, held: State, cursor: str, **asked: Any) -> str:
    """Poll once to the end; the next cursor."""
    page = graph.changes.poll(cursor=cursor, **asked)
    while True:
        for block in page.blocks:
            apply(held, block.changes)
        if page.next_page_token is None:
            assert page.cursor is not None
            return page.cursor
        page = graph.changes.poll(page_token=page.next_page_token, **asked)


def start(graph: Graph) -> None:
    edit(
        graph,
        Person={name: person(name, 30) for name in ("Ada", "Bob", "Cy")},
        Company={"Acme": {"id": "Acme", "name": "Acme"}},
        Knows={"ab": knows("ab", "Ada", "Bob", 2010)},
        WorksAt={"w": works_at("w", "Ada", "Acme", "boss")},
    )


def test_a_baseline_is_the_head_and_later_commits_are_polled(small: Graph) -> None:
    start(small)
    baseline = small.changes.baseline()
    edit(small, Person={"Bob": None, "Dan": person("Dan")}, Knows={"ab": None})
    held = keyed(baseline)
    assert baseline.commit_id == small.commits.list()[1].id
    assert held == state(small, commit=baseline.commit_id), "the commit it began with, not a later"
    cursor = follow(small, held, baseline.cursor)
    assert held == state(small)
    assert follow(small, held, cursor) == cursor


def test_the_last_line_is_the_handshake(small: Graph, tmp_path: Path) -> None:
    start(small)
    baseline = small.changes.baseline()
    *records, last = map(json.loads, b"".join(baseline.lines()).splitlines())
    assert list(last) == ["baseline"]
    assert last["baseline"] == baseline.to_json()
    assert last["baseline"] == {
        "snapshot_commit_id": small.snapshot().commit_id,
        "resume_cursor": baseline.cursor,
    }
    exported = io.BytesIO()
    small.export(exported)
    assert records == list(map(json.loads, exported.getvalue().splitlines()))
    done = baseline.to_file(tmp_path / "in" / "baseline.jsonl")
    assert done.total_entities == len(records)
    assert (tmp_path / "in" / "baseline.jsonl").read_bytes() == exported.getvalue()
    assert [path.name for path in (tmp_path / "in").iterdir()] == ["baseline.jsonl"]


def test_filters_restrict_the_records_and_bind_the_cursor(small: Graph) -> None:
    start(small)

    def types(**wanted: Any) -> set[str]:
        return {key[0] for key in keyed(small.changes.baseline(**wanted))}

    assert types(kinds=("node",)) == {"Person", "Company"}
    assert types(kinds=("edge",)) == {"Knows", "WorksAt"}
    assert types(types=("Person", "Knows")) == {"Person", "Knows"}
    assert types(types=("Person", "Knows"), kinds=("edge",)) == {"Knows"}
    assert types(types=("Person",), kinds=("edge",)) == set()
    assert types(ops=("delete",)) == {"Person", "Company", "Knows", "WorksAt"}, "ops are of changes"
    with pytest.raises(og.NotFound, match="type 'Nobody'"):
        types(types=("Nobody",))
    with pytest.raises(og.BadRequest, match="no kind of"):
        types(kinds=("row",))
    with pytest.raises(og.NotFound, match="branch 'nowhere'"):
        small.changes.baseline("nowhere")
    asked: dict[str, Any] = {"types": ("Person",), "ops": ("insert",)}
    cursor = small.changes.baseline(**asked).cursor
    edit(small, Person={"Eve": person("Eve"), "Bob": None})
    (block,) = small.changes.poll(cursor=cursor, **asked).blocks
    assert [(change.id, change.op) for change in block.changes] == [("Eve", "insert")]
    with pytest.raises(og.BadRequest, match=r"^change cursor rejected:"):
        small.changes.poll(cursor=cursor)


def test_memory_does_not_follow_the_number_of_rows(small: Graph) -> None:
    peaks = []
    for size in (20_000, 100_000):
        rows = {f"p{i}": person(f"p{i}", i) for i in range(size - 20_000, size)}
        edit(small, Person=rows)
        baseline = small.changes.baseline()
        sum(1 for _ in baseline)
        tracemalloc.start()
        count = sum(chunk.count(b"\n") for chunk in baseline.lines())
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert count == small.snapshot().tables[PERSON].row_count + 1
    assert peaks[1] < 1.5 * peaks[0]


# ---- under concurrent writers


def keep_writing(uri: str, who: int, commits: int) -> None:
    """Insert, change and delete people and their edges, in a process of its own."""
    graph = og.open(uri)
    insert = """query q($n: String, $e: String) {
        insert Person { name: $n, age: 0 } insert Knows { from: $n, to: "keeper", since: 1 } }"""
    change = "query q($n: String, $a: I32) { update Person set { age: $a } where name = $n }"
    delete = "query q($n: String) { delete Person where name = $n }"
    number = 0
    while number < commits:
        name = f"{who}-{number % 7}"
        try:
            match number % 4:
                case 0:
                    graph.mutate(insert, {"n": name, "e": name})
                case 3:
                    graph.mutate(delete, {"n": f"{who}-{(number - 3) % 7}"})
                case _:
                    graph.mutate(change, {"n": f"{who}-{(number // 4 * 4) % 7}", "a": number})
        except og.Conflict:
            continue
        number += 1


@pytest.mark.parametrize("limit", [2, 1000])
def test_a_follower_ends_where_concurrent_writers_ended(small: Graph, limit: int) -> None:
    edit(small, Person={"keeper": person("keeper")})
    writers = [
        context().Process(target=keep_writing, args=(small.uri, n, 30)) for n in range(OTHERS)
    ]
    for writer in writers:
        writer.start()
    try:
        while len(small.commits.list()) < 12:
            assert any(writer.is_alive() for writer in writers), "they end later than this"
        baseline = small.changes.baseline()
        held, cursor = keyed(baseline), baseline.cursor
        assert held == state(small, commit=baseline.commit_id)
        polls = 0
        while any(writer.is_alive() for writer in writers):
            cursor = follow(small, held, cursor, limit=limit)
            polls += 1
    finally:
        for writer in writers:
            writer.join(120)
    assert [writer.exitcode for writer in writers] == [0] * OTHERS
    assert polls > 1
    follow(small, held, cursor, limit=limit)
    assert held == state(small)
    assert len(held) > 1


# ---- what cleanup took


def reclaim(graph: Graph, location: str) -> None:
    """Take every version but the last, as cleanup does."""
    dataset = lance.dataset(f"{graph.uri}/{location}")
    dataset.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)


@pytest.mark.parametrize("of", ["manifest", "table"])
def test_a_cursor_whose_data_was_reclaimed_says_so(small: Graph, of: str) -> None:
    start(small)
    cursor = small.changes.poll().cursor
    assert cursor is not None
    edit(small, Person={"Ada": person("Ada", 31), "Bob": None})
    first = small.snapshot().commit_id
    edit(small, Person={"Ada": person("Ada", 32)})
    last = small.snapshot().commit_id
    location = "__manifest" if of == "manifest" else small.snapshot().tables[PERSON].location
    reclaim(small, location)
    fresh = og.open(small.uri)
    with pytest.raises(og.ChangeFeedGap) as gap:
        fresh.changes.poll(cursor=cursor)
    assert (gap.value.first_unreadable_commit_id, gap.value.cursor) == (first, cursor)
    assert "baseline" in str(gap.value)
    with pytest.raises(og.ChangeFeedGap):
        fresh.changes.poll(start="beginning")
    with pytest.raises(og.ChangeFeedGap) as gap:
        list(fresh.commits.changes(first))
    assert gap.value.first_unreadable_commit_id == first
    with pytest.raises(og.Reclaimed if of == "manifest" else og.ChangeFeedGap):
        list(fresh.diff(first, last))
    if of == "manifest":
        with pytest.raises(og.Reclaimed):
            fresh.snapshot(commit=first)
    # The way out: a baseline, and the feed from there.
    baseline = fresh.changes.baseline()
    held = keyed(baseline)
    edit(fresh, Person={"Eve": person("Eve")})
    follow(fresh, held, baseline.cursor)
    assert held == state(fresh)


def test_versions_that_are_open_already_are_told_right_or_as_a_gap(small: Graph) -> None:
    start(small)
    edit(small, Person={"Ada": person("Ada", 31)})
    first = small.commits.list()[0]
    assert first.parent is not None
    edit(small, Person={"Ada": person("Ada", 32)})
    opened = og.open(small.uri)
    for commit in (first.parent, first.id):  # the versions, not yet their rows
        opened._store.reader(opened.snapshot(commit=commit), PERSON)
    (change,) = small.commits.changes(first.id)  # here the rows as well
    reclaim(small, small.snapshot().tables[PERSON].location)
    with pytest.raises(og.ChangeFeedGap):
        list(opened.commits.changes(first.id))
    with suppress(og.ChangeFeedGap):
        assert list(small.commits.changes(first.id)) == [change]
    assert small.changes.poll(MAIN).caught_up
