"""Calls on an object store and what they take when each takes 30 ms: wall time beside the calls.

    python bench/s3_calls.py [--delay-ms 30] [--rounds 5] [--save]

An S3 server in this process (moto) answers each request after the delay, many at once. For each
verb it prints the calls, the calls times the delay, the wall time and their ratio, medians of the
rounds: a ratio below one is what runs side by side. Without a delay (`--delay-ms 0`) the wall time
is that of the server and of the program. With `--save` writes bench/results/s3_calls.json.
"""

import argparse
import json
import logging
import os
import statistics
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
from moto.server import ThreadedMotoServer

import omnigraph as og

RESULTS = Path(__file__).parent / "results" / "s3_calls.json"
BUCKET = "bench"
SCHEMA = """
node Person { name: String @key  age: I64? }
node Company { name: String @key }
edge Knows: Person -> Person { since: I64? }
"""
INSERT = "query q($n: String) { insert Person { name: $n, age: 1 } }"
WITH_EDGE = """
query q($n: String, $m: String) {
    insert Person { name: $n, age: 1 }
    insert Knows { from: $n, to: $m }
}
"""
COUNT = "query q() { match { $p: Person } return { count($p) as n } }"


class Delay(logging.Filter):
    """Counts the requests of the server and lets each wait. A filter takes no lock, so requests
    wait side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self.count = 0

    def filter(self, record: logging.LogRecord) -> bool:
        self.count += 1
        time.sleep(self.seconds)
        return False


def served() -> tuple[ThreadedMotoServer, Delay, dict[str, str]]:
    """A running server with a bucket."""
    log, delay = logging.getLogger("werkzeug"), Delay()
    log.setLevel(logging.INFO)
    log.addFilter(delay)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test1234"}
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", **keys)
    client.create_bucket(Bucket=BUCKET)
    options = {"aws_endpoint": endpoint, "allow_http": "true", "aws_region": "us-east-1", **keys}
    return server, delay, options


def verbs(graph: Any) -> list[tuple[str, Callable[[], object]]]:
    """What is measured, in an order in which each finds what it needs."""
    name, branch = uuid.uuid4().hex, f"b{uuid.uuid4().hex[:6]}"
    rows = [{"name": f"{name}-{n}", "age": n} for n in range(1_000)]
    both = {"n": f"{name}e", "m": f"{name}i"}
    return [
        ("insert", lambda: graph.mutate(INSERT, {"n": f"{name}i"})),
        ("insert with an edge", lambda: graph.mutate(WITH_EDGE, both)),
        ("load of 1,000", lambda: graph.load(rows, "append", type="Person", engine="local")),
        ("branch create", lambda: graph.branches.create(branch)),
        ("first insert on it", lambda: graph.mutate(INSERT, {"n": f"{name}b"}, branch=branch)),
        ("second insert on it", lambda: graph.mutate(INSERT, {"n": f"{name}c"}, branch=branch)),
        ("insert on main", lambda: graph.mutate(INSERT, {"n": f"{name}m"})),
        ("merge", lambda: graph.branches.merge(branch)),
        ("branch delete", lambda: graph.branches.delete(branch)),
        ("count", lambda: graph.query(COUNT)),
        ("count again", lambda: graph.query(COUNT)),
    ]


def run(delay_ms: float, rounds: int) -> dict[str, Any]:
    """Medians of each verb."""
    server, delay, options = served()
    seen: dict[str, list[tuple[int, float]]] = {}
    try:
        uri = f"s3://{BUCKET}/{uuid.uuid4().hex}.omni"
        with og.init(uri, SCHEMA, storage_options=options) as graph:
            for number in range(rounds + 1):
                for verb, call in verbs(graph):
                    delay.seconds, before = delay_ms / 1_000, delay.count
                    began = time.perf_counter()
                    call()
                    took = time.perf_counter() - began
                    delay.seconds = 0.0
                    if number:  # the first round is warm-up
                        seen.setdefault(verb, []).append((delay.count - before, 1_000 * took))
    finally:
        server.stop()
    lines = {}
    for verb, each in seen.items():
        calls = statistics.median(count for count, _ in each)
        wall_ms = statistics.median(ms for _, ms in each)
        lines[verb] = {
            "calls": calls,
            "calls x delay, ms": calls * delay_ms,
            "wall, ms": round(wall_ms),
            "wall / (calls x delay)": round(wall_ms / (calls * delay_ms), 2) if delay_ms else None,
        }
        print(f"{verb:22}", json.dumps(lines[verb]), flush=True)
    return lines


def main() -> None:
    """Run the bench."""
    options = argparse.ArgumentParser()
    options.add_argument("--delay-ms", type=float, default=30.0)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--save", action="store_true")
    chosen = options.parse_args()
    lines = run(chosen.delay_ms, chosen.rounds)
    if chosen.save:
        load = round(os.getloadavg()[0], 1)
        result = {"delay ms": chosen.delay_ms, "load average": load, "verbs": lines}
        RESULTS.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
