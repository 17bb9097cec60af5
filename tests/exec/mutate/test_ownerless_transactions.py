"""The branch of a killed transaction goes once its owner is known to be dead, and no other does."""

import os
import signal
from pathlib import Path

import omnigraph as og
from tests.forked import KILLED, run
from tests.power_cut_work import INSERT, PAIR, PEOPLE, SCHEMA


def die(uri: str) -> None:
    with og.open(uri) as graph, graph.transaction() as tx:
        tx.mutate(PAIR, {"a": "a", "b": "b"})
        os.kill(os.getpid(), signal.SIGKILL)


def branches(uri: str) -> tuple[str, ...]:
    with og.open(uri, read_only=True) as reader:
        return reader.branches.list()


def test_the_branch_of_a_killed_transaction_is_removed_by_the_next_one(tmp_path: Path) -> None:
    uri = str(tmp_path / "graph.omni")
    with og.init(uri, SCHEMA) as graph:
        graph.branches.create("tx/mine")  # a person's, whatever its name
        with graph.transaction() as living:
            living.mutate(INSERT, {"n": "l"})
            assert run(die, uri) == KILLED
            assert len(branches(uri)) == 4
            with graph.transaction() as tx:
                tx.mutate(INSERT, {"n": "n"})
            assert len(branches(uri)) == 3, "the dead one went, the living one did not"
        assert branches(uri) == ("main", "tx/mine")
        assert {row["p.name"] for row in graph.query(PEOPLE)} == {"l", "n"}
        assert run(die, uri) == KILLED
    with og.open(uri) as graph:
        assert graph.branches.list() == ("main", "tx/mine"), "an open removes it too"
        assert graph.check().ok


def test_locks_of_transactions_do_not_pile_up(tmp_path: Path) -> None:
    uri = tmp_path / "graph.omni"
    with og.init(uri, SCHEMA) as graph:

        def transact(number: int) -> int:
            with graph.transaction() as tx:
                tx.mutate(INSERT, {"n": f"p{number}"})
            return len(os.listdir(uri / "__locks"))

        counts = [transact(number) for number in range(4)]
        assert counts[1:] == counts[:-1]
