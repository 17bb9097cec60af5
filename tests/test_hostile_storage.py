"""An object store that fails in every way it can: nothing is lost, nothing is doubled.

What was acknowledged is there, what was refused is not, and what ended with an unknown outcome is
there as a whole or not at all.
"""

import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from tests import campaign, hostile_storm, storm
from tests.forked import context
from tests.storage.hostile import TIMEOUT_S, Weather, before
from tests.storage.s3 import Server, serve
from tests.test_storm import seen


@pytest.fixture(scope="module")
def server() -> Any:
    with serve() as running:
        yield running


def told(logs: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Kinds and ends of all deeds."""
    kinds: dict[str, str] = {}
    ends: dict[str, str] = {}
    for line in (line for log in logs.glob("*.log") for line in log.read_text().splitlines()):
        try:
            note = json.loads(line)
        except json.JSONDecodeError:
            continue  # a line its process did not live to finish
        if note["state"] == "try":
            kinds[note["deed"]] = note["kind"]
        else:
            ends[note["deed"]] = note["state"]
    return kinds, ends


def verify(uri: str, options: dict[str, str], logs: Path) -> Counter[str]:
    """Compare what was told with the graph, over a connection that does not fail."""
    kinds, ends = told(logs)
    with og.open(uri, storage_options=options) as graph:
        people, edges = seen(graph)
        del people["counter"]
        for deed in people | edges:
            assert (people[deed], edges[deed]) == hostile_storm.SIZES[kinds[deed]], deed
        for deed, kind in kinds.items():
            if kind != "step" and ends.get(deed) == "done":
                assert deed in people, f"acknowledged {kind} {deed} is lost"
            if kind != "step" and ends.get(deed) == "refused":
                assert deed not in people, f"refused {kind} {deed} is visible"
        steps = [ends.get(deed, "unknown") for deed, kind in kinds.items() if kind == "step"]
        counter = graph.query(storm.COUNT).rows[0]["p.age"]
        sure = steps.count("done")
        assert sure <= counter <= sure + steps.count("unknown"), "a step was lost or doubled"
        orphans = {"fork-orphan"}
        assert {finding.code for finding in graph.check().findings} <= orphans
        graph.mutate(storm.PAIR, {"a": "end/a", "b": "end/b", "d": "end"})
    return Counter(ends.values())


def begin(server: Server) -> tuple[str, dict[str, str]]:
    place = server.place()
    with og.init(place.uri, storm.SCHEMA, storage_options=place.options) as graph:
        graph.mutate('query q() { insert Person { name: "counter", deed: "counter", age: 0 } }')
    return place.uri, place.options


def through(options: dict[str, str], endpoint: str) -> dict[str, str]:
    return {**options, "aws_endpoint": endpoint, "timeout": f"{TIMEOUT_S:g}s"}


def test_C4_nothing_is_lost_over_storage_that_fails(server: Server, tmp_path: Path) -> None:
    uri, options = begin(server)
    weather = Weather(0.04, random.Random(), tuple(f for f in hostile_faults() if f != "timeout"))
    with before(options["aws_endpoint"], weather) as endpoint:
        log = str(tmp_path / "p1.log")
        hostile_storm.BadDay(uri, through(options, endpoint), log, 1).go_on(8)
    assert sum(weather.seen.values()) > 100
    verify(uri, options, tmp_path)


def hostile_faults() -> tuple[str, ...]:
    return Weather(0, random.Random()).faults


@pytest.mark.slow
def test_C4_nothing_is_lost_in_a_storm_over_storage_that_fails(
    server: Server, tmp_path: Path
) -> None:
    s = campaign.seconds(300)
    ends, weather, kills = blow(server, tmp_path, processes=3, s=s)
    print(f"{kills} kills, {dict(ends)}, {dict(weather.seen)}")  # noqa: T201
    assert ends["done"] >= s / 10
    assert set(hostile_faults()) <= set(weather.seen)
    assert kills >= s / 10


def blow(
    server: Server, folder: Path, *, processes: int, s: float, share: float = 0.04
) -> tuple[Counter[str], Weather, int]:
    """Processes that are killed and replaced until the time is up."""
    uri, options = begin(server)
    chance = random.Random()
    weather = Weather(share, chance)
    killed, started = 0, 0
    with before(options["aws_endpoint"], weather) as endpoint:

        def start() -> Any:
            nonlocal started
            started += 1
            log = str(folder / f"p{started}.log")
            given = (uri, through(options, endpoint), log, chance.randrange(2**32))
            process = context().Process(target=hostile_storm.work, args=given, daemon=True)
            process.start()
            return process

        crowd = [start() for _ in range(processes)]
        deadline = time.monotonic() + s
        try:
            while time.monotonic() < deadline:
                time.sleep(chance.uniform(3, 8))
                number = chance.randrange(processes)
                assert crowd[number].is_alive(), "a process ended by itself"
                crowd[number].kill()
                crowd[number].join()
                killed += 1
                crowd[number] = start()
        finally:
            for process in crowd:
                process.kill()
                process.join()
    return verify(uri, options, folder), weather, killed
