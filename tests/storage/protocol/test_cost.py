"""What a write and a read cost, counted, and that it does not grow with history."""

import logging
import statistics

import pytest

from omnigraph.storage.store import Store
from tests.storage.conftest import Server
from tests.storage.world import CITY, PERSON, Where, append, content, put

WARM_WRITE = {
    "object.list": 1,  # is anything to be healed?
    # Two looks at the manifest, one at the table head. The second look is made under the locks and
    # before anything is durable: without it a stamp that a newer program wrote since the first one
    # would be met after the write landed on it.
    "object.head": 3,
    "lock.acquire": 2,  # the table's and the publisher's
    "lance.stage_append": 1,
    "object.put": 1,  # the sidecar
    "disk.look": 3,  # are the rows, the manifest's rows and what they replace there?
    "lance.commit": 2,  # the table and the manifest
    "lance.stage_publish": 1,
    "object.delete": 1,
}


def cost(store: Store, name: str) -> dict[str, int]:
    before = store.stats.view()
    append(store, PERSON, name)
    return store.stats.view().since(before).calls


def test_x1_a_warm_write_makes_these_calls_after_10_and_after_100_commits(store: Store) -> None:
    calls = [cost(store, f"r{number}") for number in range(110)]
    plain = [each for each in calls if "lance.compact" not in each]
    assert len(plain) >= 90, "few commits fold"
    assert all(each == WARM_WRITE for each in plain[2:])


@pytest.mark.slow
def test_x1_a_warm_write_costs_the_same_after_1000_commits(store: Store) -> None:
    """Folds fall on every thirtieth commit or so; medians are compared, and every one bounded."""
    calls, reads = [], []
    for number in range(1000):
        calls.append(sum(cost(store, f"r{number}").values()))
        before = store.stats.view()
        snapshot = store.snapshot()
        assert store.reader(snapshot, PERSON).rows(filter=f"id = 'r{number // 2}'").num_rows == 1
        reads.append(sum(store.stats.view().since(before).calls.values()))
    assert statistics.median(calls[5:25]) == statistics.median(calls[-20:])
    # Four calls to fold a table, eight to fold the manifest, and both may fall on one commit.
    assert max(calls) <= statistics.median(calls) + 12
    assert statistics.median(reads[5:25]) == statistics.median(reads[-20:])


def test_x1_requests_to_s3_do_not_grow_with_history(s3_server: Server) -> None:
    store = s3_server.place().create()
    requests = []
    for number in range(24):
        before = s3_server.requests
        append(store, PERSON, f"r{number}")
        requests.append(s3_server.requests - before)
    # A lease is renewed now and then, by the clock.
    assert statistics.median(requests[-6:]) <= statistics.median(requests[2:8])


def test_x2_a_warm_read_resolves_its_snapshot_without_a_scan(store: Store) -> None:
    append(store, PERSON, "a")
    snapshot = store.snapshot()
    before = store.stats.view()
    assert store.snapshot() == snapshot
    assert store.reader(snapshot, PERSON).count() == 1
    assert store.stats.view().since(before).calls == {
        "object.head": 1,
        "lance.count": 1,
    }


def test_x2_a_refresh_reads_only_what_was_published_since(store: Store, local: Where) -> None:
    other = local.open()
    for number in range(20):
        append(store, PERSON, f"r{number}")
    other.snapshot()
    append(store, CITY, "x")
    before = other.stats.view()
    assert other.snapshot().tables[CITY].row_count == 1
    assert other.stats.view().since(before).calls == {
        "object.head": 1,
        "lance.open": 1,
        "lance.scan_manifest": 1,
    }


def test_x2_opening_makes_the_same_calls_after_any_history(store: Store, local: Where) -> None:
    def opening() -> dict[str, int]:
        opened = local.open()
        content(opened)
        return opened.stats.view().calls

    append(store, PERSON, "a")
    first = opening()
    for number in range(60):
        append(store, PERSON, f"r{number}")
    assert opening() == first


def test_every_phase_is_counted_and_logged(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "omnigraph.storage"):
        commit = put(store, {PERSON: {"a": 1}, CITY: {"x": 1}})
    events = store.stats.view().events
    assert events["phase_a.sidecar_written"] == 1
    assert events["phase_b.committed"] == 2
    assert events["phase_c.published"] == 1
    assert events["phase_d.sidecar_deleted"] == 1
    told = [record for record in caplog.records if record.event == "phase_c.published"]  # type: ignore[attr-defined]
    assert told[0].facts == {"branch": "main", "commit": commit.id}  # type: ignore[attr-defined]
