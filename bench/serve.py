"""Requests a second and latency of the server, beside a bare ASGI app on the same web server.

    python bench/serve.py [--seconds N] [--workers N]

The bare app parses the same body, hands it to a thread and answers the same bytes. Clients are
connections of one process that ask again as soon as they are answered. The point lookup and the
bare app take turns, as do the mutation and the library on a copy of the graph, and the processor
time of the server is counted for each request: it says what a request costs also on a machine that
others keep busy.
"""

import argparse
import asyncio
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

import omnigraph as og

SCHEMA = """
node Person { name: String @key  age: I32 }
edge Knows: Person -> Person
"""
PEOPLE, KNOWN = 20_000, 5
TURNS = 5
POINT = "query p($n: String) { match { $p: Person { name: $n } } return { $p.name, $p.age } }"
HOPS = (
    "query h($n: String) { match { $p: Person { name: $n } $p knows $q $q knows $r } "
    "return { $r.name } }"
)
MANY = "query m() { match { $p: Person } return { $p.name, $p.age } limit 10000 }"
ADD = "query a($n: String) { insert Person { name: $n, age: 1 } }"
ARROW = "application/vnd.apache.arrow.stream"

BARE = """
import asyncio, sys
from concurrent.futures import ThreadPoolExecutor
import msgspec, uvicorn
ANSWER = open(sys.argv[1], "rb").read()
pool, decode = ThreadPoolExecutor(8), msgspec.json.Decoder().decode
async def app(scope, receive, send):
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    data = await asyncio.get_running_loop().run_in_executor(pool, lambda: decode(body) and ANSWER)
    length = str(len(data)).encode()
    await send({"type": "http.response.start", "status": 200,
                "headers": [(b"content-type", b"application/json"), (b"content-length", length)]})
    await send({"type": "http.response.body", "body": data})
uvicorn.run(app, port=int(sys.argv[2]), log_level="critical", lifespan="off", http="httptools")
"""


def make_graph(uri: str) -> None:
    """A graph of people who know each other."""
    with og.init(uri, SCHEMA) as graph:
        nodes = (
            {"type": "Person", "data": {"name": f"p{n}", "age": n % 90}} for n in range(PEOPLE)
        )
        graph.load(nodes, "append")
        edges = (
            {"edge": "Knows", "from": f"p{n}", "to": f"p{(n * 7 + k) % PEOPLE}"}
            for n in range(PEOPLE)
            for k in range(KNOWN)
        )
        graph.load(edges, "append")


def request(path: str, body: object, accept: str = "application/json") -> bytes:
    """The bytes of one request."""
    data = msgspec.json.encode(body)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAccept: {accept}\r\n"
        f"Content-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


