"""Writes, recoveries and branches in a process of their own, so that a failpoint can kill it."""

import json
import os
import random
import signal

from omnigraph.errors import RecoveryRequired, VersionMismatch
from omnigraph.storage import failpoints
from omnigraph.storage.locks.locks import make_locks
from omnigraph.storage.locks.process_mark import own_mark
from omnigraph.storage.names import MAIN
from omnigraph.storage.objects import Objects, root_of
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.storage.stats import Stats
from omnigraph.types import TableKey
from tests.storage.world import CITY, KNOWS, PERSON, TABLES, Where, create_graph, put, rows

Values = dict[TableKey, dict[str, int]]

BRANCHES = (MAIN, "work/a", "work")
SHAPES: tuple[tuple[TableKey, ...], ...] = ((PERSON,), (CITY,), (KNOWS,), (PERSON, CITY), TABLES)


def write(where: Where, values: Values, branch: str, place: str, nth: int) -> None:
    """Commit once, killed at a failpoint."""
    store = where.open()
    failpoints.arm(place, "kill", nth)
    put(store, values, branch=branch, actor="act-crash")


def recover(where: Where, place: str) -> None:
    """Open read-write, killed at a failpoint."""
    failpoints.arm(place, "kill")
    where.open()


def init(where: Where, place: str) -> None:
    """Create a graph, killed at a failpoint."""
    failpoints.arm(place, "kill")
    create_graph(where)


def branch(where: Where, verb: str, name: str, place: str) -> None:
    """Create or delete a branch, killed at a failpoint."""
    store = where.open()
    failpoints.arm(place, "kill")
    if verb == "create":
        store.branches.create(name)
    else:
        store.branches.delete(name)


def commits(where: Where, count: int, table_key: TableKey, place: str) -> None:
    """Commit one row at a time, killed at a failpoint on the way."""
    store = where.open()
    failpoints.arm(place, "kill")
    for number in range(count):
        put(store, {table_key: {f"r{number}": number}}, branch=MAIN)


def write_for_ever(where: Where, log: str, seed: int) -> None:
    """Write for ever, telling the log."""
    chance = random.Random(seed)
    store = where.open()
    with open(log, "a", buffering=1) as told:
        for number in range(1_000_000):
            attempt = f"{seed}-{number}"
            branch, tables = chance.choice(BRANCHES), chance.choice(SHAPES)
            write = store.begin(branch, kind=WriterKind.MUTATION, actor=attempt)
            bases = {key: write.read(key).pin.version for key in tables}
            note = {"attempt": attempt, "branch": branch, "bases": bases}
            told.write(json.dumps({"try": note, "operation": write.operation_id}) + "\n")
            try:
                for table_key in tables:
                    write.append(table_key, rows(table_key, {attempt: number}))
                commit = store.commit(write)
            except VersionMismatch:
                told.write(json.dumps({"lost": attempt}) + "\n")
            except RecoveryRequired:
                continue  # neither acknowledged nor refused
            else:
                told.write(json.dumps({"done": attempt, "commit": commit.id}) + "\n")


def hold_and_die(where: Where, names: str, term_s: float = 1.0) -> None:
    """Take locks and die with them."""
    spot = root_of(where.uri, where.options or None)
    stats = Stats()
    locks = make_locks(spot, Objects(spot, stats), stats, term_s=term_s)
    for name in names.split():
        assert locks.acquire(name, wait_s=5) is not None
    os.kill(os.getpid(), signal.SIGKILL)


def mark_and_die(path: str) -> None:
    """Note the mark of this process and die."""
    with open(path, "w") as file:
        json.dump(own_mark(), file)
    os.kill(os.getpid(), signal.SIGKILL)
