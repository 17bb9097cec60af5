"""Campaign of random histories: many seeds in several processes, failures shrunk to scripts.

    python -m tests.model.campaign --minutes 60 --workers 2 --out failures/

A worker that crashes (a signal, a lost process) counts as a failure of the seed that it ran.
"""

import argparse
import multiprocessing
import os
import queue
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.model.history import Setting, run_history, shrunk

STEPS = 45
"""Steps of a seed: beyond some forty, few histories find what shorter ones do not."""


@dataclass
class Tally:
    """Figures of a campaign."""

    seeds: int = 0
    steps: int = 0
    scripts: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.steps} steps over {self.seeds} seeds, {len(self.scripts)} failures"


def run_campaign(
    first_seed: int,
    *,
    workers: int = 2,
    minutes: float = 60.0,
    steps_max: int = sys.maxsize,
    failures_max: int = sys.maxsize,
    shrink: bool = True,
    report: Any = None,
) -> Tally:
    """Run seeds from the first one on until time, steps or failures reach a bound."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    seeds = context.Queue()
    ends = time.monotonic() + minutes * 60
    tally, running = Tally(), dict[int, tuple[Any, int]]()
    next_seed = first_seed

    def start() -> None:
        nonlocal next_seed
        process = context.Process(target=_work, args=(seeds, results, shrink))
        process.start()
        assert process.pid is not None
        running[process.pid] = (process, next_seed)
        seeds.put(next_seed)
        next_seed += 1

    def is_over() -> bool:
        is_bound = tally.steps >= steps_max or len(tally.scripts) >= failures_max
        return is_bound or time.monotonic() > ends

    for _ in range(workers):
        start()
    while running:
        try:
            pid, seed, taken, script = results.get(timeout=5)
        except queue.Empty:
            for pid, (process, seed) in list(running.items()):
                if process.exitcode is not None:
                    del running[pid]
                    tally.scripts.append(f"# seed {seed}: the process ended: {process.exitcode}\n")
                    if not is_over():
                        start()
            continue
        tally.seeds += 1
        tally.steps += taken
        if script is not None:
            tally.scripts.append(script)
        if report is not None:
            report(seed, tally, script)
        process, _ = running[pid]
        if is_over():
            del running[pid]
            seeds.put(None)
        else:
            running[pid] = (process, next_seed)
            seeds.put(next_seed)
            next_seed += 1
    return tally


def _work(seeds: Any, results: Any, shrink: bool) -> None:
    while (seed := seeds.get()) is not None:
        taken, failure = run_history(Setting.drawn(seed), STEPS)
        if failure is not None and shrink:
            failure = shrunk(failure)
        results.put((os.getpid(), seed, taken, failure and failure.script()))


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.model.campaign", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=sys.maxsize, help="stop after this many")
    parser.add_argument("--failures", type=int, default=sys.maxsize, help="stop after this many")
    parser.add_argument("--out", type=Path, default=Path(".build/model"), help="scripts go here")
    parser.add_argument("--no-shrink", action="store_true", help="leave failures as long as found")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)

    def report(seed: int, tally: Tally, script: str | None) -> None:
        if script is not None:
            (given.out / f"seed_{seed}.py").write_text(script)
            print(f"seed {seed}: {given.out / f'seed_{seed}.py'}", flush=True)
        if tally.seeds % 10 == 0:
            print(tally, flush=True)

    tally = run_campaign(
        given.first_seed,
        workers=given.workers,
        minutes=given.minutes,
        steps_max=given.steps,
        failures_max=given.failures,
        shrink=not given.no_shrink,
        report=report,
    )
    print(tally)
    return 1 if tally.scripts else 0


if __name__ == "__main__":
    sys.exit(main())
