"""Turns: a write that keeps the locks of the one before it takes none of them twice."""

import pytest

from omnigraph.storage.locks.locks import hold
from omnigraph.storage.locks.turns import Turn
from omnigraph.storage.manifest.state import publish_lock
from omnigraph.storage.names import MAIN, lock_name
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.store import Store
from tests.storage.world import PERSON, content, rows


def test_c2_a_turn_that_keeps_the_publish_lock_publishes_under_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(hold.__wrapped__.__kwdefaults__, "wait_s", 0.2)  # type: ignore[attr-defined]
    names = [lock_name(PERSON, MAIN), publish_lock(MAIN)]
    with hold(store.locks, names) as guard:
        write = store.begin(kind=WriterKind.MUTATION, turn=Turn(guard.locks))
        write.append(PERSON, rows(PERSON, {"a": 1}))
        store.commit(write)
    assert set(content(store)[PERSON]) == {"a"}
