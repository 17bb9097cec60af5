"""Memory figures of benches are those of the process that reports them."""

import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parents[2] / "bench"
PARENT = """
import subprocess, sys
held = bytearray(300 << 20)
held[:: 4096] = b"x" * len(held[:: 4096])
print(subprocess.run([sys.executable, "-c", sys.argv[1]], capture_output=True, text=True).stdout)
"""
CHILD = f"""
import sys
sys.path.insert(0, {str(BENCH)!r})
import own_memory
print(own_memory.figures())
"""


def test_a_child_does_not_report_the_memory_of_its_parent() -> None:
    run = [sys.executable, "-c", PARENT, CHILD]
    told = subprocess.run(run, check=True, capture_output=True, text=True).stdout
    figures = eval(told)
    assert 1 < figures["anonymous_mib"] <= figures["peak_mib"] < 100


def test_no_bench_reads_a_figure_that_children_inherit() -> None:
    texts = {path.name: path.read_text("utf-8") for path in BENCH.glob("*.py")}
    assert [n for n, text in texts.items() if ".ru_maxrss" in text] == []
