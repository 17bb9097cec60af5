"""How long a query takes from text to plan: parse, check and lower, cold and remembered.

    python bench/compile.py

Prints medians and writes bench/results/compile.json.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from omnigraph.catalog.accept import accept
from omnigraph.language.query.parser import parse_queries
from omnigraph.plan.check import check_query
from omnigraph.plan.compile import compile_query
from omnigraph.plan.lower import lower

ROOT = Path(__file__).parents[1]
SCHEMA = (ROOT / "examples" / "people" / "schema.pg").read_text("utf-8")
QUERY = """query colleagues($name: String, $since: Date?, $min: I32) {
  match {
    $me: Person { name: $name }
    $me worksAt $c
    $them worksAt $c
    $them.age >= $min and $them.name != $name or $them.role = "admin"
    not { $me $k:knows $them  $k.since > $since }
  }
  return { $c.name as company, count($them) as people, avg($them.age) as age }
  order { people desc, company } limit 20 }
"""


def micros(work: Callable[[], object], times: int) -> float:
    """The median time of one call, in microseconds."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return median(taken) * 1e6


def first_compile_ms() -> float:
    """In a new process, after imports: building the parsers and compiling one query."""
    code = (
        "import time; from omnigraph.catalog.accept import accept;"
        "from omnigraph.plan.compile import compile_query; from bench.compile import SCHEMA, QUERY;"
        "start = time.perf_counter(); compile_query(QUERY, accept(SCHEMA));"
        "print((time.perf_counter() - start) * 1e3)"
    )
    runs = [
        float(
            subprocess.run(
                [sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True
            ).stdout
        )
        for _ in range(3)
    ]
    return median(runs)


def main() -> None:
    catalog = accept(SCHEMA)
    (query,) = parse_queries(QUERY).queries
    typed = check_query(query, catalog, QUERY)
    numbers = iter(range(1_000_000))
    results = {
        "parse_us": micros(lambda: parse_queries(QUERY), 200),
        "check_us": micros(lambda: check_query(query, catalog, QUERY), 500),
        "lower_us": micros(lambda: lower(query, typed), 500),
        "compile_new_text_us": micros(
            lambda: compile_query(f"{QUERY}// {next(numbers)}", catalog), 200
        ),
        "compile_remembered_us": micros(lambda: compile_query(QUERY, catalog), 20_000),
        "accept_schema_us": micros(lambda: accept(SCHEMA), 50),
        "first_compile_of_a_process_ms": first_compile_ms(),
    }
    for name, value in results.items():
        print(f"{name:32} {value:10.1f}")
    target = ROOT / "bench" / "results" / "compile.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(results, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
