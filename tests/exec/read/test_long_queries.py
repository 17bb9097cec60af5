"""Query texts of up to 1 MB are answered with rows or an error of ours, and end at the deadline."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph as og
from tests import campaign, long_queries
from tests.long_queries import TEXT_BYTES_MAX, answers, ask, graph_of, text_of

FEW = 40
FEW_BYTES = 1 << 14


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[og.Graph]:
    with graph_of(Path(tmp_path_factory.mktemp("long"))) as made:
        yield made


def test_texts_are_as_long_as_they_may_be() -> None:
    sizes = [len(text_of(seed).encode()) for seed in range(60)]
    assert max(sizes) <= TEXT_BYTES_MAX
    assert max(sizes) > TEXT_BYTES_MAX // 4


def test_texts_are_answered_or_refused(graph: og.Graph) -> None:
    found = [ask(graph, seed, FEW_BYTES) for seed in range(FEW)]
    assert [answer for answer in found if not answer.is_typed] == []
    assert {"rows", "LimitExceeded", "ParseError", "TypeCheckError"} <= {a.kind for a in found}


def test_an_answer_that_is_no_error_of_ours_is_noticed(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr(og.Graph, "query", broken)
    monkeypatch.setattr(long_queries, "text_of", lambda _seed, _most: "query q() { }")
    assert ask(graph, 0).failed


@pytest.mark.slow
def test_many_texts_are_answered_or_refused_within_their_deadline() -> None:
    count = campaign.count(10_000)
    assert [answer for answer in answers(0, count, TEXT_BYTES_MAX) if answer.failed] == []
