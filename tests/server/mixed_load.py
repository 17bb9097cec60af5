"""Mixed load on a server: connections that read, write, merge and export until told to stop.

What each request was answered is kept, so that a test can say afterwards what the graph must hold.
"""

import itertools
import json
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable

import httpx

import omnigraph as og

NOTE = "query note($t: String) { insert Note { text: $t } }"
PAIR = (
    "query pair($a: String, $b: String) { insert Person { name: $a } insert Person { name: $b } "
    "insert Knows { from: $a, to: $b } }"
)
FIND = "query find($t: String) { match { $n: Note { text: $t } } return { $n.text as text } }"
NOTES = "query notes() { match { $n: Note } return { $n.text as text } }"
EDGES = "query edges() { match { $a: Person $a knows $b } return { $a.name as a, $b.name as b } }"
GRAPH = "/graphs/people"
HUNG_S = 90.0
AGAIN = (409, 429, 503)  # moved meanwhile, busy, or a write of a dead worker is being settled
_REQUESTS_A_CONNECTION = 25
_PAUSE_S = 0.05


class MixedLoad:
    """Connections that each do one kind of thing again and again, on four branches."""

    def __init__(self, url: str, branches: tuple[str, ...], connections: int) -> None:
        self._url, self._branches = url, branches
        kinds: tuple[Callable[[httpx.Client, str], None], ...] = (
            self._note, self._read, self._note_once, self._pair,
            self._note, self._read, self._merge, self._export,
            self._note, self._read, self._note_once, self._read,
            self._note, self._read, self._merge, self._note_once,
        )  # fmt: skip
        self.kept: dict[str, list[str]] = defaultdict(list)  # answered with 2xx, by branch
        self.pairs: dict[str, list[str]] = defaultdict(list)
        self.sent: set[str] = set()
        self.refused: set[str] = set()  # answered with 4xx, and not sent again
        self.merged: Counter[tuple[str, str]] = Counter()  # how many that were kept have arrived
        self.statuses: Counter[tuple[str, int]] = Counter()
        self.replays = self.unreachable = 0
        self.broken_at: list[float] = []  # when requests were sent whose connection broke
        self.slowest_s: dict[str, float] = defaultdict(float)
        self.faults: list[str] = []
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask, args=(kinds[number % len(kinds)], number))
            for number in range(connections)
        ]

    # ---- running

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let every request end; none may take as long as one that hangs."""
        self._stop.set()
        deadline = time.monotonic() + 2 * HUNG_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                self.faults.append("a request hung")

    @property
    def answered(self) -> int:
        """How many requests were done so far."""
        return sum(count for (_, status), count in list(self.statuses.items()) if status == 200)

    def _ask(self, kind: Callable[[httpx.Client, str], None], number: int) -> None:
        names = (f"{number}-{turn}" for turn in itertools.count())
        while not self._stop.is_set():
            with httpx.Client(base_url=self._url, timeout=HUNG_S) as client:
                for name in itertools.islice(names, _REQUESTS_A_CONNECTION):
                    if self._stop.is_set():
                        return
                    try:
                        kind(client, name)
                    except httpx.TimeoutException:
                        self.faults.append(f"{kind.__name__} hung")
                        return
                    except httpx.ConnectError:
                        self.unreachable += 1
                        time.sleep(_PAUSE_S)
                        break
                    except httpx.TransportError:  # its worker was killed
                        break
                    except Exception as cause:  # noqa: BLE001  told when all have ended
                        self.faults.append(f"{kind.__name__}: {cause!r}")
                        return

    def _post(
        self, client: httpx.Client, path: str, body: object, **headers: str
    ) -> httpx.Response:
        started = time.monotonic()
        try:
            response = client.post(f"{GRAPH}{path}", json=body, headers=headers)
        except (httpx.ReadError, httpx.RemoteProtocolError):
            self.broken_at.append(started)
            raise
        took = time.monotonic() - started
        self.slowest_s[path] = max(self.slowest_s[path], took)
        self.statuses[path, response.status_code] += 1
        if response.status_code not in (200, *AGAIN):
            self.faults.append(f"{path} was {response.status_code}: {response.text[:300]}")
        if response.status_code != 200:
            time.sleep(_PAUSE_S)
        return response

    # ---- kinds

    def _note(self, client: httpx.Client, name: str) -> None:
        """Write one row; if its answer is lost, nobody knows."""
        branch = self._of(name)
        self.sent.add(name)
        body = {"query": NOTE, "params": {"t": name}, "branch": branch}
        status = self._post(client, "/mutate", body).status_code
        if status == 200:
            self.kept[branch].append(name)
        elif status in (409, 429):
            self.refused.add(name)

    def _note_once(self, client: httpx.Client, name: str) -> None:
        """Write one row under a key, again and again until it is answered."""
        branch, headers = self._of(name), {"Idempotency-Key": f"key-{name}"}
        self.sent.add(name)
        body = {"query": NOTE, "params": {"t": name}, "branch": branch}
        deadline = time.monotonic() + HUNG_S
        while time.monotonic() < deadline:
            try:
                response = self._post(client, "/mutate", body, **headers)
            except (httpx.ReadError, httpx.RemoteProtocolError, httpx.WriteError):
                time.sleep(_PAUSE_S)
                continue
            if response.status_code == 200:
                self.replays += "idempotent-replay" in response.headers
                self.kept[branch].append(name)
                return
        self.faults.append("a write under a key was never answered")

    def _pair(self, client: httpx.Client, name: str) -> None:
        """Write three rows, of which one or two would be half a write."""
        branch = self._of(name)
        body = {"query": PAIR, "params": {"a": f"a{name}", "b": f"b{name}"}, "branch": branch}
        if self._post(client, "/mutate", body).status_code == 200:
            self.pairs[branch].append(name)

    def _read(self, client: httpx.Client, name: str) -> None:
        """Read what was answered last: it is there, once, whichever worker is asked."""
        branch = random.choice(self._branches)
        kept = self.kept[branch][-1:]
        if not kept:
            time.sleep(_PAUSE_S)
            return
        body = {"query": FIND, "params": {"t": kept[0]}, "branch": branch}
        response = self._post(client, "/query", body)
        if response.status_code == 200 and response.json()["row_count"] != 1:
            self.faults.append(f"{kept[0]} on {branch} is there {response.json()['row_count']}×")

    def _merge(self, client: httpx.Client, name: str) -> None:
        """Merge a branch into main, or main into a branch."""
        main, *others = self._branches
        source, target = random.choice(others), main
        if random.random() < 0.25:
            source, target = target, source
        count = len(self.kept[source])
        body = {"source": source, "target": target}
        if self._post(client, "/branches/merge", body).status_code == 200:
            self.merged[source, target] = max(count, self.merged[source, target])

    def _export(self, client: httpx.Client, name: str) -> None:
        """Export people and whom they know: every pair is whole."""
        branch = random.choice(self._branches)
        body = {"branch": branch, "type_names": ["Person", "Knows"]}
        response = self._post(client, "/export", body)
        if response.status_code != 200:
            return
        lines = [json.loads(line) for line in response.text.splitlines()]
        people = {line["data"]["name"] for line in lines if "type" in line}
        edges = {(line["from"], line["to"]) for line in lines if "edge" in line}
        self.faults += [f"an export has {half}" for half in _halves(people, edges)]

    def _of(self, name: str) -> str:
        return self._branches[sum(map(int, name.split("-"))) % len(self._branches)]

    # ---- afterwards

    def require_all_there(self, graph: og.Graph) -> None:
        """What was answered with 2xx is there once, what was refused is not, nothing is half."""
        assert not self.faults, (self.faults[:5], dict(self.slowest_s), dict(self.statuses))
        assert self.kept
        assert self.pairs
        texts = {b: [r["text"] for r in graph.query(NOTES, branch=b).rows] for b in self._branches}
        for branch, found in texts.items():
            assert len(found) == len(set(found)), "a row was written twice"
            assert set(self.kept[branch]) <= set(found), "a row that was answered is not there"
            assert set(found) <= self.sent - self.refused, "a row that was refused is there"
            rows = graph.query(EDGES, branch=branch).rows
            edges = {(row["a"], row["b"]) for row in rows}
            people = {row["name"] for row in graph.query(_PEOPLE, branch=branch).rows}
            assert _halves(people, edges) == []
            assert {f"a{name}" for name in self.pairs[branch]} <= people
        for (source, target), count in self.merged.items():
            missing = set(self.kept[source][:count]) - set(texts[target])
            assert not missing, f"the merge of {source} into {target} lost {missing}"
        assert graph.check().ok


_PEOPLE = "query people() { match { $p: Person } return { $p.name as name } }"


def _halves(people: set[str], edges: set[tuple[str, str]]) -> list[str]:
    """Pairs of which something is missing."""
    names = {name[1:] for name in people if "-" in name}
    names |= {a[1:] for a, _ in edges if "-" in a}
    whole = (
        name
        for name in names
        if {f"a{name}", f"b{name}"} <= people and (f"a{name}", f"b{name}") in edges
    )
    return [f"half of {name}" for name in sorted(names - set(whole))]
