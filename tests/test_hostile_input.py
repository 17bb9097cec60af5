"""Whatever bytes come in, the answer is a result or an error of ours, in bounded time."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import campaign, hostile_input
from tests.hostile_input import Kind, Targets, ask, corpus, damaged


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Kind]]:
    targets = Targets(Path(tmp_path_factory.mktemp("hostile")))
    yield targets.kinds()
    targets.graph.close()


def test_the_kept_inputs_are_answered(kinds: dict[str, Kind]) -> None:
    kept = corpus()
    assert {name for name, _ in kept} == set(kinds) - set(hostile_input.ENDS_PROCESS)
    answers = [(path, ask(kinds[name], path.read_bytes())) for name, path in kept]
    assert [(path.name, a.signature) for path, a in answers if a.failed] == []


def test_new_inputs_are_answered(kinds: dict[str, Kind]) -> None:
    chance = random.Random()
    for name in kinds.keys() - set(hostile_input.ENDS_PROCESS):
        for _ in range(15):
            data = damaged(kinds[name], chance)
            assert not (answer := ask(kinds[name], data)).failed, (name, data, answer.signature)


def test_an_answer_that_is_no_error_of_ours_is_noticed() -> None:
    def fails(data: bytes) -> None:
        raise KeyError(data)

    assert ask(Kind((b"",), fails), b"x").failed


@pytest.mark.slow
def test_a_long_campaign_of_inputs_is_answered() -> None:
    asked, failures = hostile_input.campaign(
        campaign.seconds(300), None, random.randrange(2**32), keeps=False
    )
    assert not failures
    assert asked.total() > 1000
