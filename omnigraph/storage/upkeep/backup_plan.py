"""Plan of a backup: one moment of a graph, and the files that everything kept at it is made of.

    heads of all branches, twice ─▶ lines and their last versions ─▶ listings ─▶ CopyPlan

Invariant: the heads of all branches are those of one moment: a second look found them the same. A
line (a dataset, or one of its Lance branches) is copied up to the last version that a chosen head
or its history names; later versions, forks that no branch names, sidecars, staged files and locks
are not. All other files of a line are taken as they are listed after the versions were chosen.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from omnigraph.errors import GraphMoved, NotFound, StorageFailed
from omnigraph.storage.lance.datasets import Datasets
from omnigraph.storage.manifest.feed_claims import FOLDER as CONSUMERS
from omnigraph.storage.manifest.manifest import Manifest
from omnigraph.storage.manifest.queries import Queries
from omnigraph.storage.manifest.state import LOCATION as MANIFEST
from omnigraph.storage.manifest.state import State
from omnigraph.storage.names import MAIN, decode, encode, owner_of
from omnigraph.storage.objects import Listed, Objects
from omnigraph.storage.protocol.audit import LOCATION as AUDIT
from omnigraph.storage.protocol.sidecars import FOLDER as SIDECARS
from omnigraph.storage.records import CommitId, TablePin

Line = tuple[str, str | None]
"""A dataset, or one of its Lance branches: its folder, and the branch."""

_TRIES = 20
_SCHEMA_FILES = ("_schema.pg", "_schema.ir.json")


@dataclass(frozen=True, slots=True)
class VersionFile:
    """The file of one version of a line. That of a Lance branch names its parents' files."""

    path: str
    size: int
    line: Line
    version: int

    @property
    def names_bases(self) -> bool:
        """Whether it may hold base paths."""
        return self.line[1] is not None


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """Everything that a copy of one moment is made of."""

    heads: dict[str, tuple[CommitId, int]]  # by branch: the commit and the manifest version
    genesis: CommitId
    data: tuple[Listed, ...]  # named by their content or at random: never rewritten
    versions: dict[Line, tuple[VersionFile, ...]]  # the oldest first
    refs: tuple[str, ...]  # branches and tags, which name sizes of version files
    small: tuple[str, ...]  # the schema and feed consumers, which may change


