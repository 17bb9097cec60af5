"""Coverage-guided fuzzing of what tests/hostile_input.py damages at random, with atheris.

    uv run --group fuzz python -m tests.guided_input --kind query --seconds 600 [--keep]

Inputs that reach a branch of ours which none before it reached are kept and damaged further. Begun
from the right inputs of the kind and from its corpus. An answer that is neither a result nor an
error of ours ends the run with the input. `--keep` adds to the corpus what gave an answer that it
has no input for.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["omnigraph"], enable_loader_override=False):
    from tests import hostile_input

# One input is a process or a folder of files here, and the guide would see none of it.
NOT_GUIDED = ("cli", *hostile_input.ENDS_PROCESS)
INPUT_MAX = 4096


class Unanswered(Exception):
    """An input was answered by something that is no error of ours."""


def guided(name: str, seconds: int, *, keeps: bool) -> None:
    """Ask with guided inputs for so long; the process ends with it."""
    with tempfile.TemporaryDirectory() as folder:
        kind = hostile_input.Targets(Path(folder)).kinds()[name]
        begun = Path(folder) / "begun"
        begun.mkdir()
        known = [path.read_bytes() for each, path in hostile_input.corpus() if each == name]
        for number, data in enumerate((*kind.seeds, *known)):
            (begun / str(number)).write_bytes(data)
        signatures = {hostile_input.ask(kind, data).signature for data in known}
        most = len(signatures) + hostile_input.KEPT_MAX

        def one(data: bytes) -> None:
            answer = hostile_input.ask(kind, data)
            new = answer.signature not in signatures and len(signatures) < most
            signatures.add(answer.signature)
            if keeps and (new or answer.failed):
                hostile_input.keep(name, data)
            if answer.failed:
                raise Unanswered(f"{answer.signature}: {data!r}")

        limits = [f"-max_total_time={seconds}", f"-max_len={INPUT_MAX}", "-timeout=25"]
        atheris.Setup([sys.argv[0], *limits, f"-artifact_prefix={folder}/", str(begun)], one)
        atheris.Fuzz()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", required=True)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    if options.kind in NOT_GUIDED:
        parser.error(f"{options.kind} is not guided: each input is a process of its own")
    guided(options.kind, options.seconds, keeps=options.keep)


if __name__ == "__main__":
    main()
