"""Workers that try to provoke anomalies, and notes of what each of them saw.

The transactions are those of the ACID tests of LDBC: each touches people of its own, so that all of
them run at once. A worker is a thread or a process; it tells its log what it read and wrote.
"""

import json
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import omnigraph as og
from omnigraph.graph import Graph

SCHEMA = """
node Person {
    name: String @key
    version: I64
    writers: String
}

edge Knows: Person -> Person {
    writers: String
}
"""
FAR = 1_000_000
READ = "query q($n: String) { match { $p: Person { name: $n } } return { $p.version, $p.writers } }"
SET = "query q($n: String, $v: I64) { update Person set { version: $v } where name = $n }"
SET_BOTH = """query q($a: String, $b: String, $x: String, $y: String) {
    update Person set { writers: $x } where name = $a
    update Person set { writers: $y } where name = $b
}"""
CYCLE = ("otv0", "otv1", "otv2", "otv3")
SET_CYCLE = """query q($v: I64) {
    update Person set { version: $v } where name = "otv0"
    update Person set { version: $v } where name = "otv1"
    update Person set { version: $v } where name = "otv2"
    update Person set { version: $v } where name = "otv3"
}"""
READ_CYCLE = """query q() {
    match { $a: Person { name: "otv0" } $a knows $b $b knows $c $c knows $d }
    return { $a.version as a, $b.version as b, $c.version as c, $d.version as d }
}"""
ADD = 'query q($n: String) { insert Person { name: $n, version: 1, writers: "new" } }'
COUNT = 'query q() { match { $p: Person $p.writers = "new" } return { count($p) as n } }'
FIRST = (
    *CYCLE, "g0a", "g0b", "g1a", "g1b", "g1c-0", "g1c-1", "lu", "ws0", "ws1", "cas"
)  # fmt: skip


def create(uri: str, branch: str) -> None:
    """A graph with the people of all tests, on a branch."""
    with og.init(uri, SCHEMA) as graph:
        people = [
            {
                "type": "Person",
                "data": {"name": n, "version": FAR if n == "g1b" else 1, "writers": ""},
            }
            for n in FIRST
        ]
        cycle = [
            {"edge": "Knows", "from": a, "to": b, "data": {"writers": ""}}
            for a, b in zip(CYCLE, (*CYCLE[1:], CYCLE[0]), strict=True)
        ]
        graph.load(people + cycle, "append", engine="local")
        if branch != "main":
            graph.branches.create(branch)


