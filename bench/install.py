"""Size and start of an installation: the core beside everything.

    python bench/install.py [FOLDER]

Makes a virtual environment for each set of extras from this checkout, with uv, and measures what it
weighs and how long a first `import omnigraph` and a first open take in it: processor time of whole
processes, the best of several, files in the cache of the system.
"""

import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SETS = {"core": ".", "all": ".[all]"}
ROUNDS = 5

NOTHING = "pass"
IMPORT = "import omnigraph"
OPEN = "import omnigraph as og; og.open({graph!r}, read_only=True).close()"
MAKE = "import omnigraph as og; og.init({graph!r}, 'node A {{ name: String @key }}').close()"


def find_uv() -> str:
    """uv as `make setup` left it, or as it is on the path."""
    own = ROOT / ".build" / "uv" / "bin" / "uv"
    found = str(own) if own.exists() else shutil.which("uv")
    if found is None:
        sys.exit("uv is not there: run make setup, or put it on the path")
    return found


def installed(uv: str, folder: Path, requirement: str) -> Path:
    """The Python of a new environment that holds a requirement."""
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(folder)], check=True)
    python = folder / "bin" / "python"
    command = [uv, "pip", "install", "--quiet", "--python", str(python), requirement]
    subprocess.run(command, check=True, cwd=ROOT)
    return python


def megabytes(folder: Path) -> float:
    """What the packages of an environment weigh on disk."""
    files = (file for file in folder.rglob("site-packages/**/*") if file.is_file())
    return sum(file.stat().st_size for file in files if "__pycache__" not in file.parts) / 1e6


def packages(uv: str, python: Path) -> int:
    """How many distributions an environment holds."""
    command = [uv, "pip", "list", "--quiet", "--python", str(python), "--format", "freeze"]
    return len(subprocess.run(command, check=True, capture_output=True).stdout.split())


def seconds(python: Path, code: str, folder: Path) -> float:
    """Processor seconds of the quickest of some processes; the first writes its bytecode."""
    taken = []
    for _ in range(ROUNDS + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([str(python), "-c", code], check=True, cwd=folder)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(taken[1:])


def main() -> None:
    """Print the table."""
    uv = find_uv()
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp())
    print("| installed | packages | MB | Python alone, s | `import omnigraph`, s | first open, s |")
    print("|---|--:|--:|--:|--:|--:|")
    for name, requirement in SETS.items():
        python = installed(uv, folder / name, requirement)
        graph = str(folder / f"{name}.omni")
        subprocess.run([str(python), "-c", MAKE.format(graph=graph)], check=True, cwd=folder)
        times = [
            seconds(python, code.format(graph=graph), folder) for code in (NOTHING, IMPORT, OPEN)
        ]
        shown = " | ".join(f"{time:.2f}" for time in times)
        weight = f"{packages(uv, python)} | {megabytes(folder / name):.0f}"
        print(f"| {name} | {weight} | {shown} |", flush=True)
    if len(sys.argv) == 1:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
