"""Packaging: what the wheel holds, how it installs where nothing is, what the image copies."""

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
SUPPORTED = ("3.11", "3.12", "3.13")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, as the build backend makes it of the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        return Parser().parsestr(archive.read(name).decode())


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    files = (p for p in (ROOT / "omnigraph").rglob("*") if p.is_file())
    ours = {p.relative_to(ROOT).as_posix() for p in files if "__pycache__" not in p.parts}
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert packed == ours


def test_the_wheel_says_what_it_is(metadata: Message) -> None:
    assert (metadata["Name"], metadata["Requires-Python"]) == ("omnigraph", ">=3.11")
    assert set(metadata.get_all("Provides-Extra", [])) == set(PROJECT["optional-dependencies"])
    assert (metadata["Summary"], metadata["License-Expression"]) == (PROJECT["description"], "MIT")
    assert metadata["License-File"] == "LICENSE"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload() == (ROOT / "README.md").read_text("utf-8")
    classifiers = metadata.get_all("Classifier", [])
    assert "Operating System :: POSIX :: Linux" in classifiers
    for version in SUPPORTED:
        assert f"Programming Language :: Python :: {version}" in classifiers


def test_every_program_of_the_wheel_is_there() -> None:
    for target in PROJECT["scripts"].values():
        module, _, name = target.partition(":")
        assert callable(getattr(importlib.import_module(module), name))


def test_the_image_copies_what_is_there_and_starts_a_program_of_the_wheel() -> None:
    text = (ROOT / "Dockerfile").read_text("utf-8")
    ignored = (ROOT / ".dockerignore").read_text("utf-8").split()
    for words in re.findall(r"^COPY (?!--)(.+)$", text, re.M):
        for source in words.split()[:-1]:
            assert (ROOT / source).exists()
            assert any(fnmatch(source, rule[1:]) for rule in ignored if rule.startswith("!"))
    (entry,) = re.findall(r"^ENTRYPOINT (.+)$", text, re.M)
    assert Path(json.loads(entry)[0]).name in PROJECT["scripts"]
    assert re.search(r"^USER [1-9]\d*$", text, re.M), "the image does not run as root"


def interpreters() -> dict[str, str]:
    """This interpreter, and one of each other supported version that the machine has."""
    found = {f"{sys.version_info.major}.{sys.version_info.minor}": sys.executable}
    pyenv = Path.home() / ".pyenv" / "versions"
    for version in SUPPORTED:
        ours = [shutil.which(f"python{version}"), *pyenv.glob(f"{version}.*/bin/python")]
        for path in filter(None, ours):
            # A name on the path may be a shim that leads nowhere.
            if (
                subprocess.run([path, "-c", "import ensurepip"], capture_output=True).returncode
                == 0
            ):
                found.setdefault(version, str(path))
    return found


@pytest.mark.slow
def test_the_wheel_works_in_a_clean_environment_of_every_python(
    wheel: Path, tmp_path: Path
) -> None:
    for version, interpreter in interpreters().items():
        (tmp_path / version).mkdir()
        use_wheel(wheel, interpreter, tmp_path / version)
        shutil.rmtree(tmp_path / version)


def use_wheel(wheel: Path, interpreter: str, tmp_path: Path) -> None:
    """Nothing but what the wheel asks for is installed, and the sources are out of sight."""
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    programs = tmp_path / "env" / "bin"

    def do(*command: str | Path) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=clean, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    do(interpreter, "-m", "venv", tmp_path / "env")
    do(programs / "pip", "install", "--quiet", wheel)
    omnigraph = programs / "omnigraph"
    (tmp_path / "s.pg").write_text("node Person { name: String @key }\n")
    (tmp_path / "p.csv").write_text("name\nAda\nBob\n")
    do(omnigraph, "init", "--schema", "s.pg", "g.omni")
    do(omnigraph, "load", "g.omni", "--data", "p.csv", "--node", "Person", "--mode", "merge")
    ask = "query q() { match { $p: Person } return { $p.name } }"
    assert do(omnigraph, "query", "-e", ask, "g.omni", "--format", "csv") == "p.name\nAda\nBob\n"
    assert do(programs / "python", "-m", "omnigraph", "--version").startswith("omnigraph ")
    assert "omnigraph branch list graph.omni" in do(omnigraph, "demo", "demo", "--edges", "2000")