class Worker:
    """One worker with a graph of its own."""

    def __init__(self, graph: Graph, branch: str, log: str, number: int) -> None:
        self.graph, self.on = graph, branch
        self.log = Path(log)
        self.number = number
        self.chance = random.Random(number)
        self.count = 0
        self.deeds: tuple[Callable[[], None], ...] = (
            self.atomicity, self.rollback, self.g0, self.g1a, self.g1b, self.g1c, self.otv,
            self.pmp, self.lost_update, self.write_skew, self.cas, self.once,
        )  # fmt: skip

    def go_on(self, rounds: int) -> None:
        """Every deed so many times, in an order of its own."""
        for _ in range(rounds):
            for deed in self.chance.sample(self.deeds, len(self.deeds)):
                self.count += 1
                try:
                    deed()
                except (og.Conflict, og.MergeConflicts, og.PreconditionFailed) as lost:
                    self.tell("lost", deed=deed.__name__, error=type(lost).__name__)

    def tell(self, kind: str, **facts: Any) -> None:
        with self.log.open("a") as file:
            file.write(json.dumps({"kind": kind, "by": self.number, **facts}) + "\n")

    def read(self, name: str, **options: Any) -> dict[str, Any]:
        if not options:
            options = {"branch": self.on}
        return self.graph.query(READ, {"n": name}, **options).rows[0]

    @property
    def mark(self) -> str:
        return f"{self.number}.{self.count}"

    # Atomicity

    def atomicity(self) -> None:
        """C: a person and an edge to it, or neither."""
        name = f"c-{self.mark}"
        text = """query q($n: String) { insert Person { name: $n, version: 1, writers: "c" }
            insert Knows { from: $n, to: "otv0", writers: "c" } }"""
        self.graph.mutate(text, {"n": name}, branch=self.on)
        self.tell("committed", name=name)

    def rollback(self) -> None:
        """RB: a transaction that ends with an error leaves nothing."""
        name = f"rb-{self.mark}"
        try:
            with self.graph.transaction(branch=self.on) as tx:
                tx.mutate(ADD.replace("new", "rb"), {"n": name})
                raise KeyError(name)
        except KeyError:
            self.tell("rolled back", name=name)

    # Dirty writes and reads

    def g0(self) -> None:
        """Two people get the same writers, in the same order."""
        seen = self.graph.query(READ, {"n": "g0a"}, branch=self.on)
        head = seen.commit_id
        a, b = seen.rows[0], self.read("g0b", snapshot=head)
        both = {"x": f"{a['p.writers']},{self.mark}", "y": f"{b['p.writers']},{self.mark}"}
        self.graph.mutate(
            SET_BOTH, {"a": "g0a", "b": "g0b", **both}, branch=self.on, if_commit=head
        )

    def g1a(self) -> None:
        """A version that is never committed is never read."""
        try:
            with self.graph.transaction(branch=self.on) as tx:
                tx.mutate(SET, {"n": "g1a", "v": 2})
                self.tell("g1a", version=self.read("g1a")["p.version"])
                raise KeyError
        except KeyError:
            self.tell("g1a", version=self.read("g1a")["p.version"])

    def g1b(self) -> None:
        """A version that is overwritten before the commit is never read."""
        with self.graph.transaction(branch=self.on) as tx:
            tx.mutate(SET, {"n": "g1b", "v": 0})
            self.tell("g1b", version=self.read("g1b")["p.version"])
            tx.mutate(SET, {"n": "g1b", "v": FAR + self.count})
        self.tell("g1b", version=self.read("g1b")["p.version"])

    def g1c(self) -> None:
        """No two transactions read what the other wrote."""
        own, other = (f"g1c-{n}" for n in self.chance.sample((0, 1), 2))
        written = self.number * FAR + self.count
        with self.graph.transaction(branch=self.on) as tx:
            tx.mutate(SET, {"n": own, "v": written})
            read = tx.query(READ, {"n": other}).rows[0]["p.version"]
        self.tell("g1c", wrote=written, read=read)

    # Reads that do not hold together

    def otv(self) -> None:
        """FR, OTV and IMP: a cycle is written whole; a snapshot shows it so, twice the same."""
        if self.chance.random() < 0.5:
            seen = self.graph.query(READ, {"n": "otv0"}, branch=self.on)
            version = {"v": seen.rows[0]["p.version"] + 1}
            with suppress(og.PreconditionFailed):  # else an older number could follow a newer one
                self.graph.mutate(SET_CYCLE, version, branch=self.on, if_commit=seen.commit_id)
        first = self.graph.query(READ_CYCLE, branch=self.on)
        again = self.graph.query(READ_CYCLE, snapshot=first.commit_id)
        self.tell("cycle", first=first.rows, again=again.rows)

    def pmp(self) -> None:
        """A predicate matches the same people as long as the snapshot is the same."""
        seen = self.graph.query(COUNT, branch=self.on)
        self.graph.mutate(ADD, {"n": f"pmp-{self.mark}"}, branch=self.on)
        again = self.graph.query(COUNT, snapshot=seen.commit_id)
        self.tell("pmp", first=seen.rows[0]["n"], again=again.rows[0]["n"])

    # Writes that rely on reads

    def lost_update(self) -> None:
        """LU: a counter goes up by one for each success."""
        seen = self.graph.query(READ, {"n": "lu"}, branch=self.on)
        value = seen.rows[0]["p.version"] + 1
        self.graph.mutate(SET, {"n": "lu", "v": value}, branch=self.on, if_commit=seen.commit_id)
        self.tell("incremented")

    def write_skew(self) -> None:
        """WS: one of two is taken away only if both are there."""
        seen = self.graph.query(READ, {"n": "ws0"}, branch=self.on)
        both = seen.rows[0]["p.version"] + self.read("ws1", snapshot=seen.commit_id)["p.version"]
        name = self.chance.choice(("ws0", "ws1"))
        if both > 1:
            self.graph.mutate(SET, {"n": name, "v": 0}, branch=self.on, if_commit=seen.commit_id)

    # What a history must be explained by

    def cas(self) -> None:
        """A register that is read, and written if nobody came in between."""
        begun = time.monotonic_ns()
        seen = self.graph.query(READ, {"n": "cas"}, branch=self.on)
        value = seen.rows[0]["p.version"]
        self.tell("read", begun=begun, ended=time.monotonic_ns(), value=value)
        new = self.number * FAR + self.count
        begun = time.monotonic_ns()
        try:
            self.graph.mutate(SET, {"n": "cas", "v": new}, branch=self.on, if_commit=seen.commit_id)
        except og.PreconditionFailed:
            return  # another commit came first: no matter of which person
        self.tell("swap", begun=begun, ended=time.monotonic_ns(), old=value, new=new)

    def once(self) -> None:
        """A named write happens once, however many try."""
        name = f"once-{self.chance.randrange(self.count // 12 + 1)}"
        done = self.graph.mutate(ADD.replace("new", "once"), {"n": name}, branch=self.on, once=name)
        self.tell("once", name=name, commit=done.commit.id)


def work(uri: str, branch: str, log: str, number: int, rounds: int) -> None:
    """The life of a worker that is a process."""
    with og.open(uri) as graph:
        Worker(graph, branch, log, number).go_on(rounds)


def in_threads(uri: str, branch: str, logs: Path, workers: int, rounds: int) -> None:
    """Workers that share one open graph."""
    with og.open(uri) as graph:
        faults: list[BaseException] = []

        def run(number: int) -> None:
            try:
                Worker(graph, branch, str(logs / f"{number}.log"), number).go_on(rounds)
            except BaseException as fault:  # noqa: BLE001  shown by the test
                faults.append(fault)

        threads = [threading.Thread(target=run, args=(n,)) for n in range(1, workers + 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if faults:
            raise faults[0]


def notes(logs: Path) -> list[dict[str, Any]]:
    """All that was told."""
    return [json.loads(line) for log in logs.glob("*.log") for line in log.read_text().splitlines()]
