"""Dates of images: ISO text in Python, numbers in JSON, of files and over HTTP alike."""

import io
from pathlib import Path

import orjson
import pytest

import omnigraph as og
from tests.remote.both import Maker

SCHEMA = """
node Paper { doi: String @key, published: Date?, seen: DateTime?, dates: [Date]?, year: I32? }
edge Cites: Paper -> Paper { since: Date? }
"""
DATA = """\
{"type": "Paper", "data": {"doi": "a", "published": 19724, "dates": ["2024-05-06"], "year": 19724}}
{"type": "Paper", "data": {"doi": "b", "seen": "2024-01-02T03:04:05Z"}}
{"edge": "Cites", "from": "a", "to": "b", "data": {"since": "2020-01-01"}}
"""
SHOWN = {
    "doi": "a",
    "published": "2024-01-02",
    "seen": None,
    "dates": ["2024-05-06"],
    "year": 19724,
}
STORED = {**SHOWN, "published": 19724, "dates": [19849]}


def test_changes_show_dates_as_text_and_send_numbers(new: Maker) -> None:
    graph = new(SCHEMA, DATA)
    (commit,) = graph.commits.list(limit=1)
    polled = graph.changes.poll(start="beginning").blocks[0].changes
    diffed = tuple(graph.diff("main~1", "main"))
    for listed in (tuple(graph.commits.changes(commit.id)), polled, diffed):
        papers = {change.id: change for change in listed if change.type == "Paper"}
        after = papers["a"].after
        assert after is not None
        assert after.properties == SHOWN
        assert papers["a"].to_json()["after"] == {"properties": STORED}
        assert papers["a"].to_json("iso")["after"] == {"properties": SHOWN}
        other = papers["b"].after
        assert other is not None
        assert other.properties["seen"] == "2024-01-02T03:04:05.000Z"
        (edge,) = (change.after for change in listed if change.type == "Cites")
        assert edge is not None
        assert edge.properties == {"since": "2020-01-01"}
        assert edge.to_json()["properties"] == {"since": 18262}


def test_an_entity_and_its_history_show_dates_as_text(new: Maker) -> None:
    graph = new(SCHEMA, DATA)
    view = graph.entity("node", "Paper", "a")
    assert view.image.properties == SHOWN
    assert view.to_json()["properties"] == STORED
    (revision,) = graph.history("node", "Paper", "a")
    assert revision.change.after is not None
    assert revision.change.after.properties == SHOWN
    assert revision.change.to_json()["after"]["properties"] == STORED


def test_conflicts_show_dates_as_text_and_take_both_forms(new: Maker) -> None:
    graph = new(SCHEMA, DATA)
    graph.branches.create("review")
    update = 'query q() { update Paper set { published: date("%s") } where doi = "a" }'
    graph.mutate(update % "2025-01-01")
    graph.mutate(update % "2026-01-01", branch="review")
    try:
        graph.branches.merge("review")
    except og.MergeConflicts as refused:
        (conflict,) = refused.conflicts
    assert conflict.base is not None
    assert conflict.base["properties"] == SHOWN
    assert conflict.theirs is not None
    assert conflict.theirs["properties"]["published"] == "2026-01-01"
    answer = {"published": conflict.theirs["properties"]["published"], "dates": [0]}
    graph.branches.merge("review", resolve={("Paper", "a"): answer})
    merged = graph.entity("node", "Paper", "a").image.properties
    assert (merged["published"], merged["dates"]) == ("2026-01-01", ["1970-01-01"])


def test_an_export_has_numbers_or_text_and_loads_again(new: Maker) -> None:
    graph = new(SCHEMA, DATA)
    plain, iso = io.BytesIO(), io.BytesIO()
    graph.export(plain)
    graph.export(iso, dates="iso")
    papers = [orjson.loads(each.getvalue().splitlines()[1])["data"] for each in (plain, iso)]
    assert papers == [{"id": "a", **STORED}, {"id": "a", **SHOWN}]
    again = new(SCHEMA, iso.getvalue().decode())
    copied = io.BytesIO()
    again.export(copied)
    assert copied.getvalue() == plain.getvalue()


def test_a_baseline_has_numbers_or_text(new: Maker, tmp_path: Path) -> None:
    whole = new(SCHEMA, DATA).changes.baseline(types=["Paper"])
    counts = [whole.to_file(tmp_path / form, form).nodes for form in ("numbers", "iso")]  # type: ignore[arg-type]
    assert counts == [{"Paper": 2}] * 2
    papers = [
        orjson.loads((tmp_path / form).read_bytes().splitlines()[0])["data"]
        for form in ("numbers", "iso")
    ]
    assert papers == [{"id": "a", **STORED}, {"id": "a", **SHOWN}]
    with pytest.raises(og.BadRequest, match="use numbers or iso"):
        whole.to_file(tmp_path / "x", "days")  # type: ignore[arg-type]