async def ask(port: int, make: object, seconds: float, connections: int) -> list[float]:
    """Latencies of as many requests as fit into some seconds."""
    latencies: list[float] = []

    async def client(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        turn = 0
        while time.perf_counter() < deadline:
            started = time.perf_counter()
            writer.write(make(number, turn))  # type: ignore[operator]
            head = await reader.readuntil(b"\r\n\r\n")
            if b" 200 " not in head.split(b"\r\n")[0]:
                raise SystemExit(head.decode())
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            await reader.readexactly(length)
            latencies.append(time.perf_counter() - started)
            turn += 1
        writer.close()

    deadline = time.perf_counter() + seconds
    await asyncio.gather(*(client(number) for number in range(connections)))
    return latencies


def cpu_s(pid: int) -> float:
    """The processor time of a process and its children so far."""
    folder = Path(f"/proc/{pid}")
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    children = (folder / "task" / str(pid) / "children").read_text().split()
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return own + sum(cpu_s(int(child)) for child in children)


def measured(
    name: str, pid: int, port: int, make: object, seconds: float, connections: int
) -> tuple[float, float]:
    """Print one line; requests a second and processor milliseconds a request."""
    cpu = cpu_s(pid)
    latencies = asyncio.run(ask(port, make, seconds, connections))
    cost = (cpu_s(pid) - cpu) / len(latencies) * 1000
    rate = len(latencies) / seconds
    cuts = statistics.quantiles(latencies, n=100)
    shown = f"{cuts[49] * 1000:.2f} | {cuts[98] * 1000:.2f} | {cost:.3f}"
    print(f"| {name} | {rate:.0f} | {shown} |", flush=True)
    return rate, cost


def wait_for(port: int) -> None:
    """Return when something listens."""
    for _ in range(600):
        with socket.socket() as sock:
            if sock.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise SystemExit("nothing listens")


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def once(port: int, data: bytes) -> bytes:
    """The body of one answer."""

    async def exchange() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        body = await reader.readexactly(length)
        writer.close()
        return body

    return asyncio.run(exchange())


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=5)
    options.add_argument("--workers", type=int, default=1)
    options.add_argument("--connections", type=int, default=16)
    given = options.parse_args()
    path = "/graphs/bench/query"
    people = [request(path, {"query": POINT, "params": {"n": f"p{n}"}}) for n in range(1000)]
    hops = [request(path, {"query": HOPS, "params": {"n": f"p{n}"}}) for n in range(1000)]
    many = request(path, {"query": MANY})
    arrow = request(path, {"query": MANY}, ARROW)

    def add(number: int, turn: int) -> bytes:
        body = {"query": ADD, "params": {"n": f"x{os.getpid()}-{number}-{turn}"}}
        return request("/graphs/bench/mutate", body)

    with tempfile.TemporaryDirectory() as folder:
        uri, port = f"{folder}/bench.omni", free_port()
        make_graph(uri)
        shutil.copytree(uri, f"{folder}/copy.omni")
        words = ["serve", uri, "--unauthenticated", "--bind", f"127.0.0.1:{port}"]
        server = subprocess.Popen(
            [sys.executable, "-c", "from omnigraph.cli.start import program; program()", *words,
             "--workers", str(given.workers)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert server.stdout is not None
        server.stdout.readline()
        print(
            f"| {given.workers} worker(s) | requests/s | p50, ms | p99, ms | processor, ms |\n"
            "|---|--:|--:|--:|--:|"
        )
        bare: subprocess.Popen[bytes] | None = None
        try:
            answer, bare_port = Path(folder) / "answer", free_port()
            answer.write_bytes(once(port, people[0]))
            bare = subprocess.Popen([sys.executable, "-c", BARE, str(answer), str(bare_port)])
            wait_for(bare_port)
            _beside_bare(server.pid, port, bare.pid, bare_port, people, given)
            others = (
                ("two hops", lambda n, t: hops[(n * 37 + t) % 1000], given.connections),
                ("10,000 rows as JSON", lambda n, t: many, 4),
                ("10,000 rows as Arrow", lambda n, t: arrow, 4),
            )
            for name, make, connections in others:
                asyncio.run(ask(port, make, 1, connections))  # warm
                measured(name, server.pid, port, make, given.seconds, connections)
            _beside_library(server.pid, port, add, f"{folder}/copy.omni", given)
        finally:
            if bare is not None:
                bare.terminate()
                bare.wait(30)
            server.send_signal(signal.SIGTERM)
            server.wait(60)


def _beside_library(pid: int, port: int, add: object, copy: str, given: argparse.Namespace) -> None:
    """Mutations of the server and of the library on a copy of the graph, in turns."""
    with og.open(copy) as graph:
        asyncio.run(ask(port, add, 1, 1))  # warm
        _alone(graph, 1)
        for _ in range(TURNS):
            measured("one-row mutation", pid, port, add, given.seconds / TURNS, 1)
            cpu = time.process_time()
            times = _alone(graph, given.seconds / TURNS)
            cost = (time.process_time() - cpu) / len(times) * 1000
            median = statistics.median(times) * 1000
            print(f"| the same in the library | | {median:.2f} | | {cost:.3f} |", flush=True)


def _alone(graph: og.Graph, seconds: float) -> list[float]:
    """How long mutations take without a server, as many as fit into some seconds."""
    times, end = [], time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        started = time.perf_counter()
        graph.mutate(ADD, {"n": f"lib{time.time_ns()}"})
        times.append(time.perf_counter() - started)
    return times


def _beside_bare(
    pid: int,
    port: int,
    bare_pid: int,
    bare_port: int,
    people: list[bytes],
    given: argparse.Namespace,
) -> None:
    """Point lookups and the bare app in turns, and the quotient of the two."""

    def ours(number: int, turn: int) -> bytes:
        return people[(number * 37 + turn) % 1000]

    def theirs(number: int, turn: int) -> bytes:
        return people[0]

    for each, where in ((ours, port), (theirs, bare_port)):
        asyncio.run(ask(where, each, 1, given.connections))  # warm
    quotients = []
    for _ in range(TURNS):
        seconds, connections = given.seconds / TURNS, given.connections
        rate, _ = measured("point lookup", pid, port, ours, seconds, connections)
        bare, _ = measured(
            "a bare app, same bytes", bare_pid, bare_port, theirs, seconds, connections
        )
        quotients.append(rate / bare)
    print(f"| point lookup / bare app, median | {statistics.median(quotients):.2f} | | | |")


if __name__ == "__main__":
    main()