class BackupPlanner:
    """Plans copies of one graph."""

    def __init__(
        self, datasets: Datasets, manifest: Manifest, queries: Queries, objects: Objects
    ) -> None:
        self._datasets = datasets
        self._manifest = manifest
        self._queries = queries
        self._objects = objects

    def plan(self) -> CopyPlan:
        """The plan of this moment. Of a graph that was moved or copied as files the branches
        cannot be read: everything that is there belongs to its plan."""
        try:
            states = self._moment()
        except GraphMoved:
            states = None
        lines = self._every_line() if states is None else self._lines(states.values())
        # The schema's files come first: one that changes later is kept beside the new one.
        small = [path for path in _SCHEMA_FILES if self._objects.has(path)]
        small += [*self._objects.list("_schemas"), *self._objects.list(CONSUMERS)]
        if states is None:
            small += self._objects.list(SIDECARS)  # the first open of the copy settles them
        data: list[Listed] = []
        versions: dict[Line, list[VersionFile]] = {line: [] for line in lines}
        refs: list[str] = []
        for folder in sorted({folder for folder, _ in lines}):
            for file in self._objects.listed(folder):
                line, rest = _of_line(folder, file.path)
                if rest.startswith("_refs/"):
                    if _names_a_line(folder, rest, lines):
                        refs.append(file.path)
                elif line in lines and rest.startswith("_versions/"):
                    number = _version(rest)
                    if number is not None and number <= lines[line]:
                        each = VersionFile(file.path, file.size, line, number)
                        versions[line].append(each)
                elif line in lines:
                    data.append(file)
        if states is not None:
            self._require_complete(lines, versions)
        main = self._manifest.state(MAIN)
        shown = {MAIN: main} if states is None else states
        return CopyPlan(
            {branch: (state.head, state.version) for branch, state in shown.items()},
            self._genesis(main),
            tuple(data),
            {line: tuple(sorted(of, key=lambda v: v.version)) for line, of in versions.items()},
            tuple(refs),
            tuple(small),
        )

    def _every_line(self) -> dict[Line, int]:
        """Every line that is there, with all its versions."""
        tables = (
            f"{kind}/{name}" for kind in ("nodes", "edges") for name in self._objects.folders(kind)
        )
        lines: dict[Line, int] = {}
        for folder in (MANIFEST, AUDIT, *tables):
            branches = map(decode, self._objects.folders(f"{folder}/tree"))
            lines |= {(folder, branch): 2**64 for branch in (None, *branches)}
        return lines

    def _moment(self) -> dict[str, State]:
        """The states of all branches at one moment."""
        before = self._states()
        for _ in range(_TRIES):
            now = self._states()
            if _versions_of(now) == _versions_of(before):
                return now
            before = now
        raise StorageFailed(
            "looked for one moment of all branches", "they are written to all the time; repeat it"
        )

    def _states(self) -> dict[str, State]:
        states = {MAIN: self._manifest.state(MAIN)}
        for name in sorted(map(decode, self._datasets.refs(MANIFEST))):
            try:
                states[name] = self._manifest.state(name)
            except NotFound as gone:
                if gone.kind != "branch":
                    raise  # it was deleted meanwhile, which the second look sees
        return states

    def _lines(self, states: Iterable[State]) -> dict[Line, int]:
        """Every line that a branch has or had, and the last version of it that is published."""
        lines: dict[Line, int] = {(AUDIT, None): self._datasets.head(AUDIT, None)}
        identities: dict[Line, str | None] = {}
        for state in states:
            lines[MANIFEST, owner_of(state.branch)] = state.version
            for pin in self._queries.table_history(state).all:
                line = pin.location, pin.branch
                if line not in identities:
                    identities[line] = self._identity(pin)
                if pin.branch is None or identities[line] == pin.fork:
                    lines[line] = max(lines.get(line, 0), pin.version)
        return lines

    def _identity(self, pin: TablePin) -> str | None:
        ref = None if pin.branch is None else self._datasets.ref(pin.location, pin.branch)
        return None if ref is None else ref.identity

    def _genesis(self, state: State) -> CommitId:
        return next(c.id for c in self._queries.commits(state) if c.parent is None)

    def _require_complete(
        self, lines: dict[Line, int], versions: dict[Line, list[VersionFile]]
    ) -> None:
        """Pass unless something was removed between the look at a line and its listing. The files
        of a table that was dropped may be gone for good."""
        for line, last in lines.items():
            if line[0] == MANIFEST and all(each.version != last for each in versions[line]):
                raise Vanished(f"version {last} of {line[0]} on {line[1] or MAIN}")


class Vanished(Exception):
    """A file of the plan was removed meanwhile: a branch was deleted, or a table's past."""


def _of_line(folder: str, path: str) -> tuple[Line, str]:
    """The line that a file below a dataset belongs to, and its path there."""
    rest = path.removeprefix(f"{folder}/")
    if not rest.startswith("tree/"):
        return (folder, None), rest
    _, segment, inside = rest.split("/", 2)
    return (folder, decode(segment)), inside


def _names_a_line(folder: str, rest: str, lines: dict[Line, int]) -> bool:
    """Whether a ref is that of a line that is copied. Tags keep versions of such lines alone."""
    name = PurePosixPath(rest)
    return name.parent.name == "tags" or (folder, decode(name.stem)) in lines


def _version(rest: str) -> int | None:
    """The number of a version's file; None for what is no version."""
    stem, _, ending = rest.removeprefix("_versions/").partition(".")
    return 2**64 - 1 - int(stem) if ending == "manifest" and stem.isdigit() else None


def _versions_of(states: dict[str, State]) -> dict[str, tuple[str | None, int]]:
    return {branch: (state.identity, state.version) for branch, state in states.items()}


def folder_of(line: Line) -> str:
    """The folder of a line below the root."""
    location, branch = line
    return location if branch is None else f"{location}/tree/{encode(branch)}"


def planned_paths(plan: CopyPlan) -> Iterator[str]:
    """Every path that a copy has, but for those that it makes itself."""
    yield from (file.path for file in plan.data)
    for line, versions in plan.versions.items():
        yield from (each.path for each in versions)
        yield f"{folder_of(line)}/_versions/{HINT}"
    yield from plan.refs
    yield from plan.small


HINT = "latest_version_hint.json"
