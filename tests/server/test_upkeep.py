"""Upkeep by the clock, and the state of indexes (SV16)."""

from datetime import datetime

import pytest

import omnigraph as og
from omnigraph.server import wire_beyond
from omnigraph.server.upkeep_schedule import UpkeepClock, parse_schedule
from omnigraph.server.wire_jobs import JobRecord
from tests.server.world import ADD, Served, checked, refused

SUNDAY = datetime(2026, 11, 15, 3, 0)


def test_SV16_a_schedule_says_when_and_what() -> None:
    daily, weekly = parse_schedule("03:20 optimize; sun 04:00 cleanup keep=100 older_than=7d")
    until = datetime(2026, 11, 17, 3, 20)
    assert [moment.day for moment in daily.moments(SUNDAY, until)] == [15, 16, 17]
    assert list(weekly.moments(SUNDAY, until)) == [datetime(2026, 11, 15, 4)]
    request = weekly.request()
    assert (request.kind, request.keep, request.older_than) == ("cleanup", 100, "7d")
    assert request.confirm
    assert parse_schedule("") == ()


@pytest.mark.parametrize(
    "wrong",
    [
        "optimize",
        "3:20 optimize",
        "24:00 optimize",
        "03:60 optimize",
        "foo 03:20 optimize",
        "03:20 bake",
        "03:20 cleanup",
        "03:20 cleanup keep=0",
        "03:20 cleanup keep=x",
        "03:20 cleanup older_than=soon",
        "03:20 optimize keep=3",
        "03:20 cleanup keep=1 keep=2",
    ],
)
def test_SV16_a_schedule_that_cannot_be_read_is_refused(wrong: str) -> None:
    with pytest.raises(og.BadRequest):
        parse_schedule(wrong)


def test_SV16_of_two_workers_one_runs_what_is_due(server: Served) -> None:
    started: list[JobRecord] = []
    entries = parse_schedule("03:20 optimize; 03:25 cleanup keep=5")
    clocks = [UpkeepClock(entries, lambda _, record: started.append(record)) for _ in range(2)]
    graphs = [server.graph]
    for clock in clocks:
        clock._looked = SUNDAY
    assert clocks[0].look(graphs, SUNDAY.replace(minute=21)) == 1
    assert clocks[1].look(graphs, SUNDAY.replace(minute=30)) == 1
    assert clocks[0].look(graphs, SUNDAY.replace(minute=40)) == 0
    assert [record.request.kind for record in started] == ["optimize", "cleanup"]
    assert started[0].request.message == "upkeep: 03:20 optimize"


def test_SV16_indexes_say_what_they_cover(server: Served) -> None:
    server.graph.branches.create("indexed")
    server.graph.ensure_indices("indexed")

    def states(**where: str) -> dict[tuple[str, str], dict[str, object]]:
        answer = checked(server.get("/indexes", params=where), wire_beyond.IndexList)
        return {(each["type_name"], each["property"]): each for each in answer["indexes"]}

    person = states(branch="indexed")["Person", "id"]
    assert (person["state"], person["rows"], person["rows_covered"]) == ("current", 2, 2)
    note = states(branch="indexed")["Note", "id"]
    assert (note["state"], note["reason"]) == ("pending", "the table has no rows")
    server.graph.mutate(ADD, {"n": "New"}, branch="indexed")
    person = states(branch="indexed")["Person", "id"]
    assert (person["state"], person["rows"], person["rows_covered"]) == ("behind", 3, 2)
    assert states(snapshot="indexed~1")["Person", "id"]["state"] == "current"
    refused(server.get("/indexes", params={"branch": "none"}), 404, "not_found")
