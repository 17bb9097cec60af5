"""Class-data sharing (CDS) archive: Spark's classes, mapped by a JVM instead of loaded.

The first session of a Java and a set of jars writes the archive when its JVM ends; later ones start
from it in about half the time.

Invariant: an archive fits only the Java and the jars it was made with, and its name says which. A
JVM ignores an archive that it cannot use.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from omnigraph import environment
from omnigraph.pipeline.java import Java
from omnigraph.user_cache import cache_folder

# A JVM that cannot use an archive logs a warning and goes on without: the log is noise.
_QUIET = ("-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr")


def archive_options(
    java: Java, jars: Path, env: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """JVM options: use the archive, or write one at exit."""
    if environment.CLASS_ARCHIVE.read(env) == "off" or not jars.is_dir():
        return ()
    folder = cache_folder(env) / "classes"
    archive = folder / f"{_key(java, jars)}.jsa"
    if " " in str(archive):
        return ()  # Spark would cut the option in two
    if archive.is_file():
        return (*_QUIET, f"-XX:SharedArchiveFile={archive}")
    folder.mkdir(parents=True, exist_ok=True)
    return (*_QUIET, f"-XX:ArchiveClassesAtExit={archive}")


def _key(java: Java, jars: Path) -> str:
    release = java.home / "release"
    facts = [str(java.home), str(java.major), _facts(release), str(jars)]
    facts += sorted(f"{jar.name} {_facts(jar)}" for jar in jars.glob("*.jar"))
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:24]


def _facts(file: Path) -> str:
    try:
        stat = file.stat()
    except OSError:
        return ""
    return f"{stat.st_size} {int(stat.st_mtime)}"
