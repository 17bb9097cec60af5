"""The branch of a served transaction goes when its client does (RC3)."""

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.remote.branch_lease import BranchLeases
from omnigraph.server.branch_leases import LeaseWatch
from omnigraph.server.serve_settings import Access
from tests.server.world import ADD, NAMES, Served, new_graph, served

CLIENT = """
import sys, omnigraph as og
graph = og.connect(sys.argv[1], token=sys.argv[2] or None)
with graph.transaction(message="never") as tx:
    tx.mutate(sys.argv[3], {"n": "Zoe", "a": 1})
    print("wrote", flush=True)
    sys.stdin.read()
"""


class Clock:
    """A clock that stands still until it is moved."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def begun(server: Served, token: str = "") -> subprocess.Popen[str]:
    """A client in the middle of a transaction."""
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT, server.url, token, ADD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert client.stdout is not None
    assert client.stdout.readline() == "wrote\n"
    return client


def ended(client: subprocess.Popen[str]) -> None:
    client.kill()
    client.communicate()


def test_the_branch_of_a_client_that_died_is_removed_after_a_term(tmp_path: Path) -> None:
    clock = Clock()
    with served(new_graph(tmp_path)) as server:
        client = begun(server)
        try:
            watch = LeaseWatch(lambda *event, **facts: None, clock)
            main, branch = server.graph.branches.list()
            assert branch.startswith("tx/")
            server.graph.branches.create("tx/kept")  # by hand, and without a lease
            assert watch.look(server.graphs.opened()) == 0
        finally:
            ended(client)
        clock.now += 59
        assert watch.look(server.graphs.opened()) == 0
        clock.now += 2
        assert watch.look(server.graphs.opened()) == 1
        assert server.graph.branches.list() == (main, "tx/kept")
        assert server.graph.beside.names("leases") == ()
        assert len(server.graph.query(NAMES)) == 2
        clock.now += 1000
        assert watch.look(server.graphs.opened()) == 0
        assert server.graph.branches.list() == (main, "tx/kept")


def test_a_client_that_lives_keeps_its_branch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BranchLeases.__init__, "__defaults__", (1,))
    with served(new_graph(tmp_path)) as server, og.connect(server.url) as graph:
        watch, looks = LeaseWatch(lambda *event, **facts: None), 0
        with graph.transaction(message="slow") as tx:
            tx.mutate(ADD, {"n": "Zoe", "a": 1})
            (name,) = server.graph.beside.names("leases")
            signs = set()
            while len(signs) < 8:  # a sign a quarter of a second
                signs.add(server.graph.beside.get("leases", name))
                watch._looked.clear()
                looks += watch.look(server.graphs.opened())
        assert looks == 0
        assert server.graph.beside.names("leases") == ()
        assert server.graph.branches.list() == ("main",)
        assert len(graph.query(NAMES)) == 3


def test_a_transaction_that_fails_leaves_no_lease(tmp_path: Path) -> None:
    with served(new_graph(tmp_path)) as server, og.connect(server.url) as graph:
        with contextlib.suppress(ZeroDivisionError), graph.transaction() as tx:
            tx.mutate(ADD, {"n": "Zoe", "a": 1})
            assert len(server.graph.beside.names("leases")) == 1
            raise ZeroDivisionError
        assert server.graph.branches.list() == ("main",)
        assert server.graph.beside.names("leases") == ()


def test_a_lease_is_of_one_actor_and_of_a_branch_for_transactions(tmp_path: Path) -> None:
    with served(new_graph(tmp_path), access=Access.TRUSTED) as server:
        ada, bob = ({"Authorization": f"Bearer {name}-token"} for name in ("ada", "bob"))

        def made(name: str, seconds: int, **members: str) -> int:
            body = {"name": name, "lease_seconds": seconds, **members}
            return server.post("/branches", body, headers=ada).status_code

        for name, seconds in (("review", 60), ("main", 60), ("tx/a/b", 60), ("tx/a", 0)):
            assert made(name, seconds) == 400
        assert made("tx/a", 60, **{"from": "nowhere"}) == 404
        assert server.graph.beside.names("leases") == ()
        assert (made("tx/a", 60), made("tx/a", 60)) == (200, 409)

        def renewed(name: str, headers: dict[str, str], seconds: int = 60) -> int:
            body = {"name": name, "lease_seconds": seconds, "renew": True}
            return server.post("/branches", body, headers=headers).status_code

        assert [renewed("tx/a", ada), renewed("tx/a", bob), renewed("tx/b", ada)] == [200, 404, 404]
        assert [renewed("main", ada), renewed("tx/a", ada, 10**6)] == [404, 400]
        assert server.client.delete(f"{server.base}/branches/tx%2Fa", headers=ada).is_success
        assert server.graph.beside.names("leases") == ()
