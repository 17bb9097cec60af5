"""Faults put into the source on purpose: a campaign of random histories must find each of them.

    python -m tests.model.planted --steps 2000

Each fault is one replacement in a copy of the package, in which the campaign then runs.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Fault:
    """A replacement of one text in one module."""

    name: str
    module: str
    before: str
    after: str

    def occurrences(self) -> int:
        """How often the module holds the text; one is what a fault needs."""
        return (ROOT / "omnigraph" / self.module).read_text(encoding="utf-8").count(self.before)

    def put_into(self, root: Path) -> None:
        """Make the replacement in a copy of the project."""
        path = root / "omnigraph" / self.module
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(self.before, self.after), encoding="utf-8")


FAULTS = (
    Fault(
        "a cache key without the incarnation of its branch",
        "exec/memory/version.py",
        'return pin.table_key, pin.location, pin.branch or "", pin.fork',
        'return pin.table_key, pin.location, pin.branch or "", ""',
    ),
    Fault(
        "a mapped node table that follows a schema change by the names of its columns",
        "exec/memory/view.py",
        "if known.family is before.ids.family and has_columns_of(source, before):",
        "if known.family is before.ids.family:",
    ),
    Fault(
        "a file of a sibling branch that answers for another one of its lineage",
        "storage/derived/parsed_files.py",
        "parsed = self._parsed.get(file.digest)",
        "parsed = self._parsed.get(file.digest) or next(\n"
        "            (each for each in self._parsed.values() if isinstance(each, NodeFile)"
        " and kind == NODES and each.lineage & {file.digest, *file.facts['lineage']}), None)",
    ),
    Fault(
        "removed nodes that a mapped table still has",
        "exec/memory/filed_tables.py",
        "return number_arrays.union(numbers, patch.numbers[patch.row_ids == NO_ROW])"
        ".astype(np.int64)",
        "return numbers.astype(np.int64)",
    ),
    Fault(
        "a point lookup that ignores rows written since its file",
        "exec/read/point_lookup.py",
        "if not nodes.is_as_filed(number):",
        "if not nodes.is_as_filed(number) and number % 2:",
    ),
    Fault(
        "adjacency that keeps the old list of a node whose edges changed twice",
        "exec/memory/list_patch.py",
        "merged[own[~is_new]] = theirs[~is_new]",
        "merged[own[~is_new]] = mine[own[~is_new]]",
    ),
    Fault(
        "a delete that cascades along one end of its edges",
        "exec/mutate/staging.py",
        "for end in ends:\n            self._remove(",
        "for end in list(ends)[:1]:\n            self._remove(",
    ),
    Fault(
        "an upsert that leaves fragments whose rows are all replaced",
        "storage/lance/staging.py",
        "return _in_home(pin, left), tuple(gone)",
        "return _in_home(pin, left), ()",
    ),
    Fault(
        "a merge that does not see edges to nodes the target removed",
        "exec/merge/crosscheck.py",
        'return pa.concat_arrays([_ids(nodes.removed(["id"])), _ids(nodes.dropped(["id"]))])',
        'return _ids(nodes.removed(["id"]))',
    ),
    Fault(
        "a comparison of versions that is not turned around on the way down",
        "storage/lance/delta.py",
        "return reversed_(touched) if self.is_down else touched",
        "return touched",
    ),
)


def steps_to_find(fault: Fault, *, steps: int, workers: int, first_seed: int) -> int | None:
    """The steps a campaign takes to find a fault, or None if it does not within a bound."""
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        copied = Path(folder)
        for part in ("omnigraph", "tests"):
            ignored = shutil.ignore_patterns("__pycache__", ".build")
            shutil.copytree(ROOT / part, copied / part, ignore=ignored)
        fault.put_into(copied)
        command = [sys.executable, "-m", "tests.model.campaign", "--failures", "1"]
        command += ["--steps", str(steps), "--workers", str(workers), "--no-shrink"]
        command += ["--first-seed", str(first_seed), "--out", str(copied / "out")]
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=copied, env=env, capture_output=True, text=True)
        taken = re.findall(r"^(\d+) steps", done.stdout, re.M)
        if done.returncode == 0 or not taken:
            return None
        return int(taken[-1])


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.model.planted", description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--only", default="", help="faults whose names contain this")
    given = parser.parse_args()
    missed = 0
    for fault in (each for each in FAULTS if given.only in each.name):
        taken = steps_to_find(
            fault, steps=given.steps, workers=given.workers, first_seed=given.first_seed
        )
        missed += taken is None
        print(f"{fault.name}: {'missed' if taken is None else f'{taken} steps'}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
